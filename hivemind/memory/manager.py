"""The working memory of one agent: its blocks, how they are saved, and when they are dropped (spec 2; seed 004)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import load_record, write
from hivemind.fs.records import as_line
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
    plain,
)
from hivemind.memory.loading import moved_to

_KIND, _VERSION = "working-memory", 1
_MEND = "hivemind doctor --fix sets it aside"
_HISTORY = timedelta(hours=1)
_FAINT = 0.1
_ENDED = frozenset({"done", "failed", "finished", "cancelled"})
_CLASSES: dict[str, type[MemoryBlock]] = {
    "file": FileMemoryBlock,
    "status": StatusMemoryBlock,
    "task": TaskMemoryBlock,
    "message": MessageMemoryBlock,
    "knowledge": KnowledgeMemoryBlock,
    "history": HistoryMemoryBlock,
    "context": ContextMemoryBlock,
    "block": MemoryBlock,
}
_NAMES = {kind: name for name, kind in _CLASSES.items()}
_FIELDS = {kind: [item.name for item in fields(kind) if item.init] for kind in _NAMES}


def _as_json(block: MemoryBlock) -> dict[str, Any]:
    record = {name: plain(getattr(block, name)) for name in _FIELDS[type(block)]}
    if isinstance(block, MessageMemoryBlock) and not block.own_priority:
        record["priority"] = None  # it follows `read`
    return {"class": _NAMES[type(block)], **record}


def _from_json(record: dict[str, Any]) -> MemoryBlock:
    record["type"] = MemoryType(record["type"])
    record["priority"] = None if record["priority"] is None else Priority(record["priority"])
    for name in ("timestamp", "expiry"):
        record[name] = None if record[name] is None else datetime.fromisoformat(record[name])
    return _CLASSES[record.pop("class")](**record)


@frozen
class Changes:
    """Ids, each list in the order of the context that it is from (`left`: the earlier one's)."""

    entered: list[str]
    left: list[str]
    changed: list[str]


class _Load:
    """`WorkingMemoryManager.load(path)` returns a new manager; `manager.load(path)` fills the one that is there."""

    def __get__(
        self, manager: WorkingMemoryManager | None, kind: type[WorkingMemoryManager]
    ) -> Callable[[str | os.PathLike[str]], WorkingMemoryManager]:
        return (kind() if manager is None else manager).refill


class WorkingMemoryManager:
    """Blocks by id, one per id, in the order in which they were added. `max_tokens` is the budget of a context.

    `memory_index` is a live mapping from id to block, `context_memory` the context that was built last (set by whoever
    builds it).
    """

    load = _Load()

    def __init__(self, max_tokens: int = 100_000) -> None:
        self.max_tokens = max_tokens
        self.context_memory: list[dict[str, Any]] = []
        self._blocks: dict[str, MemoryBlock] = {}
        self._saved: tuple[str, bytes] | None = None  # the file that was read or written last, and what it holds
        self.memory_index: Mapping[str, MemoryBlock] = MappingProxyType(self._blocks)

    @property
    def symbolic_memory(self) -> list[MemoryBlock]:
        """The blocks, in the order in which they were added."""
        return list(self._blocks.values())

    def __iter__(self) -> Iterator[MemoryBlock]:
        return iter(self._blocks.values())

    def __len__(self) -> int:
        return len(self._blocks)

    def add_memory(self, block: MemoryBlock) -> None:
        """Add a block, in the place of the one with the same id if there is one."""
        self._blocks[block.id] = block

    def remove_memory(self, memory_id: str) -> bool:
        """Remove a block; False if there was none of that id."""
        return self._blocks.pop(memory_id, None) is not None

    def update_confidence(self, memory_id: str, confidence: float) -> bool:
        """Set a block's confidence (0 to 1); False if there is none of that id. Raises UserError for another number."""
        if not 0.0 <= confidence <= 1.0:
            raise UserError(f"a confidence must be between 0 and 1, not {confidence!r}")
        block = self._blocks.get(memory_id)
        if block is not None:
            block.confidence = confidence
        return block is not None

    def get(self, memory_id: str) -> MemoryBlock | None:
        """The block of that id, or None."""
        return self._blocks.get(memory_id)

    def blocks_by_type(self, kind: MemoryType) -> list[MemoryBlock]:
        """The blocks of a type, in the order in which they were added."""
        return [block for block in self if block.type is kind]

    def referring_to(self, memory_id: str) -> list[MemoryBlock]:
        """The blocks that refer to a block: contexts by `related_ids`, tasks by `dependencies`; ordered by id."""
        return sorted((block for block in self if memory_id in _referred(block)), key=lambda block: block.id)

    def diff(self, previous_cycle: Iterable[Mapping[str, Any]]) -> Changes:
        """What entered, left and changed between an earlier context and `context_memory` (seed 004, *Differential Memory*)."""
        before = {entry["id"]: entry for entry in previous_cycle}
        now = {entry["id"]: entry for entry in self.context_memory}
        return Changes(
            entered=[name for name in now if name not in before],
            left=[name for name in before if name not in now],
            changed=[name for name, entry in now.items() if name in before and entry != before[name]],
        )

    def stats(self) -> dict[str, Any]:
        """How many blocks there are, by type and by priority, and how many entries the last context had."""
        return {
            "blocks": len(self._blocks),
            "by_type": dict(sorted(Counter(block.type.value for block in self).items())),
            "by_priority": dict(sorted(Counter(block.priority.name.lower() for block in self).items())),
            "context_entries": len(self.context_memory),
            "max_tokens": self.max_tokens,
        }

    def save(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        """Save all blocks, whole or not at all; writes nothing if the file holds them already.

        Raises UserError if the disk does not take them, UnknownVersion for a file of another version; both leave the file.
        """
        path, raw = os.fspath(path), self._as_bytes()
        if self._saved == (path, raw) and os.path.exists(path):
            return
        if self._saved is None or self._saved[0] != path:
            load_record(path, _KIND, _VERSION)  # refuses to replace what this program does not know
        try:
            write(path, raw, durable=durable)
        except OSError as error:
            raise UserError(f"cannot be written ({error.strerror})", where=path) from error
        self._saved = path, raw

    def refill(self, path: str | os.PathLike[str]) -> WorkingMemoryManager:
        """Put what was saved there in the place of what is held; returns this manager.

        Raises DamagedRecord, Unreadable, UnknownVersion, and UserError if there is no such file.
        """
        path = os.fspath(path)
        record = load_record(path, _KIND, _VERSION)
        if record is None:
            raise UserError("no working memory is there", where=path)
        with boundary("working memory", path, mend=_MEND):
            blocks = [_from_json(block) for block in record["blocks"]]
            self.max_tokens = int(record["max_tokens"])
        self._blocks.clear()
        self._blocks.update((block.id, block) for block in blocks)
        self._saved = path, self._as_bytes()
        return self

    def _as_bytes(self) -> bytes:
        blocks = [_as_json(block) for block in self]
        return as_line({"kind": _KIND, "version": _VERSION, "max_tokens": self.max_tokens, "blocks": blocks})


def _referred(block: MemoryBlock) -> list[str]:
    """The ids that a block refers to."""
    if isinstance(block, TaskMemoryBlock):
        return [f"task:{task}" for task in block.dependencies]
    return block.related_ids if isinstance(block, ContextMemoryBlock) else []


class MemoryJanitor:
    """Drops blocks that expired, faded, grew old, or whose task, file or mail is gone. Never CRITICAL ones, never ROM.

    `task_ended(task_id)`, `file_exists(location)` and `mail_deleted(full_path)` know the hive. Without them: a task ended if
    its block's status says so; a file or mail is gone if its location is absolute and nothing lies there (a mail: nor in
    cur/). `dropped` says of each block that the last call dropped (by id) why.
    """

    def __init__(
        self,
        *,
        task_ended: Callable[[str], bool] = lambda _: False,
        file_exists: Callable[[str], bool] = lambda location: not os.path.isabs(location) or os.path.exists(location),
        mail_deleted: Callable[[str], bool] = lambda path: (
            os.path.isabs(path) and not os.path.exists(moved_to(path, str))
        ),
    ) -> None:
        self.task_ended = task_ended
        self.file_exists = file_exists
        self.mail_deleted = mail_deleted
        self.dropped: dict[str, str] = {}

    def cleanup_memories(self, blocks: Iterable[MemoryBlock], now: datetime | None = None) -> list[MemoryBlock]:
        """The blocks that stay, in their order."""
        moment, kept = now or datetime.now(UTC), []
        self.dropped = {}
        for block in blocks:
            if (reason := self._reason(block, moment)) is None:
                kept.append(block)
            else:
                self.dropped[block.id] = reason
        return kept

    def _reason(self, block: MemoryBlock, now: datetime) -> str | None:
        """Why the block is to be dropped at `now`, or None if it stays."""
        if block.priority is Priority.CRITICAL or block.type is MemoryType.ROM:
            return None
        if block.expiry is not None and now > block.expiry:
            return f"expired at {block.expiry.isoformat()}"
        if block.priority is Priority.LOW and block.confidence < _FAINT:
            return f"LOW with a confidence of {block.confidence:g}, below {_FAINT:g}"
        task = block.metadata.get("task_id")
        match block:
            case HistoryMemoryBlock() if block.priority is not Priority.HIGH and now - block.timestamp > _HISTORY:
                return f"history of {block.timestamp.isoformat()}, older than an hour"
            case FileMemoryBlock() if not self.file_exists(block.location):
                return f"the file {block.location} no longer exists"
            case MessageMemoryBlock() if block.full_path and self.mail_deleted(block.full_path):
                return f"the mail {block.full_path} was deleted"
            case TaskMemoryBlock():
                task = block.task_id
                if block.status in _ENDED:
                    return f"task {task} ended"
        return f"task {task} ended" if isinstance(task, str) and self.task_ended(task) else None

    def tidy(self, manager: WorkingMemoryManager, now: datetime | None = None) -> dict[str, str]:
        """Remove from a manager what is to be dropped; returns `dropped`."""
        self.cleanup_memories(manager.symbolic_memory, now)
        for memory_id in self.dropped:
            manager.remove_memory(memory_id)
        return self.dropped
