"""The four orders of a set of blocks, kept up to date as blocks and the scorer change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from hivemind.memory.blocks import Home, MemoryBlock, MemoryType, Priority
from hivemind.memory.order import Chunk, Order, Rule, Taking
from hivemind.memory.weighing import Weigher

__all__ = ["Holder", "Ranking", "WatchedRule"]


class Holder(Home, Protocol):
    """Who keeps the blocks of a ranking that lives on."""

    def __iter__(self) -> Iterator[MemoryBlock]: ...

    def blocks_by_type(self, kind: MemoryType) -> list[MemoryBlock]: ...

    def blocks_at(self, location: str) -> list[MemoryBlock]:
        """The file blocks of a location, whole and in ranges."""


class WatchedRule(Rule, Protocol):
    """A rule that can change: blocks whose weight follows from what changed are to be weighed anew."""

    def state(self) -> object:
        """A value that is equal as long as all weights are."""

    def affected(self, before: object, holder: Holder) -> Iterable[MemoryBlock]:
        """The holder's blocks whose weight may be another than in the state `before`."""


class Ranking:
    """Blocks by priority, each in its order. With a `holder`, made once and kept; without, made for one selection."""

    __slots__ = ("_changed", "_holder", "_orders", "_state", "rule", "weigher")

    def __init__(
        self,
        blocks: Iterable[MemoryBlock],
        rule: WatchedRule,
        weigher: Weigher,
        now: float,
        holder: Holder | None = None,
    ) -> None:
        self.rule = rule
        self.weigher = weigher
        self._holder = holder
        self._state = rule.state()
        self._orders = {priority: Order(rule, weigher, holder) for priority in Priority}
        self._changed: dict[str, MemoryBlock] = {}
        self._build(blocks, now)

    def __iter__(self) -> Iterator[MemoryBlock]:
        for order in self._orders.values():
            yield from order

    def _build(self, blocks: Iterable[MemoryBlock], now: float) -> None:
        by_priority: dict[Priority, list[MemoryBlock]] = {priority: [] for priority in Priority}
        for block in blocks:
            by_priority[block.priority].append(block)
        for priority, found in by_priority.items():
            self._orders[priority].build(found, now)

    def mark(self, block: MemoryBlock) -> None:
        """The block is new, or a field of it was set: it is put where it belongs before the next selection."""
        self._changed[block.id] = block

    def remove(self, block: MemoryBlock) -> None:
        """Forget a block."""
        self._changed.pop(block.id, None)
        chunk = self._chunk(block)
        if chunk is not None:
            chunk.order.discard(block, chunk)

    def _chunk(self, block: MemoryBlock) -> Chunk | None:
        for home in block.homes:
            if isinstance(home, Chunk) and home.owner is self._holder:
                return home
        return None

    def refresh(self, now: float) -> None:
        """Bring the orders up to date: with the blocks that changed, the scorer's state and the time."""
        state = self.rule.state()
        if state != self._state and self._holder is not None:
            for block in self.rule.affected(self._state, self._holder):
                self.mark(block)
            self._state = state
        if len(self._changed) > 64 + sum(order.size for order in self._orders.values()) // 8:
            self._build({block.id: block for block in (*self, *self._changed.values())}.values(), now)
            self._changed = {}
        for block in self._changed.values():
            chunk = self._chunk(block)
            if chunk is not None:
                chunk.order.discard(block, chunk)
            self._orders[block.priority].add(block)
        self._changed = {}
        for order in self._orders.values():
            if order.worn or now < order.made_at:  # a clock that was set back: lines are only followed forwards
                order.build_anew(now)

    def fill(self, priority: Priority, taking: Taking, now: float) -> None:
        """Offer the blocks of one priority to `taking`, best first."""
        self._orders[priority].fill(taking, now)
