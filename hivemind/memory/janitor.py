"""Which blocks have had their time (spec 2, *Lifecycle*; seed 004, *Memory Decay and Cleanup*)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from hivemind.memory.blocks import (
    FileMemoryBlock,
    HistoryMemoryBlock,
    MemoryBlock,
    MemoryType,
    MessageMemoryBlock,
    Priority,
    TaskMemoryBlock,
)
from hivemind.memory.loading import moved_to
from hivemind.memory.manager import WorkingMemoryManager

__all__ = ["MemoryJanitor"]

HISTORY = timedelta(hours=1)
FAINT = 0.1
ENDED = frozenset({"done", "failed", "finished", "cancelled"})


class MemoryJanitor:
    """Drops blocks that expired, faded, grew old, or whose task, file or mail is gone. Never CRITICAL ones, never ROM.

    `task_ended(task_id)`, `file_exists(location)` and `mail_deleted(full_path)` know the hive. Without them: a task ended if
    its block's status says so; a file or mail is gone if its location is absolute and nothing lies there (a mail: nor in
    cur/). `dropped` says of each block that the last call dropped (by id) why.
    """

    def __init__(
        self,
        *,
        task_ended: Callable[[str], bool] | None = None,
        file_exists: Callable[[str], bool] | None = None,
        mail_deleted: Callable[[str], bool] | None = None,
    ) -> None:
        self.task_ended = task_ended
        self.file_exists = file_exists or (lambda location: not os.path.isabs(location) or os.path.exists(location))
        self.mail_deleted = mail_deleted or _is_gone
        self.dropped: dict[str, str] = {}

    def cleanup_memories(self, blocks: Iterable[MemoryBlock], now: datetime | None = None) -> list[MemoryBlock]:
        """The blocks that stay, in their order."""
        moment = datetime.now(UTC) if now is None else now
        self.dropped = {}
        kept: list[MemoryBlock] = []
        for block in blocks:
            reason = self.reason(block, moment)
            if reason is None:
                kept.append(block)
            else:
                self.dropped[block.id] = reason
        return kept

    def reason(self, block: MemoryBlock, now: datetime) -> str | None:
        """Why the block is to be dropped at `now`, or None if it stays."""
        if block.priority is Priority.CRITICAL or block.type is MemoryType.ROM:
            return None
        if block.expiry is not None and now > block.expiry:
            return f"expired at {block.expiry.isoformat()}"
        if block.priority is Priority.LOW and block.confidence < FAINT:
            return f"LOW with a confidence of {block.confidence:g}, below {FAINT:g}"
        if isinstance(block, HistoryMemoryBlock):
            if block.priority is not Priority.HIGH and now - block.timestamp > HISTORY:
                return f"history of {block.timestamp.isoformat()}, older than an hour"
        elif isinstance(block, FileMemoryBlock):
            if not self.file_exists(block.location):
                return f"the file {block.location} no longer exists"
        elif isinstance(block, MessageMemoryBlock) and block.full_path and self.mail_deleted(block.full_path):
            return f"the mail {block.full_path} was deleted"
        return self._of_ended_task(block)

    def _of_ended_task(self, block: MemoryBlock) -> str | None:
        if isinstance(block, TaskMemoryBlock):
            if block.status in ENDED or (self.task_ended is not None and self.task_ended(block.task_id)):
                return f"task {block.task_id} ended"
            return None
        task = block.metadata.get("task_id")
        if isinstance(task, str) and self.task_ended is not None and self.task_ended(task):
            return f"task {task} ended"
        return None

    def tidy(self, manager: WorkingMemoryManager, now: datetime | None = None) -> dict[str, str]:
        """Remove from a manager what has had its time; returns `dropped`."""
        self.cleanup_memories(manager.symbolic_memory, now)
        for memory_id in self.dropped:
            manager.remove_memory(memory_id)
        return self.dropped


def _is_gone(full_path: str) -> bool:
    return os.path.isabs(full_path) and not os.path.exists(moved_to(full_path, str))
