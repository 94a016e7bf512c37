"""Writing the trees of a TOML file into the database (spec 5, *Import*)."""

from __future__ import annotations

from collections.abc import Sequence

from hivemind.documents.edit import Edit
from hivemind.documents.errors import DocmemError
from hivemind.documents.node import Node
from hivemind.documents.toml import Entry
from hivemind.fs import reached

__all__ = ["write_entries"]


def write_entries(edit: Edit, entries: Sequence[Entry], where: object) -> list[Node]:
    """New nodes for all entries, in order. Raises DocmemError, naming the line, for two siblings of one order."""
    above: list[tuple[str, float]] = []  # (id, largest order among its children so far) at each depth
    made: list[Node] = []
    orders: set[tuple[str, float]] = set()
    for entry in entries:
        del above[entry.depth :]
        parent_id, order = None, 0.0
        if above:
            parent_id, last = above[-1]
            order = last + 1.0 if entry.order is None else entry.order
            if (parent_id, order) in orders:
                raise DocmemError(f"order {order!r} is taken by a sibling", where=f"{where}:{entry.line}")
            orders.add((parent_id, order))
            above[-1] = (parent_id, max(last, order))
        node = edit.add(parent_id, order, entry.draft)
        if entry.summary:
            edit.sql.execute("INSERT INTO summaries VALUES (?, 0)", (node.id,))
        above.append((node.id, 0.0))
        made.append(node)
        reached("documents.toml.one")
    edit.sql.executemany(
        "UPDATE summaries SET stale = 0 WHERE node_id = ?",
        [(node.id,) for node, entry in zip(made, entries, strict=True) if entry.summary],
    )
    return made
