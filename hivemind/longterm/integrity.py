"""Check, repair and describe a memory database, for `hivemind doctor` and `hivemind memory status`."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hivemind.frozen import frozen
from hivemind.fs.database import Sql
from hivemind.longterm.embeddings import HOW_TO_EMBED, MemoryEmbedder
from hivemind.longterm.errors import StoreDamaged
from hivemind.longterm.rows import (
    ENTRIES,
    KEYS_PER_NAMESPACE,
    NOT_EXPIRED,
    UNNAMED_MODEL,
    MemoryDatabase,
    embedding_of,
    entry_of,
    expired_by_space,
    history_of,
)
from hivemind.longterm.validation import digest_of

UNREADABLE = "its row is unreadable"
"""The end of the problem of an entry that `rebuild` cannot repair."""


def problems(database: MemoryDatabase, sql: Sql) -> Iterator[str]:
    """Check every row of the database; yield a sentence for each problem."""
    yield from database.faults(sql)
    for path, stated, actual in sql.execute(
        "SELECT path, entries, found FROM (SELECT n.path, n.entries,"
        " (SELECT count(*) FROM entries e WHERE e.space = n.id) AS found FROM namespaces n) AS counted"
        " WHERE entries <> found"
    ):
        yield f"namespace {path} has {actual} entries, but {stated} are recorded"
    for key, content, digest in sql.execute("SELECT key, content, digest FROM entries"):
        if isinstance(content, str) and digest != digest_of(content):
            yield f"entry {key!r}: its digest does not match its content"
    for row in sql.execute(f"{ENTRIES} ORDER BY e.seq"):
        try:
            history_of(sql, row[0], entry_of(row))
            embedding_of(sql, row[0])
        except StoreDamaged:
            yield f"entry {row[3]!r}: {UNREADABLE}"
    (orphans,) = sql.execute("SELECT count(*) FROM vectors WHERE key NOT IN (SELECT seq FROM entries)").fetchone()
    if orphans:
        yield f"{orphans} vectors belong to no entry"
    (orphans,) = sql.execute("SELECT count(*) FROM parts WHERE seq NOT IN (SELECT key FROM vectors)").fetchone()
    if orphans:
        yield f"the parts of {orphans} entries belong to no vector"


def rebuild(database: MemoryDatabase, sql: Sql) -> None:
    """Rebuild the data that is derived from the entries: index, counts, vectors and digests. The entries stay unchanged.

    If another program changed an entry's content, correct the digest and delete the old vector.
    """
    database.rebuild_words(sql)
    sql.execute("UPDATE namespaces SET entries = (SELECT count(*) FROM entries e WHERE e.space = namespaces.id)")
    newest = f"(SELECT coalesce(max(seq) % {KEYS_PER_NAMESPACE}, 0) FROM entries e WHERE e.space = namespaces.id)"
    sql.execute(f"UPDATE namespaces SET made = {newest} WHERE made < {newest}")
    sql.execute("DELETE FROM vectors WHERE key NOT IN (SELECT seq FROM entries)")
    sql.execute("DELETE FROM parts WHERE seq NOT IN (SELECT key FROM vectors)")
    for seq, content, digest in sql.execute("SELECT seq, content, digest FROM entries").fetchall():
        if digest != digest_of(content):
            sql.execute("UPDATE entries SET digest = ? WHERE seq = ?", (digest_of(content), seq))
            sql.execute("DELETE FROM vectors WHERE key = ?", (seq,))


@frozen
class StoreStatus:
    """The state of a store. `model` is the embedding model (None: searches use words only).

    `pending` counts the entries without a vector of the model. `other` counts the entries with a vector of another model,
    which `reindex` replaces. `note` is a remark for the operator, or None.
    """

    entries: int
    namespaces: int
    model: str | None
    dimension: int
    pending: int
    other: int
    note: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def status_of(database: MemoryDatabase, embeddings: MemoryEmbedder, now: int) -> StoreStatus:
    """Return the state of a database; entries that have expired at `now` (microseconds) do not count. Reads every
    entry, and never creates the database."""
    entry_counts, pending_count, other_model, note = list[int](), 0, 0, None
    if database.path == ":memory:" or database.was_made:
        with database.read() as sql:
            expired = expired_by_space(sql, now)
            counts = sql.execute("SELECT id, entries FROM namespaces WHERE entries > 0").fetchall()
            entry_counts = [count for space, entries in counts if (count := entries - expired.get(space, 0)) > 0]
            pending_count = embeddings.backlog(database, now).count_waiting(sql, embeddings.model, embeddings.dimension)
            (other_model,) = sql.execute(
                "SELECT count(*) FROM vectors v JOIN entries e ON e.seq = v.key"
                f" WHERE (v.model <> ? OR length(v.vector) <> ?) AND {NOT_EXPIRED}",
                (embeddings.model, 4 * embeddings.dimension, now),
            ).fetchone()
    if embeddings.embedder is None:
        note = f"full-text search only: {HOW_TO_EMBED}"
    elif other_model:
        subject = "1 entry was" if other_model == 1 else f"{other_model} entries were"
        note = f"{subject} embedded by another model: hivemind memory reindex"
    elif pending_count:
        note = (
            "1 entry waits for its embedding and is found by its words meanwhile"
            if pending_count == 1
            else f"{pending_count} entries wait for their embedding and are found by their words meanwhile"
        )
    model = None if embeddings.model == UNNAMED_MODEL else embeddings.model
    return StoreStatus(
        sum(entry_counts), len(entry_counts), model, embeddings.dimension, pending_count, other_model, note
    )
