"""Write snapshots of a graph, and restore graphs from them (README.md, *graph.json*)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from hivemind.boundary import boundary
from hivemind.errors import UnknownVersion
from hivemind.reasoning.node import Edge, GraphError, Link, NodeKind, ReasoningNode, derive_relation, node_from
from hivemind.reasoning.structure import Structure

_VERSION = 2
_OPTIONAL = ("drawn", "links")


def snapshot_text(graph: Structure, indent: int | None = None, **extra_fields: Any) -> str:
    """Return the snapshot and `extra_fields` as JSON text. Empty optional parts (links, drawn) are left out."""
    snapshot: dict[str, Any] = {
        "version": _VERSION,
        "nodes": graph.nodes,
        "edges": graph.edges,
        "drawn": graph.drawn if graph.folded_into else [],
        "links": [link for _, link in sorted(graph.links.items())],
        "next_id": graph.next_id,
        "seq": graph.seq,
        "created_seq": {number: node.created_seq for number, node in graph.nodes.items()},
        **extra_fields,
    }
    snapshot = {name: part for name, part in snapshot.items() if name not in _OPTIONAL or part}
    separators = (",", ":") if indent is None else None

    def as_json(element: ReasoningNode | Edge | Link) -> dict[str, Any]:
        """Convert a node, edge or link to JSON. An edge's relation is left out if it can be derived."""
        if isinstance(element, ReasoningNode):
            return element.as_dict()
        if isinstance(element, Link):
            return asdict(element)
        record: dict[str, Any] = {"src": element.src, "dst": element.dst, "rationale": element.rationale}
        if element.relation != derive_relation(
            element.rationale, graph.nodes[element.src].kind, graph.nodes[element.dst].kind
        ):
            record["relation"] = element.relation
        return record

    return json.dumps(
        snapshot, default=as_json, ensure_ascii=False, indent=indent, separators=separators, check_circular=False
    )


def restore_snapshot(graph: Structure, snapshot: Mapping[str, Any]) -> None:
    """Fill an empty graph from a snapshot. Raises UserError if the snapshot is invalid, UnknownVersion if it has
    another version."""
    if not isinstance(snapshot, Mapping):
        raise GraphError(f"a snapshot must be a mapping, not {snapshot!r}")
    with boundary("snapshot of a graph"):
        version = snapshot.get("version", _VERSION)
        if version != _VERSION:
            raise UnknownVersion(f"a graph of version {version}, this program knows version {_VERSION}")
        created_seqs = snapshot.get("created_seq") or {}
        nodes = [node_from(record, int(created_seqs.get(name, 0))) for name, record in snapshot["nodes"].items()]
        edges = list(map(Edge.from_dict, snapshot.get("drawn") or snapshot["edges"]))
        links = [
            Link(int(link["src"]), int(link["dst"]), str(link["relation"]), int(link.get("created_seq", 0)))
            for link in snapshot.get("links") or ()
        ]
        next_id, graph.seq = int(snapshot.get("next_id", 1)), int(snapshot.get("seq", 0))
        restore(graph, nodes, edges, links)
        graph.next_id = max(graph.next_id, next_id)


def restore(graph: Structure, nodes: Iterable[ReasoningNode], edges: Sequence[Edge], links: Iterable[Link]) -> None:
    """Fill an empty graph. `edges` are the drawn edges, in which folded nodes are not replaced by summaries. Raises
    GraphError if the graph would be inconsistent."""
    for node in sorted(nodes, key=lambda node: node.node_id):
        if node.node_id in graph.nodes or node.node_id < 1:
            raise GraphError(f"node {node.node_id} is a duplicate, or its id is below 1")
        graph.insert_node(node)
    for edge in edges:
        src, dst = graph.nodes.get(edge.src), graph.nodes.get(edge.dst)
        if src is None or dst is None or src is dst:
            raise GraphError(f"an edge from {edge.src} to {edge.dst}: unknown nodes, or the same node twice")
        if dst.kind is NodeKind.TASK:
            raise GraphError(f"an edge from {edge.src} to {edge.dst}: the task node has no parents")
        if edge.src not in graph.parent_ids(edge.dst):
            completed_edge = (
                edge if edge.relation else replace(edge, relation=derive_relation(edge.rationale, src.kind, dst.kind))
            )
            graph.insert_edge(completed_edge)
    for summary in graph.by_kind(NodeKind.SUMMARY):
        members = tuple(dict.fromkeys(summary.meta.get("folded", ())))
        for member in members:
            member_node = graph.nodes.get(member)
            if (
                member_node is None
                or member in graph.folded_into
                or member_node.active is not False
                or member >= summary.node_id
            ):
                raise GraphError(f"node {member} can't be folded into summary {summary.node_id}")
        if members:
            graph.insert_fold(summary.node_id, members)
    if graph.folded_into or any(edge.src > edge.dst for edge in edges):  # otherwise there can be no cycle
        graph.in_order()
    for link in links:
        if link.src not in graph.nodes or link.dst not in graph.nodes:
            raise GraphError(f"a link from {link.src} to {link.dst}: unknown node")
        graph.insert_link(link)
