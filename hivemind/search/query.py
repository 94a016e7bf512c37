"""Queries: their weighted terms, and the kind of answer that a question expects (a time, a date, a name)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from functools import lru_cache

from hivemind.boundary import Unreadable, boundary
from hivemind.embedding import TextVectors
from hivemind.frozen import frozen
from hivemind.search.words import MAX_TERMS, Stemmer, rarity, significant_words, words_of
from hivemind.words import GENERIC_WORDS, STOP_WORDS, is_unspaced

_MONTHS = tuple("january february march april may june july august september october november december".split())  # noqa: SIM905
_MONTH = {name: number for number, name in enumerate(_MONTHS, 1)}
_MONTH |= {name[:3]: number for name, number in _MONTH.items()} | {"sept": 9}
_AMBIGUOUS_MONTHS = ("may", "march")  # these words, like abbreviations, are months only after "in", "on", a number …
_BEFORE_MONTH = re.compile(
    r"\b(?:in|on|of|by|during|since|until|before|after|last|this|next|early|late|mid|\d{1,2}(?:st|nd|rd|th)?)\W+$"
)
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|recently|weekend|week|month|year|summer|winter|spring|fall|"
    r"autumn|morning|evening|(?:mon|tues|wednes|thurs|fri|satur|sun)day|" + "|".join(_MONTHS) + r"|19\d\d|20\d\d)s?\b",
    re.IGNORECASE,
)
_TIME_QUESTION = re.compile(
    r"\s*(?:when|how long ago|(?:in |on |since )?(?:what|which) (?:date|day|week|month|year|time|season))\b",
    re.IGNORECASE,
)
_NAME_QUESTION = re.compile(r"\s*(?:who|whom|whose|where|which)\b", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:I|I['’](?:m|ve|d|ll)|[Mm]y|me|mine|[Ww]e|[Oo]ur|us|myself)\b")
_INNER_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_IDENTIFIER = re.compile(r"(?<![^\W_])[^\W_]{2,}(?:[-_.:/]+[^\W_]{2,})+")
_MOST_IDENTIFIERS = 8
_NOTE = re.compile(r"\s*\[[^\]]*\]\s*$")
_CACHE_SIZE = 1_024  # texts: consecutive questions examine many texts again


@frozen
class Dates:
    """The months, years and days that a question mentions."""

    months: frozenset[int]
    years: frozenset[int]
    days: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.months or self.years)

    def fits(self, moment: date) -> bool:
        """Return True if a day is in one of the question's months and years. If the question has no months (or years),
        any fits."""
        return (not self.months or moment.month in self.months) and (not self.years or moment.year in self.years)

    def is_near(self, moment: date) -> bool:
        """Return True if a day fits the months and years, and is at most three days from one of the question's days."""
        return bool(self.months) and self.fits(moment) and any(abs(moment.day - day) <= 3 for day in self.days)


@frozen
class ExpectedKind:
    """The content that a question expects in its answer: a time, a name, certain dates, or certain identifiers."""

    time: bool
    name: bool
    dates: Dates
    identifiers: tuple[str, ...]


def expected_kind(query: str) -> ExpectedKind:
    """Derive the expected kind of answer from a question's first words, dates and identifiers."""
    asks_time, asks_name = _TIME_QUESTION.match(query) is not None, _NAME_QUESTION.match(query) is not None
    return ExpectedKind(asks_time, asks_name, _dates(query.lower()), identifiers(query))


def identifiers(query: str) -> tuple[str, ...]:
    """Return the first few words that contain punctuation, in lower case: keep-index (from `--keep-index`), core.autocrlf."""
    return tuple(dict.fromkeys(_IDENTIFIER.findall(query.casefold())))[:_MOST_IDENTIFIERS]


def _dates(text: str) -> Dates:
    months = set()
    for word in re.finditer(r"[a-z]+", text):
        is_certain = word[0] in _MONTHS and word[0] not in _AMBIGUOUS_MONTHS
        if word[0] in _MONTH and (is_certain or _BEFORE_MONTH.search(text[: word.start()])):
            months.add(_MONTH[word[0]])
    iso = re.findall(r"\b(\d{4})-(\d\d)(?:-(\d\d))?\b", text)
    months |= {int(month) for _, month, _ in iso if 1 <= int(month) <= 12}
    days = {int(day) for _, _, day in iso if day}
    days |= {int(day) for day in re.findall(r"\b([0-3]?\d)(?:st|nd|rd|th)?\b", text) if 1 <= int(day) <= 31}
    years = {int(year) for year in re.findall(r"\b(?:19|20)\d\d\b", text)}
    return Dates(frozenset(months), frozenset(years), frozenset(days) if months else frozenset())


def moment_of(value: object) -> date | None:
    """Return the day of an ISO 8601 time (a text); None for any other value."""
    if not isinstance(value, str):
        return None
    with suppress(Unreadable), boundary("time"):
        return datetime.fromisoformat(value).date()
    return None


@lru_cache(maxsize=_CACHE_SIZE)
def has_time(text: str) -> bool:
    """Return True if a text contains a time: a day, a month, a year, "yesterday", "last week"."""
    return _TIME.search(text) is not None


def has_name(text: str) -> bool:
    """Return True if a text has a capitalised word within a sentence, which is probably a name."""
    return _INNER_NAME.search(text) is not None


@lru_cache(maxsize=_CACHE_SIZE)
def in_first_person(text: str) -> bool:
    return _FIRST_PERSON.search(text) is not None


def is_question(text: str) -> bool:
    """Return True if a text ends with a question mark. A note in brackets after it is ignored."""
    end = text.rstrip()
    return end.endswith("?") or (end.endswith("]") and _NOTE.sub("", end).rstrip().endswith("?"))


_COMMON_SHARE, _MIN_BOUND = 0.2, 1_000  # a word in more items is not searched for if the query has rarer words
_MAX_RANKED = 500  # matches; common words that would cause more are not searched for, as ranking a match takes time
_GENERIC_WEIGHT = 0.25  # factor for a word that any question may contain
_NAME_WEIGHT, _UNKNOWN_WEIGHT = 2.0, 1.4  # factors for a name or number that no item has, and for any other such word
_MAX_WORDS = 400  # words of a long question from which the rarest are chosen
_CONTEXT_WEIGHT = 0.5  # factor for a word of the context
_WRITTEN_AS_NAME = re.compile(r"(?<=[\w,;)\"'`] )[A-Z][^\W_]*|\b[A-Z]{2,}\b|\b\w*\d\w*\b")
_NAME = re.compile(r"(?<!^)(?<![\"“'‘(])\b[^\W\d_]\w*")


@frozen
class Term:
    """A word of the query, its stem, and its weight: inverse document frequency × a factor for the kind of word.

    `item_count` is the number of items with the word; counting stops at a bound. A word of the query's context
    (`is_context`) has half the weight, and an item can cover the whole query without it.
    """

    word: str
    stem: str
    item_count: int
    weight: float
    is_context: bool = False


@frozen
class Query:
    """A search query.

    `participants` are the words of speakers' names, in lower case: they raise the scores of these speakers' items and
    are not searched for. `vectors` are computed by the embedding model `model`; without vectors the search uses words
    only, and `words_only_reason` says why. `context` is text around the question; its words count half. `language`
    decides which words are forms of one word.
    """

    text: str
    participants: frozenset[str] = frozenset()
    vectors: TextVectors | None = None
    model: str = ""
    words_only_reason: str | None = None
    terms: tuple[Term, ...] = ()
    context: str = ""
    language: str = "english"

    @property
    def question_terms(self) -> tuple[Term, ...]:
        """Return the terms of the question, without the terms of its context."""
        return tuple(term for term in self.terms if not term.is_context)

    @property
    def question_weight(self) -> float:
        return sum(term.weight for term in self.question_terms)

    def share_of(self, words: Collection[str]) -> float:
        """Return the share (0 to 1) that these words have of the total weight of the question's words."""
        weight = sum(term.weight for term in self.question_terms if term.word in words)
        return weight / self.question_weight if weight else 0.0


def add_terms(
    query: Query, stemmer: Stemmer, total: int, count_items: Callable[[Sequence[str], int], Sequence[int]]
) -> Query:
    """Return the query with its terms added. `count_items(words, bound)` counts how many of the `total` items contain
    each word; it stops at `bound`."""
    plain = query.text.replace("’", "'")
    written_names = {name.casefold() for name in _WRITTEN_AS_NAME.findall(plain)}
    words = significant_words(without_names(plain, query.participants), _MAX_WORDS, stemmer.stop_words)
    question_length = len(words)
    words += significant_words(query.context.replace("’", "'"), stop_words=stemmer.stop_words)
    bound = max(_MIN_BOUND, int(total * _COMMON_SHARE))
    unique_words = [*dict.fromkeys(words)]
    counts = dict(zip(unique_words, count_items(unique_words, bound), strict=True))
    terms: dict[str, Term] = {}
    for position, (word, stem) in enumerate(zip(words, stemmer(words), strict=True)):
        if stem in terms:
            continue
        item_count = counts[word]
        if not item_count and is_unspaced(word):
            continue  # a pair across two words, or of a word that only asks
        weight = rarity(item_count or 2, max(total, 100)) * (_GENERIC_WEIGHT if word in GENERIC_WORDS else 1.0)
        if not item_count and word not in GENERIC_WORDS:
            weight *= _NAME_WEIGHT if word in written_names else _UNKNOWN_WEIGHT
        is_context = position >= question_length
        terms[stem] = Term(word, stem, item_count, weight * (_CONTEXT_WEIGHT if is_context else 1.0), is_context)
    question_terms = sorted((term for term in terms.values() if not term.is_context), key=lambda term: -term.weight)
    for term in question_terms[MAX_TERMS:]:
        del terms[term.stem]
    return replace(query, terms=tuple(terms.values()))


def rarest_words(terms: Sequence[Term], limit: int, total: int) -> list[str]:
    """Return the rarest words of a query, adding more common ones until together they match about `limit` items.

    `total` is the number of all items. Leaving out common words saves time: items that match only these would rank low
    anyway.
    """
    known_terms = [term for term in terms if term.item_count]
    bound = max(_MIN_BOUND, int(total * _COMMON_SHARE))
    words, matches = list[str](), 0
    for term in sorted(
        [term for term in known_terms if term.item_count <= bound] or known_terms, key=lambda term: term.item_count
    ):
        if matches >= limit and matches + term.item_count > _MAX_RANKED:
            break
        words.append(term.word)
        matches += term.item_count
    return words


def names_in(query: str) -> set[str]:
    """Return, in lower case, the query's capitalised words, except the first word of the query or of a quotation."""
    return {name.casefold() for name in _NAME.findall(query) if name[0].isupper()}


def without_names(query: str, names: Collection[str]) -> str:
    """Return the query without the names. If only stop words would be left, return the query unchanged."""
    if not names:
        return query
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    remaining = " ".join(re.sub(rf"(?<!\w)(?:{pattern})(?!\w)(?:['’]s\b)?", " ", query, flags=re.IGNORECASE).split())
    return remaining if set(words_of(remaining)) - STOP_WORDS else query
