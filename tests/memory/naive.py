"""The selection of the symbolic working memory, literally, to compare the incremental one with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from hivemind.memory import MemoryBlock, Priority, RelevanceScorer

SHARES = ((Priority.HIGH, 0.8), (Priority.MEDIUM, 0.9), (Priority.LOW, 0.95))


def select(
    blocks: Iterable[MemoryBlock],
    budget: int,
    tokens: Callable[[MemoryBlock], int],
    scorer: RelevanceScorer | None,
    now: datetime,
) -> list[str]:
    """Return the ids in the order of selection: score, sort and try every block."""
    blocks = list(blocks)

    def rank(block: MemoryBlock) -> tuple[float, float, str]:
        score = block.confidence if scorer is None else scorer.score_memory(block, now)
        return -score, -block.timestamp.timestamp(), block.id

    critical = sorted((block for block in blocks if block.priority is Priority.CRITICAL), key=rank)
    selected_ids = [block.id for block in critical]
    used_tokens = sum(map(tokens, critical))
    for priority, share in SHARES:
        for block in sorted((block for block in blocks if block.priority is priority), key=rank):
            if used_tokens + tokens(block) < budget * share:
                selected_ids.append(block.id)
                used_tokens += tokens(block)
    return selected_ids
