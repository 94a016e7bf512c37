"""Vectors of nodes, where there is an embedder: stored beside the tree, compared exactly (seed 003, *Vector Database*)."""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import mul

from hivemind.embedding.packed import numpy_or_none

__all__ = ["nearest", "store", "without_vector"]

_AT_ONCE = 1_000


def without_vector(sql: sqlite3.Connection, model: str, limit: int) -> list[tuple[str, str, str]]:
    """(id, text, hash) of nodes with text that have no vector of this model yet, oldest first."""
    return sql.execute(
        "SELECT n.id, n.text, n.hash FROM nodes n LEFT JOIN vectors v ON v.node_id = n.id"
        " WHERE n.text <> '' AND (v.model IS NULL OR v.model <> ?) ORDER BY n.seq LIMIT ?",
        (model, limit),
    ).fetchall()


def store(sql: sqlite3.Connection, model: str, rows: Iterable[tuple[str, str, Sequence[float]]]) -> None:
    """Keep vectors of (id, hash of the node when its text was read, vector); one that has changed since is left out."""
    sql.executemany(
        "INSERT OR REPLACE INTO vectors SELECT id, ?, ? FROM nodes WHERE id = ? AND hash = ?",
        [(model, _packed(vector), node_id, node_hash) for node_id, node_hash, vector in rows],
    )


def _packed(vector: Sequence[float]) -> bytes:
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return array("f", (value / length for value in vector)).tobytes()


def nearest(sql: sqlite3.Connection, model: str, vector: Sequence[float], limit: int) -> list[tuple[str, float]]:
    """(id, cosine) of the nodes nearest to the vector, best first: every vector of the model is compared."""
    query = _packed(vector)
    cursor = sql.execute("SELECT node_id, vector FROM vectors WHERE model = ?", (model,))
    best: list[tuple[float, str]] = []
    while rows := cursor.fetchmany(_AT_ONCE):
        scores = _cosines([row[1] for row in rows], query)
        best = nlargest(limit, [*best, *zip(scores, (row[0] for row in rows), strict=True)])
    return [(node_id, score) for score, node_id in best]


def _cosines(vectors: Sequence[bytes], query: bytes) -> list[float]:
    numpy = numpy_or_none()
    if numpy is None:
        wanted = array("f", query)
        return [sum(map(mul, array("f", vector), wanted)) for vector in vectors]
    matrix = numpy.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
    found: list[float] = (matrix @ numpy.frombuffer(query, dtype="<f4")).tolist()
    return found
