"""Whether the database is what it should be: for `hivemind doctor`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from hivemind.documents.node import node_hash
from hivemind.fs.soundness import faults, index_fault

__all__ = ["drop_lost_vectors", "problems"]

_LOST_VECTORS = "FROM vectors WHERE key NOT IN (SELECT seq FROM nodes)"


def problems(sql: sqlite3.Connection) -> Iterator[str]:
    """One sentence for each thing that is wrong; nothing for a sound database. Reads all of it."""
    yield from faults(sql)
    if (error := index_fault(sql)) is not None:
        yield f"the full-text index does not fit the texts ({error})"
    rows = sql.execute(
        "SELECT id, parent_id, context_type, context_name, context_value, text, order_value, hash FROM nodes"
    )
    for node_id, parent_id, kind, name, value, text, order, found in rows:
        if found != node_hash(parent_id, (kind, name, value), text, order):
            yield f"node {node_id}: its hash does not fit what it holds"
    (total,) = sql.execute("SELECT count(*) FROM nodes").fetchone()
    (reached,) = sql.execute(
        "WITH RECURSIVE walk(id) AS (SELECT id FROM nodes WHERE parent_id IS NULL UNION ALL"
        " SELECT n.id FROM walk JOIN nodes n ON n.parent_id = walk.id) SELECT count(*) FROM walk"
    ).fetchone()
    if reached != total:
        yield f"{total - reached} nodes hang on no root (a cycle)"
    (lost,) = sql.execute(f"SELECT count(*) {_LOST_VECTORS}").fetchone()
    if lost:
        yield f"{lost} vectors belong to no node"
    (sources,) = sql.execute("SELECT count(*) FROM vectors_source").fetchone()
    if sources != 1:
        yield f"the vectors have {sources} sources"


def drop_lost_vectors(sql: sqlite3.Connection) -> int:
    """Delete the vectors that belong to no node; returns how many they were."""
    return sql.execute(f"DELETE {_LOST_VECTORS}").rowcount
