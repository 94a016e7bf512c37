"""What waits for its vector: embedding it, so that one text that is refused holds up no other (spec 9, *Indexing*)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hivemind.embedding import Embedder, embed_each
from hivemind.fs import reached
from hivemind.fs.database import Database

__all__ = ["Waiting", "embed_waiting"]

_AT_ONCE = 64  # texts of one request, and of one transaction
_HURRIED = 8  # where somebody waits: the embedder is stopped when the time is up
_REFUSED_AT_ONCE = 16  # texts, each of which is asked for alone


class Waiting(NamedTuple):
    """An item without a vector: its id, the text that is embedded, and by what it is known to say that still."""

    id: int
    text: str
    check: object


Keep = Callable[[sqlite3.Connection, Sequence[tuple[Waiting, bytes]]], None]


def embed_waiting(
    database: Database,
    embedder: Embedder,
    waiting: Callable[[sqlite3.Connection, int, int], Sequence[Waiting]],
    keep: Keep,
    *,
    limit: int,
    refused: set[object],
    seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Embed at most `limit` of what waits, as `waiting(sql, after id, limit)` gives it; returns how many.

    Progress is in the database: a killed process loses one batch, and any other goes on. A text that the embedder refuses
    is noted in `refused` by its check, and not asked for again by this process. With `seconds` it ends when they are over.
    Raises EmbedderUnavailable where it takes no text. Call it outside of any transaction.
    """
    done, after, before = 0, -1, len(refused)
    end = None if seconds is None else time.monotonic() + seconds
    while done < limit and len(refused) - before < _REFUSED_AT_ONCE and (end is None or time.monotonic() < end):
        size = min(_AT_ONCE if end is None else _HURRIED, limit - done)
        with database.read() as sql:
            rows = waiting(sql, after, size)
        if not rows:
            break
        after = rows[-1].id
        batch = [one for one in rows if one.check not in refused]
        vectors = embed_each(embedder, [one.text for one in batch])
        refused |= {one.check for one, vector in zip(batch, vectors, strict=True) if vector is None}
        kept = [(one, vector) for one, vector in zip(batch, vectors, strict=True) if vector is not None]
        if kept:
            with database.write() as sql:
                keep(sql, kept)
            reached("search.embed.batch")
        done += len(kept)
        if progress is not None:
            progress(done)
    return done
