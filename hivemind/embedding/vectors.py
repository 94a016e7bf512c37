"""The table of vectors in a store's database, and the search for the nearest vectors.

The database is the truth. For each vector that it searches, a process keeps in memory the signs (a bit per dimension) and
the numbers rounded to a byte (450 bytes for 384 dimensions). It reads the table once, then only changes. A search compares
the signs of all vectors, then the bytes of the closest ones, then the exact vectors of the best.
"""

# ruff: noqa: S608 - statements are composed of constants of this module; values are always bound
from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hivemind.boundary import boundary
from hivemind.embedding.embedder import numpy_or_none

if TYPE_CHECKING:
    import sqlite3

Near = tuple[int, float]
_ROUNDED = 6  # digits of a cosine: further digits depend on how many rows are multiplied together
_COMPARED = 4_000  # up to so many vectors are all compared by bytes, without signs: a few milliseconds
_SHARE = 50  # of more vectors, one in so many is compared by bytes, but at least a third of _COMPARED
_MARGIN = 32  # so many vectors more are compared exactly: rounding may have changed their order
_AT_ONCE = 500  # changes read together: more would not be faster, and fragment memory
_THREADS = "OPENBLAS_NUM_THREADS"


def _trigger(event: str, row: str) -> str:
    """Return SQL that creates a trigger on the table of vectors. At this event (INSERT, UPDATE, DELETE), it numbers the
    changed row.

    `row` is NEW or OLD. The trigger cannot use INSERT OR REPLACE: the conflict clause of the writing statement would
    override it.
    """
    return (
        f"CREATE TRIGGER vectors_after_{event.lower()} AFTER {event} ON vectors BEGIN"
        f" DELETE FROM vectors_changes WHERE key = {row}.key; INSERT INTO vectors_changes(key) VALUES ({row}.key); END"
    )


VECTORS = (
    "CREATE TABLE vectors (key INTEGER PRIMARY KEY CHECK (key >= 0), grp INTEGER NOT NULL,"
    " model TEXT NOT NULL, vector BLOB NOT NULL)",
    "CREATE TABLE vectors_changes (seq INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER NOT NULL UNIQUE)",
    "CREATE TABLE vectors_source (id TEXT NOT NULL)",
    "INSERT INTO vectors_source VALUES (lower(hex(randomblob(8))))",
    _trigger("INSERT", "new"),
    _trigger("UPDATE", "new"),
    _trigger("DELETE", "old"),
)
"""The statements that create the table of vectors and number each of its changes."""


def put_vectors(sql: sqlite3.Connection, model: str, rows: Iterable[tuple[int, int, bytes]]) -> None:
    """Write the rows (key, group, packed vector); replace earlier vectors of the same keys."""
    sql.executemany(
        "INSERT INTO vectors(key, grp, model, vector) VALUES (?, ?, ?, ?) ON CONFLICT(key)"
        " DO UPDATE SET grp = excluded.grp, model = excluded.model, vector = excluded.vector",
        ((key, group, model, vector) for key, group, vector in rows),
    )


class VectorTable:
    """The search for the nearest vectors in the table `vectors` of one database. Without numpy, there are no hits."""

    put = staticmethod(put_vectors)

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._columns: _Columns | None = None

    def nearest(
        self, sql: sqlite3.Connection, model: str, query: bytes, limit: int, groups: Collection[int] | None = None
    ) -> list[Near]:
        """Return (key, cosine) of the model's vectors that are nearest to the packed vector `query`, best first.

        Equal cosines are ordered by key. `groups` restricts the search (None: all groups). The search sees the
        transaction's own changes.
        """
        numpy = numpy_or_none()
        if numpy is None or limit <= 0:
            return []
        with self._guard:
            columns = self._columns_of(numpy, sql, model, len(query) // 4)
            keys = columns.nearest(query, limit + _MARGIN, groups)
        cosine_by_key = self.cosines(sql, model, query, keys)
        return sorted(cosine_by_key.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def cosines(self, sql: sqlite3.Connection, model: str, query: bytes, keys: Collection[int]) -> dict[int, float]:
        """Return, by key, the cosine to the packed vector `query`; leave out keys without a vector of the model."""
        from hivemind.fs.database import select_by_keys  # late: a status opens no database

        statement = "SELECT key, vector FROM vectors WHERE model = ? AND length(vector) = ? AND key IN KEYS"
        rows = list(select_by_keys(sql, statement, keys, [model, len(query)]))
        numpy = numpy_or_none()
        if numpy is None or not rows:
            return {}
        with boundary("table of vectors"):
            matrix = numpy.frombuffer(b"".join(vector for _, vector in rows), dtype="<f4").reshape(len(rows), -1)
            # vecdot, because @ starts a thread for each core beyond some size and waits for all of them
            cosines = numpy.vecdot(matrix, numpy.frombuffer(query, dtype="<f4")).astype("<f8")
            return dict(zip((key for key, _ in rows), numpy.round(cosines, _ROUNDED).tolist(), strict=True))

    def _columns_of(self, numpy: Any, sql: sqlite3.Connection, model: str, dimension: int) -> _Columns:
        """Return a model's vectors in memory, after applying the changes that the transaction sees."""
        row = sql.execute("SELECT id FROM vectors_source").fetchone()
        if row is None:
            import sqlite3

            raise sqlite3.DatabaseError("no such row: the id in vectors_source")  # reported as damage
        # the inode: a restored copy of the file has other changes under the same numbers
        path = sql.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
        source = (row[0], os.stat(path).st_ino if path else 0, model, dimension)
        if self._columns is None or self._columns.source != source:
            self._columns = _Columns(numpy, source, dimension)
        columns = self._columns
        rows = sql.execute(
            "SELECT c.seq, c.key, v.grp, v.vector FROM vectors_changes c LEFT JOIN vectors v"
            " ON v.key = c.key AND v.model = ? AND length(v.vector) = ? WHERE c.seq > ? ORDER BY c.seq",
            (model, 4 * dimension, columns.last_change),
        )
        with boundary("table of vectors"):
            is_first = not columns.last_change  # a key has only its last change: in a first read, no key is known
            if is_first:
                columns.make_room(*sql.execute("SELECT count(*) FROM vectors_changes").fetchone())
            while changes := rows.fetchmany(_AT_ONCE):
                columns.apply(changes, is_first)
        return columns


class _Columns:
    """The vectors of one model in memory, one per row; a deleted or replaced row has the key -1."""

    def __init__(self, numpy: Any, source: object, dimension: int) -> None:
        self.source, self.last_change = source, 0
        self._numpy, self._count, self._dead_count = numpy, 0, 0
        self._keys, self._groups = numpy.empty(0, "i8"), numpy.empty(0, "i8")
        self._signs = numpy.empty(
            (-(-dimension // 64), 0), "u8"
        )  # one array row per word: the same word of all vectors is contiguous
        self._rows, self._scales = numpy.empty((0, dimension), "i1"), numpy.empty(0, "f4")

    def apply(self, changes: Sequence[tuple[int, int, int | None, bytes | None]], is_first: bool) -> None:
        """Apply changes (number, key, group, vector or None if deleted). `is_first` says that no key is known yet."""
        numpy, known_keys = self._numpy, self._keys[: self._count]
        if not is_first:
            old = numpy.flatnonzero(_is_in(numpy, known_keys, [key for _, key, _, _ in changes]))
            known_keys[old] = -1
            self._dead_count += len(old)
        added = [(key, group, vector) for _, key, group, vector in changes if vector is not None]
        if self._count + len(added) > len(self._keys):
            self.make_room(len(added) + self._count // 2)
        if added:
            matrix = numpy.frombuffer(b"".join(vector for *_, vector in added), "<f4").reshape(len(added), -1)
            new_rows = slice(self._count, self._count + len(added))
            scales = numpy.maximum(numpy.abs(matrix).max(axis=1), 1e-9) / 127
            self._keys[new_rows], self._groups[new_rows] = [key for key, *_ in added], [group for _, group, _ in added]
            self._signs[:, new_rows] = self._signs_of(matrix)
            self._rows[new_rows], self._scales[new_rows] = numpy.rint(matrix / scales[:, None]), scales
            self._count += len(added)
        self.last_change = changes[-1][0]

    def _signs_of(self, matrix: Any) -> Any:
        sign_bits = self._numpy.packbits(matrix > 0, axis=1)
        width = 8 * len(self._signs)
        return self._numpy.pad(sign_bits, ((0, 0), (0, width - sign_bits.shape[1]))).view("u8").T

    def make_room(self, room: int) -> None:
        """Allocate space for `room` more rows. If most rows are deleted ones, remove these."""
        numpy = self._numpy
        live_rows = slice(0, self._count)
        if 2 * self._dead_count > self._count:
            live_rows = numpy.flatnonzero(self._keys[: self._count] >= 0)
            self._count, self._dead_count = len(live_rows), 0
        for name in ("_keys", "_groups", "_rows", "_scales"):
            column = getattr(self, name)[live_rows]
            setattr(self, name, numpy.concatenate([column, numpy.empty((room, *column.shape[1:]), column.dtype)]))
        signs = self._signs[:, live_rows]
        self._signs = numpy.concatenate([signs, numpy.empty((len(signs), room), "u8")], axis=1)

    def nearest(self, query: bytes, limit: int, groups: Collection[int] | None) -> list[int]:
        """Return the keys of about the `limit` rows nearest to a packed vector, in no order, compared by signs and bytes only."""
        numpy = self._numpy
        keys, row_groups = self._keys[: self._count], self._groups[: self._count]
        is_candidate = keys >= 0
        if groups is not None and len(groups) == 1:  # the usual case, six times as fast as a lookup
            is_candidate &= row_groups == next(iter(groups))
        elif groups is not None:
            is_candidate &= _is_in(numpy, row_groups, groups)
        rows = numpy.flatnonzero(is_candidate)
        query_vector = numpy.frombuffer(query, dtype="<f4")
        if len(rows) > _COMPARED:
            max_rows = max(_COMPARED // 3, 4 * limit, len(rows) // _SHARE)
            apart = numpy.zeros(self._count, dtype="<u2")
            for own_word, word in zip(self._signs, self._signs_of(query_vector[None, :])[:, 0], strict=True):
                apart += numpy.bitwise_count(own_word[: self._count] ^ word)
            rows = rows[numpy.argsort(apart[rows], kind="stable")[:max_rows]]
        if len(rows) > limit:
            near = numpy.vecdot(self._rows[rows].astype("f4"), query_vector) * self._scales[rows]
            rows = rows[numpy.argpartition(-near, limit)[:limit]]
        nearest_keys: list[int] = keys[rows].tolist()
        return nearest_keys


def _is_in(numpy: Any, values: Any, members: Collection[int]) -> Any:
    """Return a mask of the values that are in `members`, which must not be empty.

    `numpy.isin` is not used: it may load numpy.ma, megabytes in each process.
    """
    sorted_members = numpy.sort([*members])
    return sorted_members.take(numpy.searchsorted(sorted_members, values), mode="clip") == values


def preload() -> None:
    """Import what a search needs, with numpy if it is installed, in a parent process, so its forks share it.

    OpenBLAS is kept from starting threads: a process that forks must have none.
    """
    previous_threads = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        numpy_or_none()
        import_module("hivemind.fs.database")
        import_module("multiprocessing.connection")
    finally:
        if previous_threads is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = previous_threads
