"""The working memory of one agent (seed 004, *Working Memory Manager*)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hivemind.errors import UserError
from hivemind.memory.blocks import ContextMemoryBlock, MemoryBlock, MemoryType, TaskMemoryBlock, next_version
from hivemind.memory.savefile import SaveFile

__all__ = ["Changes", "WorkingMemoryManager", "diff"]


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

    def __get__(self, manager: WorkingMemoryManager | None, kind: type[WorkingMemoryManager]) -> _Loader:
        return _Loader(kind() if manager is None else manager)


class _Loader:
    def __init__(self, manager: WorkingMemoryManager) -> None:
        self._manager = manager

    def __call__(self, path: str | os.PathLike[str]) -> WorkingMemoryManager:
        """The manager with what was saved there, in the place of what it held. Raises UserError, UnknownVersion."""
        return self._manager.refill(path)


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

    def related(self, memory_id: str) -> list[MemoryBlock]:
        """The blocks that a context block or a task refers to, as far as they are there."""
        block = self._blocks.get(memory_id)
        ids = _referred(block) if block is not None else []
        return [self._blocks[name] for name in ids if name in self._blocks]

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
