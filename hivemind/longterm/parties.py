"""Who takes part in a namespace: the names that say whose words are wanted, and not what about.

"What did Ann buy?" is about buying. Ann's own entries hardly say "Ann", and those of others that do talk *to* her. So the
name of one who takes part is no word to search for: it says whose entries count more (`ranking`). One takes part who is
the `speaker` of some entry's metadata, or whom entries address or are labelled with ("Thanks, Ann!", "Ann: I am back").
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Sequence
from functools import lru_cache

from hivemind.longterm.rows import span
from hivemind.terms import words_of
from hivemind.words import STOP_WORDS

__all__ = ["parties", "said_by", "without"]

_MOST_SPEAKERS = 64  # of a namespace whose names are known
_LOOKED_AT = 100  # entries that say a name
_LEAST, _SHARE = 2, 0.8  # how often a name must be called, and in how many of the entries that say it
_LABEL = re.compile(r"\s*([^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){0,2}):\s")
_NAME = re.compile(r"(?<!^)(?<![\"“'‘(])\b[^\W\d_]\w*")
_CALLS = r"hey|hi|hello|thanks|thank you|wow|oh|yeah|yes|yep|no|bye|so|well|congrats|congratulations|ok|okay|sure|hallo|danke"


def said_by(metadata_speaker: object, content: str) -> frozenset[str]:
    """The words of the name of who said an entry: its metadata's speaker, else a label before the text ("Ann: …")."""
    if metadata_speaker:
        return _words_of_name(str(metadata_speaker))
    label = _LABEL.match(content)
    return _words_of_name(label[1]) if label else frozenset()


@lru_cache(maxsize=1024)
def _words_of_name(name: str) -> frozenset[str]:
    return frozenset(words_of(name))


def parties(sql: sqlite3.Connection, spaces: Sequence[int], query: str) -> frozenset[str]:
    """The words of a query, in small letters, that name who takes part in these namespaces."""
    asked = frozenset(words_of(query))
    speakers = {word for space in spaces for name in _speakers(sql, space) for word in words_of(name)}
    return asked & speakers | {name for name in _names(query) - speakers if _is_called(sql, spaces, name)}


def without(query: str, names: Collection[str]) -> str:
    """The query without some names, where that leaves a word that says what it is about; else as it is."""
    if not names:
        return query
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    rest = " ".join(re.sub(rf"(?<!\w)(?:{pattern})(?!\w)(?:['’]s\b)?", " ", query, flags=re.IGNORECASE).split())
    return rest if set(words_of(rest)) - STOP_WORDS else query


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


def _names(query: str) -> set[str]:
    """The words of a query that are written as names are, within the sentence."""
    return {name.casefold() for name in _NAME.findall(query) if name[0].isupper()}


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
