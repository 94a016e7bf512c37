"""What a mind may ask for: patches, and folds and flushes (seed 000, *Operation Schemas*)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from hivemind.reasoning.node import NodeKind
from hivemind.reasoning.notes import Notes

__all__ = ["AddEdgeOp", "AddNodeOp", "FlushAndFoldOp", "FlushOp", "FoldOp", "MemoryPatch"]


class _Op(BaseModel):
    model_config = ConfigDict(extra="ignore")


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
