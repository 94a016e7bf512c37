"""Who takes part in a namespace: the names that say whose words are wanted, and not what about.

"What did Ann buy?" is about buying. Ann's own entries hardly say "Ann", and those of others that do talk *to* her. So the
name of one who takes part is no word to search for: it says whose entries count more (`ranking`). One takes part who is
the `speaker` of some entry's metadata, or whom entries address or are labelled with ("Thanks, Ann!", "Ann: I am back").
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from hivemind.longterm.rows import span
from hivemind.search.query import named_in
from hivemind.search.words import words_of

__all__ = ["parties"]

_MOST_SPEAKERS = 64  # of a namespace whose names are known
_LOOKED_AT = 100  # entries that say a name
_LEAST, _SHARE = 2, 0.8  # how often a name must be called, and in how many of the entries that say it
_CALLS = r"hey|hi|hello|thanks|thank you|wow|oh|yeah|yes|yep|no|bye|so|well|congrats|congratulations|ok|okay|sure|hallo|danke"


def parties(sql: sqlite3.Connection, spaces: Sequence[int], query: str) -> frozenset[str]:
    """The words of a query, in small letters, that name who takes part in these namespaces."""
    asked = frozenset(words_of(query))
    speakers = {word for space in spaces for name in _speakers(sql, space) for word in words_of(name)}
    return asked & speakers | {name for name in named_in(query) - speakers if _is_called(sql, spaces, name)}


def _speakers(sql: sqlite3.Connection, space: int) -> list[str]:
    """The speakers of a namespace, each found by one look into the index of them."""
    found: list[str] = []
    while len(found) < _MOST_SPEAKERS:
        row = sql.execute(
            "SELECT json_extract(metadata, '$.speaker') AS speaker FROM entries"
            " WHERE space = ? AND speaker IS NOT NULL AND speaker > ? ORDER BY speaker LIMIT 1",
            (space, found[-1] if found else ""),
        ).fetchone()
        if row is None or not isinstance(row[0], str):
            break
        found.append(row[0])
    return found


def _is_called(sql: sqlite3.Connection, spaces: Sequence[int], name: str) -> bool:
    """Whether entries that say a name talk to its bearer, or are labelled with it."""
    (word,) = words_of(name)[:1] or ("",)
    call = re.compile(rf"(?:^|[.!?,;:]\s*|\b(?:{_CALLS})\s+){re.escape(word)}(?=\s*[,.!?:;]|\s*$)", re.IGNORECASE)
    said = called = 0
    for space in spaces:
        rows = sql.execute(
            "SELECT e.content FROM words JOIN entries e ON e.seq = words.rowid"
            " WHERE words MATCH ? AND words.rowid BETWEEN ? AND ? LIMIT ?",
            (f'"{word}"', *span(space), _LOOKED_AT),
        )
        for (content,) in rows:
            said += 1
            called += call.search(content) is not None
    return called >= _LEAST and called >= _SHARE * said
