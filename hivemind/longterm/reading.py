"""What a search reads in an entry: its words, who said it and when, what it shows. Read once for each text that it has."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, islice
from typing import Any

from hivemind.longterm.cues import asks_only, moment_of
from hivemind.longterm.parties import said_by
from hivemind.longterm.rows import ALIVE, object_of
from hivemind.longterm.schema import PLACES
from hivemind.terms import Stems, words_of

__all__ = ["Found", "Reading", "Readings", "read"]

_MOST_CHARACTERS = 500_000  # of the texts whose readings are kept: some 5 MB, in each process that searches
_AT_ONCE = 500  # parameters of one statement
_COLUMNS = "e.seq, e.key, e.id, e.created_at, e.importance, e.content, e.metadata, e.links"
_TEXTS = 5  # where the texts begin in these

_Texts = tuple[str, str, str]
"""All that a reading depends on: the content, the metadata and the links, as they are kept."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read in an entry. `tally`: stem → how often; `length`: how many words; `moment`: the day of its time."""

    content: str
    tally: Mapping[str, int]
    length: int
    speaker: frozenset[str]
    session: str | None
    moment: date | None
    asks: bool
    links: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """An entry as far as a search needs it before it is shown. `age` orders entries by when they were made, and by id."""

    seq: int
    key: str
    age: tuple[int, str]
    importance: float | None
    reading: Reading

    @property
    def space(self) -> int:
        """The number of its namespace."""
        return self.seq // PLACES


def read(content: str, stems: Sequence[str], metadata: Mapping[str, Any], links: Mapping[str, str]) -> Reading:
    """What is to be read in an entry, whose words were stemmed already."""
    session = metadata.get("session")
    return Reading(
        content=content,
        tally=Counter(stems),
        length=len(stems),
        speaker=said_by(metadata.get("speaker"), content),
        session=None if session is None or session == "" else str(session),
        moment=moment_of(metadata.get("time")),
        asks=asks_only(content),
        links=links,
    )


class Readings:
    """The readings of a database's entries, kept for the next search: one holds as long as the entry has the same texts."""

    def __init__(self) -> None:
        self.stems = Stems()
        self._kept: dict[int, tuple[_Texts, Reading]] = {}
        self._characters = 0

    def of(self, sql: sqlite3.Connection, seqs: Iterable[int], now: int) -> dict[int, Found]:
        """seq → entry of those that are there and have not expired, in the order of seq."""
        found, new = dict[int, Found | None](), list[tuple[Any, ...]]()
        for row in sorted(_rows(sql, seqs, now)):
            kept = self._kept.get(row[0])
            if kept is None or kept[0] != row[_TEXTS:]:
                new.append(row)
            found[row[0]] = None if kept is None else _found(row, kept[1])
        words = [words_of(row[_TEXTS]) for row in new]
        stems = iter(self.stems(list(chain.from_iterable(words))))  # of all together, since each asking costs
        for row, own in zip(new, words, strict=True):
            content, metadata, links = row[_TEXTS:]
            reading = read(content, list(islice(stems, len(own))), object_of(metadata), object_of(links))
            found[row[0]] = _found(row, reading)
            self._keep(row[0], (content, metadata, links), reading)
        return {seq: one for seq, one in found.items() if one is not None}

    def _keep(self, seq: int, texts: _Texts, reading: Reading) -> None:
        self._characters += sum(map(len, texts))
        if self._characters > _MOST_CHARACTERS:
            self._kept.clear()
            self._characters = sum(map(len, texts))
        self._kept[seq] = texts, reading


def _rows(sql: sqlite3.Connection, seqs: Iterable[int], now: int) -> Iterator[tuple[Any, ...]]:
    wanted = list(seqs)
    for at in range(0, len(wanted), _AT_ONCE):
        some = wanted[at : at + _AT_ONCE]
        marks = ",".join("?" * len(some))
        yield from sql.execute(f"SELECT {_COLUMNS} FROM entries e WHERE e.seq IN ({marks}) AND {ALIVE}", (*some, now))


def _found(row: tuple[Any, ...], reading: Reading) -> Found:
    seq, key, entry_id, created, importance = row[:_TEXTS]
    return Found(seq, key, (created, entry_id), importance, reading)
