"""The reasoning graph of a task, and the memory that keeps a conversation in it."""

from __future__ import annotations

from hivemind.reasoning.episodes import RenderedContext, excerpt
from hivemind.reasoning.fold_rules import is_settled
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.graph_index import GraphIndex, GraphMatch, NodeHit
from hivemind.reasoning.graph_log import LOG_NAME, MAIN, Branch, Note, Trace
from hivemind.reasoning.merging import MergeConflict, MergeReport
from hivemind.reasoning.mind_prompts import CompletingMind
from hivemind.reasoning.node import (
    FLUSHED,
    SHARED,
    AddEdgeOp,
    AddNodeOp,
    BudgetTooSmall,
    Edge,
    FlushAndFoldOp,
    FlushOp,
    FoldOp,
    GraphError,
    Link,
    MemoryPatch,
    NodeKind,
    Notes,
    ReasoningNode,
)
from hivemind.reasoning.reasoning_memory import EpisodeHint, ReasoningMemory
from hivemind.reasoning.structure import Conflict
from hivemind.reasoning.task_graph import SNAPSHOT_NAME, TaskGraph

__all__ = [
    "FLUSHED",
    "LOG_NAME",
    "MAIN",
    "SHARED",
    "SNAPSHOT_NAME",
    "AddEdgeOp",
    "AddNodeOp",
    "Branch",
    "BudgetTooSmall",
    "CompletingMind",
    "Conflict",
    "Edge",
    "EpisodeHint",
    "FlushAndFoldOp",
    "FlushOp",
    "FoldOp",
    "GraphError",
    "GraphIndex",
    "GraphMatch",
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
    "RenderedContext",
    "TaskGraph",
    "Trace",
    "excerpt",
    "is_settled",
]
