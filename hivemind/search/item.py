"""What a search reads in a candidate: its words by field, who said it and when. Read once for each text that it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import chain, islice

from hivemind.search.query import asks_only
from hivemind.search.words import Stems, words_of

__all__ = ["Item", "Reading", "Readings", "said_by"]

FIELDS = ("text", "heading", "titles", "labels", "example")
_MOST_CHARACTERS = 2_000_000  # of the texts whose readings are kept, in each process that searches
_LABEL = re.compile(r"\s*([^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){0,2}):\s")


@dataclass(frozen=True, slots=True)
class Item:
    """A candidate, as its store knows it.

    Only `text` need be there. `heading` is the nearest title, `titles` those above it, `labels` what the document is also
    found by, `example` code in a text that is none, `leads` whether the text is the first below its heading. `scope` and
    `session` say what it belongs to; `previous` and `next` are the ids of the items before and after it; `age` orders
    equal ones; `standing` weighs its score (1: as it is; a draft or what was superseded less).
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
    previous: int | None = None
    next: int | None = None
    age: tuple[object, ...] = ()
    standing: float = 1.0
    vector: int | None = None

    @property
    def meaning(self) -> int:
        """The id of the vector that says what it means: its own, unless another item's is named."""
        return self.id if self.vector is None else self.vector

    @property
    def fields(self) -> tuple[str, ...]:
        """The texts of FIELDS."""
        return self.text, self.heading, self.titles, self.labels, self.example


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read in an item: stem → field → the places at which it stands there; how many words its text has."""

    places: Mapping[str, Mapping[str, Sequence[int]]]
    length: int
    speaker: frozenset[str]
    asks: bool

    def often(self, stem: str) -> int:
        """How often a stem stands in the text itself."""
        return len(self.places.get(stem, {}).get("text", ()))


class Readings:
    """The readings of items, kept for the next search: one holds as long as the item has the same texts."""

    def __init__(self) -> None:
        self.stems = Stems()
        self._kept: dict[int, tuple[tuple[str, ...], Reading]] = {}
        self._characters = 0

    def of(self, items: Iterable[Item]) -> dict[int, Reading]:
        """id → reading."""
        found: dict[int, Reading] = {}
        new: list[Item] = []
        for one in items:
            kept = self._kept.get(one.id)
            if kept is not None and kept[0] == (*one.fields, one.speaker):
                found[one.id] = kept[1]
            else:
                new.append(one)
        words = [[words_of(text) for text in one.fields] for one in new]
        stems = iter(self.stems(list(chain.from_iterable(chain.from_iterable(words)))))  # all together: asking costs
        for one, own in zip(new, words, strict=True):
            places: dict[str, dict[str, list[int]]] = {}
            for name, field in zip(FIELDS, own, strict=True):
                for at, stem in enumerate(islice(stems, len(field))):
                    places.setdefault(stem, {}).setdefault(name, []).append(at)
            reading = Reading(places, len(own[0]) + len(own[-1]), said_by(one.speaker, one.text), asks_only(one.text))
            self._keep(one, reading)
            found[one.id] = reading
        return found

    def _keep(self, one: Item, reading: Reading) -> None:
        texts = (*one.fields, one.speaker)
        self._characters += sum(map(len, texts))
        if self._characters > _MOST_CHARACTERS:
            self._kept.clear()
            self._characters = sum(map(len, texts))
        self._kept[one.id] = texts, reading


def said_by(speaker: str, text: str) -> frozenset[str]:
    """The words of the name of who said a text: the speaker that is known, else a label before it ("Ann: …")."""
    if speaker:
        return _words_of_name(speaker)
    label = _LABEL.match(text)
    return _words_of_name(label[1]) if label else frozenset()


@lru_cache(maxsize=1024)
def _words_of_name(name: str) -> frozenset[str]:
    return frozenset(words_of(name))
