"""A query as terms: what it asks about, how rare each word is, and what would answer it: times, dates, names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import date, datetime
from functools import lru_cache

from hivemind.boundary import Unreadable, boundary
from hivemind.embedding import TextVectors
from hivemind.frozen import frozen
from hivemind.search.words import MOST_TERMS, Stems, matching, rarity, words_of
from hivemind.words import GENERIC_WORDS, STOP_WORDS

_MONTHS = tuple("january february march april may june july august september october november december".split())  # noqa: SIM905
_MONTH = {name: number for number, name in enumerate(_MONTHS, 1)}
_MONTH |= {name[:3]: number for name, number in _MONTH.items()} | {"sept": 9}
_WORDS_TOO = ("may", "march")  # that, like short forms, are months only after "in", "on", a number …
_SURE = re.compile(
    r"\b(?:in|on|of|by|during|since|until|before|after|last|this|next|early|late|mid|\d{1,2}(?:st|nd|rd|th)?)\W+$"
)
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|recently|weekend|week|month|year|summer|winter|spring|fall|"
    r"autumn|morning|evening|(?:mon|tues|wednes|thurs|fri|satur|sun)day|" + "|".join(_MONTHS) + r"|19\d\d|20\d\d)s?\b",
    re.IGNORECASE,
)
_WHEN = re.compile(
    r"\s*(?:when|how long ago|(?:in |on |since )?(?:what|which) (?:date|day|week|month|year|time|season))\b",
    re.IGNORECASE,
)
_WHO = re.compile(r"\s*(?:who|whom|whose|where|which)\b", re.IGNORECASE)
_FIRST = re.compile(r"\b(?:I|I['’](?:m|ve|d|ll)|[Mm]y|me|mine|[Ww]e|[Oo]ur|us|myself)\b")
_INNER_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_IDENTIFIER = re.compile(r"[^\W_]{2,}(?:[-_.:/]+[^\W_]{2,})+")
_MOST_IDENTIFIERS = 8
_NOTE = re.compile(r"\s*\[[^\]]*\]\s*$")
_KEPT = 1_024  # what was found in so many texts: the next question looks at many of them again


@frozen
class Dates:
    """The months, years and days that a question names."""

    months: frozenset[int]
    years: frozenset[int]
    days: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.months or self.years)

    def fits(self, moment: date) -> bool:
        """Whether a moment is in the months and years that are named."""
        return (not self.months or moment.month in self.months) and (not self.years or moment.year in self.years)

    def is_near(self, moment: date) -> bool:
        """Whether it is also within three days of a day that is named."""
        return bool(self.months) and self.fits(moment) and any(abs(moment.day - day) <= 3 for day in self.days)


@frozen
class Wanted:
    """What would answer a question: a time, a name, something of a certain date, what has an identifier that it names."""

    time: bool
    name: bool
    dates: Dates
    identifiers: tuple[str, ...]


def wanted(query: str) -> Wanted:
    """What a question asks for, by how it begins and the dates that it names."""
    times, names = _WHEN.match(query) is not None, _WHO.match(query) is not None
    return Wanted(times, names, _dates(query.lower()), identifiers(query))


def identifiers(query: str) -> tuple[str, ...]:
    """The first words of a query that are joined by signs, in small letters: keep-index of `--keep-index`, core.autocrlf."""
    return tuple(dict.fromkeys(_IDENTIFIER.findall(query.casefold())))[:_MOST_IDENTIFIERS]


def _dates(text: str) -> Dates:
    months = set()
    for found in re.finditer(r"[a-z]+", text):
        sure = found[0] in _MONTHS and found[0] not in _WORDS_TOO
        if found[0] in _MONTH and (sure or _SURE.search(text[: found.start()])):
            months.add(_MONTH[found[0]])
    iso = re.findall(r"\b(\d{4})-(\d\d)(?:-(\d\d))?\b", text)
    months |= {int(month) for _, month, _ in iso if 1 <= int(month) <= 12}
    days = {int(day) for _, _, day in iso if day}
    days |= {int(day) for day in re.findall(r"\b([0-3]?\d)(?:st|nd|rd|th)?\b", text) if 1 <= int(day) <= 31}
    years = {int(year) for year in re.findall(r"\b(?:19|20)\d\d\b", text)}
    return Dates(frozenset(months), frozenset(years), frozenset(days) if months else frozenset())


def moment_of(value: object) -> date | None:
    """The day of a time in an entry's metadata (ISO 8601, or the beginning of it), or None."""
    if not isinstance(value, str):
        return None
    with suppress(Unreadable), boundary("time"):
        return datetime.fromisoformat(value).date()
    return None


@lru_cache(maxsize=_KEPT)
def has_time(text: str) -> bool:
    """Whether a text says when: a day, a month, a year, "yesterday", "last week"."""
    return _TIME.search(text) is not None


@lru_cache(maxsize=_KEPT)
def has_name(text: str) -> bool:
    """Whether a word within a sentence begins as names do."""
    return _INNER_NAME.search(text) is not None


@lru_cache(maxsize=_KEPT)
def in_first_person(text: str) -> bool:
    """Whether who speaks speaks of themselves."""
    return _FIRST.search(text) is not None


def asks_only(text: str) -> bool:
    """Whether a text ends with a question, notes in brackets aside: it asks, and tells little."""
    end = text.rstrip()
    return end.endswith("?") or (end.endswith("]") and _NOTE.sub("", end).rstrip().endswith("?"))


_COMMON, _FEW = 0.2, 1_000  # a word that more items have finds nothing by itself, where rarer ones do
_RANKED = 500  # matches that SQLite ranks at some microseconds each; commoner words find no more than these
_GENERIC = 0.25  # what a word that any question may use weighs, beside one that says what it is about
_SPECIFIC, _UNKNOWN = 2.0, 1.4  # what a name or number weighs that nothing has, and what another word does
_MOST_WORDS = 400  # of a long question, of which the rarest count
_CONTEXT = 0.5  # of the weight of a word that stands around the question
_WRITTEN_AS_NAME = re.compile(r"(?<=[\w,;)\"'`] )[A-Z][^\W_]*|\b[A-Z]{2,}\b|\b\w*\d\w*\b")
_NAME = re.compile(r"(?<!^)(?<![\"“'‘(])\b[^\W\d_]\w*")


@frozen
class Term:
    """A word of the query, its stem, in how many items it is (counted to a bound), and its weight: idf × kind of word.

    Words of the `context` have half of their weight; an item need not have them to cover the query.
    """

    word: str
    stem: str
    often: int
    weight: float
    context: bool = False


@frozen
class Query:
    """What is asked. `names`, in small letters, are of who takes part: they say whose items count more, not what about.

    `meaning` is what it means, and `model` whose vector that is; without one words alone decide, and `lack` says
    why where there might be one. `context` is what was said around the question: found by, and not asked for.
    """

    text: str
    names: frozenset[str] = frozenset()
    meaning: TextVectors | None = None
    model: str = ""
    lack: str | None = None
    terms: tuple[Term, ...] = ()
    want: Wanted = field(default_factory=lambda: wanted(""))
    context: str = ""

    @property
    def own(self) -> tuple[Term, ...]:
        """The terms of the question itself."""
        return tuple(term for term in self.terms if not term.context)

    @property
    def asked(self) -> float:
        """The weight of all that it asks about."""
        return sum(term.weight for term in self.own)


def query_of(query: Query, stems: Stems, total: int, how_often: Callable[[str, int], int]) -> Query:
    """The query with its terms: `how_often(word, bound)` counts the items that have a word, of `total` in all."""
    plain = query.text.replace("’", "'")
    named = {name.casefold() for name in _WRITTEN_AS_NAME.findall(plain)}
    words = matching(without(plain, query.names), _MOST_WORDS)
    own = len(words)
    words += matching(query.context.replace("’", "'"))
    bound = max(_FEW, int(total * _COMMON))
    terms: dict[str, Term] = {}
    for at, (word, stem) in enumerate(zip(words, stems(words), strict=True)):
        if stem in terms:
            continue
        often = how_often(word, bound)
        weight = rarity(often or 2, max(total, 100)) * (_GENERIC if word in GENERIC_WORDS else 1.0)
        if not often and word not in GENERIC_WORDS:
            weight *= _SPECIFIC if word in named else _UNKNOWN
        terms[stem] = Term(word, stem, often, weight if at < own else weight * _CONTEXT, at >= own)
    rare = sorted((term for term in terms.values() if not term.context), key=lambda term: -term.weight)
    for term in rare[MOST_TERMS:]:
        del terms[term.stem]
    return replace(query, terms=tuple(terms.values()), want=wanted(query.text))


def rarest(terms: Sequence[Term], most: int, total: int) -> list[str]:
    """The words that items are found by: the rarest, as many as find enough. What has only the commoner ones would be
    ranked behind those anyway, and ranking costs for each match."""
    known = [term for term in terms if term.often]
    bound = max(_FEW, int(total * _COMMON))
    words, matches = list[str](), 0
    for term in sorted([term for term in known if term.often <= bound] or known, key=lambda one: one.often):
        if matches >= most and matches + term.often > _RANKED:
            break
        words.append(term.word)
        matches += term.often
    return words


def named_in(query: str) -> set[str]:
    """The words of a query that are written as names are, within the sentence."""
    return {name.casefold() for name in _NAME.findall(query) if name[0].isupper()}


def without(query: str, names: Collection[str]) -> str:
    """The query without some names, where that leaves a word that says what it is about; else as it is."""
    if not names:
        return query
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    rest = " ".join(re.sub(rf"(?<!\w)(?:{pattern})(?!\w)(?:['’]s\b)?", " ", query, flags=re.IGNORECASE).split())
    return rest if set(words_of(rest)) - STOP_WORDS else query
