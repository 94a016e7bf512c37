"""Long-term memory in the cycle: whose it is, and what of it comes into a context before thinking (spec 6, seed 001).

What is retrieved lives for one turn: its blocks point at entries and are taken out again before the next one.
"""

from __future__ import annotations

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
from hivemind.search import Confidence
from hivemind.tools.memory import namespaces_of, soundly

__all__ = ["SOURCE", "memory_source", "remembered"]

SOURCE = "memory"
"""What the location of a retrieved block begins with: `memory:memories/researcher-1/pref_food`."""
MAX_TOKENS = 1_000
_MOST = 20  # hits (seed 001, *Query Optimization*)
_LONGEST = 2_000  # characters of what is asked: a mail may be a book
_log = logging.getLogger(__name__)


def remembered(
    hive: Parts, agent: str, questions: Sequence[str], *, max_tokens: int = MAX_TOKENS
) -> list[KnowledgeMemoryBlock]:
    """What the agent and its workspace remember about the questions, best first, within `max_tokens`. A hit
    that does not fit is passed over. Nothing is written, not even a database."""
    if not "".join(questions).strip() or not hive.memory.database.was_made:
        return []
    try:
        found = soundly(hive, lambda: _hits(hive, agent, [one[:_LONGEST] for one in questions]))
    except (UserError, OSError) as error:  # of another version, no room to restore it: work goes on without it
        _log.warning("%s: nothing is remembered now: %s", agent, error)
        return []
    now, left = datetime.now(UTC), max_tokens
    blocks = []
    for number, (hit, answers) in enumerate(found):
        told = {one: answers[one[:_LONGEST]] for one in questions if one[:_LONGEST] in answers}
        block = _block(hit, told, now - timedelta(microseconds=number))
        tokens = hive.count_tokens(hit.content)
        if tokens <= left:
            left -= tokens
            block.metadata["tokens"] = tokens
            blocks.append(block)
    return blocks


def _hits(hive: Parts, agent: str, questions: Sequence[str]) -> list[tuple[MemorySearchResult, dict[str, Confidence]]]:
    """What is remembered about any of the questions, the best of each first, and how far it can be trusted to answer each."""
    ranked: dict[tuple[object, ...], tuple[int, MemorySearchResult]] = {}
    answers: dict[tuple[object, ...], dict[str, Confidence]] = {}
    for question in questions:
        for rank, hit in enumerate(hive.memory.search_in(namespaces_of(hive, agent), question, limit=_MOST)):
            place = (hit.namespace, hit.key)
            if place not in ranked or rank < ranked[place][0]:
                ranked[place] = rank, hit
            if hit.confidence is not None:
                answers.setdefault(place, {})[question] = hit.confidence
    best = sorted(ranked.items(), key=lambda one: one[1][0])
    return [(hit, answers.get(place, {})) for place, (_, hit) in best]


def _block(hit: MemorySearchResult, answers: dict[str, Confidence], timestamp: datetime) -> KnowledgeMemoryBlock:
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
            "answers": {question: round(one.value, 2) for question, one in answers.items()},
            "why": next((one.reason for one in answers.values()), hit.why),
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
