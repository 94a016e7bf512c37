"""The reasoning graph of a task, and the memory that keeps a conversation in it."""

from __future__ import annotations

from hivemind.reasoning.ask import CompletingMind
from hivemind.reasoning.edge import Edge, Link
from hivemind.reasoning.entries import MAIN, Branch, Note, Trace
from hivemind.reasoning.errors import BudgetTooSmall, GraphError
from hivemind.reasoning.export import draw_picture, save_picture, to_dot, to_mermaid, to_svg
from hivemind.reasoning.finding import Found, GraphIndex, NodeHit
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.memory import ReasoningMemory
from hivemind.reasoning.merge import MergeConflict, MergeReport
from hivemind.reasoning.node import FLUSHED, SHARED, NodeKind, ReasoningNode
from hivemind.reasoning.notes import Notes
from hivemind.reasoning.ops import AddEdgeOp, AddNodeOp, FlushAndFoldOp, FlushOp, FoldOp, MemoryPatch
from hivemind.reasoning.query import Conflict
from hivemind.reasoning.task_graph import TaskGraph

__all__ = [
    "FLUSHED",
    "MAIN",
    "SHARED",
    "AddEdgeOp",
    "AddNodeOp",
    "Branch",
    "BudgetTooSmall",
    "CompletingMind",
    "Conflict",
    "Edge",
    "FlushAndFoldOp",
    "FlushOp",
    "FoldOp",
    "Found",
    "GraphError",
    "GraphIndex",
    "Link",
    "MemoryPatch",
    "MergeConflict",
    "MergeReport",
    "NodeHit",
    "NodeKind",
    "Note",
    "Notes",
    "ReasoningGraph",
    "ReasoningMemory",
    "ReasoningNode",
    "TaskGraph",
    "Trace",
    "draw_picture",
    "save_picture",
    "to_dot",
    "to_mermaid",
    "to_svg",
]
