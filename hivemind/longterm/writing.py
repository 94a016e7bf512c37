"""Putting a checked value into the database: the one way in which an entry is made or changed. All within one write."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hivemind.embedding import pack, put_vectors
from hivemind.longterm.draft import Draft
from hivemind.longterm.entry import Action
from hivemind.longterm.errors import EntryInvalid, VersionConflict
from hivemind.longterm.namespace import Namespace, encoded
from hivemind.longterm.rows import ALIVE
from hivemind.longterm.schema import PLACES
from hivemind.search.sentences import keep_sentences

__all__ = ["Meaning", "delete_entry", "indexed_together", "space_for", "write_entry"]

_INSERT = (
    "INSERT INTO entries(seq, id, space, key, content, digest, metadata, category, importance, created_at, updated_at,"
    " expires_at, version, parent_id, links, wants, problem) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE entries SET content = ?, digest = ?, metadata = ?, category = ?, importance = ?, updated_at = ?,"
    " expires_at = ?, version = version + 1, parent_id = ?, links = ?, wants = ?, problem = ? WHERE seq = ?"
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is known of a content's meaning: a packed vector of the model, with those of its sentences as they are kept, or
    why there is none. `wanted`: never, if False."""

    model: str
    vector: bytes | None = None
    sentences: bytes = b""
    problem: str | None = None
    wanted: bool = True


def space_for(sql: sqlite3.Connection, namespace: Namespace) -> int:
    """The number of a namespace, made if it is new."""
    path = encoded(namespace)
    sql.execute("INSERT OR IGNORE INTO namespaces(path) VALUES (?)", (path,))
    (space,) = sql.execute("SELECT id FROM namespaces WHERE path = ?", (path,)).fetchone()
    return int(space)


@contextmanager
def indexed_together(sql: sqlite3.Connection, space: int) -> Iterator[None]:
    """The entries that are made in a namespace within this reach the full-text index at its end, all in one statement.

    None that is made within may be changed or deleted within: its words are not in the index yet.
    """
    (made,) = sql.execute("SELECT made FROM namespaces WHERE id = ?", (space,)).fetchone()
    sql.execute("INSERT INTO unindexed VALUES (1)")
    yield  # after an error everything is undone, the mark too
    sql.execute(
        "INSERT INTO words(rowid, content) SELECT seq, content FROM entries WHERE seq > ? AND seq < ?",
        (space * PLACES + made, (space + 1) * PLACES),
    )
    sql.execute("DELETE FROM unindexed")


def write_entry(
    sql: sqlite3.Connection,
    space: int,
    key: str,
    draft: Draft,
    meaning: Meaning,
    *,
    now: int,
    new_id: Callable[[], str],
    expected: int | None = None,
) -> tuple[int, str, Action]:
    """Store a value under a key: (seq, id, created or updated). The last write wins, unless `expected` names a version.

    An entry that has expired is gone: what is stored under its key is a new one. Raises VersionConflict, and
    EntryInvalid for a parent that is no entry of this namespace.
    """
    row = sql.execute(
        "SELECT seq, id, version, updated_at, parent_id, expires_at FROM entries WHERE space = ? AND key = ?",
        (space, key),
    ).fetchone()
    if row is not None and row[5] is not None and row[5] <= now:
        sql.execute("DELETE FROM entries WHERE seq = ?", (row[0],))
        row = None
    if expected is not None and expected != (0 if row is None else row[2]):
        raise VersionConflict(key, expected, 0 if row is None else row[2])
    if row is None:
        _check_parent(sql, space, draft.parent_id, now)
        return *_insert(sql, space, key, draft, meaning, now, new_id), "created"
    seq, entry_id, _, updated, had, _ = row
    if draft.parent_id == entry_id:
        raise EntryInvalid("an entry cannot be its own parent")
    if draft.parent_id != had:  # the one that it has may have expired meanwhile
        _check_parent(sql, space, draft.parent_id, now)
    sql.execute(
        _UPDATE,
        (
            draft.content, draft.digest, draft.metadata, draft.category, draft.importance, max(now, updated + 1),
            draft.expires_at, draft.parent_id, draft.links, meaning.wanted, meaning.problem, seq,
        ),
    )  # fmt: skip
    sql.execute("DELETE FROM given WHERE seq = ?", (seq,))
    _keep_meaning(sql, seq, draft, meaning)
    return seq, entry_id, "updated"


def _insert(
    sql: sqlite3.Connection, space: int, key: str, draft: Draft, meaning: Meaning, now: int, new_id: Callable[[], str]
) -> tuple[int, str]:
    (made,) = sql.execute("SELECT made FROM namespaces WHERE id = ?", (space,)).fetchone()  # a trigger counts on
    seq, entry_id = space * PLACES + made + 1, new_id()
    sql.execute(
        _INSERT,
        (
            seq, entry_id, space, key, draft.content, draft.digest, draft.metadata, draft.category, draft.importance,
            now, now, draft.expires_at, draft.parent_id, draft.links, meaning.wanted, meaning.problem,
        ),
    )  # fmt: skip
    _keep_meaning(sql, seq, draft, meaning)
    return seq, entry_id


def _check_parent(sql: sqlite3.Connection, space: int, parent_id: str | None, now: int) -> None:
    found = f"SELECT 1 FROM entries e WHERE e.id = ? AND e.space = ? AND {ALIVE}"
    if parent_id is not None and not sql.execute(found, (parent_id, space, now)).fetchone():
        raise EntryInvalid(f"no entry of this namespace has the id {parent_id!r}", mend="store the parent first")


def _keep_meaning(sql: sqlite3.Connection, seq: int, draft: Draft, meaning: Meaning) -> None:
    vector = meaning.vector
    if draft.vector is not None:
        vector = pack(memoryview(draft.vector).cast("f"), len(draft.vector) // 4)
        sql.execute("INSERT INTO given VALUES (?, ?)", (seq, draft.vector))
    if vector is not None:
        put_vectors(sql, meaning.model, [(seq, seq // PLACES, vector)])
        keep_sentences(sql, seq, meaning.model, meaning.sentences if draft.vector is None else b"")
    elif not meaning.wanted:
        sql.execute("DELETE FROM vectors WHERE key = ?", (seq,))


def delete_entry(sql: sqlite3.Connection, space: int, key: str, now: int) -> bool:
    """Delete an entry with its history; False if there is none, or it had expired."""
    rows = sql.execute(
        "DELETE FROM entries WHERE space = ? AND key = ? RETURNING expires_at IS NULL OR expires_at > ?",
        (space, key, now),
    ).fetchall()
    return rows == [(1,)]
