"""What is done with no model: patches, summaries and folds by rule, the same for the same conversation (spec 4)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from hivemind.reasoning.messages import Message, text_of
from hivemind.reasoning.node import NodeKind, ReasoningNode
from hivemind.reasoning.notes import Notes
from hivemind.reasoning.ops import AddEdgeOp, AddNodeOp, MemoryPatch

if TYPE_CHECKING:
    from hivemind.reasoning.graph import ReasoningGraph

__all__ = [
    "FRUITLESS",
    "as_notes",
    "is_settled",
    "may_go",
    "parent_for",
    "rule_notes",
    "rule_patch",
]

FRUITLESS = "fruitless"
"""The status of an episode that led to nothing: an attempt that failed, or waiting."""
_LINE = 100  # characters of a summary's line
_MORE = re.compile(r"… (\d+) more")
_Line = tuple[str, int]
"""What a line of a summary says, and how many it stands for, itself among them."""
_LOOK_BACK = 200
_SETTLED = frozenset({NodeKind.EVIDENCE, NodeKind.SUMMARY, NodeKind.NOTE, NodeKind.UPDATE})


def as_notes(episode: Sequence[Message], length: int | None = None) -> list[Notes]:
    """An episode as notes, each cut to `length` characters where one is given."""
    notes = []
    for message in episode:
        text = text_of(message)
        if length is not None and len(text) > length:
            text = f"{text[: length - 1]}…"
        notes.append(Notes(message["role"], text))
    return notes


def rule_patch(episode: Sequence[Message], parent: int) -> MemoryPatch:
    """One evidence node with an excerpt of what was said, below `parent`."""
    node = AddNodeOp(tmp_id="episode", kind=NodeKind.EVIDENCE, thought=as_notes(episode, 400))
    edge = AddEdgeOp(src=str(parent), dst="episode", rationale="support: what this episode found")
    return MemoryPatch(add_nodes=[node], add_edges=[edge])


def parent_for(graph: ReasoningGraph, lane: str) -> int:
    """The node that an episode belongs below: the newest open subtask of the lane among the newest nodes, or the task."""
    for number in range(graph.next_id - 1, max(0, graph.next_id - 1 - _LOOK_BACK), -1):
        node = graph.nodes.get(number)
        if node is None or node.kind is not NodeKind.SUBTASK or node.active is not True:
            continue
        if node.lane == lane and node.status == "open" and graph.is_attached(number):
            return number
    assert graph.root is not None
    return graph.root.node_id


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


def rule_notes(units: Sequence[Sequence[ReasoningNode]], length: int) -> list[Notes]:
    """A summary of at most about `length` characters: a line for each unit of nodes, in their order.

    Of a summary its lines are taken over. Where there are too many, they are picked evenly over all that they stand for,
    and each is followed by how many were left out: so what is long ago fades, and does not vanish.
    """
    lines = [line for unit in units for line in _lines(unit)]
    kept = _picked(lines, max(1, length // _LINE))
    room = max(_LINE // 2, length // len(kept))
    told = [f"{cut(text, room)}\n… {stands - 1} more" if stands > 1 else cut(text, room) for text, stands in kept]
    return [Notes("assistant", "\n".join(told))]


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


def _picked(lines: Sequence[_Line], room: int) -> list[_Line]:
    """At most `room` of the lines, evenly by what they stand for; each stands for those that follow and are left out."""
    ends = list(accumulate(stands for _, stands in lines))
    wanted = ((2 * at + 1) * ends[-1] // (2 * room) for at in range(room))
    places = sorted({bisect_right(ends, at) for at in wanted}) if len(lines) > room else list(range(len(lines)))
    starts = [0, *(ends[at - 1] for at in places[1:]), ends[-1]]
    return [(lines[at][0], then - now) for at, (now, then) in zip(places, pairwise(starts), strict=True)]


def cut(text: str, length: int) -> str:
    """The beginning of a text, in at most `length` characters on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _told(node: ReasoningNode) -> str:
    said = " ".join(node.text.split())
    return node.heading if not node.title or said == node.heading else f"{node.heading}: {said}"
