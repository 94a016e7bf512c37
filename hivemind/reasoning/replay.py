"""From the operations of a log back to a graph (README.md, *Operations*)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import CARD_FIELDS

if TYPE_CHECKING:
    from hivemind.reasoning.graph import ReasoningGraph

__all__ = ["highest_id", "replay"]


def replay(graph: ReasoningGraph, operations: Sequence[Mapping[str, Any]], seq: int, now: str | None) -> None:
    """Do the operations of one record again, as change number `seq`; inside a boundary, as others wrote the record.

    Raises GraphError if one doesn't fit the graph.
    """
    graph.seq, graph.now = seq - 1, now
    try:
        with graph.transaction():
            for operation in operations:
                _do(graph, operation)
    finally:
        graph.seq, graph.now = seq, None


def _do(graph: ReasoningGraph, op: Mapping[str, Any]) -> None:
    match op["op"]:
        case "node":
            meta = dict(op.get("meta") or {})
            fields = {name: meta.pop(name) for name in CARD_FIELDS if name in meta}
            graph.next_id = op["id"]
            graph.add_node(op["kind"], op["thought"], op["related_turn_ids"], meta=meta, **fields)
        case "edge":
            graph.add_edge(op["src"], op["dst"], op["rationale"], op.get("relation"))
        case "link":
            graph.add_link(op["src"], op["dst"], op["relation"])
        case "set":
            graph.set_fields(graph.node(op["id"]), op["fields"])
        case "flush":
            graph.flush_node(op["id"], op["rationale"])
        case "fold":
            graph.next_id = op["id"]
            graph.fold_nodes(op["ids"], op["notes"], op["rationale"])
        case "unfold":
            graph.unfold(op["id"])
        case "merge":
            from hivemind.reasoning.merge import put

            put(graph, op)
        case "note" | "trace" | "branch" | "branch_deleted" | "commit" | "abort":
            pass  # no part of the graph
        case other:
            raise GraphError(f"an operation {other!r} that this program does not know")


def highest_id(operations: Sequence[Mapping[str, Any]]) -> int:
    """The highest id of a node that the operations make, 0 if they make none."""
    return max((op["id"] for op in operations if op.get("op") in ("node", "fold")), default=0)
