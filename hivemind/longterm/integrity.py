"""Whether a database is what it should be: for `hivemind doctor`."""

# ruff: noqa: S608 - statements are put together from this program's own constants
from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from hivemind.fs.database import faults, index_fault
from hivemind.longterm.draft import digest_of
from hivemind.longterm.entry import MemoryEntry
from hivemind.longterm.errors import StoreDamaged
from hivemind.longterm.links import history_of
from hivemind.longterm.rows import every, with_vector
from hivemind.longterm.schema import PLACES

__all__ = ["NONSENSE", "problems", "rebuild"]

NONSENSE = "what it holds makes no sense"
"""How the sentence about an entry ends that no rebuilding can mend."""


def problems(sql: sqlite3.Connection) -> Iterator[str]:
    """One sentence for each thing that is wrong; nothing for a sound database. Reads all of it."""
    yield from faults(sql)
    if (error := index_fault(sql)) is not None:
        yield f"the full-text index does not fit the contents ({error})"
    for path, said, found in sql.execute(
        "SELECT n.path, n.entries, (SELECT count(*) FROM entries e WHERE e.space = n.id) AS found FROM namespaces n"
        " WHERE n.entries <> found"
    ):
        yield f"namespace {path} has {found} entries and says {said}"
    for key, content, digest in sql.execute("SELECT key, content, digest FROM entries WHERE typeof(content) = 'text'"):
        if digest != digest_of(content):
            yield f"entry {key!r}: its digest does not fit its content"
    for seq, key, entry in every(sql):
        if entry is None or not _is_read_whole(sql, seq, entry):
            yield f"entry {key!r}: {NONSENSE}"
    (lost,) = sql.execute("SELECT count(*) FROM vectors WHERE key NOT IN (SELECT seq FROM entries)").fetchone()
    if lost:
        yield f"{lost} vectors belong to no entry"
    (lost,) = sql.execute("SELECT count(*) FROM sentences WHERE seq NOT IN (SELECT key FROM vectors)").fetchone()
    if lost:
        yield f"the sentences of {lost} entries belong to no vector"


def _is_read_whole(sql: sqlite3.Connection, seq: int, entry: MemoryEntry) -> bool:
    """Whether its earlier versions and its embedding make sense."""
    try:
        history_of(sql, seq, entry)
        with_vector(sql, seq)
    except StoreDamaged:
        return False
    return True


def rebuild(sql: sqlite3.Connection) -> None:
    """Make anew what follows from the entries. What the entries say stays as it is; one whose content was changed behind
    the program's back gets its digest, and loses the vector of what it said."""
    sql.execute("INSERT INTO words(words) VALUES ('rebuild')")
    sql.execute("UPDATE namespaces SET entries = (SELECT count(*) FROM entries e WHERE e.space = namespaces.id)")
    sql.execute(
        "UPDATE namespaces SET made ="
        f" max(made, (SELECT coalesce(max(seq) % {PLACES}, 0) FROM entries e WHERE e.space = namespaces.id))"
    )
    sql.execute("DELETE FROM vectors WHERE key NOT IN (SELECT seq FROM entries)")
    sql.execute("DELETE FROM sentences WHERE seq NOT IN (SELECT key FROM vectors)")
    for seq, content, digest in sql.execute("SELECT seq, content, digest FROM entries").fetchall():
        if digest != digest_of(content):
            sql.execute("UPDATE entries SET digest = ? WHERE seq = ?", (digest_of(content), seq))
            sql.execute("DELETE FROM vectors WHERE key = ?", (seq,))
