"""Build contexts from memory blocks: the JSON arrays that minds read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from hivemind.memory.blocks import (
    BUDGET_SHARES,
    ContextRenderer,
    KnowledgeMemoryBlock,
    MemoryBlock,
    MemoryType,
    Priority,
    context_entry,
    json_fragment,
)
from hivemind.memory.compression import MemoryCompressor
from hivemind.memory.loading import BlockContent, ContentLoader
from hivemind.memory.selection import CriticalOverBudget, Selection
from hivemind.tokens import TokenCounter, count_tokens

MIN_TOKENS = 24  # a block needs this many tokens even as a reference
BRACKET_TOKENS = 4  # tokens of the list's brackets
_COUNTED_LENGTH = 65_536  # characters; a TokenCounter splits longer texts, …
_CUT_TOKENS = 16  # … and each split may change the count by this many tokens


class _ContextPart(NamedTuple):
    """A block's context entry, with the entry's size in tokens and characters."""

    block: MemoryBlock
    entry: dict[str, Any]
    tokens: int
    length: int


class ContextBuilder:
    """A builder of contexts. It loads only the content of selected blocks, and reads a file again only if it changed.

    `render` turns the list of entries into text (default: JSON); `token_counter` counts its tokens.
    """

    def __init__(
        self,
        content_loader: ContentLoader,
        *,
        token_counter: Callable[[str], int] = count_tokens,
        render: ContextRenderer | None = None,
    ) -> None:
        self.content_loader = content_loader
        self.token_counter = token_counter
        self.compressor = MemoryCompressor(token_counter)
        self._render = render or json.dumps
        self._render_one = json_fragment if render is None else lambda entry: render([entry])

    def build_context(
        self, selected: Selection | Iterable[MemoryBlock], max_tokens: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the entries of the selected blocks, in the order of the blocks.

        To keep the rendered list within `max_tokens` (None: no limit), blocks are made smaller or left out, those of
        the lowest rank first. If there is room, blocks from `Selection.smaller` are added in smaller form. Raises
        CriticalOverBudget if the CRITICAL blocks alone have more than `max_tokens`.
        """
        selected_blocks = selected.blocks if isinstance(selected, Selection) else selected
        blocks = list({block.id: block for block in selected_blocks}.values())
        contents = self.content_loader.load_many(blocks)
        part_arguments = [
            (block, block_content, block_content.content, block_content.form or "full")
            for block, block_content in zip(blocks, contents, strict=True)
        ]
        if max_tokens is None:
            return [_build_entry(*arguments) for arguments in part_arguments]
        smaller = selected.smaller if isinstance(selected, Selection) else ()
        return [
            part.entry
            for part in self._fit([self._build_part(*arguments) for arguments in part_arguments], max_tokens, smaller)
        ]

    def _build_part(self, block: MemoryBlock, block_content: BlockContent, content: str, form: str) -> _ContextPart:
        entry = _build_entry(block, block_content, content, form)
        text = self._render_one(entry)
        part = _ContextPart(block, entry, self.token_counter(text), len(text))
        if block_content.source is not None and block_content.source.stamp is not None and form == "full":
            block.exact_count = part.tokens, self.token_counter, *block_content.source.stamp[:2]
        return part

    def _fit(self, parts: list[_ContextPart], max_tokens: int, smaller: Sequence[MemoryBlock]) -> list[_ContextPart]:
        base_tokens = BRACKET_TOKENS if parts else 1
        limit = max_tokens
        while True:
            fitting_parts, total = self._reduce(parts, limit, base_tokens)
            fitting_parts = self._add_smaller(
                fitting_parts, smaller, min(limit, int(max_tokens * BUDGET_SHARES[Priority.LOW])) - total
            )
            total = base_tokens + sum(part.tokens for part in fitting_parts)
            length = sum(part.length for part in fitting_parts)
            if (
                isinstance(self.token_counter, TokenCounter)
                and total + _CUT_TOKENS * (length // _COUNTED_LENGTH) <= max_tokens
            ):
                return fitting_parts
            excess = self.token_counter(self._render([part.entry for part in fitting_parts])) - max_tokens
            if excess <= 0 or not fitting_parts:
                return fitting_parts
            limit -= excess

    def _reduce(self, parts: list[_ContextPart], limit: int, base_tokens: int) -> tuple[list[_ContextPart], int]:
        """Make parts smaller or leave them out, the lowest ranks first, until all fit into `limit` tokens together with
        `base_tokens`.

        Return the remaining parts and the total of their tokens and `base_tokens`. Raises CriticalOverBudget.
        """
        total = base_tokens + sum(part.tokens for part in parts)
        reduced_parts: list[_ContextPart | None] = list(parts)
        lowest_first = sorted(range(len(parts)), key=lambda index: (-parts[index].block.priority.value, -index))
        for position in lowest_first:
            part = parts[position]
            if total <= limit:
                break
            if part.block.priority is Priority.CRITICAL:
                raise CriticalOverBudget(
                    [(remaining.block.id, remaining.tokens) for remaining in reduced_parts if remaining is not None],
                    limit - base_tokens,
                )
            total -= part.tokens
            reduced_parts[position] = smaller_part = self._build_smaller(part.block, limit - total)
            if smaller_part is not None:
                total += smaller_part.tokens
        return [part for part in reduced_parts if part is not None], total

    def _add_smaller(
        self, parts: list[_ContextPart], blocks: Iterable[MemoryBlock], remaining_tokens: int
    ) -> list[_ContextPart]:
        included_ids = {part.block.id for part in parts}
        for block in blocks:
            if remaining_tokens < MIN_TOKENS:
                break
            smaller_part = self._build_smaller(block, remaining_tokens) if block.id not in included_ids else None
            if smaller_part is not None:
                parts = [*parts, smaller_part]
                remaining_tokens -= smaller_part.tokens
        return parts

    def _build_smaller(self, block: MemoryBlock, max_tokens: int) -> _ContextPart | None:
        """Return the block in at most `max_tokens`: compressed, or else as a reference of one line. Return None if
        neither fits."""
        if max_tokens < MIN_TOKENS or block.type is MemoryType.ROM:
            return None
        block_content = self.content_loader.load(block)
        frame_tokens = self.token_counter(self._render_one(_build_entry(block, block_content, "", "outline")))
        content_tokens = max_tokens - frame_tokens
        for _ in range(4):
            if content_tokens < MIN_TOKENS or block_content.error is not None:
                break
            if self.content_loader.has_source(block) and isinstance(block, KnowledgeMemoryBlock):
                source_content = self.content_loader.from_source(block, content_tokens)
                content, form = source_content.content, source_content.form or "excerpt"
            else:
                content, form = self.compressor.compress(block_content.content, block, content_tokens)
            part = self._build_part(block, block_content, content, form)
            if part.tokens <= max_tokens:
                return part
            content_tokens = int(content_tokens * 0.95 * content_tokens / (part.tokens - frame_tokens))
        reference = f"[{block.content_location or block.id}: {len(block_content.content)} characters, not shown]"
        part = self._build_part(
            block, block_content, reference if block_content.error is None else block_content.content, "reference"
        )
        return part if part.tokens <= max_tokens else None


def _build_entry(block: MemoryBlock, block_content: BlockContent, content: str, form: str) -> dict[str, Any]:
    entry = context_entry(block, content, form=form, is_external=block_content.is_external)
    if block_content.error is not None:
        entry["metadata"]["error"] = block_content.error
    if block_content.digest is not None:
        entry["metadata"] |= {"changed": True, "digest": block_content.digest}
    return entry
