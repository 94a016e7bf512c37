"""Entries as rows of the database: reading them, their history and links; what has expired."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from hivemind.longterm.entry import Embedding, MemoryEntry, as_time
from hivemind.longterm.errors import EntryInvalid, StoreDamaged, row_of
from hivemind.longterm.namespace import Namespace, decoded, encoded, is_below
from hivemind.longterm.schema import PLACES
from hivemind.longterm.validation import check_key, check_name

__all__ = [
    "ALIVE", "children_of", "drop_expired", "every", "expired_by_space", "fetch", "fetch_key", "history_of",
    "linked_from", "next_expiry", "object_of", "set_link", "space_of", "spaces_below", "span", "with_vector",
]  # fmt: skip


def drop_expired(sql: sqlite3.Connection, now: int, most: int) -> int:
    """Delete at most `most` entries that have expired, with all that they ever said; gives how many."""
    return sql.execute(
        "DELETE FROM entries WHERE seq IN (SELECT seq FROM entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)",
        (now, most),
    ).rowcount


def expired_by_space(sql: sqlite3.Connection, now: int) -> dict[int, int]:
    """How many entries have expired and are not deleted yet, by the number of their namespace; reads only those."""
    return dict(
        sql.execute(
            "SELECT seq / ? AS space, count(*) FROM entries WHERE expires_at <= ? GROUP BY space", (PLACES, now)
        )
    )


def next_expiry(sql: sqlite3.Connection) -> int | None:
    """When the entry that expires first does, in microseconds; None if none will."""
    (found,) = sql.execute("SELECT min(expires_at) FROM entries WHERE expires_at IS NOT NULL").fetchone()
    return None if found is None else int(found)


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


def history_of(sql: sqlite3.Connection, seq: int, entry: MemoryEntry) -> list[MemoryEntry]:
    """What an entry said, oldest first; the last one is what it says now."""
    before = []
    for content, metadata, category, importance, updated, expires, parent_id, links, version in sql.execute(
        "SELECT content, metadata, category, importance, updated_at, expires_at, parent_id, links, version"
        " FROM versions WHERE seq = ? ORDER BY version",
        (seq,),
    ):
        with row_of(f"version {version} of entry {entry.key!r}"):
            said = replace(
                entry,
                content=content,
                metadata=object_of(metadata),
                embedding=None,
                category=category,
                importance=importance,
                updated_at=as_time(updated),
                expires_at=None if expires is None else as_time(expires),
                parent_id=parent_id,
                links=object_of(links),
                version=version,
            )
        before.append(said)
    return [*before, entry]


def children_of(sql: sqlite3.Connection, space: int, entry: MemoryEntry, now: int) -> list[MemoryEntry]:
    """The entries of the namespace whose parent this is, oldest first."""
    rows = sql.execute(
        f"SELECT e.seq FROM entries e WHERE e.parent_id = ? AND e.space = ? AND {ALIVE}", (entry.id, space, now)
    )
    return [child for _, child in sorted(fetch(sql, [seq for (seq,) in rows], now), key=lambda pair: pair[0])]


def linked_from(sql: sqlite3.Connection, space: int, links: Mapping[str, str], now: int) -> dict[str, MemoryEntry]:
    """The entries that links name, by relation; a link to what is not there (any more) is left out."""
    found = {relation: fetch_key(sql, space, key, now) for relation, key in links.items()}
    return {relation: pair[1] for relation, pair in found.items() if pair is not None}


def set_link(sql: sqlite3.Connection, seq: int, links: Mapping[str, str], relation: str, key: str | None) -> None:
    """Let an entry name another by a relation, or with None no longer. That is no new version of it."""
    if not isinstance(relation, str) or not relation.strip():
        raise EntryInvalid(f"{relation!r} is no relation", mend='a word, such as "previous"')
    check_name(relation, "the relation")
    kept = {name: one for name, one in links.items() if name != relation}
    if key is not None:
        kept[relation] = check_key(key)
    sql.execute("UPDATE entries SET links = ? WHERE seq = ?", (json.dumps(kept, ensure_ascii=False), seq))
