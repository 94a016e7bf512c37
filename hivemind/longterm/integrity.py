"""Whether a database is what it should be: for `hivemind doctor`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from hivemind.fs.soundness import faults, index_fault
from hivemind.longterm.draft import digest_of
from hivemind.longterm.moment import FIRST, LAST

__all__ = ["NONSENSE", "problems", "rebuild"]

NONSENSE = "what it holds makes no sense"
"""How the sentence about an entry ends that no rebuilding can mend."""


_MAKE_NONE = """SELECT e.key FROM entries e JOIN namespaces n ON n.id = e.space
    WHERE NOT json_valid(metadata) OR json_type(metadata) <> 'object' OR NOT json_valid(links) OR json_type(links) <> 'object'
    OR NOT json_valid(path) OR json_type(path) <> 'array'
    OR typeof(content) <> 'text' OR typeof(key) <> 'text' OR typeof(e.id) <> 'text'
    OR NOT (typeof(created_at) = 'integer' AND created_at BETWEEN ? AND ?)
    OR NOT (typeof(updated_at) = 'integer' AND updated_at BETWEEN ? AND ?)
    OR NOT (expires_at IS NULL OR (typeof(expires_at) = 'integer' AND expires_at BETWEEN ? AND ?))"""


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
    for (key,) in sql.execute(_MAKE_NONE, (FIRST, LAST, FIRST, LAST, FIRST, LAST)):
        yield f"entry {key!r}: {NONSENSE}"
    (lost,) = sql.execute("SELECT count(*) FROM vectors WHERE key NOT IN (SELECT seq FROM entries)").fetchone()
    if lost:
        yield f"{lost} vectors belong to no entry"
    (lost,) = sql.execute("SELECT count(*) FROM passages WHERE seq NOT IN (SELECT key FROM vectors)").fetchone()
    if lost:
        yield f"the passages of {lost} entries belong to no vector"


def rebuild(sql: sqlite3.Connection) -> None:
    """Make anew what follows from the entries. What the entries say stays as it is; one whose content was changed behind
    the program's back gets its digest, and loses the vector of what it said."""
    sql.execute("INSERT INTO words(words) VALUES ('rebuild')")
    sql.execute("UPDATE namespaces SET entries = (SELECT count(*) FROM entries e WHERE e.space = namespaces.id)")
    sql.execute("DELETE FROM vectors WHERE key NOT IN (SELECT seq FROM entries)")
    sql.execute("DELETE FROM passages WHERE seq NOT IN (SELECT key FROM vectors)")
    for seq, content, digest in sql.execute("SELECT seq, content, digest FROM entries").fetchall():
        if digest != digest_of(content):
            sql.execute("UPDATE entries SET digest = ? WHERE seq = ?", (digest_of(content), seq))
            sql.execute("DELETE FROM vectors WHERE key = ?", (seq,))
