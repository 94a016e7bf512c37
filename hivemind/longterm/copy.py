"""Copying memories from one database into another, of either kind, with all that belongs to them."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hivemind.fs.database import Sql, select_among
from hivemind.longterm.entry import as_micros
from hivemind.longterm.errors import LongtermError
from hivemind.longterm.namespace import Namespace, decoded, shown
from hivemind.longterm.rows import ALIVE, PLACES, drop_expired, space_for, span
from hivemind.longterm.store import MemoryStore
from hivemind.search import Nearness

_AT_ONCE = 200  # entries that are in memory together, with their vectors and versions
_ENTRY = (
    "id, key, content, digest, metadata, category, importance, created_at, updated_at, expires_at, version, links,"
    " problem, wants, parent_id"
)
_VERSION = "seq, version, content, metadata, category, importance, updated_at, expires_at, parent_id, links"
_PARENT = f"(SELECT p.id FROM entries p WHERE p.id = e.parent_id AND {ALIVE.replace('e.', 'p.')})"


def copy_memories(
    source: MemoryStore,
    target: MemoryStore,
    renamed: Callable[[Namespace], Namespace] = lambda namespace: namespace,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Counter[str]:
    """Copy every entry with its id, times, versions, links and embeddings, and the users: all of it or, on any error, nothing.
    Returns how much was copied: `entries`, `namespaces`, `versions` (earlier ones), `embeddings`, `users`.

    A namespace is copied whole, under the name that `renamed` returns; what has expired stays behind. `progress` is told (done,
    of how many). The source is read as it stands at the beginning; other writers of the target wait until the end. Raises
    LongtermError if the target has entries in one of the namespaces, or an entry of the same id.
    """
    if not source.database.was_made:
        raise LongtermError("no memories are there", where=source.database.path, mend="check the path")
    now, copied, marks = as_micros(source.now()), Counter[str](), ", ".join("?" * (2 + len(_ENTRY.split(", "))))
    with target.database.write() as into, source.database.read() as sql:
        drop_expired(into, now, sys.maxsize)
        spaces = sql.execute("SELECT id, path, entries FROM namespaces WHERE entries > 0 ORDER BY id").fetchall()
        total = sum(entries for _, _, entries in spaces)
        for space, path, _ in spaces:
            name = renamed(decoded(path))
            there = space_for(into, name)
            ((had, made),) = into.execute("SELECT entries, made FROM namespaces WHERE id = ?", (there,))
            if had:
                raise LongtermError(
                    f"has entries in {shown(name)} already; nothing was copied",
                    where=target.database.path,
                    mend="namespaces are copied whole: copy into another database, or forget those entries first",
                )
            first, last = span(space)
            offset = (there - space) * PLACES + made
            with target.database.words.filled(into, there):
                while page := _page(sql, first, last, now):
                    _check_ids(into, target, [entry_id for _, entry_id, *_ in page])
                    into.executemany(
                        f"INSERT INTO entries(seq, space, {_ENTRY}) VALUES ({marks})",
                        [(seq + offset, there, *row, bool(wants), parent) for seq, *row, wants, parent in page],
                    )
                    copied += _belongings(sql, page[0][0], page[-1][0], now, into, target.database.vectors, offset)
                    copied["entries"] += len(page)
                    progress(copied["entries"], total)
                    first = page[-1][0] + 1
            copied["namespaces"] += 1
        for user in sql.execute("SELECT id, name, created_at FROM users").fetchall():
            found = into.execute("INSERT INTO users VALUES (?, ?, ?) ON CONFLICT(id) DO NOTHING", user)
            copied["users"] += found.rowcount
    return copied


def _page(sql: Sql, first: int, last: int, now: int) -> list[Any]:
    """The next entries, in their order; a parent that has expired is none."""
    columns = ", ".join(f"e.{name}" for name in _ENTRY.split(", ")[:-1])
    return sql.execute(
        f"SELECT e.seq, {columns}, {_PARENT} FROM entries e WHERE e.seq BETWEEN ? AND ? AND {ALIVE} ORDER BY e.seq LIMIT ?",
        (now, first, last, now, _AT_ONCE),
    ).fetchall()


def _check_ids(into: Sql, target: MemoryStore, ids: Sequence[str]) -> None:
    found = "SELECT e.key, n.path FROM entries e JOIN namespaces n ON n.id = e.space WHERE e.id IN KEYS LIMIT 1"
    for key, path in select_among(into, found, ids):
        raise LongtermError(
            f"has one of these entries already, as {key!r} in {shown(decoded(path))}; nothing was copied",
            where=target.database.path,
            mend="what was copied before under another name is not copied again",
        )


def _belongings(sql: Sql, first: int, last: int, now: int, into: Sql, vectors: Nearness, offset: int) -> Counter[str]:
    """Copy what belongs to a page's entries."""

    def of(table: str, columns: str, key: str = "seq") -> list[Any]:
        names = ", ".join(f"t.{name}" for name in columns.split(", "))
        joined = f"{table} t JOIN entries e ON e.seq = t.{key}"
        statement = f"SELECT t.{key}, {names} FROM {joined} WHERE t.{key} BETWEEN ? AND ? AND {ALIVE}"
        return [(seq + offset, *row) for seq, *row in sql.execute(statement, (first, last, now))]

    embeddings = of("vectors", "model, vector", "key")
    for model in {model for _, model, _ in embeddings}:
        vectors.put(into, model, [(seq, seq // PLACES, vector) for seq, one, vector in embeddings if one == model])
    versions = of("versions", _VERSION.removeprefix("seq, "))
    for table, columns, rows in (
        ("versions", _VERSION, versions),
        ("given", "seq, vector", of("given", "vector")),
        ("parts", "seq, model, vectors", of("parts", "model, vectors")),
    ):
        marks = ", ".join("?" * len(columns.split(", ")))
        into.executemany(f"INSERT INTO {table}({columns}) VALUES ({marks})", rows)
    return Counter(versions=len(versions), embeddings=len(embeddings))
