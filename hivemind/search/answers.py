"""Answers without a model: how far what was found can be trusted, what of it is quoted, what of several stores comes first
(spec 9). Nothing here reads a store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from hivemind.frozen import frozen
from hivemind.search.parts import Near, every_span
from hivemind.search.query import Query
from hivemind.search.words import words_of

Level = Literal["sure", "likely", "weak"]

# Chosen on the `tune` half of benchmarks/retrieval/questions.jsonl (docs/retrieval.md, *Refusals*).
_ENOUGH = 1.07  # of cosine + nearest sentence's + _WORDS × covered + _WORDS × known: below it nothing is said to answer
_ENOUGH_BY_WORDS = 0.36  # of covered × (1 + known) / 2, where nothing is known of meanings
_MOST_BY_WORDS = 1.19  # words alone make nothing sure
_WORDS = 0.3
_SURE = 1.29  # times enough
_QUOTED = 800  # characters: a shorter passage is quoted whole
_OF_ONE = 2  # of one origin, before the best of all others
_ALIKE = 0.8  # the share of words from which on two texts say the same

T = TypeVar("T")


@frozen
class Confidence:
    """How far a hit can be trusted to answer: `value` is 1 where it is just enough; `reason` says it in words."""

    value: float
    reason: str

    @property
    def level(self) -> Level:
        if self.value < 1:
            return "weak"
        return "sure" if self.value >= _SURE else "likely"


def confidence_of(
    query: Query, where: Mapping[str, Sequence[str]], covered: float, cosine: float | None, near: Near | None
) -> Confidence:
    """Of a hit that has words of the query (`where`: by field), covers a share of it, and is so near to it in meaning."""
    asked = query.asked
    known = sum(term.weight for term in query.own if term.often) / asked if asked else 0.0
    if cosine is None:
        value = min(covered * (1 + known) / 2 / _ENOUGH_BY_WORDS, _MOST_BY_WORDS)
    else:
        value = (cosine + (cosine if near is None else near.cosine) + _WORDS * (covered + known)) / _ENOUGH
    return Confidence(value, "; ".join(_reasons(query, {word for own in where.values() for word in own}, cosine, near)))


def _reasons(query: Query, found: Collection[str], cosine: float | None, near: Near | None) -> Iterable[str]:
    asked = [term.word for term in query.own]
    unknown = [term.word for term in query.own if not term.often]
    if found:
        words = [term.word for term in query.terms if term.word in found]
        yield f"has the word{'s' * (len(words) > 1)} {', '.join(words)}"
    else:
        yield "has none of the words that are asked for"
    if cosine is not None:
        yield f"is near in meaning ({max(cosine, cosine if near is None else near.cosine):.2f})"
    if lacking := [word for word in asked if word not in found and word not in unknown]:
        yield f"lacks {', '.join(lacking)}"
    if unknown:
        yield f"nothing here has {', '.join(unknown)}"


def quote_span(
    text: str, terms: Mapping[str, float], stems: Callable[[Sequence[str]], list[str]], near: float | None
) -> tuple[int, int]:
    """Where the quote of a passage begins and ends: whole sentences around the one that answers best, at most some 800
    characters. `terms` are the stems that are asked for and what each weighs; `near` is a place in the stretch that is
    nearest in meaning (0 to 1 of the text), where that is known."""
    spans = every_span(text)
    if not spans or spans[-1][1] - spans[0][0] <= _QUOTED:
        return (spans[0][0], spans[-1][1]) if spans else (0, len(text))
    words = [terms.keys() & set(stems(words_of(text[start:end]))) for start, end in spans]
    weights = [sum(terms[stem] for stem in own) for own in words]
    if near is None:
        first = max(range(len(spans)), key=lambda at: (weights[at], -at))
    else:
        first = next((at for at, (_, end) in enumerate(spans) if near * len(text) < end), len(spans) - 1)
    last, had, before = first, set(words[first]), True
    while True:
        free = [
            at
            for at in (last + 1, first - 1)
            if 0 <= at < len(spans)
            and max(spans[last][1], spans[at][1]) - min(spans[first][0], spans[at][0]) <= _QUOTED
        ]
        if not free:
            return spans[first][0], spans[last][1]
        gains = [sum(terms[stem] for stem in words[at] - had) for at in free]
        at = free[gains.index(max(gains))]
        if len(free) == 2 and gains[0] == gains[1]:  # what a sentence rests on stands before it; then in turns
            at, before = first - 1 if before else last + 1, not before
        first, last = min(first, at), max(last, at)
        had |= words[at]


def best_of(
    found: Iterable[Sequence[T]],
    limit: int,
    *,
    confidence: Callable[[T], Confidence],
    text: Callable[[T], str],
    origin: Callable[[T], object],
) -> list[T]:
    """What several stores found, each list best first, as one: by confidence between stores, in each store's own order
    within; the best of each origin (a file, an entry) before the third of any; what says the same once."""
    queues = [list(one) for one in found if one]
    merged: list[T] = []
    while queues:
        best = max(queues, key=lambda queue: max(confidence(one).value for one in queue))
        merged.append(best.pop(0))
        queues = [queue for queue in queues if queue]
    distinct: list[tuple[T, frozenset[str]]] = []
    for one in merged:
        words = frozenset(words_of(text(one)))
        if not any(_are_alike(words, other) for _, other in distinct):
            distinct.append((one, words))
    seen = dict[object, int]()
    turns = []
    for one, _ in distinct:
        seen[origin(one)] = seen.get(origin(one), 0) + 1
        turns.append(((seen[origin(one)] - 1) // _OF_ONE, one))
    return [one for _, one in sorted(turns, key=lambda pair: pair[0])][:limit]


def _are_alike(one: Collection[str], other: Collection[str]) -> bool:
    both = set(one) & set(other)
    return bool(both) and len(both) >= _ALIKE * max(len(one), len(other))
