"""Entries as rows of the database: reading them, one at a time or many."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from hivemind.longterm.entry import Embedding, MemoryEntry
from hivemind.longterm.errors import StoreDamaged, row_of
from hivemind.longterm.expiry import expired_by_space
from hivemind.longterm.moment import as_time
from hivemind.longterm.namespace import Namespace, decoded, encoded, is_below
from hivemind.longterm.schema import PLACES

__all__ = [
    "ALIVE",
    "entry_of",
    "every",
    "fetch",
    "fetch_key",
    "object_of",
    "space_of",
    "spaces_below",
    "span",
    "with_vector",
]

_COLUMNS = (
    "e.seq, e.id, n.path, e.key, e.content, e.metadata, e.created_at, e.updated_at, e.category, e.importance,"
    " e.expires_at, e.version, e.parent_id, e.links, e.wants AND v.key IS NULL"
)
_FROM = " FROM entries e JOIN namespaces n ON n.id = e.space LEFT JOIN vectors v ON v.key = e.seq"
ALIVE = "(e.expires_at IS NULL OR e.expires_at > ?)"
"""The condition under which an entry has not expired; its parameter is the time now."""
_AT_ONCE = 500  # parameters of one statement


def object_of(text: str) -> dict[str, Any]:
    """The object that metadata or links are as JSON. Raises StoreDamaged for what is none."""
    if text == "{}":
        return {}
    with row_of("metadata or links"):
        found = json.loads(text)
        if not isinstance(found, dict):
            raise TypeError("no object")
        return found


def entry_of(row: tuple[Any, ...]) -> MemoryEntry:
    """The entry that a row of `_COLUMNS` says. Raises StoreDamaged for one that makes no sense."""
    _, entry_id, path, key, content, metadata, created, updated, category, importance, expires, *rest = row
    version, parent_id, links, pending = rest
    with row_of(f"entry {key!r}"):
        if not (isinstance(content, str) and isinstance(key, str) and isinstance(entry_id, str)):
            raise TypeError("no text")
        return MemoryEntry(
            content=content,
            id=entry_id,
            namespace=decoded(path),
            key=key,
            metadata=object_of(metadata),
            created_at=as_time(created),
            updated_at=as_time(updated),
            category=category,
            importance=importance,
            expires_at=None if expires is None else as_time(expires),
            version=version,
            parent_id=parent_id,
            links=object_of(links),
            pending=bool(pending),
        )


def space_of(sql: sqlite3.Connection, namespace: Namespace) -> int | None:
    """The number of a namespace, None if nothing was ever stored in it."""
    row = sql.execute("SELECT id FROM namespaces WHERE path = ?", (encoded(namespace),)).fetchone()
    return None if row is None else row[0]


def spaces_below(sql: sqlite3.Connection, prefix: Namespace, now: int) -> list[tuple[int, Namespace]]:
    """(number, namespace) of all that have entries and are the prefix or lie below it, in the order of their parts."""
    expired = expired_by_space(sql, now)
    rows = sql.execute("SELECT id, path, entries FROM namespaces WHERE entries > 0")
    found = ((space, decoded(path)) for space, path, entries in rows if entries > expired.get(space, 0))
    return sorted(((space, one) for space, one in found if is_below(one, prefix)), key=lambda pair: pair[1])


def span(space: int) -> tuple[int, int]:
    """The first and the last `seq` that an entry of a namespace may have."""
    return space * PLACES, (space + 1) * PLACES - 1


def fetch_key(sql: sqlite3.Connection, space: int, key: str, now: int) -> tuple[int, MemoryEntry] | None:
    """(seq, entry) under a key, unless it has expired."""
    row = sql.execute(
        f"SELECT {_COLUMNS}{_FROM} WHERE e.space = ? AND e.key = ? AND {ALIVE}", (space, key, now)
    ).fetchone()
    return None if row is None else (row[0], entry_of(row))


def fetch(sql: sqlite3.Connection, seqs: Iterable[int], now: int) -> Iterator[tuple[int, MemoryEntry]]:
    """(seq, entry) of those that are there and have not expired, in no order."""
    wanted = list(seqs)
    for at in range(0, len(wanted), _AT_ONCE):
        some = wanted[at : at + _AT_ONCE]
        marks = ",".join("?" * len(some))
        for row in sql.execute(f"SELECT {_COLUMNS}{_FROM} WHERE e.seq IN ({marks}) AND {ALIVE}", (*some, now)):
            yield row[0], entry_of(row)


def with_vector(sql: sqlite3.Connection, seq: int) -> Embedding | None:
    """The embedding of an entry: as it was given, else as it was computed (of length 1)."""
    row = sql.execute(
        "SELECT coalesce(g.vector, v.vector), g.seq IS NOT NULL, e.digest FROM entries e"
        " LEFT JOIN given g ON g.seq = e.seq LEFT JOIN vectors v ON v.key = e.seq WHERE e.seq = ?",
        (seq,),
    ).fetchone()
    if row is None or row[0] is None:
        return None
    with row_of("an embedding"):
        return Embedding.read(array("f", row[0]), row[2], given=bool(row[1]))


def every(sql: sqlite3.Connection) -> Iterator[tuple[int, str, MemoryEntry | None]]:
    """(seq, key, entry) of all that there are, expired ones too; None for one that makes no sense."""
    for row in sql.execute(f"SELECT {_COLUMNS}{_FROM} ORDER BY e.seq"):
        try:
            yield row[0], row[3], entry_of(row)
        except StoreDamaged:
            yield row[0], row[3], None
