"""How a store is: how much it holds, by which model it is searched, what waits."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass
from typing import Any

from hivemind.longterm.embeddings import HOW_TO_EMBED, UNNAMED, Embeddings
from hivemind.longterm.expiry import expired_by_space
from hivemind.longterm.pending import count_waiting
from hivemind.longterm.rows import ALIVE

__all__ = ["StoreStatus", "status_of", "status_of_nothing"]


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """`model` embeds now (None: nothing does, and words alone are searched); `pending` entries have no vector of it, of
    which `other` have one of another model, that `reindex` replaces. `note` says what a person should know, or None."""

    entries: int
    namespaces: int
    model: str | None
    dimension: int
    pending: int
    other: int
    note: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def status_of(sql: sqlite3.Connection, embeddings: Embeddings, now: int) -> StoreStatus:
    """The state that a transaction sees, without what has expired. Looks at every entry."""
    expired = expired_by_space(sql, now)
    counts = sql.execute("SELECT id, entries FROM namespaces WHERE entries > 0").fetchall()
    alive = [found for space, entries in counts if (found := entries - expired.get(space, 0)) > 0]
    entries, spaces = sum(alive), len(alive)
    pending = count_waiting(sql, embeddings, now)
    (other,) = sql.execute(
        "SELECT count(*) FROM vectors v JOIN entries e ON e.seq = v.key"
        f" WHERE (v.model <> ? OR length(v.vector) <> ?) AND {ALIVE}",
        (embeddings.model, 4 * embeddings.dimension, now),
    ).fetchone()
    return _status(embeddings, entries, spaces, pending, other)


def status_of_nothing(embeddings: Embeddings) -> StoreStatus:
    """The state of a store whose database is not there yet."""
    return _status(embeddings, 0, 0, 0, 0)


def _status(embeddings: Embeddings, entries: int, spaces: int, pending: int, other: int) -> StoreStatus:
    note = None
    if embeddings.embedder is None:
        note = f"full-text search only: {HOW_TO_EMBED}"
    elif other:
        were = "1 entry was" if other == 1 else f"{other} entries were"
        note = f"{were} embedded by another model: hivemind memory reindex"
    elif pending:
        note = (
            "1 entry waits for its embedding and is found by its words meanwhile"
            if pending == 1
            else f"{pending} entries wait for their embedding and are found by their words meanwhile"
        )
    model = None if embeddings.model == UNNAMED else embeddings.model
    return StoreStatus(entries, spaces, model, embeddings.dimension, pending, other, note)
