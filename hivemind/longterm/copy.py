"""Copy memories from one database to another, between SQLite and PostgreSQL in any combination."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hivemind.fs.database import Sql, select_by_keys
from hivemind.longterm.entry import as_micros
from hivemind.longterm.errors import LongtermError
from hivemind.longterm.namespace import Namespace, decode_namespace, format_namespace
from hivemind.longterm.rows import KEYS_PER_NAMESPACE, NOT_EXPIRED, drop_expired, ensure_space, seq_range
from hivemind.longterm.sqlite import MemoryFile
from hivemind.longterm.store import MemoryStore
from hivemind.search import VectorStore

_PAGE_SIZE = 200  # entries in memory at once, with their vectors and versions
_ENTRY = (
    "id, key, content, digest, metadata, category, importance, created_at, updated_at, expires_at, version, links,"
    " problem, wants, parent_id"
)
_VERSION = "seq, version, content, metadata, category, importance, updated_at, expires_at, parent_id, links"
_PARENT = f"(SELECT p.id FROM entries p WHERE p.id = e.parent_id AND {NOT_EXPIRED.replace('e.', 'p.')})"


def copy_memories(
    source: MemoryStore,
    target: MemoryStore,
    rename: Callable[[Namespace], Namespace] = lambda namespace: namespace,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Counter[str]:
    """Copy all users, and all entries with their ids, times, versions, links and embeddings, in one transaction.

    Return the numbers of copied `entries`, `namespaces`, earlier `versions`, `embeddings` and `users`. `rename` maps a
    namespace of the source to its namespace in the target. Expired entries are not copied. Embeddings that an earlier
    version of the program computed are not copied either: the target embeds these entries. `progress` receives (done,
    total). Changes of the source during the copy are not copied; other writers of the target wait until its end. Raises
    LongtermError if the target already has entries in a namespace that is copied, or an entry with the id of a copied
    entry.
    """
    if not source.database.was_made:
        raise LongtermError("there are no memories", location=source.database.path, remedy="check the path")
    is_older = isinstance(source.database, MemoryFile) and source.database.accept_older()
    now, counts, placeholders = as_micros(source.now()), Counter[str](), ", ".join("?" * (2 + len(_ENTRY.split(", "))))
    with target.database.write() as target_sql, source.database.read() as sql:
        drop_expired(target_sql, now, sys.maxsize)
        spaces = sql.execute("SELECT id, path, entries FROM namespaces WHERE entries > 0 ORDER BY id").fetchall()
        total = sum(entries for _, _, entries in spaces)
        for space, path, _ in spaces:
            name = rename(decode_namespace(path))
            target_space = ensure_space(target_sql, name)
            ((existing, last_number),) = target_sql.execute(
                "SELECT entries, made FROM namespaces WHERE id = ?", (target_space,)
            )
            if existing:
                raise LongtermError(
                    f"has entries in {format_namespace(name)} already; nothing was copied",
                    location=target.database.path,
                    remedy="copy into another database, or delete those entries first: a namespace is copied as a whole",
                )
            first, last = seq_range(space)
            offset = (target_space - space) * KEYS_PER_NAMESPACE + last_number
            with target.database.words.bulk_insert(target_sql, target_space):
                while page := _page(sql, first, last, now):
                    _check_ids(target_sql, target, [entry_id for _, entry_id, *_ in page])
                    target_sql.executemany(
                        f"INSERT INTO entries(seq, space, {_ENTRY}) VALUES ({placeholders})",
                        [(seq + offset, target_space, *row, bool(wants), parent) for seq, *row, wants, parent in page],
                    )
                    counts += _copy_vectors_and_versions(
                        sql, page[0][0], page[-1][0], now, target_sql, target.database.vectors, offset, is_older
                    )
                    counts["entries"] += len(page)
                    progress(counts["entries"], total)
                    first = page[-1][0] + 1
            counts["namespaces"] += 1
        for user in sql.execute("SELECT id, name, created_at FROM users").fetchall():
            cursor = target_sql.execute("INSERT INTO users VALUES (?, ?, ?) ON CONFLICT(id) DO NOTHING", user)
            counts["users"] += cursor.rowcount
    return counts


def _page(sql: Sql, first: int, last: int, now: int) -> list[Any]:
    """Return the next page of entries with a `seq` from `first` to `last`, as rows. The id of a parent that has expired
    becomes NULL."""
    columns = ", ".join(f"e.{name}" for name in _ENTRY.split(", ")[:-1])
    return sql.execute(
        f"SELECT e.seq, {columns}, {_PARENT} FROM entries e WHERE e.seq BETWEEN ? AND ? AND {NOT_EXPIRED} ORDER BY e.seq LIMIT ?",
        (now, first, last, now, _PAGE_SIZE),
    ).fetchall()


def _check_ids(target_sql: Sql, target: MemoryStore, ids: Sequence[str]) -> None:
    statement = "SELECT e.key, n.path FROM entries e JOIN namespaces n ON n.id = e.space WHERE e.id IN KEYS LIMIT 1"
    for key, path in select_by_keys(target_sql, statement, ids):
        raise LongtermError(
            f"has one of the entries already, as {key!r} in {format_namespace(decode_namespace(path))}; nothing was copied",
            location=target.database.path,
            remedy="copy into another database: an entry cannot be copied under two namespaces",
        )


def _copy_vectors_and_versions(
    sql: Sql, first: int, last: int, now: int, target_sql: Sql, vectors: VectorStore, offset: int, is_older: bool
) -> Counter[str]:
    """Copy the vectors, versions and parts of the entries with a `seq` from `first` to `last`. Return the numbers of
    rows by kind.

    `offset` is added to each `seq`. `is_older` says that an earlier version of the program wrote the source.
    """

    def rows_of(table: str, columns: str, key: str = "seq") -> list[Any]:
        names = ", ".join(f"t.{name}" for name in columns.split(", "))
        tables = f"{table} t JOIN entries e ON e.seq = t.{key}"
        statement = f"SELECT t.{key}, {names} FROM {tables} WHERE t.{key} BETWEEN ? AND ? AND {NOT_EXPIRED}"
        return [(seq + offset, *row) for seq, *row in sql.execute(statement, (first, last, now))]

    embeddings, given = rows_of("vectors", "model, vector", "key"), rows_of("given", "vector")
    if is_older:
        passed_seqs = {seq for seq, _ in given}
        embeddings = [row for row in embeddings if row[0] in passed_seqs]
    for model in {model for _, model, _ in embeddings}:
        vectors.put(
            target_sql,
            model,
            [(seq, seq // KEYS_PER_NAMESPACE, vector) for seq, row_model, vector in embeddings if row_model == model],
        )
    versions = rows_of("versions", _VERSION.removeprefix("seq, "))
    for table, columns, rows in (
        ("versions", _VERSION, versions),
        ("given", "seq, vector", given),
        ("parts", "seq, model, vectors", [] if is_older else rows_of("parts", "model, vectors")),
    ):
        placeholders = ", ".join("?" * len(columns.split(", ")))
        target_sql.executemany(f"INSERT INTO {table}({columns}) VALUES ({placeholders})", rows)
    return Counter(versions=len(versions), embeddings=len(embeddings))
