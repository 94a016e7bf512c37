"""The working memory of one agent: its blocks, and what it keeps about them (seed 004, *Working Memory Manager*)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from hivemind.errors import UserError
from hivemind.memory.blocks import (
    ContextMemoryBlock,
    FileMemoryBlock,
    Home,
    MemoryBlock,
    MemoryType,
    TaskMemoryBlock,
    attach,
    detach,
    keep_drawn,
)
from hivemind.memory.changes import Changes, diff
from hivemind.memory.ranking import Ranking, WatchedRule
from hivemind.memory.savefile import SaveFile
from hivemind.memory.symbolic import SymbolicMemory
from hivemind.memory.weighing import Weigher

__all__ = ["WorkingMemoryManager"]


class _Load:
    """`WorkingMemoryManager.load(path)` gives a new manager; `manager.load(path)` fills the one that is there."""

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

    `symbolic_memory` is a live list of the blocks, `memory_index` a live mapping from id to block, `context_memory` the
    context that was built last. A block's fields may be set at any time; after a change *inside* a field
    (`block.metadata["k"] = v`) call `touch`.
    """

    load = _Load()

    def __init__(self, max_tokens: int = 100_000) -> None:
        self.max_tokens = max_tokens
        self.context_memory: list[dict[str, Any]] = []
        self.alone: tuple[Home, ...] = (self,)
        self._blocks: dict[str, MemoryBlock] = {}
        self._kinds: dict[MemoryType, dict[str, MemoryBlock]] = {}  # all but FILE, which may be a million
        self._named: dict[str, set[str]] = {}  # location -> ids of file blocks that have another id
        self._ranking: Ranking | None = None
        self._file: SaveFile | None = None
        self.symbolic_memory = SymbolicMemory(self._blocks, self)
        self.memory_index: Mapping[str, MemoryBlock] = MappingProxyType(self._blocks)

    def __iter__(self) -> Iterator[MemoryBlock]:
        return iter(self._blocks.values())

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, memory_id: object) -> bool:
        return memory_id in self._blocks

    # what a block that changes calls
    @property
    def owner(self) -> object:
        return self

    def changed(self, block: MemoryBlock) -> None:
        """A field of the block was set, or the file behind it has changed."""
        keep_drawn(block, None)
        if self._ranking is not None:
            self._ranking.mark(block)
        if self._file is not None:
            self._file.mark(block.id)

    def add_memory(self, block: MemoryBlock) -> None:
        """Add a block, in the place of the one with the same id if there is one."""
        known = self._blocks.get(block.id)
        if known is block:
            self.changed(block)
            return
        if known is not None:
            self._forget(known)
        self._blocks[block.id] = block
        if block.type is not MemoryType.FILE:
            self._kinds.setdefault(block.type, {})[block.id] = block
        if isinstance(block, FileMemoryBlock) and block.id != block.location:
            self._named.setdefault(block.location, set()).add(block.id)
        attach(block, self)
        self.changed(block)

    def remove_memory(self, memory_id: str) -> bool:
        """Remove a block; False if there was none of that id."""
        block = self._blocks.pop(memory_id, None)
        if block is None:
            return False
        self._forget(block)
        if self._file is not None:
            self._file.mark_dropped(memory_id)
        return True

    def _forget(self, block: MemoryBlock) -> None:
        if self._ranking is not None:
            self._ranking.remove(block)
        self._kinds.get(block.type, {}).pop(block.id, None)
        if isinstance(block, FileMemoryBlock) and block.location in self._named:
            self._named[block.location].discard(block.id)
            if not self._named[block.location]:
                del self._named[block.location]
        detach(block, self)

    def update_confidence(self, memory_id: str, confidence: float) -> bool:
        """Set a block's confidence (0 to 1); False if there is none of that id. Raises UserError for another number."""
        if not 0.0 <= confidence <= 1.0:
            raise UserError(f"a confidence is a number from 0 to 1, not {confidence!r}")
        block = self._blocks.get(memory_id)
        if block is None:
            return False
        block.confidence = confidence
        return True

    def touch(self, memory_id: str) -> bool:
        """Say that a block changed within, or the file behind it: it is weighed, estimated and saved anew."""
        block = self._blocks.get(memory_id)
        if block is None:
            return False
        self.changed(block)
        return True

    def get(self, memory_id: str) -> MemoryBlock | None:
        """The block of that id, or None."""
        return self._blocks.get(memory_id)

    def blocks_by_type(self, kind: MemoryType) -> list[MemoryBlock]:
        """The blocks of a type, in the order in which they came. Costs what it gives, for FILE a walk over all."""
        if kind is MemoryType.FILE:
            return [block for block in self._blocks.values() if block.type is MemoryType.FILE]
        return list(self._kinds.get(kind, {}).values())

    def blocks_at(self, location: str) -> list[MemoryBlock]:
        """The file blocks of a location, whole and in ranges."""
        ids = [location, *sorted(self._named.get(location, ()))]
        found = map(self._blocks.get, ids)
        return [block for block in found if isinstance(block, FileMemoryBlock) and block.location == location]

    def referring_to(self, memory_id: str) -> list[MemoryBlock]:
        """The blocks that refer to a block: contexts by `related_ids`, tasks by `dependencies`; ordered by id."""
        contexts = self._kinds.get(MemoryType.CONTEXT, {}).values()
        tasks = self._kinds.get(MemoryType.TASK, {}).values()
        found: list[MemoryBlock] = [
            block for block in contexts if isinstance(block, ContextMemoryBlock) and memory_id in block.related_ids
        ]
        found += [
            block
            for block in tasks
            if isinstance(block, TaskMemoryBlock) and memory_id in (f"task:{task}" for task in block.dependencies)
        ]
        return sorted(found, key=lambda block: block.id)

    def related(self, memory_id: str) -> list[MemoryBlock]:
        """The blocks that a context block or a task refers to, as far as they are there."""
        block = self._blocks.get(memory_id)
        ids = block.related_ids if isinstance(block, ContextMemoryBlock) else []
        if isinstance(block, TaskMemoryBlock):
            ids = [f"task:{task}" for task in block.dependencies]
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

    def ranking(self, rule: WatchedRule, weigher: Weigher, now: float) -> Ranking:
        """The ranking by this rule, up to date; the one of the last rule is kept."""
        kept = self._ranking
        if kept is None or kept.rule != rule or kept.weigher != weigher:
            for block in self if kept is not None else ():
                attach(block, self)
            kept = self._ranking = Ranking(self, rule, weigher, now, holder=self)
        kept.refresh(now)
        return kept

    def save(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        """Save all blocks, whole or not at all. Costs what changed since the last save to the same path."""
        if self._file is None or self._file.path != os.fspath(path):
            self._file = SaveFile(path)
        self._file.save(self._blocks, self.max_tokens, durable=durable)

    def refill(self, path: str | os.PathLike[str]) -> WorkingMemoryManager:
        """Put what was saved there in the place of what is held; returns this manager. Raises UserError, UnknownVersion."""
        file = SaveFile(path)
        blocks, max_tokens = file.load()
        self.clear()
        for block in blocks:
            self.add_memory(block)
        self.max_tokens = max_tokens
        self._file = file
        return self

    def clear(self) -> None:
        """Remove all blocks."""
        for memory_id in list(self._blocks):
            self.remove_memory(memory_id)
        self._ranking = None
