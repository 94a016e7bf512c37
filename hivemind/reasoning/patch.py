"""Applying what a mind asked for: whole, or not at all (spec 4; seed 000, *Operation Schemas*)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from hivemind.boundary import boundary
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import NodeKind, ReasoningNode, as_turns
from hivemind.reasoning.ops import AddEdgeOp, AddNodeOp, FlushAndFoldOp, MemoryPatch

if TYPE_CHECKING:
    from hivemind.reasoning.graph import ReasoningGraph

__all__ = ["apply_operations", "apply_patch", "parse"]

_ALLOWED = (NodeKind.SUBTASK, NodeKind.EVIDENCE)
_M = TypeVar("_M", bound=BaseModel)


def parse(model: type[_M], value: object) -> _M:
    """The value as that model. Raises GraphError that names the place and the problem."""
    if isinstance(value, model):
        return value
    if not isinstance(value, Mapping):
        raise GraphError(f"a {model.__name__} is an object, not {type(value).__name__}")
    with boundary(model.__name__):
        try:
            return model.model_validate(dict(value))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the object"
            raise GraphError(f"no valid {model.__name__}: {place}: {first['msg']}") from None


def apply_patch(
    graph: ReasoningGraph,
    patch: MemoryPatch | Mapping[str, Any],
    related_turn_ids: Iterable[int] | None,
    *,
    lane: str,
    step: str | None,
) -> list[ReasoningNode]:
    """The new nodes, each with the turns. Raises GraphError naming the operation; then nothing has changed."""
    patch = parse(MemoryPatch, patch)
    if not patch.add_nodes and not patch.add_edges:
        raise GraphError("the patch is empty: it adds no node and no edge")
    turns = [] if related_turn_ids is None else as_turns(related_turn_ids)
    with graph.transaction():
        made: dict[str, int] = {}
        for at, node in enumerate(patch.add_nodes):
            with _Named(f"add_nodes[{at}] ({node.tmp_id!r})"):
                _check_node(node, made)
                made[node.tmp_id] = graph.add_node(node.kind, node.thought, turns, lane=lane, step=step).node_id
        for at, edge in enumerate(patch.add_edges):
            with _Named(f"add_edges[{at}] ({edge.src!r} to {edge.dst!r})"):
                _add_edge(graph, edge, made)
        for name, number in made.items():
            if not graph.is_attached(number):
                raise GraphError(f"the patch leaves its node {name!r} hanging: no edge leads to it from the task")
    return [graph.nodes[number] for number in made.values()]


def _check_node(node: AddNodeOp, made: Mapping[str, int]) -> None:
    if node.kind not in _ALLOWED:
        raise GraphError(f"a patch adds nodes of kind subtask or evidence, not {node.kind.value}")
    if _is_number(node.tmp_id):
        raise GraphError("a tmp_id that reads as a number could be taken for a node", mend="name it 'tmp1'")
    if not node.tmp_id.strip():
        raise GraphError("a tmp_id without a name")
    if node.tmp_id in made:
        raise GraphError("the tmp_id stands there twice")


def _is_number(text: str) -> bool:
    try:
        float(text.strip())
    except ValueError:
        return text.strip().isnumeric()  # "²" and "Ⅳ" are numbers to who reads them, not to float
    return True


def _add_edge(graph: ReasoningGraph, edge: AddEdgeOp, made: Mapping[str, int]) -> None:
    src, dst = _end(graph, edge.src, made), _end(graph, edge.dst, made)
    graph.add_edge(src, dst, edge.rationale)


def _end(graph: ReasoningGraph, end: str, made: Mapping[str, int]) -> int:
    if end in made:
        return made[end]
    if not _is_number(end):
        raise GraphError(f"the patch defines no tmp_id {end!r}")
    node = graph.node(end.strip())
    if node.active is not True:
        raise GraphError(f"node {node.node_id} is not active")
    return node.node_id


def apply_operations(graph: ReasoningGraph, operations: FlushAndFoldOp | Mapping[str, Any]) -> list[ReasoningNode]:
    """The summaries made. Raises GraphError naming the operation; then nothing has changed."""
    operations = parse(FlushAndFoldOp, operations)
    if not operations.flush_ops and not operations.fold_ops:
        raise GraphError("no operation at all")
    seen: set[int] = set()
    summaries = []
    with graph.transaction():
        for at, flush in enumerate(operations.flush_ops):
            with _Named(f"flush_ops[{at}]"):
                _once(seen, [flush.id])
                graph.flush_node(flush.id, flush.rationale)
        for at, fold in enumerate(operations.fold_ops):
            with _Named(f"fold_ops[{at}]"):
                _once(seen, fold.ids)
                if not fold.notes:
                    raise GraphError("a fold without notes would lose what it folds")
                summaries.append(graph.fold_nodes(fold.ids, fold.notes, fold.rationale))
    return summaries


def _once(seen: set[int], ids: Iterable[int]) -> None:
    for number in ids:
        if number in seen:
            raise GraphError(f"node {number} stands in more than one operation")
        seen.add(number)


class _Named:
    """Says in which operation a GraphError came up."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, GraphError):
            raise GraphError(f"{self._name}: {error.what}", mend=error.mend) from None
