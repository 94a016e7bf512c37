"""How a store is: how much it holds, by which model it is searched, what waits."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass
from typing import Any

from hivemind.longterm.embeddings import UNNAMED, Embeddings
from hivemind.longterm.pending import count_waiting

__all__ = ["StoreStatus", "status_of"]


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


def status_of(sql: sqlite3.Connection, embeddings: Embeddings) -> StoreStatus:
    """The state that a transaction sees. Looks at every entry."""
    entries, spaces = sql.execute(
        "SELECT coalesce(sum(entries), 0), count(*) FROM namespaces WHERE entries > 0"
    ).fetchone()
    pending = count_waiting(sql, embeddings)
    (other,) = sql.execute(
        "SELECT count(*) FROM vectors WHERE model <> ? OR length(vector) <> ?",
        (embeddings.model, 4 * embeddings.dimension),
    ).fetchone()
    note = None
    if embeddings.embedder is None:
        note = "full-text search only: pip install 'hivemind[embed]'"
    elif other:
        note = f"{other} entries were embedded by another model: hivemind memory reindex"
    elif pending:
        note = f"{pending} entries wait for their embedding and are found by their words meanwhile"
    model = None if embeddings.model == UNNAMED else embeddings.model
    return StoreStatus(entries, spaces, model, embeddings.dimension, pending, other, note)
