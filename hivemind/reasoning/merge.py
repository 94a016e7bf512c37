"""Merging branches: three-way for each node, edge and link (spec 3, *Lanes, publish, branches*)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hivemind.boundary import boundary
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import Edge, Link, NodeKind, node_from
from hivemind.reasoning.snapshot import restore

__all__ = ["MergeConflict", "MergeReport", "compare", "diff", "put"]

_Parts = dict[str, dict[str, Any]]
_CHOOSE = "choose use_into or use_from"


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """Something that both branches changed, each in its way. `name` is `node 7`, `edge 3 → 7` or `link 3 blocks 7`."""

    name: str
    base: dict[str, Any] | None
    use_from: dict[str, Any] | None
    use_into: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge did, or would do: the names of what it takes over, and the conflicts that are left."""

    taken: tuple[str, ...]
    conflicts: tuple[MergeConflict, ...]
    written: bool


def _parts(graph: ReasoningGraph) -> _Parts:
    """What a graph consists of, by name, as JSON has it: nodes, drawn edges and links. Folding is a field of the node."""
    found: _Parts = {}
    for number, node in graph.nodes.items():
        record = node.as_dict() | {"created_seq": node.created_seq}
        if "folded" in node.meta:
            record["meta"] = {key: value for key, value in record["meta"].items() if key != "folded"}
        if number in graph.folded_into:
            record["folded_into"] = graph.folded_into[number]
        found[f"node {number}"] = record
    found |= {f"edge {edge.src} → {edge.dst}": asdict(edge) for edge in graph.drawn}
    return found | {f"link {link.src} {link.relation} {link.dst}": link.as_dict() for link in graph.links.values()}


def diff(one: ReasoningGraph, other: ReasoningGraph) -> dict[str, list[Any]]:
    """Names of what is only in the other, only in the one, and different in both."""
    old, new = _parts(one), _parts(other)
    return {
        "added": sorted(new.keys() - old.keys()),
        "removed": sorted(old.keys() - new.keys()),
        "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
    }


def compare(
    source: tuple[ReasoningGraph, ReasoningGraph],
    into: tuple[ReasoningGraph, ReasoningGraph],
    resolve: str | Mapping[str, str] | None,
) -> tuple[dict[str, Any], list[MergeConflict], bool]:
    """What of `source` is to be put into `into`, the conflicts left, and whether anything has been decided at all.

    Each branch is given as it was when both last agreed, and as it is now. Raises GraphError for a bad choice.
    """
    (base_from, theirs), (base_into, ours) = map(_parts, source), map(_parts, into)
    taken: dict[str, Any] = {}
    left: list[MergeConflict] = []
    decided = False
    for name in sorted(base_from.keys() | base_into.keys() | theirs.keys() | ours.keys()):
        now_from, now_into = theirs.get(name), ours.get(name)
        if now_from in (base_from.get(name), now_into):
            continue
        choice: str | None = "use_from"
        if now_into != base_into.get(name):
            choice = resolve.get(name) if isinstance(resolve, Mapping) else resolve
            if choice not in (None, "use_from", "use_into"):
                raise GraphError(f"{choice!r} resolves no conflict", mend="say use_from or use_into")
        if choice is None:
            left.append(MergeConflict(name, base_from.get(name), now_from, now_into))
        elif choice == "use_from":
            taken[name] = now_from
        decided = decided or choice is not None
    return taken, left, decided


def put(graph: ReasoningGraph, operation: Mapping[str, Any]) -> None:
    """Put the parts of a merge into a graph (a part that is null goes away). Raises GraphError if it is not sound then."""
    changed: dict[str, list[dict[str, Any]]] = {"node": [], "edge": [], "link": []}
    for name, part in {**_parts(graph), **operation["parts"]}.items():
        if part is not None:
            changed[name.partition(" ")[0]].append(dict(part))
    members: dict[int, list[int]] = {}
    for record in changed["node"]:
        if "folded_into" in record:
            members.setdefault(record["folded_into"], []).append(record["node_id"])
    with boundary("merge of branches"):
        nodes = [node_from(record, record["created_seq"]) for record in changed["node"]]
        edges = [Edge.from_dict(record) for record in changed["edge"]]
        links = [Link(**record) for record in changed["link"]]
    folded = {number for group in members.values() for number in group}
    for node in nodes:
        if node.node_id in members:
            node.meta["folded"] = sorted(members[node.node_id])
        if (node.active is False) != (node.node_id in folded) and node.kind is not NodeKind.TASK:
            raise GraphError(
                f"the merged graph is not sound: node {node.node_id} is folded in one branch and not in the other",
                mend="resolve the nodes of one fold the same way",
            )
    merged = type(graph)()
    try:
        restore(merged, nodes, edges, links)
    except GraphError as error:
        raise GraphError(f"the merged graph is not sound: {error.what}", mend=_CHOOSE) from None
    if not all(merged.is_attached(node.node_id) for node in merged.active()):
        raise GraphError("the merged graph is not sound: a node hangs on nothing", mend=_CHOOSE)
    graph.become(merged)
    graph.note(dict(operation))
