"""How far documents are known by their meaning: what a status asks of documents.db, without what reads and searches them."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from hivemind.embedding import Embedder
from hivemind.errors import UserError
from hivemind.fs.database import Database, Schema

VERSION = 6
"""Of documents.db."""
MEANT = (
    "FROM nodes n LEFT JOIN places p ON p.node_id = n.id LEFT JOIN vectors v ON v.key = n.seq"
    " WHERE n.text <> '' AND (p.node_id IS NULL OR p.leads)"
)
"""What is to have a vector: passages, and nodes from no file."""
_PER_SECOND = 10.0  # passages of some 200 tokens, by one core that is free: a guess, until it is measured


class _Looked(Schema):
    """Of a database that is only looked at."""

    def prepare(self, connection: sqlite3.Connection, path: str) -> None:  # noqa: ARG002
        raise self.error("has no tables yet", where=path)


def progress_of(path: str | os.PathLike[str], embedder: Embedder) -> tuple[int, int]:
    """The same of the database in a file, which there must be. Raises UserError for one that cannot be read."""
    looked = _Looked(name="document database", room="documents", version=VERSION, error=UserError, statements=())
    with closing(Database(path, looked)) as database, database.read() as sql:
        return known_by_meaning(sql, embedder)


def known_by_meaning(sql: sqlite3.Connection, embedder: Embedder | None) -> tuple[int, int]:
    """How many passages (and nodes from no file) are known by their meaning to an embedder (None: none), and of how many."""
    model = ("", 0) if embedder is None else (embedder.name, 4 * embedder.dimension)
    counted = f"SELECT count(CASE WHEN v.model = ? AND length(v.vector) = ? THEN 1 END), count(*) {MEANT}"
    known, total = sql.execute(counted, model).fetchone()
    return int(known), int(total)


def how_far(known: int, total: int, per_second: float = _PER_SECOND) -> str:
    """How many passages are known by their meaning, in words, and how long the others may take."""
    if known >= total:
        return f"all {total:,} passages by meaning"
    minutes = max(1, round((total - known) / per_second / 60))
    return f"{known:,} of {total:,} passages by meaning, about {minutes:,} min left"
