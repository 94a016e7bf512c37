"""What a mind may ask for: patches, and folds and flushes (seed 000, *Operation Schemas*)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from hivemind.boundary import boundary
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import NodeKind, Notes

__all__ = ["AddEdgeOp", "AddNodeOp", "FlushAndFoldOp", "FlushOp", "FoldOp", "MemoryPatch", "parse", "reads_as_number"]


class _Op(BaseModel):
    model_config = ConfigDict(extra="ignore")


_M = TypeVar("_M", bound=BaseModel)


def _as_end(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class AddNodeOp(_Op):
    """A node to make. `tmp_id` names it within the patch; `kind` is subtask or evidence."""

    tmp_id: str
    kind: NodeKind
    thought: list[Notes] | str


class AddEdgeOp(_Op):
    """An edge to draw, parent → child. An end is the number of a node or a `tmp_id` of the patch."""

    src: Annotated[str, BeforeValidator(_as_end)]
    dst: Annotated[str, BeforeValidator(_as_end)]
    rationale: str = ""


class MemoryPatch(_Op):
    """What one episode adds to the graph."""

    add_nodes: list[AddNodeOp] = []
    add_edges: list[AddEdgeOp] = []


class FlushOp(_Op):
    """A node to take out of sight, and why."""

    id: int
    rationale: str = ""


class FoldOp(_Op):
    """Nodes to fold into one summary, what it says, and why."""

    ids: list[int]
    notes: list[Notes] | str
    rationale: str = ""


class FlushAndFoldOp(_Op):
    """What is to be made smaller. Each id stands in at most one operation."""

    flush_ops: list[FlushOp] = []
    fold_ops: list[FoldOp] = []


def parse(model: type[_M], value: object) -> _M:
    """The value as that model. Raises GraphError that names the place and the problem."""
    if isinstance(value, model):
        return value
    if not isinstance(value, Mapping):
        raise GraphError(f"a {model.__name__} must be an object, not {type(value).__name__}")
    with boundary(model.__name__):
        try:
            return model.model_validate(dict(value))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the object"
            raise GraphError(f"not a valid {model.__name__}: {place}: {first['msg']}") from None


def reads_as_number(text: str) -> bool:
    """Whether a name could be taken for the id of a node."""
    try:
        float(text.strip())
    except ValueError:
        return text.strip().isnumeric()  # "²" and "Ⅳ" are numbers to a reader, not to float
    return True
