"""A reasoning graph as an indented tree (`hivemind graph show`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from hivemind.cli.text import card_line

if TYPE_CHECKING:
    from hivemind.reasoning import ReasoningGraph, ReasoningNode

__all__ = ["ranges", "tree_lines"]

_DEEPEST = 16  # levels that are indented; a chain may have 100,000


def tree_lines(graph: ReasoningGraph, *, every: bool) -> Iterator[str]:
    """One line a node, below its oldest parent. `every` shows what is folded below its summary, and what is flushed.

    Without it a flushed node is left out and what hangs below it stands in its place, as in the seed's outline.
    """
    members = _members(graph) if every else {}
    seen: set[int] = set()
    if graph.root is not None:
        yield from _below(graph, graph.root.node_id, members, seen, every)
    tops = [node for node in graph.nodes.values() if not graph.parent_ids(node.node_id)]
    loose = [node for node in tops if node.node_id not in seen and (every or node.active is not False)]
    for at, node in enumerate(loose):
        if at == 0:
            yield "Hanging on nothing:"
        yield from _below(graph, node.node_id, members, seen, every)


def _members(graph: ReasoningGraph) -> dict[int, list[int]]:
    """What stands below a summary, and below what is folded into it, as it was before it was folded."""
    found: dict[int, list[int]] = {}
    into = graph.folded_into
    inside = {edge.dst: edge.src for edge in graph.drawn if edge.dst in into and into.get(edge.src) == into[edge.dst]}
    for member, summary in sorted(into.items()):
        found.setdefault(inside.get(member, summary), []).append(member)
    return found


def _below(
    graph: ReasoningGraph, top: int, members: dict[int, list[int]], seen: set[int], every: bool
) -> Iterator[str]:
    todo = [(top, 0)]
    seen.add(top)
    while todo:
        number, depth = todo.pop()
        node = graph.nodes[number]
        if every or node.active is True:
            yield "  " * depth + _line(graph, node)
            depth = min(depth + 1, _DEEPEST)
        below = [one for one in {*graph.child_ids(number), *members.get(number, ())} if one not in seen]
        below.sort(key=lambda one: _moment(graph, one, members))
        seen.update(below)
        todo.extend((one, depth) for one in reversed(below))


def _moment(graph: ReasoningGraph, number: int, members: dict[int, list[int]]) -> tuple[float, int]:
    """What nodes are ordered by: the first turn that a node, or one right below it, stands for; then the id.

    So a summary stands where what it stands for stood, and what nobody has worked on comes last.
    """
    near = (number, *graph.child_ids(number), *members.get(number, ()))
    return min((turn for one in near for turn in graph.nodes[one].related_turn_ids[:1]), default=math.inf), number


def _line(graph: ReasoningGraph, node: ReasoningNode) -> str:
    return card_line(node.node_id, node.kind.value, _marks(graph, node), node.title, node.text)


def _marks(graph: ReasoningGraph, node: ReasoningNode) -> Iterator[str]:
    """What is not as usual: open, active, shared, below one parent and said of nothing."""
    if node.status != "open":
        yield node.status
    if node.active is not True:
        yield "folded" if node.active is False else "flushed"
    if node.lane != "shared":
        yield node.lane
    if node.pinned:
        yield "pinned"
    yield from node.tags
    if node.active is True and node.meta.get("folded"):
        yield f"stands for {ranges(node.meta['folded'])}"
    parents = sorted(graph.parent_ids(node.node_id))
    if len(parents) > 1:
        yield f"below {ranges(parents)}"
    for link in graph.links_from(node.node_id):
        yield f"{link.relation} {link.dst}"


def ranges(numbers: Iterable[int]) -> str:
    """`3–5 9`: numbers in their order, runs of three and more by their ends."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs)
