"""The full-text index, told of changes many at a time: until then they stand in the table `unindexed` (schema.py)."""

from __future__ import annotations

import sqlite3

__all__ = ["MOST", "index", "index_if_many", "unindexed_ids"]

MOST = 64
"""No more changes than this are ever committed without the index knowing of them: who searches looks at them one by one."""


def index(sql: sqlite3.Connection) -> None:
    """Tell the index all that it does not know. Only within a write transaction."""
    sql.execute(
        "INSERT INTO words(words, rowid, text, context_value)"
        " SELECT 'delete', seq, text, context_value FROM unindexed WHERE text IS NOT NULL"
    )
    sql.execute(
        "INSERT INTO words(rowid, text, context_value)"
        " SELECT n.seq, n.text, n.context_value FROM unindexed u JOIN nodes n ON n.seq = u.seq"
    )
    sql.execute("DELETE FROM unindexed")


def index_if_many(sql: sqlite3.Connection) -> None:
    """The same where more than `MOST` wait: at the end of every transaction, and before one searches what it has written."""
    if sql.execute("SELECT 1 FROM unindexed LIMIT 1 OFFSET ?", (MOST,)).fetchone() is not None:
        index(sql)


def unindexed_ids(sql: sqlite3.Connection) -> list[str]:
    """The nodes whose words the index does not know, or not as they are now; `MOST` at most."""
    index_if_many(sql)
    return [row[0] for row in sql.execute("SELECT n.id FROM unindexed u JOIN nodes n ON n.seq = u.seq ORDER BY u.seq")]
