"""Symbolic memory: blocks refer to content, a working memory holds the blocks, and contexts are built from blocks."""

from __future__ import annotations

from hivemind.memory.actions import create_memory_from_action
from hivemind.memory.blocks import (
    ContextMemoryBlock,
    FileMemoryBlock,
    HistoryMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MemoryType,
    MessageMemoryBlock,
    Priority,
    StatusMemoryBlock,
    TaskMemoryBlock,
)
from hivemind.memory.compression import MemoryCompressor
from hivemind.memory.context import ContextBuilder
from hivemind.memory.loading import BlockContent, ContentLoader, SourceContent
from hivemind.memory.manager import Changes, MemoryJanitor, WorkingMemoryManager
from hivemind.memory.selection import Choice, CriticalOverBudget, MemorySelector, RelevanceScorer, Selection
from hivemind.tokens import count_tokens

__all__ = [
    "BlockContent",
    "Changes",
    "Choice",
    "ContentLoader",
    "ContextBuilder",
    "ContextMemoryBlock",
    "CriticalOverBudget",
    "FileMemoryBlock",
    "HistoryMemoryBlock",
    "KnowledgeMemoryBlock",
    "MemoryBlock",
    "MemoryCompressor",
    "MemoryJanitor",
    "MemorySelector",
    "MemoryType",
    "MessageMemoryBlock",
    "Priority",
    "RelevanceScorer",
    "Selection",
    "SourceContent",
    "StatusMemoryBlock",
    "TaskMemoryBlock",
    "WorkingMemoryManager",
    "count_tokens",
    "create_memory_from_action",
]
