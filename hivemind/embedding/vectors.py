"""The vectors of a store's database, which are the truth, and which of them are near to one.

Each process keeps in memory, for the database that it searches, the signs of every vector (a bit for each dimension) and
its numbers rounded to a byte: 450 bytes a vector of 384 dimensions, read once and then followed change by change. Of many
vectors those that share the most signs are compared by their bytes, the best of these by what the database says itself.
"""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module
from typing import Any

from hivemind.boundary import boundary
from hivemind.embedding.embedder import numpy_or_none
from hivemind.fs.database import select_among

Near = tuple[int, float]
_ROUNDED = 6  # digits of a cosine: what is beyond depends on how many rows were multiplied at once
_COMPARED = 4_000  # vectors that are all compared by their bytes: a few milliseconds
_SHARE = 50  # of more, those that share the most signs: one in so many, and no fewer than a third of _COMPARED
_MARGIN = 32  # that are read from the database beyond those wanted: rounding may have changed their order
_AT_ONCE = 500  # changes read together: more are no faster, and leave holes in the memory of each process
_THREADS = "OPENBLAS_NUM_THREADS"


def _trigger(event: str, row: str) -> str:
    """Numbers a change. (INSERT OR REPLACE here would yield to the conflict clause of the writing statement.)"""
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
"""The statements that make the table of vectors, and number every change of it."""


def put_vectors(sql: sqlite3.Connection, model: str, rows: Iterable[tuple[int, int, bytes]]) -> None:
    """Write packed vectors as (key, group, vector), replacing what these keys had."""
    sql.executemany(
        "INSERT INTO vectors(key, grp, model, vector) VALUES (?, ?, ?, ?) ON CONFLICT(key)"
        " DO UPDATE SET grp = excluded.grp, model = excluded.model, vector = excluded.vector",
        ((key, group, model, vector) for key, group, vector in rows),
    )


class Vectors:
    """Searches the table `vectors` of one database. Needs numpy; without it nothing is near."""

    put = staticmethod(put_vectors)

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._columns: _Columns | None = None

    def nearest(
        self, sql: sqlite3.Connection, model: str, query: bytes, limit: int, groups: Collection[int] | None = None
    ) -> list[Near]:
        """(key, cosine) of the model's vectors nearest to a packed one, in some groups or all, best first, equal ones by key,
        as the transaction sees them."""
        numpy = numpy_or_none()
        if numpy is None or limit <= 0:
            return []
        with self._guard:
            columns = self._columns_of(numpy, sql, model, len(query) // 4)
            keys = columns.nearest(query, limit + _MARGIN, groups)
        found = self.cosines(sql, model, query, keys)
        return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def cosines(self, sql: sqlite3.Connection, model: str, query: bytes, keys: Collection[int]) -> dict[int, float]:
        """The cosine of each of these keys that has a vector of the model."""
        found = "SELECT key, vector FROM vectors WHERE model = ? AND length(vector) = ? AND key IN KEYS"
        rows = list(select_among(sql, found, keys, [model, len(query)]))
        numpy = numpy_or_none()
        if numpy is None or not rows:
            return {}
        with boundary("table of vectors"):
            matrix = numpy.frombuffer(b"".join(vector for _, vector in rows), dtype="<f4").reshape(len(rows), -1)
            # vecdot and not @: beyond some size that wakes a thread for each core, and on a busy machine waits for them all
            cosines = numpy.vecdot(matrix, numpy.frombuffer(query, dtype="<f4")).astype("<f8")
            return dict(zip((key for key, _ in rows), numpy.round(cosines, _ROUNDED).tolist(), strict=True))

    def _columns_of(self, numpy: Any, sql: sqlite3.Connection, model: str, dimension: int) -> _Columns:
        """The columns of a model's vectors with all changes that the transaction sees."""
        row = sql.execute("SELECT id FROM vectors_source").fetchone()
        if row is None:
            raise sqlite3.DatabaseError("no such row: the id in vectors_source")  # damage, and told as such
        # a file that was put back from a copy counts its changes from an older state
        path = sql.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
        source = (row[0], os.stat(path).st_ino if path else 0, model, dimension)
        if self._columns is None or self._columns.source != source:
            self._columns = _Columns(numpy, source, dimension)
        columns = self._columns
        rows = sql.execute(
            "SELECT c.seq, c.key, v.grp, v.vector FROM vectors_changes c LEFT JOIN vectors v"
            " ON v.key = c.key AND v.model = ? AND length(v.vector) = ? WHERE c.seq > ? ORDER BY c.seq",
            (model, 4 * dimension, columns.seen),
        )
        with boundary("table of vectors"):
            first = not columns.seen  # then none of them is there yet: a key has one change
            if first:
                columns.make_room(*sql.execute("SELECT count(*) FROM vectors_changes").fetchone())
            while some := rows.fetchmany(_AT_ONCE):
                columns.take(some, first)
        return columns


class _Columns:
    """The vectors of one model in memory, row by row; one that is gone or was replaced has the key -1."""

    def __init__(self, numpy: Any, source: object, dimension: int) -> None:
        self.source, self.seen = source, 0
        self._numpy, self._count, self._dead = numpy, 0, 0
        self._keys, self._groups = numpy.empty(0, "i8"), numpy.empty(0, "i8")
        self._signs = numpy.empty((-(-dimension // 64), 0), "u8")  # word by word, so that each is one run of memory
        self._rows, self._scales = numpy.empty((0, dimension), "i1"), numpy.empty(0, "f4")

    def take(self, changes: Sequence[tuple[int, int, int | None, bytes | None]], first: bool) -> None:
        """Take in changes: (number, key, group, vector or None). `first`: of keys that are not there yet."""
        numpy, known = self._numpy, self._keys[: self._count]
        if not first:
            old = numpy.flatnonzero(_among(numpy, known, [key for _, key, _, _ in changes]))
            known[old] = -1
            self._dead += len(old)
        added = [(key, group, vector) for _, key, group, vector in changes if vector is not None]
        if self._count + len(added) > len(self._keys):
            self.make_room(len(added) + self._count // 2)
        if added:
            matrix = numpy.frombuffer(b"".join(vector for *_, vector in added), "<f4").reshape(len(added), -1)
            here = slice(self._count, self._count + len(added))
            scales = numpy.maximum(numpy.abs(matrix).max(axis=1), 1e-9) / 127
            self._keys[here], self._groups[here] = [key for key, *_ in added], [group for _, group, _ in added]
            self._signs[:, here] = self._signs_of(matrix)
            self._rows[here], self._scales[here] = numpy.rint(matrix / scales[:, None]), scales
            self._count += len(added)
        self.seen = changes[-1][0]

    def _signs_of(self, matrix: Any) -> Any:
        packed = self._numpy.packbits(matrix > 0, axis=1)
        width = 8 * len(self._signs)
        return self._numpy.pad(packed, ((0, 0), (0, width - packed.shape[1]))).view("u8").T

    def make_room(self, room: int) -> None:
        """Have room for so many rows more, without the dead ones where these are most."""
        numpy = self._numpy
        kept = slice(0, self._count)
        if 2 * self._dead > self._count:
            kept = numpy.flatnonzero(self._keys[: self._count] >= 0)
            self._count, self._dead = len(kept), 0
        for name in ("_keys", "_groups", "_rows", "_scales"):
            column = getattr(self, name)[kept]
            setattr(self, name, numpy.concatenate([column, numpy.empty((room, *column.shape[1:]), column.dtype)]))
        signs = self._signs[:, kept]
        self._signs = numpy.concatenate([signs, numpy.empty((len(signs), room), "u8")], axis=1)

    def nearest(self, query: bytes, limit: int, groups: Collection[int] | None) -> list[int]:
        """The keys of the rows nearest to a packed vector, as far as bytes can tell, in no order."""
        numpy = self._numpy
        keys, own = self._keys[: self._count], self._groups[: self._count]
        wanted = keys >= 0
        if groups is not None and len(groups) == 1:  # the usual search: comparing is six times as fast as looking up
            wanted &= own == next(iter(groups))
        elif groups is not None:
            wanted &= _among(numpy, own, groups)
        places = numpy.flatnonzero(wanted)
        asked = numpy.frombuffer(query, dtype="<f4")
        if len(places) > _COMPARED:
            most = max(_COMPARED // 3, 4 * limit, len(places) // _SHARE)
            apart = numpy.zeros(self._count, dtype="<u2")
            for own_word, word in zip(self._signs, self._signs_of(asked[None, :])[:, 0], strict=True):
                apart += numpy.bitwise_count(own_word[: self._count] ^ word)
            places = places[numpy.argsort(apart[places], kind="stable")[:most]]
        if len(places) > limit:
            near = numpy.vecdot(self._rows[places].astype("f4"), asked) * self._scales[places]
            places = places[numpy.argpartition(-near, limit)[:limit]]
        found: list[int] = keys[places].tolist()
        return found


def _among(numpy: Any, values: Any, wanted: Collection[int]) -> Any:
    """Which of the values are among those wanted, one at least. (`numpy.isin` may load numpy.ma, megabytes in each process.)"""
    ordered = numpy.sort([*wanted])
    return ordered.take(numpy.searchsorted(ordered, values), mode="clip") == values


def warm() -> None:
    """Load numpy, where it is installed, and what the embedding process is asked through: for the parent of processes that
    will all compare vectors, so that they share it.

    Without threads: OpenBLAS would start one for each core but one, which nothing here uses, and a parent that forks must
    have none.
    """
    said = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        numpy_or_none()
        import_module("multiprocessing.connection")
    finally:
        if said is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = said
