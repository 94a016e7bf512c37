"""The working memory of one agent: hold blocks, save and load them, and drop unneeded ones."""

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
    json_copy,
)
from hivemind.memory.loading import current_mail_path

_KIND, _VERSION = "working-memory", 1
_REMEDY = "hivemind doctor --fix sets it aside"
_MAX_HISTORY_AGE = timedelta(hours=1)
_MIN_CONFIDENCE = 0.1
_FINAL_STATUSES = frozenset({"done", "failed", "finished", "cancelled"})
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
_CLASS_NAMES = {kind: name for name, kind in _CLASSES.items()}
_FIELDS = {kind: [block_field.name for block_field in fields(kind) if block_field.init] for kind in _CLASS_NAMES}


def _to_json(block: MemoryBlock) -> dict[str, Any]:
    record = {name: json_copy(getattr(block, name)) for name in _FIELDS[type(block)]}
    if isinstance(block, MessageMemoryBlock) and not block.has_fixed_priority:
        record["priority"] = None  # `read` decides the priority
    return {"class": _CLASS_NAMES[type(block)], **record}


def _from_json(record: dict[str, Any]) -> MemoryBlock:
    record["type"] = MemoryType(record["type"])
    record["priority"] = None if record["priority"] is None else Priority(record["priority"])
    for name in ("timestamp", "expiry"):
        record[name] = None if record[name] is None else datetime.fromisoformat(record[name])
    return _CLASSES[record.pop("class")](**record)


@frozen
class Changes:
    """The ids of the blocks with different entries in two contexts. `removed_ids` are in the order of the earlier context."""

    added_ids: list[str]
    removed_ids: list[str]
    changed_ids: list[str]


class _LoadMethod:
    """A method that can be called on the class and on an instance: `load(path)` fills a new manager, or the instance itself."""

    def __get__(
        self, manager: WorkingMemoryManager | None, manager_class: type[WorkingMemoryManager]
    ) -> Callable[[str | os.PathLike[str]], WorkingMemoryManager]:
        return (manager_class() if manager is None else manager).refill


class WorkingMemoryManager:
    """The blocks of one agent, by id, in insertion order. `max_tokens` is the budget of a context.

    `memory_index` is a read-only view of the blocks by id. `context_memory` is the latest context; the caller sets it.
    """

    load = _LoadMethod()

    def __init__(self, max_tokens: int = 100_000) -> None:
        self.max_tokens = max_tokens
        self.context_memory: list[dict[str, Any]] = []
        self._blocks: dict[str, MemoryBlock] = {}
        self._saved_file: tuple[str, bytes] | None = None  # path and content of the last save or load
        self.memory_index: Mapping[str, MemoryBlock] = MappingProxyType(self._blocks)

    @property
    def symbolic_memory(self) -> list[MemoryBlock]:
        """Return all blocks, in insertion order."""
        return list(self._blocks.values())

    def __iter__(self) -> Iterator[MemoryBlock]:
        return iter(self._blocks.values())

    def __len__(self) -> int:
        return len(self._blocks)

    def add_memory(self, block: MemoryBlock) -> None:
        """Add a block, replacing a block with the same id."""
        self._blocks[block.id] = block

    def remove_memory(self, memory_id: str) -> bool:
        """Remove a block; return False if no block has the id."""
        return self._blocks.pop(memory_id, None) is not None

    def update_confidence(self, memory_id: str, confidence: float) -> bool:
        """Set a block's confidence; return False if no block has the id. Raises UserError if `confidence` is not 0 to 1."""
        if not 0.0 <= confidence <= 1.0:
            raise UserError(f"a confidence must be between 0 and 1, not {confidence!r}")
        block = self._blocks.get(memory_id)
        if block is not None:
            block.confidence = confidence
        return block is not None

    def get(self, memory_id: str) -> MemoryBlock | None:
        """Return the block with this id, or None if there is none."""
        return self._blocks.get(memory_id)

    def blocks_by_type(self, kind: MemoryType) -> list[MemoryBlock]:
        """Return the blocks of a type, in insertion order."""
        return [block for block in self if block.type is kind]

    def referring_to(self, memory_id: str) -> list[MemoryBlock]:
        """Return, sorted by id, the blocks that refer to this block in their `related_ids` or `dependencies`."""
        return sorted((block for block in self if memory_id in _referenced_ids(block)), key=lambda block: block.id)

    def diff(self, previous_cycle: Iterable[Mapping[str, Any]]) -> Changes:
        """Return the changes from an earlier context, a list of entries, to `context_memory`."""
        previous_entries = {entry["id"]: entry for entry in previous_cycle}
        current_entries = {entry["id"]: entry for entry in self.context_memory}
        return Changes(
            added_ids=[name for name in current_entries if name not in previous_entries],
            removed_ids=[name for name in previous_entries if name not in current_entries],
            changed_ids=[
                name
                for name, entry in current_entries.items()
                if name in previous_entries and entry != previous_entries[name]
            ],
        )

    def stats(self) -> dict[str, Any]:
        """Return the numbers of blocks (in all, by type, by priority) and of entries in the latest context."""
        return {
            "blocks": len(self._blocks),
            "by_type": dict(sorted(Counter(block.type.value for block in self).items())),
            "by_priority": dict(sorted(Counter(block.priority.name.lower() for block in self).items())),
            "context_entries": len(self.context_memory),
            "max_tokens": self.max_tokens,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all blocks atomically, unless the file has them already.

        Raises UserError if the file cannot be written, UnknownVersion if the existing file has another version. An
        error leaves the file unchanged.
        """
        path, raw = os.fspath(path), self._to_bytes()
        if self._saved_file == (path, raw) and os.path.exists(path):
            return
        if self._saved_file is None or self._saved_file[0] != path:
            load_record(path, _KIND, _VERSION)  # refuse to replace a file of another version
        try:
            write(path, raw)
        except OSError as error:
            raise UserError(f"cannot be written ({error.strerror})", location=path) from error
        self._saved_file = path, raw

    def refill(self, path: str | os.PathLike[str]) -> WorkingMemoryManager:
        """Replace the blocks by the blocks saved in a file, and return this manager.

        Raises DamagedRecord, Unreadable, UnknownVersion, or UserError if the file does not exist.
        """
        path = os.fspath(path)
        record = load_record(path, _KIND, _VERSION)
        if record is None:
            raise UserError("there is no saved working memory", location=path)
        with boundary("working memory", path, remedy=_REMEDY):
            blocks = [_from_json(block) for block in record["blocks"]]
            self.max_tokens = int(record["max_tokens"])
        self._blocks.clear()
        self._blocks.update((block.id, block) for block in blocks)
        self._saved_file = path, self._to_bytes()
        return self

    def _to_bytes(self) -> bytes:
        blocks = [_to_json(block) for block in self]
        return as_line({"kind": _KIND, "version": _VERSION, "max_tokens": self.max_tokens, "blocks": blocks})


def _referenced_ids(block: MemoryBlock) -> list[str]:
    if isinstance(block, TaskMemoryBlock):
        return [f"task:{task}" for task in block.dependencies]
    return block.related_ids if isinstance(block, ContextMemoryBlock) else []


class MemoryJanitor:
    """A janitor that drops blocks: expired or old ones, and those about an ended task, a missing file or a deleted letter.

    LOW blocks of little confidence are dropped too, CRITICAL blocks and ROM never. The functions `task_ended(task_id)`,
    `file_exists(location)` and `mail_deleted(full_path)` return what the hive knows. By default, a task has ended if
    its block's status says so, and a file or letter is missing if its absolute path does not exist (for a letter: nor
    in cur/). `dropped` maps the ids of the blocks that the last call dropped to the reasons.
    """

    def __init__(
        self,
        *,
        task_ended: Callable[[str], bool] = lambda _: False,
        file_exists: Callable[[str], bool] = lambda location: not os.path.isabs(location) or os.path.exists(location),
        mail_deleted: Callable[[str], bool] = lambda path: (
            os.path.isabs(path) and not os.path.exists(current_mail_path(path, str))
        ),
    ) -> None:
        self.task_ended = task_ended
        self.file_exists = file_exists
        self.mail_deleted = mail_deleted
        self.dropped: dict[str, str] = {}

    def cleanup_memories(self, blocks: Iterable[MemoryBlock], now: datetime | None = None) -> list[MemoryBlock]:
        """Decide which blocks to drop at `now` (default: the clock). Return the other blocks, in order, and set `dropped`."""
        moment, remaining_blocks = now or datetime.now(UTC), []
        self.dropped = {}
        for block in blocks:
            if (reason := self._drop_reason(block, moment)) is None:
                remaining_blocks.append(block)
            else:
                self.dropped[block.id] = reason
        return remaining_blocks

    def _drop_reason(self, block: MemoryBlock, now: datetime) -> str | None:
        """Return the reason to drop the block at `now`, or None to keep it."""
        if block.priority is Priority.CRITICAL or block.type is MemoryType.ROM:
            return None
        if block.expiry is not None and now > block.expiry:
            return f"expired at {block.expiry.isoformat()}"
        if block.priority is Priority.LOW and block.confidence < _MIN_CONFIDENCE:
            return f"LOW with a confidence of {block.confidence:g}, below {_MIN_CONFIDENCE:g}"
        task_id = block.metadata.get("task_id")
        match block:
            case HistoryMemoryBlock() if (
                block.priority is not Priority.HIGH and now - block.timestamp > _MAX_HISTORY_AGE
            ):
                return f"history of {block.timestamp.isoformat()}, older than an hour"
            case FileMemoryBlock() if not self.file_exists(block.location):
                return f"the file {block.location} no longer exists"
            case MessageMemoryBlock() if block.full_path and self.mail_deleted(block.full_path):
                return f"the mail {block.full_path} was deleted"
            case TaskMemoryBlock():
                task_id = block.task_id
                if block.status in _FINAL_STATUSES:
                    return f"task {task_id} ended"
        return f"task {task_id} ended" if isinstance(task_id, str) and self.task_ended(task_id) else None

    def tidy(self, manager: WorkingMemoryManager, now: datetime | None = None) -> dict[str, str]:
        """Remove unneeded blocks from a manager. Return the reasons by the ids of the removed blocks."""
        self.cleanup_memories(manager.symbolic_memory, now)
        for memory_id in self.dropped:
            manager.remove_memory(memory_id)
        return self.dropped
