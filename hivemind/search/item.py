"""What a search reads in a candidate: its words by field, who said it and when."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from itertools import chain
from typing import Any

from hivemind.frozen import frozen
from hivemind.search.query import asks_only, moment_of
from hivemind.search.words import Stems, words_of

FIELDS = ("text", "heading", "titles", "labels", "example")
_LABEL = re.compile(r"\s*([^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){0,2}):\s")


@frozen
class Item:
    """A candidate, as its store knows it.

    Only `text` need be there. `heading` is the nearest title, `titles` those above it, `labels` what the document is also
    found by, `example` code in a text that is none, `leads` whether the text is the first below its heading. `scope` and
    `session` say what it belongs to; `name` is what its neighbours call it in its scope (its id, unless another is given),
    `previous` and `next` those of the items before and after it; `age` orders equal ones; `standing` weighs its score (1: as
    it is; a draft or what was superseded less).
    """

    id: int
    text: str
    heading: str = ""
    titles: str = ""
    labels: str = ""
    example: str = ""
    leads: bool = False
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
    def place(self) -> tuple[int, Hashable]:
        """Its scope and its name there."""
        return self.scope, self.id if self.name is None else self.name

    @property
    def beside(self) -> list[tuple[int, Hashable] | None]:
        """The places of the items before and after it."""
        return [None if name is None else (self.scope, name) for name in (self.previous, self.next)]

    @property
    def fields(self) -> tuple[str, ...]:
        """The texts of FIELDS."""
        return self.text, self.heading, self.titles, self.labels, self.example


@frozen
class Reading:
    """What was read in an item for a query: stem → field → the places at which it stands there, of the stems that are asked
    for; how many words its text has, whose it is, whether it only asks."""

    places: Mapping[str, Mapping[str, Sequence[int]]]
    length: int
    speaker: frozenset[str]
    asks: bool


def read(items: Sequence[Item], asked: Collection[str], stems: Stems) -> list[Reading]:
    """What each item has of the stems that are asked for."""
    words = [[words_of(text) if text else [] for text in one.fields] for one in items]
    wanted = stems.among(set(chain.from_iterable(chain.from_iterable(words))), asked)
    found = []
    for one, fields in zip(items, words, strict=True):
        places: dict[str, dict[str, list[int]]] = {}
        for name, own in zip(FIELDS, fields, strict=True):
            if not wanted.keys().isdisjoint(own):
                for at, word in enumerate(own):
                    if word in wanted:
                        places.setdefault(wanted[word], {}).setdefault(name, []).append(at)
        length = len(fields[0]) + len(fields[-1])
        found.append(Reading(places, length, said_by(one.speaker, one.text), asks_only(one.text)))
    return found


def told(fields: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """What fields, as a writer gave them, say of an item's speaker, session and moment, and `beside` of its neighbours."""
    session = fields.get("session")
    names = {name: beside.get(name) for name in ("previous", "next")}
    return {
        "speaker": str(fields.get("speaker") or ""),
        "session": None if session is None or session == "" else str(session),
        "moment": moment_of(fields.get("time")),
        **{name: None if value is None else str(value) for name, value in names.items()},
    }


def said_by(speaker: str, text: str) -> frozenset[str]:
    """The words of the name of who said a text: the speaker that is known, else a label before it ("Ann: …")."""
    if speaker:
        return _words_of_name(speaker)
    label = _LABEL.match(text)
    return _words_of_name(label[1]) if label else frozenset()


@lru_cache(maxsize=1024)
def _words_of_name(name: str) -> frozenset[str]:
    return frozenset(words_of(name))
