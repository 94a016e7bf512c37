"""From blocks to the JSON array that a mind gets (spec 2, *Load, build, compress*; seed 004, *Context Builder*)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from hivemind.memory.blocks import (
    FileMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MemoryType,
    MessageMemoryBlock,
    Priority,
    keep_drawn,
)
from hivemind.memory.cache import Text
from hivemind.memory.compression import MemoryCompressor
from hivemind.memory.entry import entry_of, piece
from hivemind.memory.loading import ContentLoader, Loaded
from hivemind.memory.selection import SHARES, CriticalOverBudget, Selection
from hivemind.memory.weighing import remember_count
from hivemind.tokens import TokenCounter, count_tokens

__all__ = ["ContextBuilder"]

LEAST = 24  # tokens: in less than this not even a reference says anything
EDGES = 4  # tokens that the brackets of the list may cost beyond the pieces
_LONG = 65_536  # characters: a TokenCounter counts longer texts in parts,
_CUT = 16  # and each cut between parts may cost some tokens
_POINTING: dict[type[MemoryBlock], Callable[[MemoryBlock], tuple[Any, ...]]] = {
    kind: attrgetter(*(item.name for item in fields(kind) if item.name != "metadata"))
    for kind in (FileMemoryBlock, MessageMemoryBlock, KnowledgeMemoryBlock)
}


@dataclass(slots=True, eq=False)
class _Part:
    """A block as it stands in the context, and all that this follows from."""

    block: MemoryBlock
    entry: dict[str, Any]
    seen: tuple[Any, ...] = ()  # the block's fields
    metadata: dict[str, Any] | None = None  # a copy of the block's own, which may change unseen
    path: str = ""
    source: Text | None = None  # None: to be made anew each time
    tokens: int = -1
    length: int = 0


class ContextBuilder:
    """Builds contexts; loads only what is selected, and reads a file again only if it changed.

    `token_counter` counts what `max_tokens` bounds, `compressor` makes forms that are smaller.
    """

    def __init__(
        self,
        content_loader: ContentLoader,
        *,
        token_counter: Callable[[str], int] = count_tokens,
        compressor: MemoryCompressor | None = None,
    ) -> None:
        self.content_loader = content_loader
        self.token_counter = token_counter
        self.compressor = compressor or MemoryCompressor(token_counter)
        self._parts: dict[str, _Part] = {}  # as they stand in the last context,
        self._older: dict[str, _Part] = {}  # and in the last one that held other blocks

    def build_context(
        self,
        selected: Selection | Iterable[MemoryBlock],
        max_tokens: int | None = None,
        *,
        first: Sequence[dict[str, Any]] = (),
        changed: Iterable[str] | None = None,
    ) -> list[dict[str, Any]]:
        """The entries of the selected blocks, in their order, after those of `first` (ready ones, never dropped).

        With `max_tokens`, `json.dumps` of the list never counts more: the block of the lowest rank that is too much goes in
        smaller or not at all, and so on; of a Selection, what did not fit whole goes in smaller where there is room.
        Raises CriticalOverBudget if `first` and the CRITICAL blocks alone are more.

        Each file is looked at (one `stat`), unless `changed` is given: the locations of all files that changed since the
        last call, from someone who missed none. Then only what was not in the last context, or is in `changed`, is looked at.
        """
        blocks = selected.blocks if isinstance(selected, Selection) else list(selected)
        parts = self._current(blocks, self._looker(changed))
        if max_tokens is not None:
            smaller = selected.smaller if isinstance(selected, Selection) else ()
            parts = self._within(parts, max_tokens, first, smaller)
        # Copies: the caller may keep and change what it gets.
        return [*first, *[{**part.entry, "metadata": part.entry["metadata"].copy()} for part in parts]]

    def _looker(self, changed: Iterable[str] | None) -> Callable[[Text, str], bool]:
        """Tells whether a text is still what its file says."""
        if changed is None:
            return self.content_loader.is_current
        paths = {self.content_loader.path_of(location) for location in changed}
        return lambda _, path: path not in paths

    def _current(self, blocks: list[MemoryBlock], as_last_time: Callable[[Text, str], bool]) -> list[_Part]:
        """Each block as it stands now: as last time where neither it nor its file changed, else loaded."""
        known, older = self._parts, self._older
        parts: dict[str, _Part] = {}
        stale: list[MemoryBlock] = []
        for block in blocks:
            is_current = as_last_time
            part = known.get(block.id)
            if part is None:
                part, is_current = older.get(block.id), self.content_loader.is_current
            if (
                part is not None
                and part.source is not None
                and (block.drawn is part or part.seen == _POINTING[type(block)](block))
                and (not block.metadata or part.metadata == block.metadata)
                and is_current(part.source, part.path)
            ):
                parts[block.id] = part
            else:
                stale.append(block)
        if stale:
            for block, loaded in zip(stale, self.content_loader.load_many(stale), strict=True):
                parts[block.id] = self._part(block, loaded, known.get(block.id))
        if parts.keys() != known.keys():
            self._older = known  # what is in every other context is not made anew each time
        self._parts = parts
        return (
            [parts[name] for name in dict.fromkeys([block.id for block in blocks])] if stale else list(parts.values())
        )

    def _part(self, block: MemoryBlock, loaded: Loaded, before: _Part | None) -> _Part:
        part = _Part(block, _entry(block, loaded, loaded.content, loaded.form or "full"))
        reader = _POINTING.get(type(block))
        location = self.content_loader.location_of(block)
        if reader is not None and location is not None and loaded.source is not None and loaded.source.look is not None:
            part.seen = reader(block)
            part.metadata = copy.deepcopy(block.metadata)
            if block.homes:
                keep_drawn(block, part)
            part.path, part.source = self.content_loader.path_of(location), loaded.source
        elif before is not None and before.entry == part.entry:
            part.tokens, part.length = before.tokens, before.length
        return part

    # within a budget
    def _count(self, part: _Part) -> int:
        if part.tokens < 0:
            text = piece(part.entry)
            part.tokens, part.length = self.token_counter(text), len(text)
            look = part.source.look if part.source is not None else None
            if look is not None and part.entry["metadata"]["form"] == "full":
                remember_count(part.block, part.tokens, self.token_counter, look[0], look[1])
        return part.tokens

    def _within(
        self, parts: list[_Part], max_tokens: int, first: Sequence[dict[str, Any]], smaller: Sequence[MemoryBlock]
    ) -> list[_Part]:
        ready = [piece(entry) for entry in first]
        fixed = sum(self.token_counter(text) for text in ready) + (EDGES if parts or ready else 1)
        limit = max_tokens
        while True:
            kept, total = self._cut_down(parts, limit, fixed)
            kept = self._with_smaller(kept, smaller, min(limit, int(max_tokens * SHARES[Priority.LOW])) - total)
            total = fixed + sum([part.tokens for part in kept])
            length = sum(map(len, ready)) + sum([part.length for part in kept])
            if isinstance(self.token_counter, TokenCounter) and total + _CUT * (length // _LONG) <= max_tokens:
                return kept
            excess = self.token_counter(json.dumps([*first, *(part.entry for part in kept)])) - max_tokens
            if excess <= 0 or not (kept or first):
                return kept
            limit -= excess

    def _cut_down(self, parts: list[_Part], limit: int, fixed: int) -> tuple[list[_Part], int]:
        """The parts that stay, the last of them perhaps smaller, and the tokens of everything."""
        total = fixed + sum([part.tokens if part.tokens >= 0 else self._count(part) for part in parts])
        if total <= limit:
            return parts, total
        kept: list[_Part | None] = list(parts)
        lowest_first = sorted(range(len(parts)), key=lambda at: (-parts[at].block.priority.value, -at))
        for at in lowest_first:
            part = parts[at]
            if total <= limit:
                break
            if part.block.priority is Priority.CRITICAL:
                critical = [(p.block.id, self._count(p)) for p in kept if p is not None]
                raise CriticalOverBudget(critical, limit, fixed)
            total -= self._count(part)
            kept[at] = small = self._smaller(part.block, limit - total)
            if small is not None:
                total += self._count(small)
        return [part for part in kept if part is not None], total

    def _with_smaller(self, parts: list[_Part], blocks: Iterable[MemoryBlock], room: int) -> list[_Part]:
        there = {part.block.id for part in parts}
        for block in blocks:
            if room < LEAST:
                break
            small = self._smaller(block, room) if block.id not in there else None
            if small is not None:
                parts = [*parts, small]
                room -= self._count(small)
        return parts

    def _smaller(self, block: MemoryBlock, room: int) -> _Part | None:
        """The block in at most `room` tokens: compressed, else as a reference of one line, else not at all."""
        if room < LEAST or block.type is MemoryType.ROM:
            return None
        loaded = self.content_loader.load(block)
        frame = self.token_counter(piece(_entry(block, loaded, "", "outline")))
        within = room - frame
        for _ in range(4):
            if within < LEAST or loaded.error is not None:
                break
            if self.content_loader.has_source(block) and isinstance(block, KnowledgeMemoryBlock):
                given = self.content_loader.from_source(block, within)
                content, form = given.content, given.form or "excerpt"
            else:
                content, form = self.compressor.compress(loaded.content, block, within)
            part = _Part(block, _entry(block, loaded, content, form))
            if self._count(part) <= room:
                return part
            within = int(within * 0.95 * within / (self._count(part) - frame))
        part = _Part(block, _entry(block, loaded, _reference(block, loaded), "reference"))
        return part if self._count(part) <= room else None


def _entry(block: MemoryBlock, loaded: Loaded, content: str, form: str) -> dict[str, Any]:
    entry = entry_of(block, content, form=form, outside=loaded.outside)
    if loaded.error is not None:
        entry["metadata"]["error"] = loaded.error
    if loaded.digest is not None:
        entry["metadata"] |= {"changed": True, "digest": loaded.digest}
    return entry


def _reference(block: MemoryBlock, loaded: Loaded) -> str:
    if loaded.error is not None:
        return loaded.content
    where = getattr(block, "location", None) or getattr(block, "full_path", None) or block.id
    return f"[{where}: {len(loaded.content)} characters, not shown]"
