"""The reasoning graph of a task, and the memory that keeps a conversation in it."""

from __future__ import annotations

from hivemind.reasoning.edge import Edge, Link
from hivemind.reasoning.errors import BudgetTooSmall, GraphError
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import FLUSHED, SHARED, NodeKind, ReasoningNode
from hivemind.reasoning.notes import Notes
from hivemind.reasoning.ops import AddEdgeOp, AddNodeOp, FlushAndFoldOp, FlushOp, FoldOp, MemoryPatch
from hivemind.reasoning.query import Conflict

__all__ = [
    "FLUSHED",
    "SHARED",
    "AddEdgeOp",
    "AddNodeOp",
    "BudgetTooSmall",
    "Conflict",
    "Edge",
    "FlushAndFoldOp",
    "FlushOp",
    "FoldOp",
    "GraphError",
    "Link",
    "MemoryPatch",
    "NodeKind",
    "Notes",
    "ReasoningGraph",
    "ReasoningNode",
]
