"""The vectors of a store's database: what is near to a query, by an index beside the file, and how near some rows are.

Memories, documents and graphs search with it: what they differ in is what a key stands for.
"""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection
from operator import mul

from hivemind.boundary import Unreadable, boundary
from hivemind.embedding.index.engines import ROUNDED, Near
from hivemind.embedding.index.table import VectorTable
from hivemind.embedding.packed import numpy_or_none, unpack

__all__ = ["Vectors"]

_MARKS = 500  # parameters of one statement
_log = logging.getLogger(__name__)


class Vectors:
    """Those of the table `vectors`. The index lives in a folder beside the database, a cache that may be deleted; beside
    none, in memory."""

    def __init__(self, path: str) -> None:
        self._folder = None if path == ":memory:" else f"{path}.vectors"
        self._table = VectorTable("vectors")

    def nearest(
        self,
        sql: sqlite3.Connection,
        model: str,
        query: bytes,
        limit: int,
        groups: Collection[int] | None = None,
    ) -> list[Near]:
        """(key, cosine) of the vectors nearest to a packed one, in some groups or all, best first.

        One may have been deleted since, or not be visible to the transaction yet: who reads the rows leaves it out.
        """
        try:
            return self._table.search(sql, self._folder, model, query, limit, groups=groups)
        except (OSError, Unreadable) as error:  # a full disk, or what cannot be read: the files are only a cache
            if self._folder is None:
                raise
            _log.warning("no index can be kept in %s (%s): it is in memory now", self._folder, error)
            self._folder, self._table = None, VectorTable("vectors")
            return self._table.search(sql, None, model, query, limit, groups=groups)

    def cosines(self, sql: sqlite3.Connection, model: str, query: bytes, keys: Collection[int]) -> dict[int, float]:
        """The cosine of each of these keys that has a vector of the model, in the state that the transaction sees, rounded
        as `nearest` does."""
        wanted, rows = list(keys), []
        for at in range(0, len(wanted), _MARKS):
            some = wanted[at : at + _MARKS]
            rows += sql.execute(
                "SELECT key, vector FROM vectors WHERE model = ? AND length(vector) = ? AND key IN"
                f" ({','.join('?' * len(some))})",
                (model, len(query), *some),
            ).fetchall()
        numpy = numpy_or_none()
        with boundary("table of vectors"):
            if numpy is None or not rows:
                asked = unpack(query)
                return {key: round(sum(map(mul, unpack(vector), asked)), ROUNDED) for key, vector in rows}
            matrix = numpy.frombuffer(b"".join(vector for _, vector in rows), dtype="<f4").reshape(len(rows), -1)
            found = numpy.vecdot(matrix, numpy.frombuffer(query, dtype="<f4")).astype("<f8")
            return dict(zip((key for key, _ in rows), numpy.round(found, ROUNDED).tolist(), strict=True))
