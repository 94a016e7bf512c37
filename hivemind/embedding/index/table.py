"""`VectorTable`: the vectors of a SQLite database, which are the truth, and the index beside it, which follows."""

# ruff: noqa: S608 - the table's name is the program's own; values are always bound
from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable

from hivemind.embedding.index.engines import Near
from hivemind.embedding.index.vector_index import VectorIndex

__all__ = ["VectorTable"]

_AT_ONCE = 500  # changes: a megabyte of vectors, a few times over, in every process that finds the index behind


class VectorTable:
    """A table of vectors in somebody's database: `key` (an integer, 0 or more), `grp`, `model`, `vector` (packed).

    Its rows are written as any others, in the owner's transactions; a trigger numbers every change. `search` first gives
    the index beside the database what is new, so that a vector is found as soon as it is committed, by every process.
    """

    def __init__(self, name: str = "vectors") -> None:
        if not name.isidentifier():
            raise ValueError(f"no table's name: {name!r}")
        self.name = name
        self._indexes: dict[str, VectorIndex] = {}

    @property
    def schema(self) -> tuple[str, ...]:
        """The statements that make it."""
        name = self.name
        return (
            f"CREATE TABLE {name} (key INTEGER PRIMARY KEY CHECK (key >= 0), grp INTEGER NOT NULL,"
            " model TEXT NOT NULL, vector BLOB NOT NULL)",
            f"CREATE TABLE {name}_changes (seq INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER NOT NULL UNIQUE)",
            f"CREATE TABLE {name}_source (id TEXT NOT NULL)",
            f"INSERT INTO {name}_source VALUES (lower(hex(randomblob(8))))",
            self._trigger("INSERT", "new"),
            self._trigger("UPDATE", "new"),
            self._trigger("DELETE", "old"),
        )

    def _trigger(self, event: str, row: str) -> str:
        """Numbers a change. (INSERT OR REPLACE here would yield to the conflict clause of the writing statement.)"""
        changes = f"{self.name}_changes"
        return (
            f"CREATE TRIGGER {self.name}_after_{event.lower()} AFTER {event} ON {self.name} BEGIN"
            f" DELETE FROM {changes} WHERE key = {row}.key; INSERT INTO {changes}(key) VALUES ({row}.key); END"
        )

    def put(self, sql: sqlite3.Connection, model: str, rows: Iterable[tuple[int, int, bytes]]) -> None:
        """Write packed vectors as (key, group, vector), replacing what these keys had."""
        sql.executemany(
            f"INSERT INTO {self.name}(key, grp, model, vector) VALUES (?, ?, ?, ?) ON CONFLICT(key)"
            " DO UPDATE SET grp = excluded.grp, model = excluded.model, vector = excluded.vector",
            ((key, group, model, vector) for key, group, vector in rows),
        )

    def search(
        self,
        sql: sqlite3.Connection,
        folder: str | os.PathLike[str] | None,
        model: str,
        query: bytes,
        limit: int,
        *,
        groups: Collection[int] | None = None,
    ) -> list[Near]:
        """(key, cosine) of the model's vectors nearest to a packed one, best first, equal ones by key.

        `folder` is where the index lives, beside the database; None for a database in memory. A key may be one that the
        transaction of `sql` does not see (it was deleted, or added, since): who joins the keys leaves it out.
        """
        index = self._index(sql, folder, model, len(query) // 4)
        self._follow(sql, index, model)
        return index.search_packed(query, limit, groups=groups)

    def _index(
        self, sql: sqlite3.Connection, folder: str | os.PathLike[str] | None, model: str, dimension: int
    ) -> VectorIndex:
        row = sql.execute(f"SELECT id FROM {self.name}_source").fetchone()
        if row is None:
            raise sqlite3.DatabaseError(f"no such row: the id in {self.name}_source")  # damage, and told as such
        source = f"{row[0]} {_inode(sql)} {dimension} {model}"
        found = self._indexes.get(source)
        if found is None:
            for other in self._indexes.values():
                other.close()
            found = VectorIndex(dimension, folder=folder, source=source)
            self._indexes = {source: found}
        return found

    def _follow(self, sql: sqlite3.Connection, index: VectorIndex, model: str) -> None:
        """Give the index the changes that it has not seen."""
        (last,) = sql.execute(f"SELECT coalesce(max(seq), 0) FROM {self.name}_changes").fetchone()
        while (seen := index.seen) < last:
            rows = sql.execute(
                f"SELECT c.seq, c.key, v.grp, v.vector FROM {self.name}_changes c"
                f" LEFT JOIN {self.name} v ON v.key = c.key AND v.model = ? AND length(v.vector) = ?"
                " WHERE c.seq > ? ORDER BY c.seq LIMIT ?",
                (model, 4 * index.dimension, seen, _AT_ONCE),
            ).fetchall()
            index.apply([(key, group or 0, row) for _, key, group, row in rows], rows[-1][0], since=seen)


def _inode(sql: sqlite3.Connection) -> int:
    """The file of a database: one that was put back from a copy counts its changes from an older state."""
    path = sql.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
    return os.stat(path).st_ino if path else 0
