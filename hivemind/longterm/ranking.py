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

from hivemind.longterm.cues import Wanted, asks_only, has_name, has_time, in_first_person, moment_of, wanted
from hivemind.longterm.entry import MemoryEntry
from hivemind.longterm.parties import said_by
from hivemind.terms import bm25

__all__ = ["Candidate", "Question", "Ranked", "Weights", "borne_out", "rank"]

_SESSIONS = 2  # of one session alone nothing can be said
_BEST = 3  # cosines that a session is judged by


@dataclass(frozen=True, slots=True)
class Weights:
    """What each thing counts. Words and meaning together give 0 to 1; the others are added to that."""

    meaning: float = 2.0  # beside the words' 1
    neighbour: float = 0.3  # of how near the entry before and the entry after are in meaning
    complement: float = 0.6  # of the words that those have and the entry itself has not
    speaker: float = 0.2  # it is by whom the question names
    first_person: float = 0.1  # and of themselves
    session: float = 0.2  # what the session as a whole has in common with it, 0 to 1
    date: float = 0.2  # it is of a month or year that the question names
    day: float = 0.1  # and near to the day
    time: float = 0.1  # it says when, and that is asked
    name: float = 0.1  # it says a name, and who, where or which is asked
    length: float = 0.1  # of the longest; a short one says little
    asking: float = -0.15  # it ends with a question


@dataclass(frozen=True, slots=True)
class Question:
    """`names`: those in the text, in small letters, of who takes part; `terms`: stem → rarity of what it is about."""

    text: str
    names: frozenset[str] = frozenset()
    terms: Mapping[str, float] = field(default_factory=dict)
    weights: Weights = Weights()


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that may answer, with the stems of its content.

    `bm25`: of its words (0: none in common); `cosine`: of its vector, None without one. `previous` and `next` are the
    places, among all candidates, of the entries that it names so in its links.
    """

    entry: MemoryEntry
    stems: Sequence[str]
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


def rank(question: Question, candidates: Sequence[Candidate]) -> list[Ranked]:
    """A score for each candidate, best first, equal ones by time and id."""
    weights, want = question.weights, wanted(question.text)
    words = [one.bm25 for one in candidates]
    known = [one.cosine for one in candidates if one.cosine is not None]
    floor = min(known, default=0.0)
    cosines = [floor if one.cosine is None else one.cosine for one in candidates]
    near_words = _with_complement(words, candidates, question.terms, weights.complement)
    near_cosines = _with_neighbours(cosines, candidates, weights.neighbour)
    base = _fused(near_words, near_cosines if known else None, weights.meaning)
    sessions = _sessions(question, candidates, cosines if known else None)
    longest = log(1 + max((len(one.stems) for one in candidates), default=0)) or 1.0
    found = []
    for place, one in enumerate(candidates):
        more = _signs(question, want, one)
        more += [("its session", weights.session * sessions[place])]
        more += [("", weights.length * log(1 + len(one.stems)) / longest)]
        score = max(0.0, base[place] + sum(value for _, value in more))
        found.append(Ranked(place, score, _why(one, more)))
    return sorted(
        found, key=lambda one: (-one.score, candidates[one.place].entry.created_at, candidates[one.place].entry.id)
    )


def borne_out(question: Question, candidates: Sequence[Candidate], least: float) -> list[bool]:
    """Whether anything bears out each candidate: a word or a cosine of `least`, its own, of an entry beside it or of its
    session, or that who is asked about said it. The others are candidates only because there was nothing nearer."""
    alike = [one.bm25 > 0 or (one.cosine is not None and one.cosine >= least) for one in candidates]
    sessions = {_session_of(one) for one, found in zip(candidates, alike, strict=True) if found} - {None}
    return [
        found
        or any(alike[near] for near in (one.previous, one.next) if near is not None)
        or _session_of(one) in sessions
        or bool(question.names & said_by(one.entry.metadata.get("speaker"), one.entry.content))
        for one, found in zip(candidates, alike, strict=True)
    ]


def _session_of(one: Candidate) -> tuple[object, str] | None:
    session = one.entry.metadata.get("session")
    return None if session is None or session == "" else (one.entry.namespace, str(session))


def _signs(question: Question, want: Wanted, one: Candidate) -> list[tuple[str, float]]:
    """What the entry itself shows beside its words and meaning: (what, what it counts)."""
    weights, entry = question.weights, one.entry
    found = []
    if question.names & said_by(entry.metadata.get("speaker"), entry.content):
        found.append(("its speaker", weights.speaker))
        if in_first_person(entry.content):
            found.append(("in the first person", weights.first_person))
    moment = moment_of(entry.metadata.get("time")) if want.dates else None
    if moment is not None and want.dates.fits(moment):
        found.append(("its date", weights.date + (weights.day if want.dates.is_near(moment) else 0.0)))
    if want.time and has_time(entry.content):
        found.append(("says when", weights.time))
    if want.name and has_name(entry.content):
        found.append(("says a name", weights.name))
    if asks_only(entry.content):
        found.append(("asks", weights.asking))
    return found


def _with_neighbours(values: Sequence[float], candidates: Sequence[Candidate], share: float) -> list[float]:
    """Each value with a share of those of the entries before and after it."""
    return [
        value + share * sum(values[near] for near in (one.previous, one.next) if near is not None)
        for value, one in zip(values, candidates, strict=True)
    ]


def _with_complement(
    words: Sequence[float], candidates: Sequence[Candidate], terms: Mapping[str, float], share: float
) -> list[float]:
    """Each score by words with a share of its neighbours', as far as they have terms that the entry itself has not.

    What answers a question often leaves out what the talk is about, as that was said just before. Neighbours that say
    the same again show nothing more.
    """
    had = [
        terms.keys() & set(one.stems) if value > 0 else set[str]() for value, one in zip(words, candidates, strict=True)
    ]

    def added(place: int, near: int) -> float:
        of_all = sum(terms[stem] for stem in had[near])
        return words[near] * sum(terms[stem] for stem in had[near] - had[place]) / of_all if of_all > 0 else 0.0

    return [
        value + share * sum(added(place, near) for near in (one.previous, one.next) if near is not None)
        for place, (value, one) in enumerate(zip(words, candidates, strict=True))
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
    members: dict[tuple[object, str], list[int]] = defaultdict(list)
    for place, one in enumerate(candidates):
        session = _session_of(one)
        if session is not None:
            members[session].append(place)
    if len(members) < _SESSIONS:
        return [0.0] * len(candidates)
    together = [[stem for place in places for stem in candidates[place].stems] for places in members.values()]
    best = None
    if cosines is not None:
        tops = [sorted((cosines[place] for place in places), reverse=True)[:_BEST] for places in members.values()]
        best = [sum(top) / len(top) for top in tops]
    scores = _fused(bm25(question.terms, together), best, question.weights.meaning)
    found = [0.0] * len(candidates)
    for places, score in zip(members.values(), scores, strict=True):
        for place in places:
            found[place] = score
    return found


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """Brings numbers to 0 (the least) to 1 (the most); where all are equal, to 1 if they are above 0."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high > low:
        return lambda value: (value - low) / (high - low)
    return lambda value: 1.0 if value > 0 else 0.0


def _why(one: Candidate, more: Sequence[tuple[str, float]]) -> str:
    parts = [] if one.bm25 <= 0 else [f"words {one.bm25:.2f}"]
    if one.cosine is not None:
        parts.append(f"meaning {one.cosine:.2f}")
    parts = parts or ["neighbour of what was found"]
    return ", ".join(parts + [f"{what} {value:+.2f}" for what, value in more if what and round(value, 2)])
