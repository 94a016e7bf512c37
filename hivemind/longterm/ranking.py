"""How well entries answer a question (spec 6, *search*): words and meaning first, then what speaker, session, time and
neighbours say, where entries have them.

Every weight is a round number on a plateau, chosen by hand on the development conversations; docs/retrieval.md says what
each is worth there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from hivemind.longterm.cues import Wanted, has_name, has_time, in_first_person, wanted
from hivemind.longterm.reading import Found, Reading
from hivemind.terms import bm25_of_tallies

__all__ = ["Candidate", "Question", "Ranked", "Weights", "borne_out", "rank"]

_SESSIONS = 2  # of one session alone nothing can be said
_BEST = 3  # cosines that a session is judged by


@dataclass(frozen=True, slots=True)
class Weights:
    """What each thing counts. Words and meaning together give 0 to 1; the others are added to that."""

    meaning: float = 2.0  # beside the words' 1
    passage: float = 0.4  # the share in it of the nearest sentence, where there are several
    neighbour: float = 0.3  # of how near the entry before and the entry after are in meaning
    answer: float = 0.2  # and of the one before, if it asks
    said_before: float = 0.8  # of the words that the entry before has and the entry itself has not
    said_after: float = 0.4  # of those of the entry after
    speaker: float = 0.2  # it is by whom the question names
    first_person: float = 0.1  # and of themselves
    session: float = 0.2  # what the session as a whole has in common with it, 0 to 1
    date: float = 0.4  # it is of a month or year that the question names
    day: float = 0.2  # and near to the day
    time: float = 0.1  # it says when, and that is asked
    name: float = 0.1  # it says a name, and who, where or which is asked
    length: float = 0.1  # of the longest; a short one says little
    asking: float = -0.1  # it ends with a question


@dataclass(frozen=True, slots=True)
class Question:
    """`names`: those in the text, in small letters, of who takes part; `terms`: stem → rarity of what it is about."""

    text: str
    names: frozenset[str] = frozenset()
    terms: Mapping[str, float] = field(default_factory=dict)
    weights: Weights = Weights()


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that may answer, as it was read.

    `bm25`: of its words (0: none in common); `cosine`: of its vector, None without one; `passage`: of its nearest sentence,
    None where it is one. `previous` and `next` are the places, among all candidates, of the entries that it names so in
    its links.
    """

    found: Found
    bm25: float
    cosine: float | None
    passage: float | None = None
    previous: int | None = None
    next: int | None = None

    @property
    def reading(self) -> Reading:
        """What was read in it."""
        return self.found.reading

    @property
    def session(self) -> tuple[int, str] | None:
        """Its session, which is one of its namespace."""
        return None if self.reading.session is None else (self.found.space, self.reading.session)


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidate at a place: its score (0 or more), and what it shows beside words and meaning: (what, its worth)."""

    place: int
    score: float
    signs: Sequence[tuple[str, float]]

    def why(self, one: Candidate) -> str:
        """Why the candidate has its score, in words."""
        parts = [] if one.bm25 <= 0 else [f"words {one.bm25:.2f}"]
        if one.cosine is not None:
            parts.append(f"meaning {one.cosine:.2f}")
        parts = parts or ["neighbour of what was found"]
        return ", ".join(parts + [f"{what} {value:+.2f}" for what, value in self.signs if round(value, 2)])


def rank(question: Question, candidates: Sequence[Candidate]) -> list[Ranked]:
    """A score for each candidate, best first, equal ones by time and id."""
    weights, want = question.weights, wanted(question.text)
    near = [_nearness(one, weights.passage) for one in candidates]
    known = [value for value in near if value is not None]
    floor = min(known, default=0.0)
    cosines = [floor if value is None else value for value in near]
    base = _fused(
        _with_words_beside(question, candidates),
        _with_neighbours(cosines, candidates, weights) if known else None,
        weights.meaning,
    )
    sessions = _sessions(question, candidates, cosines if known else None)
    longest = log(1 + max((one.reading.length for one in candidates), default=0)) or 1.0
    found = []
    for place, one in enumerate(candidates):
        signs = _signs(question, want, one.reading)
        if sessions[place]:
            signs.append(("its session", weights.session * sessions[place]))
        score = base[place] + weights.length * log(1 + one.reading.length) / longest
        found.append(Ranked(place, max(0.0, score + sum(worth for _, worth in signs)), signs))

    return sorted(found, key=lambda one: (-one.score, candidates[one.place].found.age))


def borne_out(question: Question, candidates: Sequence[Candidate], least: float) -> list[bool]:
    """Whether anything bears out each candidate: a word or a cosine of `least`, its own, of an entry beside it or of its
    session, or that who is asked about said it. The others are candidates only because there was nothing nearer."""
    alike = [one.bm25 > 0 or (one.cosine is not None and one.cosine >= least) for one in candidates]
    sessions = {one.session for one, found in zip(candidates, alike, strict=True) if found} - {None}
    return [
        found
        or any(alike[near] for near in (one.previous, one.next) if near is not None)
        or one.session in sessions
        or not question.names.isdisjoint(one.reading.speaker)
        for one, found in zip(candidates, alike, strict=True)
    ]


def _signs(question: Question, want: Wanted, read: Reading) -> list[tuple[str, float]]:
    """What the entry itself shows beside its words and meaning: (what, what it counts)."""
    weights = question.weights
    found = []
    if not question.names.isdisjoint(read.speaker):
        found.append(("its speaker", weights.speaker))
        if in_first_person(read.content):
            found.append(("in the first person", weights.first_person))
    if want.dates and read.moment is not None and want.dates.fits(read.moment):
        found.append(("its date", weights.date + (weights.day if want.dates.is_near(read.moment) else 0.0)))
    if want.time and has_time(read.content):
        found.append(("says when", weights.time))
    if want.name and has_name(read.content):
        found.append(("says a name", weights.name))
    if read.asks:
        found.append(("asks", weights.asking))
    return found


def _nearness(one: Candidate, share: float) -> float | None:
    """The cosine of an entry, with its share of its nearest passage's."""
    if one.cosine is None or one.passage is None:
        return one.cosine
    return one.cosine + share * (one.passage - one.cosine)


def _with_neighbours(cosines: Sequence[float], candidates: Sequence[Candidate], weights: Weights) -> list[float]:
    """Each cosine with a share of those of the entries before and after it, more of one before that asks.

    An entry that has none beside it is taken to be among its like: it has the share of its own.
    """
    found = []
    for own, one in zip(cosines, candidates, strict=True):
        before, after = weights.neighbour, weights.neighbour
        if one.previous is not None and candidates[one.previous].reading.asks:
            before += weights.answer
        value = own + before * (own if one.previous is None else cosines[one.previous])
        found.append(value + after * (own if one.next is None else cosines[one.next]))
    return found


def _with_words_beside(question: Question, candidates: Sequence[Candidate]) -> list[float]:
    """Each score by words with a share of its neighbours', as far as they have terms that the entry itself has not.

    What answers a question often leaves out what the talk is about, as that was said just before. Neighbours that say
    the same again show nothing more.
    """
    terms, weights = question.terms, question.weights
    had = [terms.keys() & one.reading.tally.keys() if one.bm25 > 0 else set[str]() for one in candidates]

    def added(place: int, near: int | None) -> float:
        if near is None or not had[near]:
            return 0.0
        of_all = sum(terms[stem] for stem in had[near])
        return candidates[near].bm25 * sum(terms[stem] for stem in had[near] - had[place]) / of_all

    return [
        one.bm25 + weights.said_before * added(place, one.previous) + weights.said_after * added(place, one.next)
        for place, one in enumerate(candidates)
    ]


def _fused(words: Sequence[float], cosines: Sequence[float] | None, meaning: float) -> list[float]:
    """Words and meaning, each brought to 0..1 and added by weight: 0 to 1."""
    text = _scale(words)
    if cosines is None:
        return [text(value) for value in words]
    sense = _scale(cosines)
    return [(text(word) + meaning * sense(cosine)) / (1 + meaning) for word, cosine in zip(words, cosines, strict=True)]


def _sessions(question: Question, candidates: Sequence[Candidate], cosines: Sequence[float] | None) -> list[float]:
    """What the session of each candidate has in common with the question as a whole: 0 to 1, 0 without a session.

    By the words of all its candidates together, and the mean of its three best cosines.
    """
    members: dict[tuple[int, str], list[int]] = defaultdict(list)
    for place, one in enumerate(candidates):
        if one.session is not None:
            members[one.session].append(place)
    if len(members) < _SESSIONS:
        return [0.0] * len(candidates)
    together = [_tallied_together(question, [candidates[place].reading for place in own]) for own in members.values()]
    best = None
    if cosines is not None:
        tops = [sorted((cosines[place] for place in own), reverse=True)[:_BEST] for own in members.values()]
        best = [sum(top) / len(top) for top in tops]
    words = bm25_of_tallies(question.terms, [tally for tally, _ in together], [length for _, length in together])
    found = [0.0] * len(candidates)
    for own, score in zip(members.values(), _fused(words, best, question.weights.meaning), strict=True):
        for place in own:
            found[place] = score
    return found


def _tallied_together(question: Question, read: Sequence[Reading]) -> tuple[dict[str, int], int]:
    """How often some entries have each of the question's terms, and how many words they have."""
    tally = {stem: sum(one.tally.get(stem, 0) for one in read) for stem in question.terms}
    return tally, sum(one.length for one in read)


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """Brings numbers to 0 (the least) to 1 (the most); where all are equal, to 1 if they are above 0."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high > low:
        return lambda value: (value - low) / (high - low)
    return lambda value: 1.0 if value > 0 else 0.0
