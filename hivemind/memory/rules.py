"""The two ways to rank blocks: as the seed does without a scorer, and by a scorer's score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hivemind.memory.blocks import KnowledgeMemoryBlock, MemoryBlock, MemoryType
from hivemind.memory.ranking import Holder
from hivemind.memory.scoring import RelevanceScorer

__all__ = ["ByConfidence", "ByScore"]


@dataclass(frozen=True, slots=True)
class ByConfidence:
    """By confidence, then newest, then id; nothing decays (seed 004, *Memory Selection Algorithm*)."""

    decays = False

    def weigh(self, block: MemoryBlock) -> float:
        return block.confidence

    def state(self) -> None:
        return None

    def affected(self, before: object, holder: Holder) -> Iterable[MemoryBlock]:  # noqa: ARG002 - the port's
        return ()


@dataclass(frozen=True, slots=True)
class ByScore:
    """By the score of a RelevanceScorer, whose words, files and model may change at any time."""

    scorer: RelevanceScorer

    decays = True

    def weigh(self, block: MemoryBlock) -> float:
        return self.scorer.weigh(block)

    def state(self) -> tuple[frozenset[str], frozenset[str], object]:
        return frozenset(self.scorer.recent_files), frozenset(self.scorer.task_keywords), self.scorer.model

    def affected(self, before: object, holder: Holder) -> Iterator[MemoryBlock]:
        assert isinstance(before, tuple)
        files, words, model = before
        if model is not self.scorer.model or model is not None:
            yield from holder
            return
        for location in files ^ self.scorer.recent_files:
            yield from holder.blocks_at(location)
        words ^= self.scorer.task_keywords
        if words:
            for block in holder.blocks_by_type(MemoryType.KNOWLEDGE):
                if isinstance(block, KnowledgeMemoryBlock) and not words.isdisjoint(block.topic.lower().split()):
                    yield block
