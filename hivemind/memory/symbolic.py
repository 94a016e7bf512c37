"""A manager's blocks as the list that the seed iterates over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol, overload

from hivemind.memory.blocks import MemoryBlock
from hivemind.memory.ranking import Ranking, WatchedRule
from hivemind.memory.weighing import Weigher

__all__ = ["SymbolicMemory"]


class _Ranked(Protocol):
    def add_memory(self, block: MemoryBlock) -> None: ...

    def remove_memory(self, memory_id: str) -> bool: ...

    def ranking(self, rule: WatchedRule, weigher: Weigher, now: float) -> Ranking: ...


class SymbolicMemory(Sequence[MemoryBlock]):
    """The blocks of a manager, in the order in which they came. A live view: `append` and `remove` go to the manager."""

    __slots__ = ("_blocks", "_manager")

    def __init__(self, blocks: Mapping[str, MemoryBlock], manager: _Ranked) -> None:
        self._blocks = blocks
        self._manager = manager

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[MemoryBlock]:
        return iter(self._blocks.values())

    def __contains__(self, block: object) -> bool:
        return isinstance(block, MemoryBlock) and self._blocks.get(block.id) == block

    @overload
    def __getitem__(self, at: int) -> MemoryBlock: ...
    @overload
    def __getitem__(self, at: slice) -> list[MemoryBlock]: ...
    def __getitem__(self, at: int | slice) -> MemoryBlock | list[MemoryBlock]:
        """One block or some; costs a walk from the beginning."""
        if isinstance(at, slice):
            return list(self._blocks.values())[at]
        place = at + len(self._blocks) if at < 0 else at
        if not 0 <= place < len(self._blocks):
            raise IndexError(at)
        return next(islice(self._blocks.values(), place, None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SymbolicMemory({len(self._blocks)} blocks)"

    def append(self, block: MemoryBlock) -> None:
        self._manager.add_memory(block)

    def remove(self, block: MemoryBlock) -> None:
        """Remove a block; raises ValueError if it is not there, as a list does."""
        if not self._manager.remove_memory(block.id):
            raise ValueError(f"{block.id} is not there")

    def ranking(self, rule: WatchedRule, weigher: Weigher, now: float) -> Ranking:
        """The ranking that the manager keeps for this rule."""
        return self._manager.ranking(rule, weigher, now)
