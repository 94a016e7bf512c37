"""Entries that wait for their embedding: which there are, and giving it to them. Progress is in the database itself, so
whoever goes on after a crash goes on where it stopped."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from hivemind.embedding import put_vectors
from hivemind.fs import reached
from hivemind.fs.database import Database
from hivemind.longterm.embeddings import Embeddings
from hivemind.longterm.rows import ALIVE
from hivemind.longterm.schema import PLACES
from hivemind.longterm.writing import Meaning
from hivemind.search.sentences import keep_sentences

__all__ = ["count_waiting", "embed_waiting", "some_failed"]

_AT_ONCE = 64
_REFUSED_AT_ONCE = 16  # texts, each of which is asked for alone
_WAITS = (
    " FROM entries e LEFT JOIN vectors v ON v.key = e.seq"
    f" WHERE e.wants AND (v.key IS NULL OR v.model <> ? OR length(v.vector) <> ?) AND {ALIVE}"
)


class _Waiting(NamedTuple):
    """An entry as it was when its content was read."""

    seq: int
    content: str
    digest: bytes


def count_waiting(sql: sqlite3.Connection, embeddings: Embeddings, now: int) -> int:
    """How many entries have no vector of the model that is in use."""
    (found,) = sql.execute("SELECT count(*)" + _WAITS, (embeddings.model, 4 * embeddings.dimension, now)).fetchone()
    return int(found)


def some_failed(sql: sqlite3.Connection) -> bool:
    """Whether there are entries whose embedding was tried and failed."""
    return sql.execute("SELECT 1 FROM entries WHERE problem IS NOT NULL LIMIT 1").fetchone() is not None


def embed_waiting(
    database: Database,
    embeddings: Embeddings,
    now: int,
    limit: int | None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Embed entries that wait, oldest first, at most `limit`; gives how many. `progress` is told after each batch.

    A text that the embedder refuses though it takes others is passed over, and not asked for again by this process; where it
    takes none, it ends. Without an embedder, and for what has expired (`now`, microseconds), nothing is done.
    """
    if embeddings.embedder is None:
        return 0
    done = refused = 0
    after = alone = -1  # up to the seq `alone`, texts are asked for one by one
    while limit is None or (done < limit and refused < _REFUSED_AT_ONCE):
        size = 1 if after < alone else _AT_ONCE
        with database.read() as sql:
            rows = _next(sql, embeddings, now, after, size if limit is None else min(size, limit - done))
        if not rows:
            break
        waiting = [one for one in rows if one.digest not in embeddings.refused]
        found = embeddings.embed(waiting)
        failed = any(meaning.problem for meaning in found.values())
        if failed and len(waiting) > 1:
            alone = rows[-1].seq  # which of them is it?
            continue
        with database.write() as sql:
            _keep(sql, waiting, found)
        reached("longterm.embed.batch")
        after = rows[-1].seq
        if failed:
            if not embeddings.works():
                break
            embeddings.refused.add(waiting[0].digest)
            refused += 1
        else:
            done += len(waiting)
            if progress is not None:
                progress(done)
    return done


def _next(sql: sqlite3.Connection, embeddings: Embeddings, now: int, after: int, limit: int) -> list[_Waiting]:
    rows = sql.execute(
        f"SELECT e.seq, e.content, e.digest{_WAITS} AND e.seq > ? ORDER BY e.seq LIMIT ?",
        (embeddings.model, 4 * embeddings.dimension, now, after, limit),
    )
    return [_Waiting(*row) for row in rows]


def _keep(sql: sqlite3.Connection, waiting: list[_Waiting], found: dict[bytes, Meaning]) -> None:
    """Keep what was found for those that still say what they said."""
    for one in waiting:
        meaning = found[one.digest]
        changed = sql.execute(
            "UPDATE entries SET problem = ? WHERE seq = ? AND digest = ?", (meaning.problem, one.seq, one.digest)
        )
        if changed.rowcount and meaning.vector is not None:
            sql.execute("DELETE FROM given WHERE seq = ?", (one.seq,))
            put_vectors(sql, meaning.model, [(one.seq, one.seq // PLACES, meaning.vector)])
            keep_sentences(sql, one.seq, meaning.model, meaning.sentences)
