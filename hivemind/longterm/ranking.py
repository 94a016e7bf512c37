"""How well entries answer a question: words and meaning brought to one scale and added (spec 6, *search*)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hivemind.longterm.entry import MemoryEntry
from hivemind.longterm.terms import words_of

__all__ = ["Candidate", "Ranked", "rank"]

_MEANING = 2.0  # what the cosine counts beside the words
_SPEAKER = 0.2  # what an entry gains whose speaker the query names


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that may answer. `bm25`: of its words (0: none in common); `cosine`: of its vector, None without one.

    `previous` and `next` are the places, among all candidates, of the entries that it names so in its links.
    """

    entry: MemoryEntry
    bm25: float
    cosine: float | None
    previous: int | None = None
    next: int | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidate at a place: its score (0 or more) and why it has it."""

    place: int
    score: float
    why: str


def rank(query: str, candidates: Sequence[Candidate]) -> list[Ranked]:
    """A score for each candidate that has something in common with the query, best first, equal ones by time and id."""
    if not candidates:
        return []
    cosines = [one.cosine for one in candidates if one.cosine is not None]
    texts, meanings = _scale([one.bm25 for one in candidates]), _scale(cosines)
    top = 1.0 + (_MEANING if cosines else 0.0)
    asked = set(words_of(query))
    found = []
    for place, one in enumerate(candidates):
        text = texts(one.bm25)
        meaning = 0.0 if one.cosine is None else meanings(one.cosine)
        speaker = set(words_of(str(one.entry.metadata.get("speaker") or "")))
        score = (text + _MEANING * meaning) / top + (_SPEAKER if speaker & asked else 0.0)
        found.append(Ranked(place, score, _why(one) + (", its speaker" if speaker & asked else "")))
    return sorted(
        found, key=lambda one: (-one.score, candidates[one.place].entry.created_at, candidates[one.place].entry.id)
    )


class _scale:  # noqa: N801 - reads as a verb
    """Brings numbers to 0 (the least) to 1 (the most); a single one is 1."""

    def __init__(self, values: Sequence[float]) -> None:
        self._low, self._high = min(values, default=0.0), max(values, default=0.0)

    def __call__(self, value: float) -> float:
        if self._high > self._low:
            return (value - self._low) / (self._high - self._low)
        return 1.0 if value > 0 else 0.0


def _why(one: Candidate) -> str:
    parts = [] if one.bm25 <= 0 else [f"words {one.bm25:.2f}"]
    if one.cosine is not None:
        parts.append(f"meaning {one.cosine:.2f}")
    return ", ".join(parts) or "neighbour of what was found"
