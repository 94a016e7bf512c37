"""How well items answer a query (spec 9, *The engine*): words and meaning first, then what else bears on it, where a store
knows it. Each feature has a name and a weight, and is measured alone (docs/retrieval.md); none favours long items.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hivemind.frozen import frozen
from hivemind.search.item import Item, Reading
from hivemind.search.parts import Near
from hivemind.search.query import Query, has_name, has_time, in_first_person
from hivemind.search.words import bm25_of_tallies

_K1, _B = 1.2, 0.75  # BM25: saturation, and how much length counts beside the usual one
_SESSIONS = 2  # of one session alone nothing can be said
_TOLD = 0.05  # of a score of 1: what counts less is not told
_BEST = 3  # cosines that a session is judged by
_CREDIT = {"text": 1.0, "heading": 0.95, "titles": 0.85, "labels": 0.7, "example": 0.5}  # of a word there, as covered


@frozen
class Weights:
    """What each feature counts. Words and meaning together give 0 to 1; what follows them is added to that."""

    meaning: float = 2.0  # beside the words' 1
    sentence: float = 0.4  # the share in it of the nearest sentence, where there are several
    late: float = 0.0  # how near the words that are asked are to its own, 0 to 1 over the candidates
    heading: float = 1.1  # of a word in the nearest title, beside one in the text
    titles: float = 0.8
    labels: float = 0.5
    example: float = 0.4
    covered: float = 0.0  # the share of the words' score that is had only in so far as the query is covered
    together: float = 0.0  # what two words gain that stand side by side, as in the query
    lead: float = 0.0  # what the first text below a heading gains by each word of the heading
    neighbour: float = 0.3  # of how near the item before and the item after are in meaning
    answer: float = 0.2  # and of the one before, if it asks
    said_before: float = 0.8  # of the words that the item before has and the item itself has not
    said_after: float = 0.4  # of those of the item after
    speaker: float = 0.2  # it is by whom the query names
    first_person: float = 0.1  # and of themselves
    session: float = 0.2  # what the session as a whole has in common with it, 0 to 1
    date: float = 0.4  # it is of a month or year that the query names
    day: float = 0.2  # and near to the day
    time: float = 0.1  # it says when, and that is asked
    written: float = 0.0  # it has an identifier just as the query writes it
    name: float = 0.1  # it says a name, and who, where or which is asked
    asking: float = -0.1  # it ends with a question


@dataclass(slots=True)
class Match:
    """How an item's words answer: the score, the share (0 to 1) of the query that they cover, and which stand where."""

    score: float = 0.0
    covered: float = 0.0
    where: dict[str, list[str]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


@frozen
class Candidate:
    """An item that may answer, as it was read, with the cosine of its vector (None: it has none yet) and how near its parts
    are. `previous` and `next` are the places, among all candidates, of the items beside it."""

    item: Item
    reading: Reading
    match: Match
    cosine: float | None = None
    near: Near | None = None
    previous: int | None = None
    next: int | None = None

    @property
    def nearness(self) -> float:
        """The cosine of its vector or of its nearest sentence, whichever is more; -1 without any."""
        return max(-1.0 if self.cosine is None else self.cosine, -1.0 if self.near is None else self.near.cosine)

    @property
    def session(self) -> tuple[int, str] | None:
        """Its session, which is one of its scope."""
        return None if self.item.session is None else (self.item.scope, self.item.session)


@frozen
class Ranked:
    """The candidate at a place: its score (0 or more), and what it shows beside words and meaning: (what, its worth)."""

    place: int
    score: float
    signs: Sequence[tuple[str, float]]

    def why(self, one: Candidate) -> str:
        """Why the candidate has its score, in words."""
        parts = []
        if one.match.where:
            parts.append("has " + "; ".join(f"{', '.join(w)}{_NAMES[name]}" for name, w in one.match.where.items()))
            if one.match.missing:
                parts[0] += f"; without {', '.join(one.match.missing)}"
        if one.cosine is not None:
            parts.append(f"its meaning is near ({one.nearness:.2f})")
        parts = parts or ["neighbour of what was found"]
        signs = [what for what, value in self.signs if abs(value) >= _TOLD]
        return "; ".join([*parts, *([f"for it counts {', '.join(signs)}"] if signs else [])])


_NAMES = {
    "text": "", "heading": " in its heading", "titles": " in the titles above", "labels": " in the document's labels",
    "example": " in an example",
}  # fmt: skip


def matches(query: Query, items: Sequence[Item], readings: Sequence[Reading], weights: Weights) -> list[Match]:
    """One match by words for each item: BM25 over its fields."""
    lengths = [reading.length for reading in readings]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    return [_match(query, *pair, average, weights) for pair in zip(items, readings, strict=True)]


def _match(query: Query, item: Item, reading: Reading, average: float, weights: Weights) -> Match:
    found = Match()
    if not reading.places:
        return found
    usual = 1 - _B + _B * reading.length / average if average else 1.0
    of_field = {"text": 1 / usual, "heading": weights.heading, "titles": weights.titles, "labels": weights.labels}
    of_field["example"] = weights.example / usual
    covered = with_context = 0.0
    for term in query.terms:
        places = reading.places.get(term.stem)
        if not places:
            found.missing += [] if term.context else [term.word]
            continue
        best = max(places, key=_CREDIT.__getitem__)
        found.where.setdefault(best, []).append(term.word)
        with_context += term.weight * _CREDIT[best]
        covered += 0.0 if term.context else term.weight * _CREDIT[best]
        often = sum(len(at) * of_field[name] for name, at in places.items())
        found.score += term.weight * often * (_K1 + 1) / (often + _K1)
        if item.leads and "heading" in places:
            found.score += term.weight * weights.lead
    asked = query.asked
    found.covered = max(covered / asked, with_context / sum(term.weight for term in query.terms)) if asked else 0.0
    if weights.together:
        found.score += weights.together * _together(query, reading)
    found.score *= 1 - weights.covered + weights.covered * found.covered
    return found


def _together(query: Query, reading: Reading) -> float:
    gain = 0.0
    for one, two in pairwise(query.terms):
        first, second = reading.places.get(one.stem), reading.places.get(two.stem)
        if first and second:
            for name in ("text", "heading"):
                after = set(second.get(name, ()))
                if any({at + 1, at + 2, at + 3} & after for at in first.get(name, ())):
                    gain += min(one.weight, two.weight)
    return gain


def rank(query: Query, candidates: Sequence[Candidate], weights: Weights) -> list[Ranked]:
    """A score for each candidate, best first, equal ones by age."""
    cosines = [_nearness(one, weights.sentence) for one in candidates]
    base = _fused(
        _with_words_beside(query, candidates, weights),
        _with_neighbours(cosines, candidates, weights),
        [one.match.covered for one in candidates],
        weights.meaning,
    )
    per_word = [one.near.words for one in candidates if one.near is not None and one.near.words is not None]
    close = _scale(per_word)
    sessions = _sessions(query, candidates, cosines, weights)
    has_meanings = any(cosine is not None for cosine in cosines)
    found = []
    for place, one in enumerate(candidates):
        signs = _signs(query, one, weights)
        session = sessions[place]
        closeness = 0.0 if one.near is None or one.near.words is None else close(one.near.words)
        if has_meanings and one.cosine is None:  # without a vector its words alone count, here too
            session = base[place] if session else 0.0
            closeness = base[place] if per_word else 0.0
        if session:
            signs.append(("its session or file", weights.session * session))
        score = max(0.0, base[place] + weights.late * closeness + sum(worth for _, worth in signs))
        found.append(Ranked(place, score * one.item.standing, signs))
    return sorted(found, key=lambda one: (-one.score, candidates[one.place].item.age))


def borne_out(query: Query, candidates: Sequence[Candidate], least: float) -> list[bool]:
    """Whether anything bears out each candidate: a word or a cosine of `least`, its own, of an item beside it or of its
    session, or that who is asked about said it. The others are candidates only because there was nothing nearer."""
    alike = [one.match.score > 0 or (one.cosine is not None and one.cosine >= least) for one in candidates]
    sessions = {one.session for one, found in zip(candidates, alike, strict=True) if found} - {None}
    return [
        found
        or any(alike[near] for near in (one.previous, one.next) if near is not None)
        or one.session in sessions
        or not query.names.isdisjoint(one.reading.speaker)
        for one, found in zip(candidates, alike, strict=True)
    ]


def _signs(query: Query, one: Candidate, weights: Weights) -> list[tuple[str, float]]:
    """What the item itself shows beside its words and meaning: (what, what it counts)."""
    found = []
    want, text, moment = query.want, one.item.text, one.item.moment
    if not query.names.isdisjoint(one.reading.speaker):
        found.append(("its speaker", weights.speaker))
        if in_first_person(text):
            found.append(("that it is in the first person", weights.first_person))
    if want.dates and moment is not None and want.dates.fits(moment):
        found.append(("its date", weights.date + (weights.day if want.dates.is_near(moment) else 0.0)))
    if weights.time and want.time and has_time(text):
        found.append(("that it says when", weights.time))
    if weights.name and want.name and has_name(text):
        found.append(("that it says a name", weights.name))
    if weights.written and want.identifiers:
        folded = "\n".join((one.item.text, one.item.example, one.item.heading)).casefold()
        found += [(f"{name} as it is written", weights.written) for name in want.identifiers if name in folded]
    if one.reading.asks:
        found.append(("that it only asks", weights.asking))
    return found


def _nearness(one: Candidate, share: float) -> float | None:
    """The cosine of an item, with its share of its nearest sentence's."""
    if one.cosine is None or one.near is None:
        return one.cosine
    return one.cosine + share * (one.near.cosine - one.cosine)


def _with_neighbours(
    cosines: Sequence[float | None], candidates: Sequence[Candidate], weights: Weights
) -> list[float | None]:
    """Add to each cosine a share of those of the items before and after it, more of one before that asks.

    An item that has none beside it is taken to be among its like: it has the share of its own. One without a vector gets no
    cosine from its neighbours.
    """

    def beside(place: int | None, own: float) -> float:
        cosine = None if place is None else cosines[place]
        return own if cosine is None else cosine

    sums: list[float | None] = []
    for own, one in zip(cosines, candidates, strict=True):
        if own is None:
            sums.append(None)
            continue
        before, after = weights.neighbour, weights.neighbour
        if one.previous is not None and candidates[one.previous].reading.asks:
            before += weights.answer
        sums.append(own + before * beside(one.previous, own) + after * beside(one.next, own))
    return sums


def _with_words_beside(query: Query, candidates: Sequence[Candidate], weights: Weights) -> list[float]:
    """Each score by words with a share of its neighbours', as far as they have terms that the item itself has not.

    What answers a question often leaves out what the talk is about, as that was said just before. Neighbours that say
    the same again show nothing more.
    """
    of_term = {term.stem: term.weight for term in query.terms}
    had = [of_term.keys() & one.reading.places.keys() if one.match.score > 0 else set[str]() for one in candidates]

    def added(place: int, near: int | None) -> float:
        if near is None or not had[near]:
            return 0.0
        of_all = sum(of_term[stem] for stem in had[near])
        return candidates[near].match.score * sum(of_term[stem] for stem in had[near] - had[place]) / of_all

    return [
        one.match.score + weights.said_before * added(place, one.previous) + weights.said_after * added(place, one.next)
        for place, one in enumerate(candidates)
    ]


def _fused(
    words: Sequence[float], cosines: Sequence[float | None], covered: Sequence[float], meaning: float
) -> list[float]:
    """Bring words and meaning to 0..1 each and add them by weight: 0 to 1. What has no cosine, where others have, counts as so
    near in meaning as it has the words, and covers the question; where none has one, words alone count."""
    text, sense = _scale(words), _scale([cosine for cosine in cosines if cosine is not None])
    if all(cosine is None for cosine in cosines):
        return [text(word) for word in words]
    meanings = [
        text(word) * share if cosine is None else sense(cosine)
        for word, cosine, share in zip(words, cosines, covered, strict=True)
    ]
    return [(text(word) + meaning * nearness) / (1 + meaning) for word, nearness in zip(words, meanings, strict=True)]


def _sessions(
    query: Query, candidates: Sequence[Candidate], cosines: Sequence[float | None], weights: Weights
) -> list[float]:
    """What the session of each candidate has in common with the query as a whole: 0 to 1, 0 without a session.

    By the words of all its candidates together, and the mean of its three best cosines; by words alone it says nothing.
    """
    members: dict[tuple[int, str], list[int]] = defaultdict(list)
    for place, one in enumerate(candidates):
        if one.session is not None:
            members[one.session].append(place)
    if len(members) < _SESSIONS or all(cosine is None for cosine in cosines):
        return [0.0] * len(candidates)
    tops = [
        sorted((cosine for place in own if (cosine := cosines[place]) is not None), reverse=True)[:_BEST]
        for own in members.values()
    ]
    best = [sum(top) / len(top) if top else None for top in tops]
    of_term = {term.stem: term.weight for term in query.terms}
    tallies = [_tally([candidates[place].reading for place in own]) for own in members.values()]
    lengths = [sum(candidates[place].reading.length for place in own) for own in members.values()]
    words = bm25_of_tallies(of_term, tallies, lengths)
    found = [0.0] * len(candidates)
    for own, score in zip(members.values(), _fused(words, best, [1.0] * len(best), weights.meaning), strict=True):
        for place in own:
            found[place] = score
    return found


def _tally(readings: Sequence[Reading]) -> Mapping[str, int]:
    """How often each stem stands in several texts together."""
    found = dict[str, int]()
    for reading in readings:
        for stem, places in reading.places.items():
            found[stem] = found.get(stem, 0) + len(places.get("text", ()))
    return found


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """Brings numbers to 0 (the least) to 1 (the most); where all are equal, to 1 if they are above 0."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high > low:
        return lambda value: (value - low) / (high - low)
    return lambda value: 1.0 if value > 0 else 0.0
