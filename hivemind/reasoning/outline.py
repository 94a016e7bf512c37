"""The graph as an outline that a person or a mind reads: active nodes only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hivemind.reasoning.node import SHARED, ReasoningNode

if TYPE_CHECKING:
    from hivemind.reasoning.readable import ReadableGraph

__all__ = ["MAX_INDENT", "line_for", "outline"]

MAX_INDENT = 16


def outline(graph: ReadableGraph, loose: Iterable[int], width: int) -> str:
    """One line per active node, children below their oldest parent, indented by two spaces a level.

    Indents end at MAX_INDENT levels. What is flushed or folded is not shown; what hangs below a flushed node is shown
    where that would be. Nodes that hang on nothing come last. Line breaks in a thought become spaces, so that no
    thought can pass for a line.
    """
    lines: list[str] = []
    seen: set[int] = set()
    if graph.root is not None:
        _below(graph, graph.root.node_id, lines, seen, width)
    hanging = [number for number in sorted(loose) if graph.nodes[number].active is not False and number not in seen]
    rest: list[str] = []
    for number in hanging:
        _below(graph, number, rest, seen, width)
    if rest:
        lines += ["Hanging on nothing:", *rest]
    return "\n".join(lines) or "(empty)"


def _below(graph: ReadableGraph, start: int, lines: list[str], seen: set[int], width: int) -> None:
    out, into, nodes = graph.structure.out, graph.structure.into, graph.nodes
    pads = ["  " * depth for depth in range(MAX_INDENT + 1)]
    seen.add(start)
    todo = [(start, 0)]
    while todo:
        number, depth = todo.pop()
        node = nodes[number]
        if node.active is True:
            above = into.get(number)
            extra = "" if above is None or len(above) < 2 else f" (below {', '.join(map(str, sorted(above)))})"
            lines.append(f"{pads[depth]}{line_for(node, width)}{extra}")
            depth = min(depth + 1, MAX_INDENT)
        children = out.get(number)
        if children:
            for child in sorted(children, reverse=True) if len(children) > 1 else children:
                if child not in seen:
                    seen.add(child)
                    todo.append((child, depth))


def line_for(node: ReasoningNode, width: int) -> str:
    """`7 [evidence] closed, pinned, agent/a: Title: thought …` on one line."""
    thought = node.thought
    text = thought if isinstance(thought, str) else " ".join([note.content for note in thought])
    if len(text) > width:
        text = f"{text[: width - 1]}…"
    if not text.isprintable():
        text = "".join([char if char.isprintable() else " " for char in " ".join(text.split())])
    if node.title:
        title = " ".join(node.title.split())
        text = f"{title}: {text}" if text and text != title else title
    if node.status == "open" and node.lane == SHARED and not node.pinned:
        return f"{node.node_id} [{node.kind._value_}] {text}"
    marks = [node.status] if node.status != "open" else []
    marks += ["pinned"] if node.pinned else []
    marks += [node.lane] if node.lane != SHARED else []
    return f"{node.node_id} [{node.kind._value_}] {', '.join(marks)}: {text}"
