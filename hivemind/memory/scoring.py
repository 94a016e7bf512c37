"""What a block is worth now: confidence × type factor × recency, at most 1.0 (spec 2, *Score, select*).

The part that does not depend on the time is the block's *weight*; the score is `weight / (1 + age / 3600 s)`. Everything
decays by that one law, which is what lets a ranking of a million blocks be kept instead of made anew (`order.py`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hivemind.memory.blocks import FileMemoryBlock, KnowledgeMemoryBlock, MemoryBlock

if TYPE_CHECKING:
    from hivemind.memory.relevance import RelevanceModel

__all__ = ["HALF_LIFE", "RelevanceScorer", "born", "decayed"]

HALF_LIFE = 3600.0  # seconds after which a score has fallen to half
RECENT_FILE = 1.5
SHARED_WORD = 0.2


def born(block: MemoryBlock) -> float:
    """The block's timestamp in seconds since 1970."""
    moment = block.timestamp
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def decayed(weight: float, born_at: float, now: float) -> float:
    """The score of a weight at a time: 0 to 1. A block from the future (a clock was set back) counts as new."""
    score = weight / (1.0 + (now - born_at) / HALF_LIFE) if now > born_at else weight
    return min(score, 1.0)


class RelevanceScorer:
    """Scores blocks. `task_keywords` are lower-case words, `recent_files` locations; both may be changed at any time.

    `model`, if given, is a RelevanceModel learned from what was selected and then cited; its factor is 0 to 2.
    """

    def __init__(self, model: RelevanceModel | None = None) -> None:
        self.model = model
        self.task_keywords: set[str] = set()
        self.recent_files: set[str] = set()
        self.conversation_context: list[str] = []

    def score_memory(self, block: MemoryBlock, now: datetime | None = None) -> float:
        """The block's score at `now` (default: the clock), 0 to 1."""
        now = datetime.now(UTC) if now is None else now
        return decayed(self.weigh(block), born(block), now.timestamp())

    def weigh(self, block: MemoryBlock) -> float:
        """The score without its recency: may exceed 1."""
        weight = block.confidence
        if isinstance(block, FileMemoryBlock):
            if block.location in self.recent_files:
                weight *= RECENT_FILE
        elif isinstance(block, KnowledgeMemoryBlock):
            weight *= 1.0 + SHARED_WORD * self.shared_words(block)
            weight *= 0.5 + block.relevance_score
        if self.model is not None:
            weight *= self.model.factor(block, self)
        return weight if weight > 0.0 else 0.0

    def shared_words(self, block: KnowledgeMemoryBlock) -> int:
        """How many words the block's topic and the task's keywords have in common."""
        return len(self.task_keywords.intersection(block.topic.lower().split())) if self.task_keywords else 0

    def explain(self, block: MemoryBlock, now: datetime | None = None) -> dict[str, float]:
        """The parts that the score is the product of, before the cap at 1: for `hivemind context AGENT --why`."""
        moment = (datetime.now(UTC) if now is None else now).timestamp()
        parts = {"confidence": block.confidence}
        if isinstance(block, FileMemoryBlock) and block.location in self.recent_files:
            parts["recent_file"] = RECENT_FILE
        if isinstance(block, KnowledgeMemoryBlock):
            parts["keywords"] = 1.0 + SHARED_WORD * self.shared_words(block)
            parts["relevance"] = 0.5 + block.relevance_score
        if self.model is not None:
            parts["model"] = self.model.factor(block, self)
        parts["recency"] = decayed(1.0, born(block), moment)
        return parts
