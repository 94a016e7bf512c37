"""What a search reads in an entry: its words, who said it and when, what it shows. Read once for each of its versions."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date

from hivemind.longterm.cues import asks_only, has_name, has_time, in_first_person, moment_of
from hivemind.longterm.entry import MemoryEntry
from hivemind.longterm.parties import said_by
from hivemind.longterm.rows import Stamp, fetch, stamps
from hivemind.terms import Stems, words_of

__all__ = ["Reading", "Readings", "read"]

_MOST_WORDS = 200_000  # of all readings that are kept: some 20 MB


@dataclass(frozen=True, slots=True)
class Reading:
    """An entry and what was read in it. `tally`: stem → how often; `length`: how many words; `moment`: the day of its time."""

    entry: MemoryEntry
    tally: Mapping[str, int]
    length: int
    speaker: frozenset[str]
    session: tuple[object, str] | None
    moment: date | None
    says_when: bool
    says_name: bool
    first_person: bool
    asks: bool


def read(entry: MemoryEntry, stems: Stems) -> Reading:
    """What is to be read in an entry; a session is one of its namespace."""
    metadata, content = entry.metadata, entry.content
    found = stems(words_of(content))
    session = metadata.get("session")
    return Reading(
        entry=entry,
        tally=Counter(found),
        length=len(found),
        speaker=said_by(metadata.get("speaker"), content),
        session=None if session is None or session == "" else (entry.namespace, str(session)),
        moment=moment_of(metadata.get("time")),
        says_when=has_time(content),
        says_name=has_name(content),
        first_person=in_first_person(content),
        asks=asks_only(content),
    )


class Readings:
    """The readings of a database's entries, kept for the next search; the database says whether they still hold."""

    def __init__(self) -> None:
        self.stems = Stems()
        self._kept: dict[int, tuple[Stamp, Reading]] = {}
        self._words = 0

    def of(self, sql: sqlite3.Connection, seqs: Collection[int], now: int) -> dict[int, Reading]:
        """seq → reading of those entries that are there and have not expired, in the order of seq."""
        found, stale = dict[int, Reading | None](), dict[int, Stamp]()
        for seq, stamp in sorted(stamps(sql, seqs, now)):
            kept = self._kept.get(seq)
            found[seq] = kept[1] if kept is not None and kept[0] == stamp else None
            if found[seq] is None:
                stale[seq] = stamp
        for seq, entry in fetch(sql, stale, now):
            found[seq] = self._keep(seq, stale[seq], read(entry, self.stems))
        return {seq: one for seq, one in found.items() if one is not None}

    def _keep(self, seq: int, stamp: Stamp, reading: Reading) -> Reading:
        if self._words + reading.length > _MOST_WORDS:
            self._kept.clear()
            self._words = 0
        if seq not in self._kept:
            self._words += reading.length
        self._kept[seq] = stamp, reading
        return reading
