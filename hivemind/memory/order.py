"""The blocks of one priority, kept in an order that time does not undo (spec 2, *Performance*).

A score is `weight / (1 + age / 3600)`; its inverse, `y = (3600 + now - born) / weight`, is a straight line in `now`. So
two blocks change places at most once, blocks of one weight never do, and an order made at a time T stays nearly right
for hours. The blocks lie in chunks by their y at T. Each chunk knows the best that it can still hold (its greatest weight,
its newest block, its least y at T) and its least number of tokens. `fill` walks over the blocks by their exact score at
`now`, opening a chunk only when it may hold the next one and something in it may fit; so a cycle costs what it selects, not
what there is. The outcome is that of sorting everything: by score, then newest, then id.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from heapq import heappop, heappush
from math import inf, isqrt
from typing import Any, Protocol

from hivemind.memory.blocks import Home, MemoryBlock, attach
from hivemind.memory.scoring import HALF_LIFE, born, decayed
from hivemind.memory.weighing import Weigher

__all__ = ["Chunk", "Order", "Row", "Rule", "Taking"]

Row = tuple[float, float, str, int, MemoryBlock]
"""-score, -born, id, tokens, block: rows sort as the blocks rank."""
_Place = tuple[float, float, str]
SMALLEST, LARGEST = 24, 256  # blocks in a chunk
WORN_AFTER = 600.0  # seconds
_ROUNDING = 1.0 + 1e-9  # how far computed lines may be off


class Rule(Protocol):
    """What ranks blocks: their weights, and whether these decay with age."""

    decays: bool

    def weigh(self, block: MemoryBlock) -> float: ...


class Taking:
    """What was taken within a limit: rows in rank order, and the first that were passed over."""

    __slots__ = ("limit", "passed", "rows", "used", "used_before", "wanted")

    def __init__(self, used: int, limit: float, wanted: int) -> None:
        self.used_before = self.used = used
        self.limit = limit
        self.rows: list[Row] = []
        self.passed: list[Row] = []
        self.wanted = wanted

    def done(self, least: int) -> bool:
        """True if nothing that costs `least` or more can matter any more."""
        return self.used + least >= self.limit and len(self.passed) >= self.wanted

    def offer(self, rows: list[Row]) -> None:
        """Take the rows that fit, one by one in their order; the others are passed over (seed 004, *select_memories*)."""
        used = self.used + sum([row[3] for row in rows])
        if used < self.limit:
            self.rows += rows
            self.used = used
            return
        used, limit, take = self.used, self.limit, self.rows.append
        for row in rows:
            if used + row[3] < limit:
                take(row)
                used += row[3]
            elif len(self.passed) < self.wanted:
                self.passed.append(row)
        self.used = used


class Chunk:
    """Some hundred neighbours in the order, as columns. Within a chunk they lie as they came."""

    __slots__ = (
        "alone", "blocks", "borns", "first_id", "greatest", "ids", "least", "newest", "order", "tokens", "unseen", "weights",
    )  # fmt: skip

    def __init__(
        self, order: Order, rows: Iterable[tuple[float, float, MemoryBlock]], known: Mapping[str, int]
    ) -> None:
        self.order = order
        self.alone: tuple[Home, ...] = (self,)
        self.blocks: list[MemoryBlock] = []
        self.ids: list[str] = []
        self.weights = array("d")
        self.borns = array("d")
        self.tokens = array("q")  # what is not estimated yet is kept as -1 - (what it costs at least)
        for weight, born_at, block in rows:
            tokens = known.get(block.id)
            self._append(weight, born_at, block, -1 - order.weigher.least(block) if tokens is None else tokens)
        self.measure()

    def _append(self, weight: float, born_at: float, block: MemoryBlock, tokens: int) -> None:
        self.blocks.append(block)
        self.ids.append(block.id)
        self.weights.append(weight)
        self.borns.append(born_at)
        self.tokens.append(tokens)
        if self.order.home is not None:
            attach(block, self)

    def measure(self) -> None:
        """Find the bounds anew."""
        if self.blocks:
            self.greatest = max(self.weights)
            self.newest = max(self.borns)
            self.first_id = min(self.ids)
            self.unseen = min(self.tokens) < 0
            self.least = min([-1 - tokens if tokens < 0 else tokens for tokens in self.tokens])

    @property
    def owner(self) -> object:
        return self.order.home

    def changed(self, block: MemoryBlock) -> None:
        if self.order.home is not None:
            self.order.home.changed(block)

    def add(self, weight: float, born_at: float, block: MemoryBlock) -> None:
        tokens = self.order.weigher.tokens(block)
        self._append(weight, born_at, block, tokens)
        self.greatest = max(self.greatest, weight)
        self.newest = max(self.newest, born_at)
        self.first_id = min(self.first_id, block.id)
        self.least = min(self.least, tokens)

    def discard(self, block: MemoryBlock) -> None:
        at = self.ids.index(block.id)
        tokens = self.tokens[at]
        bound = (
            self.weights[at] == self.greatest
            or self.borns[at] == self.newest
            or block.id == self.first_id
            or (-1 - tokens if tokens < 0 else tokens) == self.least
        )
        columns: tuple[MutableSequence[Any], ...] = (self.blocks, self.ids, self.weights, self.borns, self.tokens)
        for column in columns:
            column[at] = column[-1]
            column.pop()
        if self.order.home is not None:
            attach(block, self.order.home)
        if bound:
            self.measure()

    def best(self, now: float, line: float) -> _Place:
        """A place that none of its blocks can come before at `now`; `line`: the least y that they can have."""
        score = self.greatest
        if self.order.rule.decays:
            score = decayed(score, self.newest, now)
            if line > HALF_LIFE:
                score = min(score, HALF_LIFE / line * _ROUNDING)
        return (-score, -self.newest, self.first_id)

    def rows(self, now: float) -> list[Row]:
        """Its blocks as they rank at `now`, with their tokens estimated."""
        if self.unseen:
            estimate = self.order.weigher.tokens
            for at, tokens in enumerate(self.tokens):
                if tokens < 0:
                    self.tokens[at] = estimate(self.blocks[at])
            self.measure()
        if self.order.rule.decays:
            pairs = zip(self.weights, self.borns, strict=True)
            scores = [-w / (1.0 + (now - t) / HALF_LIFE) if now > t else -w for w, t in pairs]
            if self.greatest > 1.0:
                scores = [max(score, -1.0) for score in scores]
        else:
            scores = [-w for w in self.weights]
        return sorted(zip(scores, [-t for t in self.borns], self.ids, self.tokens, self.blocks, strict=True))


class Order:
    """The blocks of one priority. Those of an order that lives on (`home` is given) tell `home` when they change."""

    __slots__ = (
        "_greatest",
        "_least",
        "_opened",
        "chunks",
        "floors",
        "home",
        "load",
        "made_at",
        "rule",
        "size",
        "weigher",
        "worn",
    )

    def __init__(self, rule: Rule, weigher: Weigher, home: Home | None = None) -> None:
        self.rule = rule
        self.weigher = weigher
        self.home = home
        self.build((), 0.0)

    def __iter__(self) -> Iterator[MemoryBlock]:
        for chunk in self.chunks:
            yield from chunk.blocks

    def build(self, blocks: Iterable[MemoryBlock], now: float, known: Mapping[str, int] | None = None) -> None:
        """Put these blocks, and no others, into the order that they have at `now`. `known`: tokens by id."""
        self.made_at = now
        self.chunks: list[Chunk] = []
        self.floors: list[_Place] = []  # of each chunk: a place (by y at `made_at`) that none of its blocks lies before
        self._greatest = 0.0
        self._least: int | None = None
        self._opened = 0  # blocks that the first selection after this opened, and some
        self.worn = False
        weigh = self.rule.weigh
        places = []
        for block in blocks:
            weight, born_at = weigh(block), born(block)
            places.append((self._y(weight, born_at), -born_at, block.id, weight, block))
        places.sort()
        self.size = len(places)
        self.load = min(max(isqrt(self.size) // 8, SMALLEST), LARGEST)
        for at in range(0, self.size, self.load):
            self._hang_in(len(self.chunks), places[at : at + self.load], known or {})

    def build_anew(self, now: float) -> None:
        """Sort anew, as things are at `now`."""
        self.build(list(self), now, self._known(self.chunks))

    def _known(self, chunks: Iterable[Chunk]) -> dict[str, int]:
        pairs = (pair for chunk in chunks for pair in zip(chunk.ids, chunk.tokens, strict=True))
        return {name: tokens for name, tokens in pairs if tokens >= 0}

    def _y(self, weight: float, born_at: float) -> float:
        if not self.rule.decays:
            return -weight
        return (HALF_LIFE + self.made_at - born_at) / weight if weight > 0.0 else inf

    def _hang_in(
        self, at: int, places: list[tuple[float, float, str, float, MemoryBlock]], known: Mapping[str, int]
    ) -> None:
        chunk = Chunk(self, [(weight, -minus_born, block) for _, minus_born, _, weight, block in places], known)
        self.chunks.insert(at, chunk)
        self.floors.insert(at, places[0][:3])
        self._greatest = max(self._greatest, chunk.greatest)

    def add(self, block: MemoryBlock) -> None:
        """Put in one more block."""
        weight, born_at = self.rule.weigh(block), born(block)
        place = (self._y(weight, born_at), -born_at, block.id)
        self.size += 1
        self._greatest = max(self._greatest, weight)
        if not self.chunks:
            self._hang_in(0, [(*place, weight, block)], {block.id: self.weigher.tokens(block)})
            self._least = None
            return
        at = max(0, bisect_right(self.floors, place) - 1)
        self.floors[at] = min(self.floors[at], place)
        chunk = self.chunks[at]
        chunk.add(weight, born_at, block)
        if self._least is not None:
            self._least = min(self._least, chunk.least)
        if len(chunk.blocks) > 2 * self.load:
            self._split(at)

    def _split(self, at: int) -> None:
        chunk = self.chunks.pop(at)
        self.floors.pop(at)
        columns = zip(chunk.weights, chunk.borns, chunk.blocks, strict=True)
        places = sorted((self._y(w, t), -t, block.id, w, block) for w, t, block in columns)
        half = len(places) // 2
        known = self._known((chunk,))
        self._hang_in(at, places[half:], known)
        self._hang_in(at, places[:half], known)

    def discard(self, block: MemoryBlock, chunk: Chunk) -> None:
        """Take out a block that lies in `chunk`."""
        least = chunk.least
        chunk.discard(block)
        self.size -= 1
        if least == self._least and (chunk.least != least or not chunk.blocks):
            self._least = None
        if not chunk.blocks:
            at = self.chunks.index(chunk)
            del self.chunks[at], self.floors[at]

    def _cheapest(self) -> int:
        if self._least is None:
            self._least = min([chunk.least for chunk in self.chunks], default=0)
        return self._least

    def fill(self, taking: Taking, now: float) -> None:
        """Offer the blocks to `taking`, in their rank order at `now`, until nothing that is left can matter."""
        ranked: list[Row] = []  # opened, not offered yet
        looked_at: list[tuple[float, float, str, int]] = []  # a heap of chunks not opened, by the best they may hold
        at = opened = 0
        while True:
            at = self._look(at, looked_at, taking, now)
            cut = bisect_left(ranked, looked_at[0][:3]) if looked_at else len(ranked)
            taking.offer(ranked[:cut])
            if not looked_at or taking.done(self._cheapest()):
                break
            del ranked[:cut]
            chunk = self.chunks[heappop(looked_at)[3]]
            if not taking.done(chunk.least):
                ranked += chunk.rows(now)
                ranked.sort()
                opened += len(chunk.blocks)
        if self._opened == 0:
            self._opened = opened + 2 * self.load
        # Time has mixed up the chunks so far that sorting anew pays, at most every ten minutes.
        self.worn = opened > 4 * self._opened and now - self.made_at > WORN_AFTER

    def _look(self, at: int, looked_at: list[tuple[float, float, str, int]], taking: Taking, now: float) -> int:
        """Look at the chunks from `at` on that may hold something better than any looked at; returns where it stopped."""
        chunks, floors = self.chunks, self.floors
        past = now - self.made_at
        while at < len(chunks) and (not looked_at or looked_at[0][0] >= -self._ceiling(floors[at][0], past)):
            chunk = chunks[at]
            if not taking.done(chunk.least):
                line = floors[at][0] + past / chunk.greatest if chunk.greatest > 0.0 else inf
                heappush(looked_at, (*chunk.best(now, line), at))
            at += 1
        return at

    def _ceiling(self, floor: float, past: float) -> float:
        """The best score of all chunks whose y, `past` seconds ago, was `floor` or more."""
        if not self.rule.decays:
            return -floor
        line = floor + past / self._greatest if self._greatest > 0.0 else inf
        return HALF_LIFE / line * _ROUNDING if line > HALF_LIFE else 1.0
