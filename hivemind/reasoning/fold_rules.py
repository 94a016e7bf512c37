"""Folds, flushes and summaries by rules, without a model. Equal conversations have equal results."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import accumulate, pairwise

from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import FLUSHED, NodeKind, Notes, ReasoningNode

FRUITLESS = "fruitless"
"""The status of an episode without a result: a failed attempt, or a wait."""
_LINE = 100  # characters of a summary's line
_MORE = re.compile(r"… (\d+) more")
_Line = tuple[str, int]
"""The text of a summary's line, and the number of lines that it represents, itself included."""
_LOOK_BACK = 200
_SETTLED = frozenset({NodeKind.EVIDENCE, NodeKind.SUMMARY, NodeKind.NOTE, NodeKind.UPDATE})
_SIBLINGS = 8
_SMALL = 4  # units of at most so many nodes are folded together
_USELESS = frozenset({FRUITLESS, "rejected", "superseded"})


def parent_for(graph: ReasoningGraph, lane: str) -> int:
    """Return the parent of an episode: the lane's newest open subtask among the newest nodes, else the task node."""
    for node in graph.newest(_LOOK_BACK):
        is_match = node.kind is NodeKind.SUBTASK and node.lane == lane and node.status == "open"
        if is_match and graph.is_attached(node.node_id):
            return node.node_id
    assert graph.root is not None
    return graph.root.node_id


# -- removable nodes -----------------------------------------------------------------------------------------------


def may_go(node: ReasoningNode) -> bool:
    """Return True if an active node may be folded or flushed.

    Never the task node, a pinned node, or the subtask of an open step. Other subtasks are removable together with the
    nodes below them; other nodes only if they have turns, since cards without turns cost no context.
    """
    if node.pinned or node.kind is NodeKind.TASK:
        return False
    if node.kind is NodeKind.SUBTASK:
        return node.step is None or node.status != "open"
    return bool(node.related_turn_ids)


def is_settled(node: ReasoningNode) -> bool:
    """Return True if a node needs no more work: it states a finding, or it is not open."""
    return node.status != "open" or node.kind in _SETTLED


def is_useless(graph: ReasoningGraph, node: ReasoningNode) -> bool:
    """Return True if a node is fruitless, rejected or superseded, and does not belong to an open step."""
    return node.status in _USELESS and not any(
        parent.kind is NodeKind.SUBTASK and parent.active is True and parent.status == "open"
        for parent in graph.parents(node.node_id)
    )


def has_support(graph: ReasoningGraph, number: int) -> bool:
    """Return True if a node is supported by active evidence among its children, or by a link."""
    has_evidence = any(node.kind is NodeKind.EVIDENCE and node.active is True for node in graph.children(number))
    return has_evidence or bool(graph.links_to(number, "supports"))


def with_finished_steps(graph: ReasoningGraph, candidates: Collection[int]) -> set[int]:
    """Return the candidates with the settled cards without turns that belong to finished steps among them.

    An open question, hypothesis, test or decision is not added, and prevents the fold of its step.
    """
    steps = [node for node in map(graph.node, candidates) if node.kind is NodeKind.SUBTASK and node.step]
    step_nodes = (
        node for step in steps for node in graph.subtree(step.node_id) if node.active is True and not node.pinned
    )
    return {*candidates, *(node.node_id for node in step_nodes if not node.related_turn_ids and is_settled(node))}


def runs(graph: ReasoningGraph, candidates: Collection[int], *, mixed: bool) -> Iterator[list[list[int]]]:
    """Yield runs of units that can be folded together, oldest first. Each unit of a run could also be folded alone.

    A unit is finished work: a candidate with all active nodes below it, if those are candidates too. A run is one large
    unit, or up to eight small units with the same parent that represent about the same number of turns (with `mixed`,
    any number). So summaries are folded with summaries of their size, and old work is folded a few times only.
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
    """Return the key of a unit's run: its parent and size as a power of eight, or its first id if it is large."""
    if len(unit) > _SMALL:
        return unit[0]
    first = graph.nodes[unit[0]]
    episodes = len(first.related_turn_ids) // 2 if first.kind is NodeKind.SUMMARY and not mixed else 0
    return min(graph.parent_ids(unit[0]), default=0), (max(1, episodes).bit_length() - 1) // 3


def _units(graph: ReasoningGraph, candidates: Collection[int]) -> list[list[int]]:
    """Return the units, oldest first by their first turn. Each begins with its topmost node."""
    finished_ids = _finished(graph, candidates)
    used_ids: set[int] = set()
    units: list[tuple[int, list[int]]] = []
    for number in sorted(candidates):
        unit = [number]
        if any(map(graph.is_active, graph.child_ids(number))):
            if number not in finished_ids:
                continue
            unit += [node.node_id for node in graph.subtree(number) if node.active is True and node.node_id != number]
        if used_ids.isdisjoint(unit):
            used_ids.update(unit)
            turns = [turn for member in unit for turn in graph.nodes[member].related_turn_ids[:1]]
            units.append((min(turns, default=0), unit))
    return [unit for _, unit in sorted(units)]


def _finished(graph: ReasoningGraph, candidates: Collection[int]) -> set[int]:
    """Return the candidates that have only candidates and flushed nodes below them."""
    finished_ids: set[int] = set()
    for number in reversed(graph.in_order()):
        is_flushed = graph.nodes[number].active == FLUSHED
        if (is_flushed or number in candidates) and all(child in finished_ids for child in graph.child_ids(number)):
            finished_ids.add(number)
    return finished_ids


# -- summaries -----------------------------------------------------------------------------------------------------


def rule_notes(units: Sequence[Sequence[ReasoningNode]], length: int) -> list[Notes]:
    """Return a summary of at most about `length` characters, with one line per unit, in their order.

    The lines of an older summary are kept. If there are too many lines, some are picked evenly over all the lines that
    they represent, each followed by the number left out. Old work thus loses detail but is not lost.
    """
    lines = [line for unit in units for line in _lines(unit)]
    picked_lines = _picked(lines, max(1, length // _LINE))
    line_length = max(_LINE // 2, length // len(picked_lines))
    summary_lines = [
        f"{_cut(text, line_length)}\n… {count - 1} more" if count > 1 else _cut(text, line_length)
        for text, count in picked_lines
    ]
    return [Notes("assistant", "\n".join(summary_lines))]


def _lines(unit: Sequence[ReasoningNode]) -> list[_Line]:
    first = unit[0]
    if len(unit) > 1 or first.kind is not NodeKind.SUMMARY:
        return [(" ".join(map(_told, unit)), 1)]
    lines: list[_Line] = []
    for text in first.text.splitlines() or [""]:
        match = _MORE.fullmatch(text)
        if match and lines:
            lines[-1] = (lines[-1][0], lines[-1][1] + int(match[1]))
        else:
            lines.append((text, 1))
    return lines


def _told(node: ReasoningNode) -> str:
    text = " ".join(node.text.split())
    return node.heading if not node.title or text == node.heading else f"{node.heading}: {text}"


def _picked(lines: Sequence[_Line], room: int) -> list[_Line]:
    """Pick at most `room` lines, evenly by their counts. Each also represents the omitted lines after it."""
    ends = list(accumulate(count for _, count in lines))
    targets = ((2 * index + 1) * ends[-1] // (2 * room) for index in range(room))
    indexes = (
        sorted({bisect_right(ends, target) for target in targets}) if len(lines) > room else list(range(len(lines)))
    )
    starts = [0, *(ends[index - 1] for index in indexes[1:]), ends[-1]]
    return [
        (lines[index][0], next_start - start)
        for index, (start, next_start) in zip(indexes, pairwise(starts), strict=True)
    ]


def _cut(text: str, length: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"
