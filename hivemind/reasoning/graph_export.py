"""The graph for other programs: Mermaid, Graphviz DOT (spec 4, *Queries*)."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import NodeKind, ReasoningNode

__all__ = ["to_dot", "to_mermaid"]

_LABEL = 60
_COLOURS = {
    NodeKind.TASK: "#d7e3fc",
    NodeKind.SUBTASK: "#e8f0fe",
    NodeKind.EVIDENCE: "#e3f4e1",
    NodeKind.SUMMARY: "#fff3cd",
    NodeKind.DECISION: "#fde2e4",
}
_OTHER_COLOUR = "#f4f4f4"


def _arrows(graph: ReasoningGraph, every: bool) -> Iterator[tuple[int, int, str, bool]]:
    shown = {node.node_id for node in graph.drawn_nodes(every=every)}
    for src, dst, relation, dashed in graph.arrows():
        if src in shown and dst in shown:
            yield src, dst, _clean(relation), dashed


def _clean(text: str) -> str:
    """The text on one line, without what could steer whoever shows it, or what can't be written as UTF-8."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def _label(node: ReasoningNode) -> str:
    text = _clean(node.heading)
    return f"{node.node_id} {node.kind.value}: {text if len(text) <= _LABEL else text[: _LABEL - 1] + '…'}"


def to_mermaid(graph: ReasoningGraph, *, every: bool = False) -> str:
    """A Mermaid flowchart. `every` draws folded nodes too, and loose ends of flushed ones."""
    lines = ["flowchart TD"]
    for node in graph.drawn_nodes(every=every):
        label = escape(_label(node), quote=True).replace("#", "#35;").replace("&#35;x27;", "'").replace("`", "'")
        lines.append(f'  n{node.node_id}["{label}"]' + ("" if node.active is True else ":::gone"))
    for src, dst, label, dashed in _arrows(graph, every):
        word = "".join(char for char in label if char.isalnum() or char in " -_")
        lines.append(f"  n{src} {'-.->' if dashed else '-->'}|{word or 'link'}| n{dst}")
    lines.append("  classDef gone stroke-dasharray: 4 4,color:#888")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def to_dot(graph: ReasoningGraph, *, every: bool = False) -> str:
    """A Graphviz digraph. `every` as in `to_mermaid`."""
    lines = ["digraph reasoning {", '  node [shape=box, style="rounded,filled", fontname="sans-serif"];']
    for node in graph.drawn_nodes(every=every):
        style = "" if node.active is True else ', style="rounded,dashed", fontcolor="#888888"'
        colour = _COLOURS.get(node.kind, _OTHER_COLOUR)
        lines.append(f'  {node.node_id} [label={_quoted(_label(node))}, fillcolor="{colour}"{style}];')
    for src, dst, label, dashed in _arrows(graph, every):
        lines.append(f"  {src} -> {dst} [label={_quoted(label)}{', style=dashed' if dashed else ''}];")
    return "\n".join([*lines, "}"]) + "\n"
