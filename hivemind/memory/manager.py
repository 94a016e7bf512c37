"""The working memory of one agent (seed 004, *Working Memory Manager*)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs import Log
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
    next_version,
)

__all__ = ["Changes", "SaveFile", "WorkingMemoryManager", "diff"]

SLACK = 65_536  # bytes of changes that may pile up before the file is rewritten
BATCH = 1_000  # blocks a record of a log that is rewritten
_MEND = "hivemind doctor --fix sets it aside"

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


def _record(block: MemoryBlock) -> dict[str, Any]:
    record: dict[str, Any] = {"class": _NAMES[type(block)]}
    record |= {name: getattr(block, name) for name in _FIELDS[type(block)]}
    follows_read = isinstance(block, MessageMemoryBlock) and not block.own_priority
    return record | {
        "type": block.type.value,
        "priority": None if follows_read else block.priority.name,
        "timestamp": block.timestamp.isoformat(),
        "expiry": None if block.expiry is None else block.expiry.isoformat(),
    }


def _block(record: dict[str, Any]) -> MemoryBlock:
    record["type"] = MemoryType(record["type"])
    record["timestamp"] = datetime.fromisoformat(record["timestamp"])
    if record["priority"] is not None:
        record["priority"] = Priority[record["priority"]]
    if record["expiry"] is not None:
        record["expiry"] = datetime.fromisoformat(record["expiry"])
    return _CLASSES[record.pop("class")](**record)


class SaveFile:
    """One log of saved blocks, and which state of each it holds."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._log = Log(path, "working-memory", 3, numbered=True)
        self._saved: dict[str, int] = {}  # the version of each block that the log holds
        self._dropped: set[str] = set()
        self._max_tokens: int | None = None
        self._whole = 0  # the log's size when it was rewritten

    def drop(self, memory_id: str) -> None:
        """Forget a block. If one of that id comes later, it comes last."""
        self._dropped.add(memory_id)
        self._saved.pop(memory_id, None)

    def save(self, blocks: Mapping[str, MemoryBlock], max_tokens: int, *, durable: bool) -> None:
        """Save the blocks. Raises UserError if the disk does not take them; what was saved before still stands then."""
        self._log.durable = durable
        now = {name: block.version for name, block in blocks.items()}
        try:
            if not 0 < self._log.size <= 2 * self._whole + SLACK or not self._log.is_untouched:
                self._log.rewrite(_saves(list(blocks.values()), max_tokens))
                self._whole = self._log.size
            elif self._dropped or now != self._saved or max_tokens != self._max_tokens:
                changed = [_record(blocks[name]) for name, version in now.items() if self._saved.get(name) != version]
                self._log.append({"max_tokens": max_tokens, "drop": sorted(self._dropped), "set": changed})
        except FileNotFoundError as error:
            raise UserError("cannot be written (its folder is gone)", where=self.path) from error
        self._saved, self._dropped, self._max_tokens = now, set(), max_tokens

    def load(self) -> tuple[list[MemoryBlock], int]:
        """The blocks in their order, and max_tokens. Raises Unreadable or LogDamaged if it is damaged, UnknownVersion, and
        UserError if there is none."""
        saves = self._log.read()
        if not saves:
            if not os.path.lexists(self.path):
                raise UserError("no working memory is there", where=self.path)
            raise Unreadable("holds no working memory", where=self.path, mend=_MEND)
        records: dict[str, dict[str, Any]] = {}
        max_tokens = 0
        with boundary("working memory", self.path, mend=_MEND):
            for save in saves:
                for memory_id in save.get("drop", ()):
                    records.pop(memory_id, None)
                for record in save.get("set", ()):
                    records[record["id"]] = record
                max_tokens = int(save.get("max_tokens", max_tokens))
            blocks = [_block(record) for record in records.values()]
        self._saved = {block.id: block.version for block in blocks}
        self._whole, self._max_tokens = self._log.size, max_tokens
        return blocks, max_tokens


def _saves(blocks: list[MemoryBlock], max_tokens: int) -> Iterator[dict[str, Any]]:
    """All blocks as they are, as saves of a log that has no others."""
    for at in range(0, max(1, len(blocks)), BATCH):
        yield {"max_tokens": max_tokens, "set": [_record(block) for block in blocks[at : at + BATCH]]}


@dataclass(frozen=True, slots=True)
class Changes:
    """Ids, each list in the order of the context that it is from (`left`: the earlier one's)."""

    entered: list[str]
    left: list[str]
    changed: list[str]

    def __bool__(self) -> bool:
        return bool(self.entered or self.left or self.changed)


def diff(previous: Iterable[Mapping[str, Any]], current: Iterable[Mapping[str, Any]]) -> Changes:
    """What entered, left and changed from one context (a list of entries) to another (seed 004, *Differential Memory*)."""
    before = {entry["id"]: entry for entry in previous}
    now = {entry["id"]: entry for entry in current}
    return Changes(
        entered=[name for name in now if name not in before],
        left=[name for name in before if name not in now],
        changed=[name for name, entry in now.items() if name in before and entry != before[name]],
    )


class _Load:
    """`WorkingMemoryManager.load(path)` returns a new manager; `manager.load(path)` fills the one that is there."""

    def __get__(
        self, manager: WorkingMemoryManager | None, kind: type[WorkingMemoryManager]
    ) -> Callable[[str | os.PathLike[str]], WorkingMemoryManager]:
        return (kind() if manager is None else manager).refill


class WorkingMemoryManager:
    """Blocks by id, one per id, in the order in which they came. `max_tokens` is the budget of a context.

    `memory_index` is a live mapping from id to block, `context_memory` the context that was built last (set by whoever
    builds it). Fields of a block may be set at any time; one that changed *inside* a field is saved once it is added again.
    """

    load = _Load()

    def __init__(self, max_tokens: int = 100_000) -> None:
        self.max_tokens = max_tokens
        self.context_memory: list[dict[str, Any]] = []
        self._blocks: dict[str, MemoryBlock] = {}
        self._file: SaveFile | None = None
        self.memory_index: Mapping[str, MemoryBlock] = MappingProxyType(self._blocks)

    @property
    def symbolic_memory(self) -> list[MemoryBlock]:
        """The blocks, in the order in which they came."""
        return list(self._blocks.values())

    def __iter__(self) -> Iterator[MemoryBlock]:
        return iter(self._blocks.values())

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, memory_id: object) -> bool:
        return memory_id in self._blocks

    def add_memory(self, block: MemoryBlock) -> None:
        """Add a block, in the place of the one with the same id if there is one."""
        self._blocks[block.id] = block
        block.version = next_version()

    def remove_memory(self, memory_id: str) -> bool:
        """Remove a block; False if there was none of that id."""
        if self._blocks.pop(memory_id, None) is None:
            return False
        if self._file is not None:
            self._file.drop(memory_id)
        return True

    def update_confidence(self, memory_id: str, confidence: float) -> bool:
        """Set a block's confidence (0 to 1); False if there is none of that id. Raises UserError for another number."""
        if not 0.0 <= confidence <= 1.0:
            raise UserError(f"a confidence is a number from 0 to 1, not {confidence!r}")
        block = self._blocks.get(memory_id)
        if block is None:
            return False
        block.confidence = confidence
        return True

    def get(self, memory_id: str) -> MemoryBlock | None:
        """The block of that id, or None."""
        return self._blocks.get(memory_id)

    def blocks_by_type(self, kind: MemoryType) -> list[MemoryBlock]:
        """The blocks of a type, in the order in which they came."""
        return [block for block in self if block.type is kind]

    def referring_to(self, memory_id: str) -> list[MemoryBlock]:
        """The blocks that refer to a block: contexts by `related_ids`, tasks by `dependencies`; ordered by id."""
        return sorted((block for block in self if memory_id in _referred(block)), key=lambda block: block.id)

    def diff(self, previous_cycle: list[dict[str, Any]]) -> Changes:
        """What entered, left and changed between an earlier context and `context_memory`."""
        return diff(previous_cycle, self.context_memory)

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
        """Save all blocks, whole or not at all. Writes what changed since the last save to the same path."""
        if self._file is None or self._file.path != os.fspath(path):
            self._file = SaveFile(path)
        self._file.save(self._blocks, self.max_tokens, durable=durable)

    def refill(self, path: str | os.PathLike[str]) -> WorkingMemoryManager:
        """Put what was saved there in the place of what is held; returns this manager. Raises UserError, UnknownVersion."""
        file = SaveFile(path)
        blocks, max_tokens = file.load()
        self._blocks.clear()
        self._blocks.update((block.id, block) for block in blocks)
        self.max_tokens = max_tokens
        self._file = file
        return self


def _referred(block: MemoryBlock) -> list[str]:
    """The ids that a block refers to."""
    if isinstance(block, TaskMemoryBlock):
        return [f"task:{task}" for task in block.dependencies]
    return block.related_ids if isinstance(block, ContextMemoryBlock) else []
