"""What may be folded and flushed by rule, and in which order (spec 4, *recall*)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from hivemind.reasoning.node import FLUSHED, NodeKind, ReasoningNode
from hivemind.reasoning.rules import FRUITLESS, is_settled

if TYPE_CHECKING:
    from hivemind.reasoning.graph import ReasoningGraph

__all__ = ["goes_along", "runs", "unsupported", "useless"]

_SIBLINGS = 8
_SMALL = 4  # nodes of a unit that is folded together with others
_USELESS = frozenset({FRUITLESS, "rejected", "superseded"})


def goes_along(graph: ReasoningGraph, candidates: Collection[int]) -> set[int]:
    """The cards without turns that are folded with the finished step that they belong to, if that is a candidate.

    A question, hypothesis, test or decision that is still open stays, and keeps its step unfolded.
    """
    steps = (node for node in map(graph.nodes.__getitem__, candidates) if node.kind is NodeKind.SUBTASK and node.step)
    below = (node for step in steps for node in graph.subtree(step.node_id) if node.active is True and not node.pinned)
    return {node.node_id for node in below if not node.related_turn_ids and is_settled(node)}


def useless(graph: ReasoningGraph, candidates: Iterable[ReasoningNode]) -> list[ReasoningNode]:
    """What turned out useless: what led to nothing, was rejected or superseded, unless their step is still open."""
    return [node for node in candidates if node.status in _USELESS and not _is_at_work(graph, node)]


def _is_at_work(graph: ReasoningGraph, node: ReasoningNode) -> bool:
    above = (graph.nodes[number] for number in graph.structure.parents(node.node_id))
    return any(one.kind is NodeKind.SUBTASK and one.active is True and one.status == "open" for one in above)


def runs(graph: ReasoningGraph, candidates: Collection[int], *, mixed: bool) -> Iterator[list[list[int]]]:
    """What can be folded together, oldest first: each a run of units, of which each could be folded alone.

    A unit is a finished sub-trajectory: a candidate, with all that is active below it, if that are candidates too. A run
    is a large unit, or up to eight small ones: siblings that stand for about as many turns, or with `mixed` for any
    number. So summaries are folded with their like, and what is long ago was folded a few times and not at each turn.
    """
    units = _units(graph, candidates)
    kinds = [_kind(graph, unit, mixed) for unit in units]
    queues: dict[Hashable, deque[list[int]]] = defaultdict(deque)
    for unit, kind in zip(units, kinds, strict=True):
        queues[kind].append(unit)
    for unit, kind in zip(units, kinds, strict=True):
        queue = queues[kind]
        if queue and queue[0] is unit:
            yield [queue.popleft() for _ in range(min(_SIBLINGS, len(queue)))]


def _kind(graph: ReasoningGraph, unit: list[int], mixed: bool) -> Hashable:
    """Units of one kind go into one run: siblings of one size. A large one is of its own kind."""
    if len(unit) > _SMALL:
        return unit[0]
    parent = min(graph.structure.parents(unit[0]), default=0)
    return parent, 0 if mixed else _size(graph.nodes[unit[0]])


def _size(node: ReasoningNode) -> int:
    """How much a summary stands for, as a power of eight: 0 below eight episodes, 1 below 64, …"""
    episodes = len(node.related_turn_ids) // 2 if node.kind is NodeKind.SUMMARY else 0
    return (max(1, episodes).bit_length() - 1) // 3


def _units(graph: ReasoningGraph, candidates: Collection[int]) -> list[list[int]]:
    """The units, each with its first node in front; oldest first, by the first turn that they stand for."""
    finished = _finished(graph, candidates)
    used: set[int] = set()
    units: list[tuple[int, list[int]]] = []
    for number in sorted(candidates):
        unit = [number]
        if _active_below(graph, number):
            if number not in finished:
                continue
            unit += [node.node_id for node in graph.subtree(number) if node.active is True and node.node_id != number]
        if used.isdisjoint(unit):
            used.update(unit)
            turns = [turn for member in unit for turn in graph.nodes[member].related_turn_ids[:1]]
            units.append((min(turns, default=0), unit))
    return [unit for _, unit in sorted(units)]


def _active_below(graph: ReasoningGraph, number: int) -> bool:
    return any(graph.index.is_active(child) for child in graph.structure.children(number))


def _finished(graph: ReasoningGraph, candidates: Collection[int]) -> set[int]:
    rank = graph.structure.order.rank
    below = set(candidates) | {number for number in graph.index.flushed() if graph.structure.children(number)}
    finished: set[int] = set()
    for number in sorted(below, key=rank.__getitem__, reverse=True):
        if all(child in finished or _gone(graph, child) for child in graph.structure.children(number)):
            finished.add(number)
    return finished & set(candidates)


def _gone(graph: ReasoningGraph, number: int) -> bool:
    return graph.nodes[number].active == FLUSHED and not graph.structure.children(number)


def unsupported(graph: ReasoningGraph, number: int) -> bool:
    """Whether nothing supports a node: no active evidence right below it, no link that says so."""
    below = graph.structure.children(number)
    if any(graph.index.is_active(child) and graph.nodes[child].kind is NodeKind.EVIDENCE for child in below):
        return False
    return not graph.links_to(number, "supports")
