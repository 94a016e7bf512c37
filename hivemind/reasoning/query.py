"""Questions to a graph. None looks at all edges, none recurses (spec 4, *Queries*)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hivemind.reasoning.node import SHARED, NodeKind, ReasoningNode, as_lane

if TYPE_CHECKING:
    from hivemind.reasoning.readable import ReadableGraph

__all__ = ["Conflict", "conflicts", "is_attached", "leaves", "path_to_root", "subtree", "visible"]

_MEANT = frozenset(
    {"subgoal", "assumption", "pinned", "unstructured"}
)  # tags that say what a card is, not what it is about
_OPPOSED = frozenset({"accepted", "rejected"})


@dataclass(frozen=True, slots=True)
class Conflict:
    """Active nodes of one tag and one kind that don't say the same; `node_ids` are sorted."""

    tag: str
    kind: NodeKind
    node_ids: tuple[int, ...]


def path_to_root(graph: ReadableGraph, number: int) -> list[ReasoningNode]:
    """From the node upwards by the oldest parent at each step. Costs the length of the path."""
    path = [graph.nodes[number]]
    while parents := graph.structure.parents(number):
        number = min(parents)
        path.append(graph.nodes[number])
    return path


def subtree(graph: ReadableGraph, number: int) -> list[ReasoningNode]:
    """The node and all below it, by id. Costs the size of the answer and its edges."""
    found = {number}
    todo = [number]
    while todo:
        for child in graph.structure.children(todo.pop()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return [graph.nodes[node] for node in sorted(found)]


def leaves(graph: ReadableGraph) -> list[int]:
    """Ids of the active nodes below which nothing is active, also not through a flushed node."""
    structure, index = graph.structure, graph.index
    busy: set[int] = set()  # flushed nodes with something active below them
    todo: list[int] = []
    for number in index.flushed():
        if any(index.is_active(child) for child in structure.children(number)):
            busy.add(number)
            todo.append(number)
    while todo:
        for parent in structure.parents(todo.pop()):
            if not index.is_active(parent) and parent not in busy:
                busy.add(parent)
                todo.append(parent)
    found = []
    for number in index.active():
        children = structure.children(number)
        if not children or not any(index.is_active(child) or child in busy for child in children):
            found.append(number)
    return found


def visible(graph: ReadableGraph, agent_id: str | None, *, all_lanes: bool, lane: str | None) -> list[ReasoningNode]:
    """The nodes of the lanes that an agent sees, by id (spec 3, *Lanes*). Costs the size of the answer."""
    if all_lanes:
        return [graph.nodes[number] for number in sorted(graph.nodes)]
    lanes = {SHARED} if agent_id is None else {SHARED, as_lane(f"agent/{agent_id}"), as_lane(lane or SHARED)}
    return [graph.nodes[number] for number in sorted(id_ for lane in lanes for id_ in graph.index.in_lane(lane))]


def is_attached(graph: ReadableGraph, number: int, loose: Collection[int]) -> bool:
    """Whether the task node stands above the node. At once where no node hangs loose, else by walking upwards."""
    root = graph.root
    if root is None:
        return False
    if not loose:
        return True
    seen = {number}
    todo = [number]
    while todo:
        node = todo.pop()
        if node == root.node_id:
            return True
        for parent in graph.structure.parents(node):
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
    return False


def conflicts(graph: ReadableGraph) -> list[Conflict]:
    """Groups of active nodes that share a tag and a kind, are not superseded, and disagree.

    They disagree where their texts differ, where one is accepted and another rejected, or where one blocks another.
    The tags subgoal, assumption and pinned say what a card is for and start no conflict.
    """
    found = []
    for tag in graph.index.tags():
        if tag in _MEANT:
            continue
        kinds: dict[NodeKind, list[ReasoningNode]] = {}
        for node in graph.by_tag(tag):
            if node.active is True and node.status != "superseded":
                kinds.setdefault(node.kind, []).append(node)
        for kind, nodes in sorted(kinds.items()):
            if len(nodes) > 1 and _disagree(graph, nodes):
                found.append(Conflict(tag, kind, tuple(node.node_id for node in nodes)))
    return found


def _disagree(graph: ReadableGraph, nodes: list[ReasoningNode]) -> bool:
    if len({" ".join(node.text.casefold().split()) for node in nodes}) > 1:
        return True
    if {node.status for node in nodes} >= _OPPOSED:
        return True
    members = {node.node_id for node in nodes}
    return any(link.dst in members for node in nodes for link in graph.links_from(node.node_id, "blocks"))
