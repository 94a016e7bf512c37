"""Rules that make a context smaller without a model: they fold nodes into summaries, and flush (hide) nodes.

Equal conversations have equal results.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import accumulate, pairwise

from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import FLUSHED, NodeKind, Notes, ReasoningNode
from hivemind.words import truncate

FRUITLESS = "fruitless"
"""The status of an episode without a result: a failed attempt, or a wait."""
_LINE_LENGTH = 100  # characters of a summary's line
_MORE_LINES = re.compile(r"… (\d+) more")
_SummaryLine = tuple[str, int]
"""The text of a summary's line, and the number of lines that it represents, itself included."""
_LOOK_BACK = 200
_SETTLED_KINDS = frozenset({NodeKind.EVIDENCE, NodeKind.SUMMARY, NodeKind.NOTE, NodeKind.UPDATE})
_MAX_SIBLINGS = 8
_SMALL_UNIT = 4  # units of at most so many nodes are folded together
_USELESS_STATUSES = frozenset({FRUITLESS, "rejected", "superseded"})


def choose_parent(graph: ReasoningGraph, lane: str) -> int:
    """Return the id of the node below which a new episode belongs: the lane's newest open subtask, or else the task node.

    Only the newest nodes are examined.
    """
    for node in graph.newest(_LOOK_BACK):
        is_match = node.kind is NodeKind.SUBTASK and node.lane == lane and node.status == "open"
        if is_match and graph.is_attached(node.node_id):
            return node.node_id
    assert graph.root is not None
    return graph.root.node_id


# -- removable nodes -----------------------------------------------------------------------------------------------


def is_removable(node: ReasoningNode) -> bool:
    """Return True if an active node may be folded or flushed.

    The task node, pinned nodes, and the subtask of an open step never may. Other subtasks may, together with the nodes
    below them. Other nodes may if they have turns, since cards without turns cost no context.
    """
    if node.pinned or node.kind is NodeKind.TASK:
        return False
    if node.kind is NodeKind.SUBTASK:
        return node.step is None or node.status != "open"
    return bool(node.related_turn_ids)


def is_settled(node: ReasoningNode) -> bool:
    """Return True if a node needs no further work: it states a finding, or it is not open."""
    return node.status != "open" or node.kind in _SETTLED_KINDS


def is_useless(graph: ReasoningGraph, node: ReasoningNode) -> bool:
    """Return True if a node's status is fruitless, rejected or superseded, and the node does not belong to an open step."""
    return node.status in _USELESS_STATUSES and not any(
        parent.kind is NodeKind.SUBTASK and parent.active is True and parent.status == "open"
        for parent in graph.parents(node.node_id)
    )


def has_support(graph: ReasoningGraph, node_id: int) -> bool:
    """Return True if a node is supported by active evidence among its children, or by a link."""
    has_evidence = any(node.kind is NodeKind.EVIDENCE and node.active is True for node in graph.children(node_id))
    return has_evidence or bool(graph.links_to(node_id, "supports"))


def with_finished_steps(graph: ReasoningGraph, candidates: Collection[int]) -> set[int]:
    """Return the candidates. Below each candidate that is the node of a step, add the settled cards without turns.

    A question, hypothesis, test or decision that is still open is not added. It prevents the fold of its step.
    """
    steps = [node for node in map(graph.node, candidates) if node.kind is NodeKind.SUBTASK and node.step]
    step_nodes = (
        node for step in steps for node in graph.subtree(step.node_id) if node.active is True and not node.pinned
    )
    return {*candidates, *(node.node_id for node in step_nodes if not node.related_turn_ids and is_settled(node))}


def fold_runs(graph: ReasoningGraph, candidates: Collection[int], *, mixed: bool) -> Iterator[list[list[int]]]:
    """Yield lists of units to fold into one summary each, oldest first.

    A unit is finished work that can also be folded alone: a candidate with all active nodes below it, which must be
    candidates too. A list has one large unit, or up to eight small units with the same parent. Unless `mixed`, the
    units of a list stand for about the same number of turns: then a summary is only folded with summaries of its size,
    and old work is folded only a few times.
    """
    units = _units(graph, candidates)
    queues: dict[Hashable, deque[list[int]]] = defaultdict(deque)
    for unit in units:
        queues[_run_key(graph, unit, mixed)].append(unit)
    for unit in units:
        queue = queues[_run_key(graph, unit, mixed)]
        if queue and queue[0] is unit:
            yield [queue.popleft() for _ in range(min(_MAX_SIBLINGS, len(queue)))]


def _run_key(graph: ReasoningGraph, unit: list[int], mixed: bool) -> Hashable:
    """Return a key that is equal for units that may be in one list of `fold_runs`.

    For a large unit it is the first id, otherwise the parent's id and the logarithm (base 8) of the number of episodes.
    """
    if len(unit) > _SMALL_UNIT:
        return unit[0]
    first = graph.nodes[unit[0]]
    episodes = len(first.related_turn_ids) // 2 if first.kind is NodeKind.SUMMARY and not mixed else 0
    return min(graph.parent_ids(unit[0]), default=0), (max(1, episodes).bit_length() - 1) // 3


def _units(graph: ReasoningGraph, candidates: Collection[int]) -> list[list[int]]:
    """Return the candidates as units (see `fold_runs`), ordered by their first turn. A unit begins with its topmost node."""
    finished_ids = _finished_ids(graph, candidates)
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


def _finished_ids(graph: ReasoningGraph, candidates: Collection[int]) -> set[int]:
    """Return the candidates below which all nodes are candidates or flushed."""
    finished_ids: set[int] = set()
    for number in reversed(graph.in_order()):
        is_flushed = graph.nodes[number].active == FLUSHED
        if (is_flushed or number in candidates) and all(child in finished_ids for child in graph.child_ids(number)):
            finished_ids.add(number)
    return finished_ids


# -- summaries -----------------------------------------------------------------------------------------------------


def rule_notes(units: Sequence[Sequence[ReasoningNode]], max_length: int) -> list[Notes]:
    """Return a summary of at most about `max_length` characters, with one line per unit, in their order.

    A unit that is a summary itself keeps its lines. If there are too many lines, only some are kept, spread evenly,
    each followed by the number of lines left out after it. So old work loses detail but is not lost.
    """
    lines = [line for unit in units for line in _unit_lines(unit)]
    picked_lines = _pick_lines(lines, max(1, max_length // _LINE_LENGTH))
    line_length = max(_LINE_LENGTH // 2, max_length // len(picked_lines))
    summary_lines = [
        truncate(" ".join(text.split()), line_length) + (f"\n… {count - 1} more" if count > 1 else "")
        for text, count in picked_lines
    ]
    return [Notes("assistant", "\n".join(summary_lines))]


def _unit_lines(unit: Sequence[ReasoningNode]) -> list[_SummaryLine]:
    first = unit[0]
    if len(unit) > 1 or first.kind is not NodeKind.SUMMARY:
        return [(" ".join(map(_node_text, unit)), 1)]
    lines: list[_SummaryLine] = []
    for text in first.text.splitlines() or [""]:
        match = _MORE_LINES.fullmatch(text)
        if match and lines:
            lines[-1] = (lines[-1][0], lines[-1][1] + int(match[1]))
        else:
            lines.append((text, 1))
    return lines


def _node_text(node: ReasoningNode) -> str:
    text = " ".join(node.text.split())
    return node.heading if not node.title or text == node.heading else f"{node.heading}: {text}"


def _pick_lines(lines: Sequence[_SummaryLine], max_lines: int) -> list[_SummaryLine]:
    """Pick at most `max_lines` lines, evenly by the numbers of lines that they stand for. A picked line also stands for
    the omitted lines after it."""
    ends = list(accumulate(count for _, count in lines))
    targets = ((2 * index + 1) * ends[-1] // (2 * max_lines) for index in range(max_lines))
    indexes = (
        sorted({bisect_right(ends, target) for target in targets})
        if len(lines) > max_lines
        else list(range(len(lines)))
    )
    starts = [0, *(ends[index - 1] for index in indexes[1:]), ends[-1]]
    return [
        (lines[index][0], next_start - start)
        for index, (start, next_start) in zip(indexes, pairwise(starts), strict=True)
    ]
