"""Items (texts that a search may find), and the positions of a query's words in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import date
from itertools import chain
from typing import Any

from hivemind.frozen import frozen
from hivemind.search.query import is_question, moment_of
from hivemind.search.words import Stemmer, words_of

FIELDS = ("text", "heading", "titles", "labels", "example")
_LABEL = re.compile(r"\s*([^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){0,2}):\s")


@frozen
class Item:
    """A text that a search may find, as loaded from its store. Only `id` and `text` are required.

    `heading` is the nearest title, `titles` are the titles above the heading; `is_lead` marks the first text below a
    heading. `labels` are further words by which the item is found. `example` is code within prose. `scope` and `session`
    are groups to which the item belongs. `name` identifies the item in its scope (default: the id); `previous` and `next`
    are the names of its neighbours. `age` orders items with equal scores. `standing` multiplies the score; it is below 1
    for a draft or a superseded text.
    """

    id: int
    text: str
    heading: str = ""
    titles: str = ""
    labels: str = ""
    example: str = ""
    is_lead: bool = False
    scope: int = 0
    speaker: str = ""
    session: str | None = None
    moment: date | None = None
    name: Hashable = None
    previous: Hashable = None
    next: Hashable = None
    age: tuple[object, ...] = ()
    standing: float = 1.0

    @property
    def address(self) -> tuple[int, Hashable]:
        """Return the item's scope, and its name in the scope."""
        return self.scope, self.id if self.name is None else self.name

    @property
    def neighbours(self) -> list[tuple[int, Hashable] | None]:
        """Return the addresses of the previous and the next item, None for a missing one."""
        return [None if name is None else (self.scope, name) for name in (self.previous, self.next)]

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the item's texts in the order of FIELDS."""
        return self.text, self.heading, self.titles, self.labels, self.example


@frozen
class Reading:
    """The positions of a query's stems in an item, as stem → field → positions of words.

    `length` counts the words in the item's text and example. `speaker_words` are the words of the speaker's name.
    `is_question` is True if the text ends with a question.
    """

    positions: Mapping[str, Mapping[str, Sequence[int]]]
    length: int
    speaker_words: frozenset[str]
    is_question: bool


def read_items(items: Sequence[Item], query_stems: Collection[str], stemmer: Stemmer) -> list[Reading]:
    """Return, for each item, the positions of the query's stems."""
    words = [[words_of(text) if text else [] for text in item.fields] for item in items]
    stems_by_word = stemmer.filter_words(set(chain.from_iterable(chain.from_iterable(words))), query_stems)
    readings = []
    for candidate, fields in zip(items, words, strict=True):
        positions: dict[str, dict[str, list[int]]] = {}
        for name, field_words in zip(FIELDS, fields, strict=True):
            if not stems_by_word.keys().isdisjoint(field_words):
                for position, word in enumerate(field_words):
                    if word in stems_by_word:
                        positions.setdefault(stems_by_word[word], {}).setdefault(name, []).append(position)
        length = len(fields[0]) + len(fields[-1])
        readings.append(
            Reading(positions, length, words_of_speaker(candidate.speaker, candidate.text), is_question(candidate.text))
        )
    return readings


def context_fields(fields: Mapping[str, Any], links: Mapping[str, Any]) -> dict[str, Any]:
    """Return those keyword arguments of Item that describe its context.

    Speaker, session and moment are taken from `fields`, the names of the previous and the next item from `links`.
    """
    session = fields.get("session")
    names = {name: links.get(name) for name in ("previous", "next")}
    return {
        "speaker": str(fields.get("speaker") or ""),
        "session": None if session is None or session == "" else str(session),
        "moment": moment_of(fields.get("time")),
        **{name: None if value is None else str(value) for name, value in names.items()},
    }


def words_of_speaker(speaker: str, text: str) -> frozenset[str]:
    """Return the words of `speaker` or, if it is empty, of the name with which the text begins ("Ann: …")."""
    if not speaker and (label := _LABEL.match(text)):
        speaker = label[1]
    return frozenset(words_of(speaker))
