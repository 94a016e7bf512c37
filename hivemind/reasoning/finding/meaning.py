"""Vectors for the nodes that wait for one. Progress is in the database itself: whoever comes next goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from hivemind.embedding import Embedder, EmbedderUnavailable, embed_packed
from hivemind.fs import reached
from hivemind.fs.database import Database
from hivemind.reasoning.finding.schema import NODES, TABLE
from hivemind.reasoning.finding.taking import adopt

__all__ = ["count_waiting", "embed_waiting", "follow"]

_AT_ONCE = 64
_FAILURES = 3  # in a row, one text at a time: then it is the embedder, not the texts
_CHARACTERS = 40_000  # of one node: what an embedder looks at, at most


class _Waiting(NamedTuple):
    key: int
    title: str
    text: str

    @property
    def said(self) -> str:
        return f"{self.title}\n{self.text}".strip()[:_CHARACTERS]


def model_of(embedder: Embedder) -> str:
    """What vectors can be compared with."""
    return f"{embedder.name} {embedder.dimension}"


def follow(database: Database, embedder: Embedder) -> None:
    """See to it that vectors are of this embedder's model; those of another are dropped."""
    model = model_of(embedder)
    with database.read() as sql:
        (kept,) = sql.execute("SELECT model FROM embedded").fetchone()
    if kept != model:
        with database.write() as sql:
            adopt(sql, model)


def count_waiting(sql: sqlite3.Connection, keys: tuple[int, int]) -> int:
    """How many nodes with keys in that range have no vector yet."""
    (found,) = sql.execute("SELECT count(*) FROM waiting WHERE key BETWEEN ? AND ?", keys).fetchone()
    return int(found)


def embed_waiting(database: Database, embedder: Embedder, limit: int, keys: tuple[int, int]) -> int:
    """Embed at most `limit` nodes with keys in that range, newest first; gives how many.

    A text that the embedder refuses is passed over and tried again last. Raises EmbedderUnavailable where it fails for
    several texts one by one; what was embedded before is kept. Call it outside of any transaction.
    """
    with database.read() as sql:
        rows = sql.execute(
            "SELECT w.key, n.title, n.text FROM waiting w JOIN nodes n ON n.key = w.key WHERE w.key BETWEEN ? AND ?"
            " ORDER BY w.failed, w.key DESC LIMIT ?",
            (*keys, limit),
        )
        waiting = [_Waiting(*row) for row in rows]
    done = failures = 0
    size = _AT_ONCE
    while waiting:
        some, waiting = waiting[:size], waiting[size:]
        try:
            vectors = embed_packed(embedder, [one.said for one in some])
        except EmbedderUnavailable:
            if len(some) > 1:
                waiting, size = some + waiting, 1  # which of them is it?
                continue
            with database.write() as sql:
                sql.execute("UPDATE waiting SET failed = failed + 1 WHERE key = ?", (some[0].key,))
            failures += 1
            if failures == _FAILURES:
                raise
            continue
        failures = 0
        with database.write() as sql:
            done += _keep(sql, embedder, some, vectors)
        reached("graph.index.embedded")
    return done


def _keep(sql: sqlite3.Connection, embedder: Embedder, some: Sequence[_Waiting], vectors: Sequence[bytes]) -> int:
    """Keep the vectors of nodes that still say what they said; gives how many."""
    (model,) = sql.execute("SELECT model FROM embedded").fetchone()
    if model != model_of(embedder):  # another process has brought another embedder meanwhile
        return 0
    kept = [
        (one.key, one.key // NODES, vector)
        for one, vector in zip(some, vectors, strict=True)
        if sql.execute(
            "DELETE FROM waiting WHERE key = ? AND EXISTS (SELECT 1 FROM nodes n WHERE n.key = ? AND n.title = ? AND n.text = ?)",
            (one.key, one.key, one.title, one.text),
        ).rowcount
    ]
    TABLE.put(sql, embedder.name, kept)
    return len(kept)
