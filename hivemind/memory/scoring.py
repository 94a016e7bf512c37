"""What a block is worth now: confidence × type factor × recency, at most 1.0 (spec 2, *Score, select*)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from math import prod

from hivemind.memory.blocks import FileMemoryBlock, KnowledgeMemoryBlock, MemoryBlock

__all__ = ["RelevanceScorer"]

HALF_LIFE = 3600.0  # seconds after which a score has fallen to half
RECENT_FILE = 1.5
SHARED_WORD = 0.2


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
        score = block.confidence / (1.0 + _age(block, now) / HALF_LIFE)
        if factors := self._factors(block):
            score = max(0.0, score * prod(factors.values()))
        return min(1.0, score)

    def explain(self, block: MemoryBlock, now: datetime | None = None) -> dict[str, float]:
        """The factors of the score, by name."""
        recency = 1.0 / (1.0 + _age(block, now) / HALF_LIFE)
        return {"confidence": block.confidence, **self._factors(block), "recency": recency}

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


def _age(block: MemoryBlock, now: datetime | None) -> float:
    age = ((datetime.now(UTC) if now is None else now) - block.timestamp).total_seconds()
    return age if age > 0.0 else 0.0
