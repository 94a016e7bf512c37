"""Merging branches: three-way for each node, edge and link (spec 3, *Lanes, publish, branches*)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hivemind.reasoning.edge import Link, edge_from
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import NodeKind, ReasoningNode, node_from, node_to_dict
from hivemind.reasoning.snapshot import restore

if TYPE_CHECKING:
    from hivemind.reasoning.graph import ReasoningGraph
    from hivemind.reasoning.history import History

__all__ = ["MergeConflict", "MergeReport", "diff", "merge_into", "parts", "put"]

_Parts = dict[str, dict[str, Any]]
_CHOICES = ("use_from", "use_into")


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


def parts(graph: ReasoningGraph) -> _Parts:
    """What a graph consists of, by name, as JSON has it: nodes, base edges and links. Folding is a field of the node."""
    found: _Parts = {}
    folded_into = graph.structure.folded_into
    for number, node in graph.nodes.items():
        record = node_to_dict(node) | {"created_seq": node.created_seq}
        if "folded" in node.meta:
            record["meta"] = {key: value for key, value in record["meta"].items() if key != "folded"}
        if number in folded_into:
            record["folded_into"] = folded_into[number]
        found[f"node {number}"] = record
    live = [base for edge in graph.structure.live() for base in edge.bases]
    inside = [base for edges in graph.structure.inside.values() for edge in edges for base in edge.bases]
    for base in (*live, *inside):
        record = {"src": base.src, "dst": base.dst, "rationale": base.rationale, "relation": base.relation}
        found[f"edge {base.src} → {base.dst}"] = record
    for link in graph.links.values():
        record = {"src": link.src, "dst": link.dst, "relation": link.relation, "created_seq": link.created_seq}
        found[f"link {link.src} {link.relation} {link.dst}"] = record
    return found


def diff(one: ReasoningGraph, other: ReasoningGraph) -> dict[str, list[Any]]:
    """Names of what is only in the other, only in the one, and different in both."""
    old, new = parts(one), parts(other)
    return {
        "added": sorted(new.keys() - old.keys()),
        "removed": sorted(old.keys() - new.keys()),
        "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
    }


def merge_into(
    graph: ReasoningGraph,
    history: History,
    source: str,
    into: str,
    resolve: str | Mapping[str, str] | None,
    *,
    dry_run: bool,
) -> MergeReport:
    """Bring the changes of `source` into `graph`, which is branch `into` and is being changed. Raises GraphError."""
    if source == into:
        raise GraphError(f"branch {source!r} into itself")
    base_from, base_into = _bases(history, source, into)
    theirs, ours = parts(history.at(source, history.log.seq).graph), parts(graph)
    taken: dict[str, Any] = {}
    left = []
    resolved = 0
    for name in sorted(base_from.keys() | base_into.keys() | theirs.keys() | ours.keys()):
        now_from, now_into = theirs.get(name), ours.get(name)
        if now_from == base_from.get(name) or now_from == now_into:
            continue
        choice = "use_from" if now_into == base_into.get(name) else _choice(resolve, name)
        if choice is None:
            left.append(MergeConflict(name, base_from.get(name), now_from, now_into))
        else:
            resolved += 1
            if choice == "use_from":
                taken[name] = now_from
    report = MergeReport(tuple(taken), tuple(left), written=bool(resolved) and not left and not dry_run)
    if report.written:
        operation = {"op": "merge", "from": source, "into": into, "from_seq": history.log.seq, "parts": taken}
        put(graph, operation)
    return report


def _choice(resolve: str | Mapping[str, str] | None, name: str) -> str | None:
    choice = resolve.get(name) if isinstance(resolve, Mapping) else resolve
    if choice is not None and choice not in _CHOICES:
        raise GraphError(f"{choice!r} resolves no conflict", mend="say use_from or use_into")
    return choice


def _bases(history: History, source: str, into: str) -> tuple[_Parts, _Parts]:
    """Both branches as they were when they last agreed: at their last merge, or where they parted."""
    for merge in reversed(history.merges):
        if {merge["from"], merge["into"]} == {source, into}:
            seqs = {merge["from"]: merge["from_seq"], merge["into"]: merge["seq"]}
            return parts(history.at(source, seqs[source]).graph), parts(history.at(into, seqs[into]).graph)
    seen = dict(history.chain(into, history.log.seq))
    for name, seq in history.chain(source, history.log.seq):
        if name in seen:
            common = parts(history.at(name, min(seq, seen[name])).graph)
            return common, common
    raise GraphError(f"branches {source!r} and {into!r} have nothing in common")


def put(graph: ReasoningGraph, operation: Mapping[str, Any]) -> None:
    """Put the parts of a merge into a graph (a part that is null goes away). Raises GraphError if it is not sound then."""
    merged = {**parts(graph), **operation["parts"]}
    changed = type(graph)()
    _build(changed, {name: part for name, part in merged.items() if part is not None})
    changed.seq, changed.next_id = graph.seq, max(graph.next_id, changed.next_id)
    changed.now, changed.record = graph.now, graph.record
    graph.become(changed)
    if graph.record is not None:
        graph.record.append(dict(operation))


def _build(graph: ReasoningGraph, merged: _Parts) -> None:
    nodes = [dict(part) for name, part in merged.items() if name.startswith("node ")]
    edges = [edge_from(part) for name, part in merged.items() if name.startswith("edge ")]
    links = [
        Link(part["src"], part["dst"], part["relation"], part["created_seq"])
        for name, part in merged.items()
        if name.startswith("link ")
    ]
    members: dict[int, list[int]] = {}
    for record in nodes:
        if "folded_into" in record:
            members.setdefault(record.pop("folded_into"), []).append(record["node_id"])
    made = [node_from(record, record["created_seq"]) for record in nodes]
    for node in made:
        if node.node_id in members:
            node.meta["folded"] = sorted(members[node.node_id])
    folded = {number for group in members.values() for number in group}
    _check_folds(made, folded)
    away = [edge for edge in edges if edge.src in folded or edge.dst in folded]
    live = [edge for edge in edges if edge.src not in folded and edge.dst not in folded]
    try:
        restore(graph, made, live, away, links)
    except GraphError as error:
        raise GraphError(f"the merged graph is not sound: {error.what}", mend="choose use_into or use_from") from None
    if any(node.active is True and not graph.is_attached(node.node_id) for node in made):
        raise GraphError("the merged graph is not sound: a node hangs on nothing", mend="choose use_into or use_from")


def _check_folds(nodes: Iterable[ReasoningNode], folded: set[int]) -> None:
    for node in nodes:
        if (node.active is False) != (node.node_id in folded) and node.kind is not NodeKind.TASK:
            raise GraphError(
                f"the merged graph is not sound: node {node.node_id} is folded in one branch and not in the other",
                mend="resolve the nodes of one fold the same way",
            )
