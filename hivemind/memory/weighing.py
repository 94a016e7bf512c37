"""What a block will cost in tokens, without reading a file (spec 2, *Score, select*).

A block that carries its content is counted as it will stand in the context. One that points at a file is the exact
count of last time if the file is unchanged since, else size / 4 plus what the entry around the content costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from hivemind.memory.blocks import FileMemoryBlock, KnowledgeMemoryBlock, MemoryBlock, MessageMemoryBlock, keep_drawn
from hivemind.memory.entry import entry_of, own_content, piece
from hivemind.tokens import TokenCounter

__all__ = ["Weigher", "remember_count"]

ENTRY = 84  # tokens of an entry with an empty content and no names in it, measured in cl100k_base
LINE = 10  # tokens of a line of text, roughly
ELSEWHERE = 256  # tokens of what a store keeps and nobody has measured
MISSING = 16  # tokens of the line that says that a file cannot be read


Count = Callable[[str], int]


def remember_count(block: MemoryBlock, tokens: int, count: Count, size: int, mtime_ns: int) -> None:
    """Keep the exact count of a block's whole entry, by `count`, for as long as its file looks like this."""
    known = (tokens, count, size, mtime_ns)
    if block.counted != known:
        drawn = block.drawn
        block.counted = known  # and so tells the homes of the block; how it stands in the context is as before
        keep_drawn(block, drawn)


class Weigher:
    """Estimates tokens. `count` counts a text, `locate` gives the path of a location (default: as it stands)."""

    __slots__ = ("_entry", "count", "locate")

    def __init__(self, count: Count, locate: Callable[[str], str] | None = None) -> None:
        self.count = count
        self.locate = locate
        self._entry = ENTRY if isinstance(count, TokenCounter) else min(ENTRY, count(" " * 4 * ENTRY))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Weigher) and (self.count, self.locate) == (other.count, other.locate)

    def __hash__(self) -> int:
        return hash((self.count, self.locate))

    def least(self, block: MemoryBlock) -> int:
        """A number of tokens that the block costs at least; touches no disk."""
        if block.counted is not None:
            return min(block.counted[0], self._around(block))
        if isinstance(block, FileMemoryBlock | MessageMemoryBlock | KnowledgeMemoryBlock):
            return self._around(block)
        return 0

    def tokens(self, block: MemoryBlock) -> int:
        """The estimate: one `stat` at most."""
        if isinstance(block, FileMemoryBlock):
            return self._file(block, block.location)
        if isinstance(block, MessageMemoryBlock):
            return self._file(block, block.full_path)
        if isinstance(block, KnowledgeMemoryBlock):
            return self._file(block, block.location)
        return self.count(piece(entry_of(block, own_content(block) or "")))

    def _around(self, block: MemoryBlock) -> int:
        return self._entry + len(block.id) // 2

    def _file(self, block: MemoryBlock, location: str) -> int:
        counted = block.counted
        try:
            found = os.stat(location if self.locate is None else self.locate(location))
        except (OSError, ValueError):  # not to be seen from here: a loader may have seen it
            if counted is not None and counted[1] == self.count:
                return counted[0]
            return self._around(block) + self._unseen(block)
        if counted is not None and counted[1:] == (self.count, found.st_size, found.st_mtime_ns):
            return counted[0]
        tokens = (found.st_size + 3) // 4
        if isinstance(block, FileMemoryBlock) and block.start_line is not None and block.end_line is not None:
            tokens = min(tokens, (block.end_line - block.start_line + 1) * LINE)
        elif isinstance(block, KnowledgeMemoryBlock):  # a passage of a file: its maker has it before its eyes
            tokens = min(tokens, self._said(block, tokens))
        return self._around(block) + tokens

    def _unseen(self, block: MemoryBlock) -> int:
        """What a block without a file costs: what its maker says (`metadata["tokens"]`), else a guess."""
        elsewhere = isinstance(block, KnowledgeMemoryBlock) and ":" in block.location
        return self._said(block, ELSEWHERE if elsewhere else MISSING)

    @staticmethod
    def _said(block: MemoryBlock, default: int) -> int:
        """What the block's maker says it costs (`metadata["tokens"]`)."""
        said = block.metadata.get("tokens")
        return said if isinstance(said, int) and said >= 0 else default
