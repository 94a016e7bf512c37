"""What a question wants and what an entry shows, by their words: times, dates, names, who speaks, who only asks."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache

from hivemind.boundary import Unreadable, boundary

__all__ = ["Dates", "Wanted", "asks_only", "has_name", "has_time", "in_first_person", "moment_of", "wanted"]

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
_NOTE = re.compile(r"\s*\[[^\]]*\]\s*$")
_KEPT = 1_024  # what was found in so many texts: the next question looks at many of them again


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What would answer a question: a time, a name, something of a certain date."""

    time: bool
    name: bool
    dates: Dates


def wanted(query: str) -> Wanted:
    """What a question asks for, by how it begins and the dates that it names."""
    return Wanted(_WHEN.match(query) is not None, _WHO.match(query) is not None, _dates(query.lower()))


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
    return "?" in text and _NOTE.sub("", text).rstrip().endswith("?")
