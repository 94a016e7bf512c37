"""Snapshots: the seed's JSON and what it lacks (seed 000, *Storage Format*; README.md, *graph.json*)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hivemind.boundary import boundary
from hivemind.errors import UnknownVersion
from hivemind.reasoning.bulk import uncollected
from hivemind.reasoning.edge import Edge, Link, derive, edge_from
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import NodeKind, ReasoningNode, node_from, node_to_dict
from hivemind.reasoning.order import as_way
from hivemind.reasoning.structure import Structure, standing

if TYPE_CHECKING:
    from hivemind.reasoning.graph import ReasoningGraph
    from hivemind.reasoning.readable import ReadableGraph

__all__ = ["VERSION", "beside", "from_dict", "restore", "to_dict", "told_relation"]

VERSION = 1
_TASK = NodeKind.TASK  # looked up once: an enumeration finds its members by Python code


def to_dict(graph: ReadableGraph) -> dict[str, Any]:
    """The snapshot. Optional parts (links, folded_edges) stand there only where there are some."""
    with uncollected():
        return _to_dict(graph)


def _to_dict(graph: ReadableGraph) -> dict[str, Any]:
    nodes = graph.nodes
    snapshot: dict[str, Any] = {
        "version": VERSION,
        "nodes": {str(number): node_to_dict(node) for number, node in nodes.items()},
        "edges": [_edge_to_dict(edge, nodes) for edge in graph.structure.live()],
    }
    folded = graph.structure.folded()
    if folded:
        snapshot["folded_edges"] = [_edge_to_dict(edge, nodes) for edge in folded]
    return snapshot | beside(graph)


def beside(graph: ReadableGraph) -> dict[str, Any]:
    """What a snapshot has after its nodes and edges."""
    found: dict[str, Any] = {}
    if graph.links:
        found["links"] = [
            {"src": link.src, "dst": link.dst, "relation": link.relation, "created_seq": link.created_seq}
            for _, link in sorted(graph.links.items())
        ]
    created = {str(number): node.created_seq for number, node in graph.nodes.items()}
    return found | {"next_id": graph.next_id, "seq": graph.seq, "created_seq": created}


def told_relation(edge: Edge, nodes: Mapping[int, ReasoningNode]) -> str | None:
    """The relation of an edge, where its rationale and the kinds do not give it."""
    relation = edge.relation
    return None if relation == derive(edge.rationale, nodes[edge.src].kind, nodes[edge.dst].kind) else relation


def _edge_to_dict(edge: Edge, nodes: Mapping[int, ReasoningNode]) -> dict[str, Any]:
    record: dict[str, Any] = {"src": edge.src, "dst": edge.dst, "rationale": edge.rationale}
    relation = told_relation(edge, nodes)
    return record if relation is None else record | {"relation": relation}


def from_dict(snapshot: Mapping[str, Any], graph: ReasoningGraph) -> ReasoningGraph:
    """Fill an empty graph from a snapshot. Raises UserError for a broken one, UnknownVersion for another version."""
    if not isinstance(snapshot, Mapping):
        raise GraphError(f"a snapshot is a mapping, not {snapshot!r}")
    with uncollected(), boundary("snapshot of a graph"):
        return _from_dict(snapshot, graph)


def _from_dict(snapshot: Mapping[str, Any], graph: ReasoningGraph) -> ReasoningGraph:
    version = snapshot.get("version", VERSION)
    if version != VERSION:
        raise UnknownVersion(f"a graph of version {version}, this program knows version {VERSION}")
    created = snapshot.get("created_seq") or {}
    nodes = [node_from(record, int(created.get(name, 0))) for name, record in snapshot["nodes"].items()]
    live = [edge_from(record) for record in snapshot["edges"]]
    folded = [edge_from(record) for record in snapshot.get("folded_edges") or ()]
    links = [
        Link(int(link["src"]), int(link["dst"]), str(link["relation"]), int(link.get("created_seq", 0)))
        for link in snapshot.get("links") or ()
    ]
    next_id, graph.seq = int(snapshot.get("next_id", 1)), int(snapshot.get("seq", 0))
    restore(graph, nodes, live, folded, links)
    graph.next_id = max([next_id, *(number + 1 for number in graph.nodes)])
    return graph


def restore(
    graph: ReasoningGraph,
    nodes: Iterable[ReasoningNode],
    live: Iterable[Edge],
    folded: Iterable[Edge],
    links: Iterable[Link],
) -> None:
    """Fill an empty graph. `folded` are base edges with a folded end; live edges that follow from them are not needed.

    Raises GraphError for what is no sound graph.
    """
    for node in sorted(nodes, key=attrgetter("node_id")):
        if node.node_id in graph.nodes or node.node_id < 1:
            raise GraphError(f"node {node.node_id} is there twice, or its number is below 1")
        graph.take(node)
    structure = graph.structure
    structure.folded_into = _folded_into(graph)
    ends = _ends(structure.folded_into)
    structure.inside = {number: [] for number in structure.folded_into.values()}
    between: dict[tuple[int, int], list[Edge]] = {}
    for edge in folded:
        _check(graph, edge)
        src, dst, summary = _meet(edge, structure.folded_into, ends)
        if summary is None:
            between.setdefault((src, dst), []).append(edge)
        else:
            _keep_inside(structure, summary, src, dst, edge)
    _draw(graph, (standing(src, dst, bases) for (src, dst), bases in between.items()))
    _draw(graph, live, drawn=between)
    for link in links:
        if link.src not in graph.nodes or link.dst not in graph.nodes:
            raise GraphError(f"a link from {link.src} to {link.dst}: there is no such node")
        graph.take_link(link)


def _folded_into(graph: ReasoningGraph) -> dict[int, int]:
    nodes, into = graph.nodes, dict[int, int]()
    for number in graph.index.of_kind(NodeKind.SUMMARY):
        for member in nodes[number].meta.get("folded", ()):
            if member not in nodes or member in into or nodes[member].active is not False or member >= number:
                raise GraphError(f"summary {number} can't stand for node {member}")
            into[member] = number
    return into


def _ends(folded_into: Mapping[int, int]) -> dict[int, int]:
    """The node that stands for each folded one now. A summary is newer than its members: newest first is enough."""
    ends: dict[int, int] = {}
    for member in sorted(folded_into, reverse=True):
        summary = folded_into[member]
        ends[member] = ends.get(summary, summary)
    return ends


def _meet(edge: Edge, folded_into: Mapping[int, int], ends: Mapping[int, int]) -> tuple[int, int, int | None]:
    """The ends of the live edge that a base edge has become, and the summary inside which it lies, if in one."""
    src, dst = ends.get(edge.src, edge.src), ends.get(edge.dst, edge.dst)
    if src != dst:
        return src, dst, None
    above = {edge.src: 0}  # summaries above the one end, with the member below each
    below = edge.src
    while below in folded_into:
        above[folded_into[below]] = below
        below = folded_into[below]
    end = edge.dst
    while folded_into[end] not in above:
        end = folded_into[end]
    summary = folded_into[end]
    return above[summary], end, summary


def _keep_inside(structure: Structure, summary: int, src: int, dst: int, base: Edge) -> None:
    edges = structure.inside[summary]
    for at, edge in enumerate(edges):
        if (edge.src, edge.dst) == (src, dst):
            edges[at] = standing(src, dst, [*edge.bases, base])
            return
    edges.append(standing(src, dst, [base]))


def _check(graph: ReasoningGraph, edge: Edge) -> None:
    nodes = graph.nodes
    src, dst = nodes.get(edge.src), nodes.get(edge.dst)
    if src is None or dst is None or src is dst:
        raise GraphError(f"an edge from {edge.src} to {edge.dst}: there is no such node, or it is the same one")
    if dst.kind is _TASK:
        raise GraphError(f"an edge from {edge.src} to {edge.dst}: nothing stands above the task node")
    if not edge.relation:
        edge.relation = derive(edge.rationale, src.kind, dst.kind)


def _draw(graph: ReasoningGraph, edges: Iterable[Edge], drawn: Collection[tuple[int, int]] = ()) -> None:
    """Draw live edges but for those that are drawn; of two between the same ends the first counts."""
    structure = graph.structure
    folded_into, out = structure.folded_into, structure.out
    for edge in edges:
        src, dst = edge.src, edge.dst
        _check(graph, edge)
        if folded_into and (src in folded_into or dst in folded_into):
            raise GraphError(f"an edge from {src} to {dst}: one of them is folded away")
        if (drawn and (src, dst) in drawn) or (src in out and dst in out[src]):
            continue
        path = structure.insert(edge)
        if path is not None:
            raise GraphError(f"the edges close a cycle: {as_way(path)}")
        graph.tied(dst)
