"""Meanings of nodes: their vectors in the database, searched with the index that memories use too (seed 003, spec 6)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from hivemind.embedding import Embedder, Vectors, VectorTable

__all__ = ["TABLE", "Meaning", "store", "without_vector"]

TABLE = VectorTable("vectors")
"""A row for each node that was embedded; its key is the node's `seq`."""

_ALL = 0  # the group of every vector: a node may move to another document and keeps its vector


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a query means: its packed vector, the model that made it, and the vectors it is compared with."""

    vectors: Vectors
    model: str
    query: bytes

    def nearest(self, sql: sqlite3.Connection, limit: int) -> list[tuple[str, float]]:
        """(id, cosine) of the nodes nearest to it, best first, equal ones by age.

        The index knows what was committed since this transaction began, and a number may be another node's by then: which
        nodes there are, and how near they are, is read in the transaction's own state.
        """
        keys = [key for key, _ in self.vectors.nearest(sql, self.model, self.query, limit)]
        cosines = self.vectors.cosines(sql, self.model, self.query, keys)
        ids = sql.execute(
            "SELECT seq, id FROM nodes WHERE seq IN (SELECT value FROM json_each(?))", (json.dumps(keys),)
        )
        found = sorted((-round(cosines[seq], 6), seq, node_id) for seq, node_id in ids if seq in cosines)
        return [(node_id, -cosine) for cosine, _, node_id in found]


def without_vector(
    sql: sqlite3.Connection, embedder: Embedder, limit: int, after: int = -1
) -> list[tuple[int, str, str]]:
    """(seq, text, hash) of nodes with text that have no vector of this model yet, oldest first, beyond the seq `after`."""
    return sql.execute(
        "SELECT n.seq, n.text, n.hash FROM nodes n LEFT JOIN vectors v ON v.key = n.seq"
        " WHERE n.text <> '' AND (v.model IS NULL OR v.model <> ? OR length(v.vector) <> ?) AND n.seq > ? ORDER BY n.seq LIMIT ?",
        (embedder.name, 4 * embedder.dimension, after, limit),
    ).fetchall()


def store(sql: sqlite3.Connection, model: str, rows: Iterable[tuple[int, str, bytes]]) -> None:
    """Keep packed vectors of (seq, hash of the node when its text was read, vector); one that has changed is left out."""
    kept = [
        (seq, _ALL, vector)
        for seq, node_hash, vector in rows
        if sql.execute("SELECT 1 FROM nodes WHERE seq = ? AND hash = ?", (seq, node_hash)).fetchone()
    ]
    TABLE.put(sql, model, kept)
