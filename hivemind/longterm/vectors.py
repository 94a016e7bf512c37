"""The vectors of a database: what is near to a query, by an index beside the file, and how near some entries are."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection
from operator import mul

from hivemind.embedding import VectorTable, unpack
from hivemind.embedding.packed import numpy_or_none

__all__ = ["Vectors"]

_MARKS = 500  # parameters of one statement
_log = logging.getLogger(__name__)


class Vectors:
    """The index lives in a folder beside the database, a cache that may be deleted; beside none, in memory."""

    def __init__(self, path: str) -> None:
        self._folder = None if path == ":memory:" else f"{path}.vectors"
        self._table = VectorTable("vectors")

    def nearest(
        self, sql: sqlite3.Connection, model: str, query: bytes, limit: int, spaces: Collection[int]
    ) -> list[tuple[int, float]]:
        """(seq, cosine) of the vectors nearest to a packed one in some namespaces, best first.

        One may have been deleted since, or not be visible to the transaction yet: who reads the entries leaves it out.
        """
        try:
            return self._table.search(sql, self._folder, model, query, limit, groups=spaces)
        except OSError as error:  # a full disk: the files are only a cache
            if self._folder is None:
                raise
            _log.warning("longterm: no index can be kept in %s (%s): it is in memory now", self._folder, error)
            self._folder, self._table = None, VectorTable("vectors")
            return self._table.search(sql, None, model, query, limit, groups=spaces)

    def cosines(self, sql: sqlite3.Connection, model: str, query: bytes, seqs: Collection[int]) -> dict[int, float]:
        """The cosine of each of these entries that has a vector of the model."""
        wanted, rows = list(seqs), []
        for at in range(0, len(wanted), _MARKS):
            some = wanted[at : at + _MARKS]
            rows += sql.execute(
                "SELECT key, vector FROM vectors WHERE model = ? AND length(vector) = ? AND key IN"
                f" ({','.join('?' * len(some))})",
                (model, len(query), *some),
            ).fetchall()
        numpy = numpy_or_none()
        if numpy is None or not rows:
            asked = unpack(query)
            return {seq: sum(map(mul, unpack(vector), asked)) for seq, vector in rows}
        matrix = numpy.frombuffer(b"".join(vector for _, vector in rows), dtype="<f4").reshape(len(rows), -1)
        found = (matrix @ numpy.frombuffer(query, dtype="<f4")).tolist()
        return dict(zip((seq for seq, _ in rows), found, strict=True))
