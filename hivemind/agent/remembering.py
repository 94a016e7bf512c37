"""Long-term memory in the cycle: whose it is, and what of it comes into a context before thinking (spec 6, seed 001).

What is retrieved lives for one turn: its blocks point at entries and are taken out again before the next one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from hivemind.errors import UserError
from hivemind.longterm import (
    MemorySearchResult,
    MemoryStore,
    named,
    shortened,
    shown,
)
from hivemind.memory import KnowledgeMemoryBlock
from hivemind.presence.parts import Parts
from hivemind.tools.memory import namespaces_of, soundly

__all__ = ["SOURCE", "memory_source", "remembered"]

SOURCE = "memory"
"""What the location of a retrieved block begins with: `memory:memories/researcher-1/pref_food`."""
MAX_TOKENS = 1_000
_MOST = 20  # hits (seed 001, *Query Optimization*)
_LONGEST = 2_000  # characters of what is asked: a mail may be a book
_WORDS, _MEANING = 0.5, 0.45
_log = logging.getLogger(__name__)


def remembered(
    hive: Parts, agent: str, questions: Sequence[str], *, max_tokens: int = MAX_TOKENS
) -> list[KnowledgeMemoryBlock]:
    """What the agent and its workspace remember about the questions, best first, within `max_tokens` (content and what is
    told about it). A hit that does not fit is passed over. Nothing is written, not even a database.
    """
    query = "\n".join(questions)[:_LONGEST]
    if not query.strip() or not hive.memory.database.was_made:
        return []
    try:
        hits = soundly(hive, lambda: hive.memory.search_in(namespaces_of(hive, agent), query, limit=_MOST))
    except (UserError, OSError) as error:  # of another version, no room to mend it: work goes on without it
        _log.warning("%s: nothing is remembered now: %s", agent, error)
        return []
    now, left = datetime.now(UTC), max_tokens
    blocks = []
    for number, hit in enumerate(hits):
        answered = [question for question in questions if _answers(hive.memory, question, hit)]
        block = _block(hit, answered, now - timedelta(microseconds=number))
        tokens = hive.count_tokens(hit.content) + hive.count_tokens(json.dumps(block.metadata))
        if tokens <= left:
            left -= tokens
            block.metadata["tokens"] = tokens
            blocks.append(block)
    return blocks


def _answers(memory: MemoryStore, question: str, hit: MemorySearchResult) -> bool:
    """Whether an entry may be quoted as an answer: it has half of the question's words, or is near to it in meaning."""
    return memory.coverage(question, hit.content) >= _WORDS or hit.similarity >= _MEANING


def _block(hit: MemorySearchResult, questions: list[str], timestamp: datetime) -> KnowledgeMemoryBlock:
    where = shown((*hit.namespace, hit.key))
    return KnowledgeMemoryBlock(
        timestamp=timestamp,
        id=f"{SOURCE}:{where}",
        topic=hit.key,
        location=f"{SOURCE}:{where}",
        relevance_score=hit.similarity or min(1.0, hit.score),
        metadata={
            "origin": "agent",
            "remembered": hit.updated_at.isoformat(timespec="seconds"),
            "questions": questions,
            "why": hit.why,
        },
    )


def memory_source(memory: Callable[[], MemoryStore], count: Callable[[str], int]) -> Callable[[str, int | None], str]:
    """What gives a context the content of `memory:` blocks, cut to a number of tokens where one is given."""

    def content_of(reference: str, max_tokens: int | None) -> str:
        *namespace, key = named(reference)
        entry = memory().get(namespace, key)
        if entry is None:
            raise UserError("it was forgotten meanwhile")
        return entry.content if max_tokens is None else shortened(entry.content, count, max_tokens)

    return content_of
