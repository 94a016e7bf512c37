"""What is done with no model: folds, flushes and summaries by rule, the same for the same conversation (spec 4)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import accumulate, pairwise

from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import FLUSHED, NodeKind, Notes, ReasoningNode

FRUITLESS = "fruitless"
"""The status of an episode that led to nothing: an attempt that failed, or waiting."""
_LINE = 100  # characters of a summary's line
_MORE = re.compile(r"… (\d+) more")
_Line = tuple[str, int]
"""What a line of a summary says, and how many it stands for, itself among them."""
_LOOK_BACK = 200
_SETTLED = frozenset({NodeKind.EVIDENCE, NodeKind.SUMMARY, NodeKind.NOTE, NodeKind.UPDATE})
_SIBLINGS = 8
_SMALL = 4  # nodes of a unit that is folded together with others
_USELESS = frozenset({FRUITLESS, "rejected", "superseded"})


def parent_for(graph: ReasoningGraph, lane: str) -> int:
    """The node that an episode belongs below: the newest open subtask of the lane among the newest nodes, or the task."""
    for node in graph.newest(_LOOK_BACK):
        fits = node.kind is NodeKind.SUBTASK and node.lane == lane and node.status == "open"
        if fits and graph.is_attached(node.node_id):
            return node.node_id
    assert graph.root is not None
    return graph.root.node_id


# -- what may go ---------------------------------------------------------------------------------------------------


def may_go(node: ReasoningNode) -> bool:
    """Whether an active node may be folded or flushed.

    Not the task, not what is pinned, not a step's subtask while the step is open. Of the rest what has turns of the
    conversation, and subtasks, which go with what is below them; cards without turns cost no context.
    """
    if node.pinned or node.kind is NodeKind.TASK:
        return False
    if node.kind is NodeKind.SUBTASK:
        return node.step is None or node.status != "open"
    return bool(node.related_turn_ids)


def is_settled(node: ReasoningNode) -> bool:
    """Whether nothing is left to do about a node: it says what was found, or has been closed one way or another."""
    return node.status != "open" or node.kind in _SETTLED


def is_useless(graph: ReasoningGraph, node: ReasoningNode) -> bool:
    """Whether a node led to nothing, was rejected or superseded; not while the step that it belongs to is open."""
    return node.status in _USELESS and not any(
        one.kind is NodeKind.SUBTASK and one.active is True and one.status == "open"
        for one in graph.parents(node.node_id)
    )


def has_support(graph: ReasoningGraph, number: int) -> bool:
    """Whether something supports a node: active evidence right below it, or a link that says so."""
    below = any(node.kind is NodeKind.EVIDENCE and node.active is True for node in graph.children(number))
    return below or bool(graph.links_to(number, "supports"))


def with_finished_steps(graph: ReasoningGraph, candidates: Collection[int]) -> set[int]:
    """The candidates, and the cards without turns that are folded with the finished steps among them.

    A question, hypothesis, test or decision that is still open stays, and keeps its step unfolded.
    """
    steps = [node for node in map(graph.node, candidates) if node.kind is NodeKind.SUBTASK and node.step]
    below = (node for step in steps for node in graph.subtree(step.node_id) if node.active is True and not node.pinned)
    return {*candidates, *(node.node_id for node in below if not node.related_turn_ids and is_settled(node))}


def runs(graph: ReasoningGraph, candidates: Collection[int], *, mixed: bool) -> Iterator[list[list[int]]]:
    """What can be folded together, oldest first: each a run of units, of which each could be folded alone.

    A unit is a finished sub-trajectory: a candidate, with all that is active below it, if those are candidates too. A run
    is a large unit, or up to eight small ones: siblings that stand for about as many turns, or with `mixed` for any
    number. So summaries are folded with their like, and what is long ago was folded a few times and not at each turn.
    """
    units = _units(graph, candidates)
    queues: dict[Hashable, deque[list[int]]] = defaultdict(deque)
    for unit in units:
        queues[_sort(graph, unit, mixed)].append(unit)
    for unit in units:
        queue = queues[_sort(graph, unit, mixed)]
        if queue and queue[0] is unit:
            yield [queue.popleft() for _ in range(min(_SIBLINGS, len(queue)))]


def _sort(graph: ReasoningGraph, unit: list[int], mixed: bool) -> Hashable:
    """Units of one sort go into one run: siblings of one size, as a power of eight. A large one is a sort of its own."""
    if len(unit) > _SMALL:
        return unit[0]
    first = graph.nodes[unit[0]]
    episodes = len(first.related_turn_ids) // 2 if first.kind is NodeKind.SUMMARY and not mixed else 0
    return min(graph.parent_ids(unit[0]), default=0), (max(1, episodes).bit_length() - 1) // 3


def _units(graph: ReasoningGraph, candidates: Collection[int]) -> list[list[int]]:
    """The units, each with its first node in front; oldest first, by the first turn that they stand for."""
    finished = _finished(graph, candidates)
    used: set[int] = set()
    units: list[tuple[int, list[int]]] = []
    for number in sorted(candidates):
        unit = [number]
        if any(map(graph.is_active, graph.child_ids(number))):
            if number not in finished:
                continue
            unit += [node.node_id for node in graph.subtree(number) if node.active is True and node.node_id != number]
        if used.isdisjoint(unit):
            used.update(unit)
            turns = [turn for member in unit for turn in graph.nodes[member].related_turn_ids[:1]]
            units.append((min(turns, default=0), unit))
    return [unit for _, unit in sorted(units)]


def _finished(graph: ReasoningGraph, candidates: Collection[int]) -> set[int]:
    """The candidates below which there are candidates and flushed nodes only."""
    finished: set[int] = set()
    for number in reversed(graph.in_order()):
        gone = graph.nodes[number].active == FLUSHED
        if (gone or number in candidates) and all(child in finished for child in graph.child_ids(number)):
            finished.add(number)
    return finished


# -- summaries -----------------------------------------------------------------------------------------------------


def rule_notes(units: Sequence[Sequence[ReasoningNode]], length: int) -> list[Notes]:
    """A summary of at most about `length` characters: a line for each unit of nodes, in their order.

    Of a summary its lines are taken over. Where there are too many, they are picked evenly over all that they stand for,
    and each is followed by how many were left out: so what is long ago fades, and does not vanish.
    """
    lines = [line for unit in units for line in _lines(unit)]
    kept = _picked(lines, max(1, length // _LINE))
    room = max(_LINE // 2, length // len(kept))
    shown = [f"{_cut(text, room)}\n… {stands - 1} more" if stands > 1 else _cut(text, room) for text, stands in kept]
    return [Notes("assistant", "\n".join(shown))]


def _lines(unit: Sequence[ReasoningNode]) -> list[_Line]:
    first = unit[0]
    if len(unit) > 1 or first.kind is not NodeKind.SUMMARY:
        return [(" ".join(map(_told, unit)), 1)]
    lines: list[_Line] = []
    for text in first.text.splitlines() or [""]:
        more = _MORE.fullmatch(text)
        if more and lines:
            lines[-1] = (lines[-1][0], lines[-1][1] + int(more[1]))
        else:
            lines.append((text, 1))
    return lines


def _told(node: ReasoningNode) -> str:
    said = " ".join(node.text.split())
    return node.heading if not node.title or said == node.heading else f"{node.heading}: {said}"


def _picked(lines: Sequence[_Line], room: int) -> list[_Line]:
    """At most `room` of the lines, evenly by what they stand for; each stands for those that follow and are left out."""
    ends = list(accumulate(stands for _, stands in lines))
    wanted = ((2 * at + 1) * ends[-1] // (2 * room) for at in range(room))
    places = sorted({bisect_right(ends, at) for at in wanted}) if len(lines) > room else list(range(len(lines)))
    starts = [0, *(ends[at - 1] for at in places[1:]), ends[-1]]
    return [(lines[at][0], then - now) for at, (now, then) in zip(places, pairwise(starts), strict=True)]


def _cut(text: str, length: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"
