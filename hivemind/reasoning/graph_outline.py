"""The graph as an outline that a person or a mind reads: active nodes only."""

from __future__ import annotations

from hivemind.reasoning.node import SHARED, ReasoningNode
from hivemind.reasoning.structure import Structure

__all__ = ["line_for", "outline"]

_MAX_INDENT = 16


def outline(graph: Structure, width: int) -> str:
    """One line per active node, children below their oldest parent, indented by two spaces a level.

    Indents end at 16 levels. What is flushed or folded is not shown; what hangs below a flushed node is shown where that
    would be. Nodes that hang on nothing come last. Line breaks in a thought become spaces, so that no thought can pass for
    a line.
    """
    seen: set[int] = set()
    lines = [] if graph.root is None else _below(graph, graph.root.node_id, seen, width)
    rest: list[str] = []
    for number in sorted(graph.nodes):
        if number not in seen and number not in graph.folded_into and not graph.parent_ids(number):
            rest += _below(graph, number, seen, width)
    if rest:
        lines += ["Hanging on nothing:", *rest]
    return "\n".join(lines) or "(empty)"


def _below(graph: Structure, start: int, seen: set[int], width: int) -> list[str]:
    lines = []
    seen.add(start)
    todo = [(start, 0)]
    while todo:
        number, depth = todo.pop()
        node = graph.nodes[number]
        if node.active is True:
            above = graph.parent_ids(number)
            extra = f" (below {', '.join(map(str, sorted(above)))})" if len(above) > 1 else ""
            lines.append(f"{'  ' * depth}{line_for(node, width)}{extra}")
            depth = min(depth + 1, _MAX_INDENT)
        for child in sorted(graph.child_ids(number), reverse=True):
            if child not in seen:
                seen.add(child)
                todo.append((child, depth))
    return lines


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
        return f"{node.node_id} [{node.kind.value}] {text}"
    marks = [node.status] if node.status != "open" else []
    marks += ["pinned"] if node.pinned else []
    marks += [node.lane] if node.lane != SHARED else []
    return f"{node.node_id} [{node.kind.value}] {', '.join(marks)}: {text}"
