"""What a block is worth now, and which blocks go into a context (spec 2, *Score, select*; seed 004).

A score is confidence × type factor × recency, at most 1.0.

CRITICAL always; then, best first, HIGH while used + tokens < 80 % of the budget, MEDIUM < 90 %, LOW < 95 %. A block that
does not fit is passed over, and smaller ones after it may still go in. No file is read: what a block costs is the exact
count of last time if its file is unchanged since, else size / 4 plus what the entry around the content costs.
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
    ContextMemoryBlock,
    FileMemoryBlock,
    KnowledgeMemoryBlock,
    MemoryBlock,
    Priority,
    Shown,
    entry_of,
    piece,
)
from hivemind.tokens import TokenCounter

SHARES = {Priority.CRITICAL: 1.0, Priority.HIGH: 0.8, Priority.MEDIUM: 0.9, Priority.LOW: 0.95}
SMALLER = 8  # so many of those passed over, best first, are offered to be put in smaller
ENTRY = 84  # tokens of an entry with an empty content and no names in it, measured in cl100k_base
LINE = 10  # tokens of a line of text, roughly
ELSEWHERE = 256  # tokens of what a store keeps and nobody has measured
MISSING = 16  # tokens of the line that says that a file cannot be read
HALF_LIFE = 3600.0  # seconds after which a score has fallen to half
RECENT_FILE = 1.5
SHARED_WORD = 0.2

_Row = tuple[float, float, str]
"""A block's score and time of making, both negative, and its id: rows compare as blocks rank, and are no work for the
garbage collector."""


class RelevanceScorer:
    """Scores blocks. `task_keywords` are lower-case words, `recent_files` locations; both may be changed at any time.

    `model`, if given, returns a factor (0 or more) for a block: what was learned of its use (seed 004, *Learned Relevance*).
    """

    def __init__(self, model: Callable[[MemoryBlock], float] | None = None) -> None:
        self.model = model
        self.task_keywords: set[str] = set()
        self.recent_files: set[str] = set()

    def score_memory(self, block: MemoryBlock, now: datetime | None = None) -> float:
        """The block's score at `now` (default: the clock), 0 to 1. A block from the future (a clock was set back) is new."""
        score = block.confidence * _recency(block, now)
        if factors := self._factors(block):
            score = max(0.0, score * prod(factors.values()))
        return min(1.0, score)

    def explain(self, block: MemoryBlock, now: datetime | None = None) -> dict[str, float]:
        """The factors of the score, by name."""
        return {"confidence": block.confidence, **self._factors(block), "recency": _recency(block, now)}

    def _factors(self, block: MemoryBlock) -> dict[str, float]:
        """What counts beside confidence and age; empty for most blocks."""
        factors: dict[str, float] = {}
        if isinstance(block, KnowledgeMemoryBlock):
            shared = self.task_keywords.intersection(block.topic.lower().split())
            factors = {"keywords": 1.0 + SHARED_WORD * len(shared), "relevance": 0.5 + block.relevance_score}
        elif self.recent_files and isinstance(block, FileMemoryBlock) and block.location in self.recent_files:
            factors["recent_file"] = RECENT_FILE
        if self.model is not None:
            factors["model"] = self.model(block)
        return factors


def _recency(block: MemoryBlock, now: datetime | None) -> float:
    age = ((datetime.now(UTC) if now is None else now) - block.timestamp).total_seconds()
    return 1.0 / (1.0 + age / HALF_LIFE) if age > 0.0 else 1.0


class CriticalOverBudget(UserError):
    """CRITICAL blocks alone are more than the budget; `sizes` lists them, (id, tokens), largest first."""

    def __init__(self, sizes: Iterable[tuple[str, int]], budget: int) -> None:
        self.sizes = sorted(sizes, key=lambda size: (-size[1], size[0]))
        total = sum(tokens for _, tokens in self.sizes)
        shown = ", ".join(f"{name} {tokens}" for name, tokens in self.sizes[:10])
        more = f" and {len(self.sizes) - 10} more" if len(self.sizes) > 10 else ""
        super().__init__(
            f"CRITICAL blocks need {total} tokens, the budget is {budget}: {shown}{more}",
            mend="raise max_tokens, or make one of them shorter or less than CRITICAL",
        )


@frozen
class Choice:
    """What became of one block: its score (0 to 1), its tokens (estimated), whether it is in whole, and why."""

    block: MemoryBlock
    score: float
    tokens: int
    taken: bool
    reason: str

    @property
    def id(self) -> str:
        return self.block.id


class Selection:
    """What was selected. `blocks` are in whole, in rank order; `smaller` did not fit and may go in smaller, best first.

    `used` counts tokens. Iterating returns a Choice for each block that there was to choose from, and `why(id)` one.
    """

    def __init__(self, found: Mapping[str, MemoryBlock], budget: int, tokens: Callable[[MemoryBlock], int]) -> None:
        self.budget = budget
        self.used = 0
        self.blocks: list[MemoryBlock] = []
        self.smaller: list[MemoryBlock] = []
        self._found = found
        self._tokens = tokens
        self._taken: list[tuple[_Row, int]] = []
        self._out: list[tuple[list[_Row], int]] = []  # with the tokens used before them

    def take(self, rows: list[_Row], priority: Priority, least: int) -> None:
        """Choose among the blocks of one priority, none of which costs less than `least`."""
        limit = inf if priority is Priority.CRITICAL else self.budget * SHARES[priority]
        heapify(rows)
        while rows and (self.used + least < limit or len(self.smaller) < SMALLER):
            row = heappop(rows)
            block = self._found[row[-1]]
            tokens = self._tokens(block)
            if self.used + tokens < limit:
                self._taken.append((row, tokens))
                self.blocks.append(block)
                self.used += tokens
            else:
                self._out.append(([row], self.used))
                if len(self.smaller) < SMALLER:
                    self.smaller.append(block)
        self._out.append((rows, self.used))

    def __iter__(self) -> Iterator[Choice]:
        for (score, _, name), tokens in self._taken:
            block = self._found[name]
            share = f"fits within {SHARES[block.priority]:.0%} of {self.budget} tokens"
            reason = "always in" if block.priority is Priority.CRITICAL else share
            yield Choice(block, -score, tokens, True, f"{block.priority.name}: {reason}")
        for rows, used in self._out:
            for score, _, name in rows:
                block = self._found[name]
                tokens, share = self._tokens(block), f"{SHARES[block.priority]:.0%} of {self.budget}"
                reason = f"{block.priority.name}: {used} tokens used before it and its {tokens} are not below {share}"
                yield Choice(block, -score, tokens, False, reason)

    def why(self, memory_id: str) -> Choice | None:
        """What became of a block, or None if there is none of that id."""
        return next((choice for choice in self if choice.block.id == memory_id), None)


class MemorySelector:
    """Selects blocks under a budget of tokens.

    `token_counter` counts a text. Without a scorer the order within a priority is the seed's: confidence, then newest.
    `locate` returns the path of a location (a ContentLoader's `path_of`), for the sizes of files; `shown` as in a ContextBuilder.
    """

    def __init__(
        self,
        token_counter: Callable[[str], int],
        scorer: RelevanceScorer | None = None,
        *,
        locate: Callable[[str], str] = str,
        shown: Shown | None = None,
    ) -> None:
        self.token_counter = token_counter
        self.scorer = scorer
        self.locate = locate
        self._piece = piece if shown is None else lambda entry: shown([entry])
        usual = isinstance(token_counter, TokenCounter)
        bare = self.tokens(ContextMemoryBlock(context_type="", summary="", id=""))
        self._entry = bare if shown is not None else ENTRY if usual else min(ENTRY, token_counter(" " * 4 * ENTRY))
        self._least = min(self._entry, bare)

    def select_memories(self, symbolic_memory: Iterable[MemoryBlock], max_tokens: int) -> list[MemoryBlock]:
        """The blocks that go in whole, in rank order. Raises CriticalOverBudget."""
        return self.select(symbolic_memory, max_tokens).blocks

    def select(
        self, symbolic_memory: Iterable[MemoryBlock], max_tokens: int, *, now: datetime | None = None
    ) -> Selection:
        """The selection at `now` (default: the clock). Of two blocks with one id the later counts. Raises CriticalOverBudget."""
        moment = datetime.now(UTC) if now is None else now
        rows: dict[Priority, list[_Row]] = {priority: [] for priority in Priority}
        score = self.scorer.score_memory if self.scorer is not None else lambda block, _: block.confidence
        blocks = {block.id: block for block in symbolic_memory}
        for name, block in blocks.items():
            rows[block.priority].append((-score(block, moment), -block.timestamp.timestamp(), name))
        selection = Selection(blocks, max_tokens, self.tokens)
        for priority, ranked in rows.items():
            selection.take(ranked, priority, self._least)
            if priority is Priority.CRITICAL and selection.used > max_tokens:
                raise CriticalOverBudget([(choice.id, choice.tokens) for choice in selection], max_tokens)
        return selection

    def tokens(self, block: MemoryBlock) -> int:
        """An estimate of what the block's entry costs: one `stat` at most. What carries its content is counted."""
        if (location := block.points_at) is not None:
            return self._pointing(block, location)
        return self.token_counter(self._piece(entry_of(block, block.own_content() or "")))

    def _pointing(self, block: MemoryBlock, location: str) -> int:
        counted = block.counted
        around = self._entry + len(block.id) // 2
        try:
            found = os.stat(self.locate(location))
        except (OSError, ValueError):  # not to be seen from here: a loader may have seen it
            if counted is not None and counted[1] == self.token_counter:
                return counted[0]
            elsewhere = isinstance(block, KnowledgeMemoryBlock) and ":" in block.location
            return around + _said(block, ELSEWHERE if elsewhere else MISSING)
        if counted is not None and counted[1:] == (self.token_counter, found.st_size, found.st_mtime_ns):
            return counted[0]
        tokens = (found.st_size + 3) // 4
        if isinstance(block, FileMemoryBlock) and block.start_line is not None and block.end_line is not None:
            tokens = min(tokens, (block.end_line - block.start_line + 1) * LINE)
        elif isinstance(block, KnowledgeMemoryBlock):  # a passage of a file: its maker knows its length
            tokens = min(tokens, _said(block, tokens))
        return around + tokens


def _said(block: MemoryBlock, default: int) -> int:
    """What the block's maker says it costs (`metadata["tokens"]`)."""
    said = block.metadata.get("tokens")
    return said if isinstance(said, int) and said >= 0 else default
