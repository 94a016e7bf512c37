"""The three-way merge of two branches of a task's graph: the parts to take over, and the conflicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hivemind.boundary import boundary
from hivemind.frozen import frozen
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import Edge, GraphError, Link, NodeKind, node_from
from hivemind.reasoning.snapshot import restore

_Parts = dict[str, dict[str, Any]]
_BranchGraphs = tuple[ReasoningGraph, ReasoningGraph]
"""A branch's graph at the merge base, and its graph now."""
_CHOICE_REMEDY = "choose use_into or use_from"


@frozen
class MergeConflict:
    """A part that both branches changed differently. `name` is `node 7`, `edge 3 → 7` or `link 3 blocks 7`."""

    name: str
    base: dict[str, Any] | None
    use_from: dict[str, Any] | None
    use_into: dict[str, Any] | None


@frozen
class MergeReport:
    """The result of a merge or of a dry run: the names of the parts (nodes, edges, links) to merge, and the remaining
    conflicts."""

    merged_names: tuple[str, ...]
    conflicts: tuple[MergeConflict, ...]
    written: bool


def _parts(graph: ReasoningGraph) -> _Parts:
    """Return the nodes, drawn edges and links of a graph as JSON, by name. The field `folded_into` of a folded node is
    its summary's id."""
    parts: _Parts = {}
    for number, node in graph.nodes.items():
        record = node.as_dict() | {"created_seq": node.created_seq}
        if "folded" in node.meta:
            record["meta"] = {key: value for key, value in record["meta"].items() if key != "folded"}
        if number in graph.folded_into:
            record["folded_into"] = graph.folded_into[number]
        parts[f"node {number}"] = record
    parts |= {f"edge {edge.src} → {edge.dst}": asdict(edge) for edge in graph.drawn}
    return parts | {f"link {link.src} {link.relation} {link.dst}": asdict(link) for link in graph.links.values()}


def merge_branches(
    source: _BranchGraphs,
    into: _BranchGraphs,
    operation: Mapping[str, Any],
    resolve: str | Mapping[str, str] | None,
    *,
    dry_run: bool,
) -> MergeReport:
    """Merge `source` three-way into the graph of `into`, unless conflicts remain or in a dry run. Return the report.

    `operation` is the log's entry of the merge without its parts. `resolve` is as in `TaskGraph.merge`. Raises
    GraphError.
    """
    merged_parts, conflicts, has_decision = _compare_branches(source, into, resolve)
    report = MergeReport(tuple(merged_parts), tuple(conflicts), written=has_decision and not conflicts and not dry_run)
    if report.written:
        apply_merge(into[1], {**operation, "parts": merged_parts})
    return report


def _compare_branches(
    source: _BranchGraphs, into: _BranchGraphs, resolve: str | Mapping[str, str] | None
) -> tuple[dict[str, Any], list[MergeConflict], bool]:
    """Return the parts of `source` to merge into `into`, the unresolved conflicts, and True if there is any difference
    to merge or decided conflict.

    Raises GraphError for a bad `resolve`.
    """
    (base_from, source_parts), (base_into, into_parts) = map(_parts, source), map(_parts, into)
    merged_parts: dict[str, Any] = {}
    conflicts: list[MergeConflict] = []
    has_decision = False
    for name in sorted(base_from.keys() | base_into.keys() | source_parts.keys() | into_parts.keys()):
        source_part, into_part = source_parts.get(name), into_parts.get(name)
        if source_part in (base_from.get(name), into_part):
            continue
        choice: str | None = "use_from"
        if into_part != base_into.get(name):
            choice = resolve.get(name) if isinstance(resolve, Mapping) else resolve
            if choice not in (None, "use_from", "use_into"):
                raise GraphError(f"{choice!r} resolves no conflict", remedy="use use_from or use_into")
        if choice is None:
            conflicts.append(MergeConflict(name, base_from.get(name), source_part, into_part))
        elif choice == "use_from":
            merged_parts[name] = source_part
        has_decision = has_decision or choice is not None
    return merged_parts, conflicts, has_decision


def apply_merge(graph: ReasoningGraph, operation: Mapping[str, Any]) -> None:
    """Replace the nodes, edges and links that a merge operation names; a part that is None is removed. Raises
    GraphError for an inconsistent result."""
    records: dict[str, list[dict[str, Any]]] = {"node": [], "edge": [], "link": []}
    for name, part in {**_parts(graph), **operation["parts"]}.items():
        if part is not None:
            records[name.partition(" ")[0]].append(dict(part))
    members: dict[int, list[int]] = {}
    for record in records["node"]:
        if "folded_into" in record:
            members.setdefault(record["folded_into"], []).append(record["node_id"])
    with boundary("merge of branches"):
        nodes = [node_from(record, record["created_seq"]) for record in records["node"]]
        edges = [Edge.from_dict(record) for record in records["edge"]]
        links = [Link(**record) for record in records["link"]]
    folded_ids = {number for group in members.values() for number in group}
    for node in nodes:
        if node.node_id in members:
            node.meta["folded"] = sorted(members[node.node_id])
        if (node.active is False) != (node.node_id in folded_ids) and node.kind is not NodeKind.TASK:
            raise GraphError(
                f"the merged graph is inconsistent: node {node.node_id} is folded in only one of the branches",
                remedy="resolve the nodes of one fold the same way",
            )
    merged = type(graph)()
    try:
        restore(merged, nodes, edges, links)
    except GraphError as error:
        raise GraphError(f"the merged graph is inconsistent: {error.message}", remedy=_CHOICE_REMEDY) from None
    if not all(merged.is_attached(node.node_id) for node in merged.active()):
        raise GraphError("the merged graph is inconsistent: a node is unattached", remedy=_CHOICE_REMEDY)
    graph.replace_with(merged)
    graph.note(dict(operation))
