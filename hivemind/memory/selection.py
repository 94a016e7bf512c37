"""Score memory blocks, and select the blocks of a context under a budget of tokens.

A score is confidence × type factor × recency, at most 1.0.

CRITICAL blocks are always selected. Then, highest score first, HIGH blocks are selected up to 80 % of the budget, MEDIUM
blocks up to 90 %, LOW blocks up to 95 %. A block that does not fit is skipped; smaller blocks may still follow. Selection
reads no file: a block's size is its last exact count if its file is unchanged, else the file's size / 4 plus the entry
around the content.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from heapq import heapify, heappop
from math import inf, prod

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.memory.blocks import (
    BUDGET_SHARES,
    ContextMemoryBlock,
    ContextRenderer,
    FileMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    Priority,
    context_entry,
    json_fragment,
)
from hivemind.tokens import TokenCounter

MAX_SMALLER = 8  # so many skipped blocks, highest score first, may enter a context in smaller form
ENTRY_TOKENS = 84  # tokens of an entry with empty content and no names, measured in cl100k_base
LINE_TOKENS = 10  # tokens of an average line of text
UNMEASURED_TOKENS = 256  # assumed tokens of an entry of a store that declares no size
MISSING_FILE_TOKENS = 16  # tokens of the line for a file that cannot be read
HALF_LIFE = 3600.0  # seconds after which a score is halved
RECENT_FILE_FACTOR = 1.5
SHARED_WORD_BONUS = 0.2

_RankRow = tuple[float, float, str]
"""A block's negative score, negative creation time, and id: rows sort in rank order. Plain tuples spare the
garbage collector."""


class RelevanceScorer:
    """A scorer of blocks. Callers may change `task_keywords` (lower-case words) and `recent_files` (locations) at any time.

    `model` (None: none) returns a factor (≥ 0) for a block, learned from the use of earlier blocks.
    """

    def __init__(self, model: Callable[[MemoryBlock], float] | None = None) -> None:
        self.model = model
        self.task_keywords: set[str] = set()
        self.recent_files: set[str] = set()

    def score_memory(self, block: MemoryBlock, now: datetime | None = None) -> float:
        """Return the block's score, 0 to 1, at `now` (None: the present time). A timestamp in the future counts as new."""
        score = block.confidence * _recency(block, now)
        if factors := self._factors(block):
            score = max(0.0, score * prod(factors.values()))
        return min(1.0, score)

    def explain(self, block: MemoryBlock, now: datetime | None = None) -> dict[str, float]:
        """Return the factors of the block's score (their product), by name."""
        return {"confidence": block.confidence, **self._factors(block), "recency": _recency(block, now)}

    def _factors(self, block: MemoryBlock) -> dict[str, float]:
        """Return the factors other than confidence and recency, by name; most blocks have none."""
        factors: dict[str, float] = {}
        if isinstance(block, KnowledgeMemoryBlock):
            shared_words = self.task_keywords.intersection(block.topic.lower().split())
            factors = {
                "keywords": 1.0 + SHARED_WORD_BONUS * len(shared_words),
                "relevance": 0.5 + block.relevance_score,
            }
        elif self.recent_files and isinstance(block, FileMemoryBlock) and block.location in self.recent_files:
            factors["recent_file"] = RECENT_FILE_FACTOR
        if self.model is not None:
            factors["model"] = self.model(block)
        return factors


def _recency(block: MemoryBlock, now: datetime | None) -> float:
    age = ((datetime.now(UTC) if now is None else now) - block.timestamp).total_seconds()
    return 1.0 / (1.0 + age / HALF_LIFE) if age > 0.0 else 1.0


class CriticalOverBudget(UserError):
    """The CRITICAL blocks alone exceed the budget. `sizes` lists (id, tokens), largest first."""

    def __init__(self, sizes: Iterable[tuple[str, int]], budget: int) -> None:
        self.sizes = sorted(sizes, key=lambda size: (-size[1], size[0]))
        total = sum(tokens for _, tokens in self.sizes)
        largest_blocks = ", ".join(f"{name} {tokens}" for name, tokens in self.sizes[:10])
        more = f" and {len(self.sizes) - 10} more" if len(self.sizes) > 10 else ""
        super().__init__(
            f"CRITICAL blocks need {total} tokens, the budget is {budget}: {largest_blocks}{more}",
            remedy="raise max_tokens, shorten a block or lower its priority",
        )


@frozen
class Choice:
    """The decision about one block: the block's score (0 to 1), its estimated tokens, and why it is selected or not."""

    block: MemoryBlock
    score: float
    tokens: int
    is_selected: bool
    reason: str

    @property
    def id(self) -> str:
        return self.block.id


class Selection:
    """The result of a selection. The `blocks` fit whole, best rank first; the blocks in `smaller` may fit in smaller
    form, best score first.

    `used` is the sum of the tokens of `blocks`. Iterating yields a Choice for each candidate block.
    """

    def __init__(
        self, blocks_by_id: Mapping[str, MemoryBlock], budget: int, estimate: Callable[[MemoryBlock], int]
    ) -> None:
        self.budget = budget
        self.used = 0
        self.blocks: list[MemoryBlock] = []
        self.smaller: list[MemoryBlock] = []
        self._blocks_by_id = blocks_by_id
        self._estimate = estimate
        self._selected_rows: list[tuple[_RankRow, int]] = []
        self._rejected_rows: list[tuple[list[_RankRow], int]] = []  # rows, and the tokens used before them

    def take(self, rows: list[_RankRow], priority: Priority, min_tokens: int) -> None:
        """Select those blocks of `rows`, all of one priority, that fit. Stop when even a block of `min_tokens`, the
        smallest size, would not."""
        limit = inf if priority is Priority.CRITICAL else self.budget * BUDGET_SHARES[priority]
        heapify(rows)
        while rows and (self.used + min_tokens < limit or len(self.smaller) < MAX_SMALLER):
            row = heappop(rows)
            block = self._blocks_by_id[row[-1]]
            tokens = self._estimate(block)
            if self.used + tokens < limit:
                self._selected_rows.append((row, tokens))
                self.blocks.append(block)
                self.used += tokens
            else:
                self._rejected_rows.append(([row], self.used))
                if len(self.smaller) < MAX_SMALLER:
                    self.smaller.append(block)
        self._rejected_rows.append((rows, self.used))

    def __iter__(self) -> Iterator[Choice]:
        for (score, _, block_id), tokens in self._selected_rows:
            block = self._blocks_by_id[block_id]
            share = f"fits within {BUDGET_SHARES[block.priority]:.0%} of {self.budget} tokens"
            reason = "always selected" if block.priority is Priority.CRITICAL else share
            yield Choice(block, -score, tokens, True, f"{block.priority.name}: {reason}")
        for rows, used_tokens in self._rejected_rows:
            for score, _, block_id in rows:
                block = self._blocks_by_id[block_id]
                tokens, share = self._estimate(block), f"{BUDGET_SHARES[block.priority]:.0%} of {self.budget}"
                reason = f"{block.priority.name}: {used_tokens} tokens were used before, and {tokens} more would reach {share}"
                yield Choice(block, -score, tokens, False, reason)

    def why(self, memory_id: str) -> Choice | None:
        """Return the decision about a block; None for an unknown id."""
        return next((choice for choice in self if choice.block.id == memory_id), None)


class MemorySelector:
    """A selector of blocks under a budget of tokens.

    Without a scorer, blocks of one priority are ordered by confidence, then newest first. `locate` returns the path of a
    location, as `ContentLoader.path_of` does. `token_counter` and `render` are those of ContextBuilder.
    """

    def __init__(
        self,
        token_counter: Callable[[str], int],
        scorer: RelevanceScorer | None = None,
        *,
        locate: Callable[[str], str] = str,
        render: ContextRenderer | None = None,
    ) -> None:
        self.token_counter = token_counter
        self.scorer = scorer
        self.locate = locate
        self._render_one = json_fragment if render is None else lambda entry: render([entry])
        is_token_counter = isinstance(token_counter, TokenCounter)
        empty_entry_tokens = self.tokens(ContextMemoryBlock(context_type="", summary="", id=""))
        self._entry_tokens = (
            empty_entry_tokens
            if render is not None
            else ENTRY_TOKENS
            if is_token_counter
            else min(ENTRY_TOKENS, token_counter(" " * 4 * ENTRY_TOKENS))
        )
        self._min_tokens = min(self._entry_tokens, empty_entry_tokens)

    def select_memories(self, symbolic_memory: Iterable[MemoryBlock], max_tokens: int) -> list[MemoryBlock]:
        """Return the blocks that fit whole into `max_tokens`, in rank order. Raises CriticalOverBudget."""
        return self.select(symbolic_memory, max_tokens).blocks

    def select(
        self, symbolic_memory: Iterable[MemoryBlock], max_tokens: int, *, now: datetime | None = None
    ) -> Selection:
        """Select blocks by their scores at `now` (default: the clock). Of blocks with one id, only the last one counts.

        Raises CriticalOverBudget if the CRITICAL blocks alone have more than `max_tokens`.
        """
        moment = datetime.now(UTC) if now is None else now
        rows: dict[Priority, list[_RankRow]] = {priority: [] for priority in Priority}
        score = self.scorer.score_memory if self.scorer is not None else lambda block, _: block.confidence
        blocks = {block.id: block for block in symbolic_memory}
        for block_id, block in blocks.items():
            rows[block.priority].append((-score(block, moment), -block.timestamp.timestamp(), block_id))
        selection = Selection(blocks, max_tokens, self.tokens)
        for priority, priority_rows in rows.items():
            selection.take(priority_rows, priority, self._min_tokens)
            if priority is Priority.CRITICAL and selection.used > max_tokens:
                raise CriticalOverBudget([(choice.id, choice.tokens) for choice in selection], max_tokens)
        return selection

    def tokens(self, block: MemoryBlock) -> int:
        """Return the tokens of the block's entry: counted for inline content, estimated (with one `stat`) for a file."""
        if (location := block.content_location) is not None:
            return self._estimate_file(block, location)
        return self.token_counter(self._render_one(context_entry(block, block.inline_content() or "")))

    def _estimate_file(self, block: MemoryBlock, location: str) -> int:
        exact_count = block.exact_count
        frame_tokens = self._entry_tokens + len(block.id) // 2
        try:
            status = os.stat(self.locate(location))
        except (OSError, ValueError):  # no file at this path; the loader may have read the content elsewhere
            if exact_count is not None and exact_count[1] == self.token_counter:
                return exact_count[0]
            is_stored = isinstance(block, KnowledgeMemoryBlock) and ":" in block.location
            return frame_tokens + _declared_tokens(block, UNMEASURED_TOKENS if is_stored else MISSING_FILE_TOKENS)
        if exact_count is not None and exact_count[1:] == (self.token_counter, status.st_size, status.st_mtime_ns):
            return exact_count[0]
        tokens = (status.st_size + 3) // 4
        if isinstance(block, FileMemoryBlock) and block.start_line is not None and block.end_line is not None:
            tokens = min(tokens, (block.end_line - block.start_line + 1) * LINE_TOKENS)
        elif isinstance(block, KnowledgeMemoryBlock):  # a passage of a file may declare its size
            tokens = min(tokens, _declared_tokens(block, tokens))
        return frame_tokens + tokens


def _declared_tokens(block: MemoryBlock, default: int) -> int:
    """Return the tokens that the block declares in `metadata["tokens"]`, or `default` if it declares none."""
    tokens = block.metadata.get("tokens")
    return tokens if isinstance(tokens, int) and tokens >= 0 else default
