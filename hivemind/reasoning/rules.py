"""What is done with no model: patches, summaries and folds by rule, the same for the same conversation (spec 4)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from hivemind.reasoning.messages import Message, text_of
from hivemind.reasoning.node import FLUSHED, NodeKind, ReasoningNode
from hivemind.reasoning.notes import Notes
from hivemind.reasoning.ops import AddEdgeOp, AddNodeOp, MemoryPatch

if TYPE_CHECKING:
    from hivemind.reasoning.graph import ReasoningGraph

__all__ = [
    "as_notes",
    "goes_along",
    "groups",
    "is_settled",
    "may_go",
    "parent_for",
    "rule_notes",
    "rule_patch",
    "unsupported",
]

_SIBLINGS = 8
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


def goes_along(graph: ReasoningGraph, candidates: Collection[int]) -> set[int]:
    """The cards without turns that are folded with the finished step that they belong to, if that is a candidate.

    A question, hypothesis, test or decision that is still open stays, and keeps its step unfolded.
    """
    steps = (node for node in map(graph.nodes.__getitem__, candidates) if node.kind is NodeKind.SUBTASK and node.step)
    below = (node for step in steps for node in graph.subtree(step.node_id) if node.active is True and not node.pinned)
    return {node.node_id for node in below if not node.related_turn_ids and is_settled(node)}


def is_settled(node: ReasoningNode) -> bool:
    """Whether nothing is left to do about a node: it says what was found, or has been closed one way or another."""
    return node.status != "open" or node.kind in _SETTLED


def rule_notes(nodes: Sequence[ReasoningNode], length: int) -> list[Notes]:
    """A summary of at most about `length` characters: the beginning of each node's title and thought, in their order."""
    each = max(24, length // max(1, len(nodes)))
    lines: list[str] = []
    left = length
    for at, node in enumerate(nodes):
        text = _told(node)
        line = text if len(text) <= each else f"{text[: each - 1]}…"
        if lines and left < len(line):
            lines.append(f"… and {len(nodes) - at} more")
            break
        lines.append(line)
        left -= len(line)
    return [Notes("assistant", "\n".join(lines))]


def _told(node: ReasoningNode) -> str:
    said = " ".join(node.text.split())
    return node.heading if not node.title or said == node.heading else f"{node.heading}: {said}"


def groups(graph: ReasoningGraph, candidates: Collection[int]) -> Iterator[list[int]]:
    """What can be folded, oldest first: finished sub-trajectories whole, and else runs of siblings without children.

    A sub-trajectory is a node with all that is active below it; it is finished if all of that are candidates.
    """
    finished = _finished(graph, candidates)
    used: set[int] = set()
    siblings: dict[int, Iterator[int]] = {}  # of each parent the children that are still to be looked at
    for number in sorted(candidates):
        if number in used:
            continue
        if number in finished and _active_below(graph, number):
            group = [node.node_id for node in graph.subtree(number) if node.active is True]
            if used.isdisjoint(group):
                used.update(group)
                yield group
        elif not _active_below(graph, number):
            group = [number, *islice(_siblings(graph, number, candidates, used, siblings), _SIBLINGS - 1)]
            used.update(group)
            yield group


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


def _siblings(
    graph: ReasoningGraph,
    number: int,
    candidates: Collection[int],
    used: Collection[int],
    rest: dict[int, Iterator[int]],
) -> Iterator[int]:
    """Younger siblings that can be folded with a node: candidates without children, below the same oldest parent."""
    parents = graph.structure.parents(number)
    if not parents:
        return
    parent = min(parents)
    for sibling in rest.setdefault(parent, iter(sorted(graph.structure.children(parent)))):
        free = sibling > number and sibling in candidates and sibling not in used
        if free and not _active_below(graph, sibling) and min(graph.structure.parents(sibling)) == parent:
            yield sibling


def unsupported(graph: ReasoningGraph, number: int) -> bool:
    """Whether nothing supports a node: no active evidence right below it, no link that says so."""
    below = graph.structure.children(number)
    if any(graph.index.is_active(child) and graph.nodes[child].kind is NodeKind.EVIDENCE for child in below):
        return False
    return not graph.links_to(number, "supports")
