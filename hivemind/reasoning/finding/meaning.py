"""Vectors for the nodes that wait for one. Progress is in the database itself: whoever comes next goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from hivemind.embedding import Embedder, put_vectors
from hivemind.fs import reached
from hivemind.fs.database import Database
from hivemind.reasoning.finding.schema import NODES
from hivemind.reasoning.finding.taking import adopt
from hivemind.search import Waiting, embed_waiting

__all__ = ["count_waiting", "embed", "follow"]

_CHARACTERS = 40_000  # of one node: what an embedder looks at, at most


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


def embed(database: Database, embedder: Embedder, limit: int, keys: tuple[int, int], refused: set[object]) -> int:
    """Embed at most `limit` nodes with keys in that range, newest first; gives how many. See `search.embed_waiting`."""

    def waiting(sql: sqlite3.Connection, after: int, most: int) -> list[Waiting]:
        rows = sql.execute(
            "SELECT w.key, n.title, n.text FROM waiting w JOIN nodes n ON n.key = w.key"
            " WHERE w.key BETWEEN ? AND ? AND (? < 0 OR w.key < ?) ORDER BY w.key DESC LIMIT ?",
            (*keys, after, after, most),
        )
        return [Waiting(key, f"{title}\n{text}".strip()[:_CHARACTERS], (key, title, text)) for key, title, text in rows]

    def keep(sql: sqlite3.Connection, found: Sequence[tuple[Waiting, bytes]]) -> None:
        (model,) = sql.execute("SELECT model FROM embedded").fetchone()
        if model != model_of(embedder):  # another process has brought another embedder meanwhile
            return
        said = "EXISTS (SELECT 1 FROM nodes n WHERE n.key = ? AND n.title = ? AND n.text = ?)"
        kept = [
            (one.id, one.id // NODES, vector)
            for one, vector in found
            if sql.execute(f"DELETE FROM waiting WHERE key = ? AND {said}", (one.id, *one.check)).rowcount  # type: ignore[misc]  # noqa: S608
        ]
        put_vectors(sql, embedder.name, kept)

    done = embed_waiting(database, embedder, waiting, keep, limit=limit, refused=refused)
    if done:
        reached("graph.index.embedded")
    return done
