"""Snapshots: the seed's JSON and what it lacks (seed 000, *Storage Format*; README.md, *graph.json*)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from hivemind.boundary import boundary
from hivemind.errors import UnknownVersion
from hivemind.reasoning.node import Edge, GraphError, Link, NodeKind, ReasoningNode, derive, node_from
from hivemind.reasoning.structure import Structure

_VERSION = 2
_OPTIONAL = ("drawn", "links")


def snapshot_text(graph: Structure, indent: int | None = None, **beside: Any) -> str:
    """The snapshot, and what stands beside it, as JSON. Optional parts (links, drawn) stand there only where there are some."""
    found: dict[str, Any] = {
        "version": _VERSION,
        "nodes": graph.nodes,
        "edges": graph.edges,
        "drawn": graph.drawn if graph.folded_into else [],
        "links": [link for _, link in sorted(graph.links.items())],
        "next_id": graph.next_id,
        "seq": graph.seq,
        "created_seq": {number: node.created_seq for number, node in graph.nodes.items()},
        **beside,
    }
    found = {name: part for name, part in found.items() if name not in _OPTIONAL or part}
    separators = (",", ":") if indent is None else None

    def as_json(item: ReasoningNode | Edge | Link) -> dict[str, Any]:
        """Of an edge the relation only where the rationale and the kinds do not give it."""
        if isinstance(item, ReasoningNode):
            return item.as_dict()
        if isinstance(item, Link):
            return asdict(item)
        record: dict[str, Any] = {"src": item.src, "dst": item.dst, "rationale": item.rationale}
        if item.relation != derive(item.rationale, graph.nodes[item.src].kind, graph.nodes[item.dst].kind):
            record["relation"] = item.relation
        return record

    return json.dumps(
        found, default=as_json, ensure_ascii=False, indent=indent, separators=separators, check_circular=False
    )


def restore_snapshot(graph: Structure, snapshot: Mapping[str, Any]) -> None:
    """Fill an empty graph from a snapshot. Raises UserError for a broken one, UnknownVersion for another version."""
    if not isinstance(snapshot, Mapping):
        raise GraphError(f"a snapshot must be a mapping, not {snapshot!r}")
    with boundary("snapshot of a graph"):
        version = snapshot.get("version", _VERSION)
        if version != _VERSION:
            raise UnknownVersion(f"a graph of version {version}, this program knows version {_VERSION}")
        created = snapshot.get("created_seq") or {}
        nodes = [node_from(record, int(created.get(name, 0))) for name, record in snapshot["nodes"].items()]
        edges = list(map(Edge.from_dict, snapshot.get("drawn") or snapshot["edges"]))
        links = [
            Link(int(link["src"]), int(link["dst"]), str(link["relation"]), int(link.get("created_seq", 0)))
            for link in snapshot.get("links") or ()
        ]
        next_id, graph.seq = int(snapshot.get("next_id", 1)), int(snapshot.get("seq", 0))
        restore(graph, nodes, edges, links)
        graph.next_id = max(graph.next_id, next_id)


def restore(graph: Structure, nodes: Iterable[ReasoningNode], edges: Sequence[Edge], links: Iterable[Link]) -> None:
    """Fill an empty graph; `edges` are those that were drawn. Raises GraphError if the graph would not be sound."""
    for node in sorted(nodes, key=lambda node: node.node_id):
        if node.node_id in graph.nodes or node.node_id < 1:
            raise GraphError(f"node {node.node_id} is there twice, or its number is below 1")
        graph.take_node(node)
    for edge in edges:
        src, dst = graph.nodes.get(edge.src), graph.nodes.get(edge.dst)
        if src is None or dst is None or src is dst:
            raise GraphError(f"an edge from {edge.src} to {edge.dst}: there is no such node, or it is the same one")
        if dst.kind is NodeKind.TASK:
            raise GraphError(f"an edge from {edge.src} to {edge.dst}: nothing stands above the task node")
        if edge.src not in graph.parent_ids(edge.dst):
            named = edge if edge.relation else replace(edge, relation=derive(edge.rationale, src.kind, dst.kind))
            graph.take_edge(named)
    for summary in graph.by_kind(NodeKind.SUMMARY):
        members = tuple(dict.fromkeys(summary.meta.get("folded", ())))
        for member in members:
            one = graph.nodes.get(member)
            if one is None or member in graph.folded_into or one.active is not False or member >= summary.node_id:
                raise GraphError(f"summary {summary.node_id} can't stand for node {member}")
        if members:
            graph.take_fold(summary.node_id, members)
    if graph.folded_into or any(edge.src > edge.dst for edge in edges):  # else no cycle can be
        graph.in_order()
    for link in links:
        if link.src not in graph.nodes or link.dst not in graph.nodes:
            raise GraphError(f"a link from {link.src} to {link.dst}: there is no such node")
        graph.take_link(link)
