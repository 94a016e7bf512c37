"""What a search reads in a candidate: its words by field, who said it and when. Read once for each text that it has."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from hivemind.frozen import frozen
from hivemind.search.query import asks_only, moment_of
from hivemind.search.words import Stems, words_of

__all__ = ["Item", "Reading", "Readings", "said_by", "told"]

FIELDS = ("text", "heading", "titles", "labels", "example")
_MOST_CHARACTERS = 8_000_000  # of the texts whose stems are kept, in each process that searches: 20 MB
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
    vector: int | None = None

    @property
    def meaning(self) -> int:
        """The id of the vector that says what it means: its own, unless another item's is named."""
        return self.id if self.vector is None else self.vector

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


class _Stemmed(NamedTuple):
    """The stems of an item by field, in their order; they hold as long as it has the same texts."""

    texts: tuple[str, ...]
    fields: tuple[list[str], ...]
    speaker: frozenset[str]
    asks: bool


class Readings:
    """Reads items, and keeps the stems of each for the next search."""

    def __init__(self) -> None:
        self.stems = Stems()
        self._kept: dict[int, _Stemmed] = {}
        self._characters = 0

    def of(self, items: Iterable[Item], stems: Collection[str]) -> dict[int, Reading]:
        """id → reading, of the stems that are asked for."""
        wanted, found = set(stems), dict[int, Reading]()
        for one, kept in self._stemmed(list(items)):
            places: dict[str, dict[str, list[int]]] = {}
            for name, own in zip(FIELDS, kept.fields, strict=True):
                if not wanted.isdisjoint(own):
                    for at, stem in enumerate(own):
                        if stem in wanted:
                            places.setdefault(stem, {}).setdefault(name, []).append(at)
            length = len(kept.fields[0]) + len(kept.fields[-1])
            found[one.id] = Reading(places, length, kept.speaker, kept.asks)
        return found

    def _stemmed(self, items: Sequence[Item]) -> list[tuple[Item, _Stemmed]]:
        """Each item with its stems. Those of all whose texts are not known are asked for together: asking costs."""
        texts = {one.id: (*one.fields, one.speaker) for one in items}
        known = {key: kept for key in texts if (kept := self._kept.get(key)) is not None and kept.texts == texts[key]}
        new = [one for one in items if one.id not in known]
        words = [[words_of(text) if text else [] for text in one.fields] for one in new]
        stems = iter(self.stems([word for fields in words for own in fields for word in own]))
        for one, fields in zip(new, words, strict=True):
            self._characters += (size := sum(map(len, texts[one.id])))
            if self._characters > _MOST_CHARACTERS:
                self._kept.clear()
                self._characters = size
            stemmed = tuple(list(islice(stems, len(own))) for own in fields)
            kept = _Stemmed(texts[one.id], stemmed, said_by(one.speaker, one.text), asks_only(one.text))
            known[one.id] = self._kept[one.id] = kept
        return [(one, known[one.id]) for one in items]


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
