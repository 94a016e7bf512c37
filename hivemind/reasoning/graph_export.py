"""The graph for other programs: Mermaid, Graphviz DOT (spec 4, *Queries*)."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

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


class _Arrow(NamedTuple):
    src: int
    dst: int
    label: str
    dashed: bool


def _arrows(graph: ReasoningGraph, every: bool) -> Iterator[_Arrow]:
    shown = {node.node_id for node in graph.drawn_nodes(every=every)}
    for edge in graph.edges:
        if edge.dst in shown:
            yield _Arrow(edge.src, edge.dst, _clean(edge.relation), dashed=False)
    for _, link in sorted(graph.links.items()):
        if link.src in shown and link.dst in shown:
            yield _Arrow(link.src, link.dst, _clean(link.relation), dashed=True)
    if every:
        for member, summary in sorted(graph.folded_into.items()):
            yield _Arrow(summary, member, "stands for", dashed=True)


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
    for arrow in _arrows(graph, every):
        line = "-.->" if arrow.dashed else "-->"
        word = "".join(char for char in arrow.label if char.isalnum() or char in " -_")
        lines.append(f"  n{arrow.src} {line}|{word or 'link'}| n{arrow.dst}")
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
    for arrow in _arrows(graph, every):
        style = ", style=dashed" if arrow.dashed else ""
        lines.append(f"  {arrow.src} -> {arrow.dst} [label={_quoted(arrow.label)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"
