"""From blocks to the JSON array that a mind is shown (spec 2, *Load, build, compress*; seed 004, *Context Builder*)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from hivemind.memory.blocks import KnowledgeMemoryBlock, MemoryBlock, MemoryType, Priority, Shown, entry_of, piece
from hivemind.memory.compression import MemoryCompressor
from hivemind.memory.loading import ContentLoader, Loaded
from hivemind.memory.selection import SHARES, CriticalOverBudget, Selection
from hivemind.tokens import TokenCounter, count_tokens

LEAST = 24  # tokens: in less than this not even a reference says anything
EDGES = 4  # tokens that the brackets of the list may cost beyond the pieces
_LONG = 65_536  # characters: a TokenCounter counts longer texts in parts,
_CUT = 16  # and each cut between parts may cost some tokens


class _Part(NamedTuple):
    """A block as it stands in the context, and what that costs."""

    block: MemoryBlock
    entry: dict[str, Any]
    tokens: int
    length: int


class ContextBuilder:
    """Builds contexts; loads only what is selected, and reads a file again only if it changed.

    `token_counter` counts what `max_tokens` bounds: the list as it is `shown`, by default as JSON.
    """

    def __init__(
        self,
        content_loader: ContentLoader,
        *,
        token_counter: Callable[[str], int] = count_tokens,
        shown: Shown | None = None,
    ) -> None:
        self.content_loader = content_loader
        self.token_counter = token_counter
        self.compressor = MemoryCompressor(token_counter)
        self._shown = shown or json.dumps
        self._piece = piece if shown is None else lambda entry: shown([entry])

    def build_context(
        self, selected: Selection | Iterable[MemoryBlock], max_tokens: int | None = None
    ) -> list[dict[str, Any]]:
        """The entries of the selected blocks, in their order.

        With `max_tokens`, the list as it is shown never counts more: the block of the lowest rank that is too much goes in
        smaller or not at all, and so on; of a Selection, what did not fit whole goes in smaller where there is room.
        Raises CriticalOverBudget if the CRITICAL blocks alone are more.
        """
        chosen = selected.blocks if isinstance(selected, Selection) else selected
        blocks = list({block.id: block for block in chosen}.values())
        loaded = self.content_loader.load_many(blocks)
        whole = [(block, one, one.content, one.form or "full") for block, one in zip(blocks, loaded, strict=True)]
        if max_tokens is None:
            return [_entry(*each) for each in whole]
        smaller = selected.smaller if isinstance(selected, Selection) else ()
        return [part.entry for part in self._within([self._part(*each) for each in whole], max_tokens, smaller)]

    def _part(self, block: MemoryBlock, loaded: Loaded, content: str, form: str) -> _Part:
        entry = _entry(block, loaded, content, form)
        text = self._piece(entry)
        part = _Part(block, entry, self.token_counter(text), len(text))
        if loaded.source is not None and loaded.source.look is not None and form == "full":
            block.counted = part.tokens, self.token_counter, *loaded.source.look[:2]
        return part

    def _within(self, parts: list[_Part], max_tokens: int, smaller: Sequence[MemoryBlock]) -> list[_Part]:
        fixed = EDGES if parts else 1
        limit = max_tokens
        while True:
            kept, total = self._cut_down(parts, limit, fixed)
            kept = self._with_smaller(kept, smaller, min(limit, int(max_tokens * SHARES[Priority.LOW])) - total)
            total = fixed + sum(part.tokens for part in kept)
            length = sum(part.length for part in kept)
            if isinstance(self.token_counter, TokenCounter) and total + _CUT * (length // _LONG) <= max_tokens:
                return kept
            excess = self.token_counter(self._shown([part.entry for part in kept])) - max_tokens
            if excess <= 0 or not kept:
                return kept
            limit -= excess

    def _cut_down(self, parts: list[_Part], limit: int, fixed: int) -> tuple[list[_Part], int]:
        """The parts that stay, the last of them perhaps smaller, and the tokens of everything."""
        total = fixed + sum(part.tokens for part in parts)
        kept: list[_Part | None] = list(parts)
        lowest_first = sorted(range(len(parts)), key=lambda at: (-parts[at].block.priority.value, -at))
        for at in lowest_first:
            part = parts[at]
            if total <= limit:
                break
            if part.block.priority is Priority.CRITICAL:
                raise CriticalOverBudget([(one.block.id, one.tokens) for one in kept if one is not None], limit - fixed)
            total -= part.tokens
            kept[at] = small = self._smaller(part.block, limit - total)
            if small is not None:
                total += small.tokens
        return [part for part in kept if part is not None], total

    def _with_smaller(self, parts: list[_Part], blocks: Iterable[MemoryBlock], room: int) -> list[_Part]:
        there = {part.block.id for part in parts}
        for block in blocks:
            if room < LEAST:
                break
            small = self._smaller(block, room) if block.id not in there else None
            if small is not None:
                parts = [*parts, small]
                room -= small.tokens
        return parts

    def _smaller(self, block: MemoryBlock, room: int) -> _Part | None:
        """The block in at most `room` tokens: compressed, else as a reference of one line, else not at all."""
        if room < LEAST or block.type is MemoryType.ROM:
            return None
        loaded = self.content_loader.load(block)
        frame = self.token_counter(self._piece(_entry(block, loaded, "", "outline")))
        within = room - frame
        for _ in range(4):
            if within < LEAST or loaded.error is not None:
                break
            if self.content_loader.has_source(block) and isinstance(block, KnowledgeMemoryBlock):
                given = self.content_loader.from_source(block, within)
                content, form = given.content, given.form or "excerpt"
            else:
                content, form = self.compressor.compress(loaded.content, block, within)
            part = self._part(block, loaded, content, form)
            if part.tokens <= room:
                return part
            within = int(within * 0.95 * within / (part.tokens - frame))
        told = f"[{block.points_at or block.id}: {len(loaded.content)} characters, not shown]"
        part = self._part(block, loaded, told if loaded.error is None else loaded.content, "reference")
        return part if part.tokens <= room else None


def _entry(block: MemoryBlock, loaded: Loaded, content: str, form: str) -> dict[str, Any]:
    entry = entry_of(block, content, form=form, outside=loaded.outside)
    if loaded.error is not None:
        entry["metadata"]["error"] = loaded.error
    if loaded.digest is not None:
        entry["metadata"] |= {"changed": True, "digest": loaded.digest}
    return entry
