"""Whether the index is what it should be: for `hivemind doctor`."""

# ruff: noqa: S608 - statements are put together from this program's own constants

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from hivemind.fs.database import faults, index_fault
from hivemind.reasoning.finding.schema import NODES

__all__ = ["problems"]

_LOOSE = (
    ("nodes belong to no graph", f"SELECT count(*) FROM nodes WHERE key / {NODES} NOT IN (SELECT id FROM graphs)"),
    ("vectors belong to no node", "SELECT count(*) FROM vectors WHERE key NOT IN (SELECT key FROM nodes)"),
    (
        "nodes have no vector and wait for none",
        "SELECT count(*) FROM nodes WHERE key NOT IN (SELECT key FROM vectors) AND key NOT IN (SELECT key FROM waiting)",
    ),
)
_COUNTS = (
    "SELECT g.task, g.nodes, count(n.key) AS found FROM graphs g"
    f" LEFT JOIN nodes n ON n.key BETWEEN g.id * {NODES} AND (g.id + 1) * {NODES} - 1"
    " GROUP BY g.id HAVING found <> g.nodes"
)


def problems(sql: sqlite3.Connection) -> Iterator[str]:
    """One sentence for each thing that is wrong; nothing for a sound index. Reads all of it."""
    yield from faults(sql)
    if (error := index_fault(sql)) is not None:
        yield f"the full-text index does not fit the nodes ({error})"
    for what, statement in _LOOSE:
        (count,) = sql.execute(statement).fetchone()
        if count:
            yield f"{count} {what}"
    for task, said, found in sql.execute(_COUNTS):
        yield f"the graph of {task} has {found} nodes and says {said}"
