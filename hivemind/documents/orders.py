"""Where a node stands among its siblings: the seed's 20 % interpolation, and new numbers when precision runs out.

First child 1; append = last + 1; before the first = first − 1; after the last = last + 1; between a and b: (4a + b) / 5
(seed 003, *Insert*; spec 5). Orders of siblings are always distinct and the reading order is never broken: where no
number is left between two neighbours, all siblings are numbered 1, 2, 3 … in the same transaction.
"""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from typing import Literal

from hivemind.documents.node import Node
from hivemind.documents.tree import get

__all__ = ["LARGEST", "Where", "free_order", "park"]

LARGEST = 2.0**52
"""Beyond this, `order + 1` may equal `order`: siblings are numbered anew before they come near it."""


Where = Literal["child", "before", "after"]


def free_order(sql: sqlite3.Connection, where: Where, target: Node, now: str, mover: str | None = None) -> float:
    """An order for a new last child of the target, or a new sibling just before or after it.

    `mover` is the node that is going there, if it has an order already.
    """
    for _ in range(2):
        parent_id, here, side = target.parent_id, target.order_value, ">" if where == "after" else "<"
        if where == "child":
            parent_id, here = target.id, float("inf")
        assert parent_id is not None
        other = _beside(sql, parent_id, side, here, mover)
        if other is None or where == "child":
            order = here + 1.0 if side == ">" else here - 1.0
            if where == "child":
                order = 1.0 if other is None else other + 1.0
            fits = abs(order) <= LARGEST
        else:
            low, high = min(other, here), max(other, here)
            order = (low * 4 + high) / 5
            fits = low < order < high
        if fits:
            return order
        renumber(sql, parent_id, now)
        target = get(sql, target.id)
    raise AssertionError("whole numbers have room between them")


def _beside(sql: sqlite3.Connection, parent_id: str, side: str, order: float, mover: str | None) -> float | None:
    """The nearest sibling's order on that side of `order`."""
    direction = "DESC" if side == "<" else "ASC"
    row = sql.execute(
        f"SELECT order_value FROM nodes WHERE parent_id = ? AND order_value {side} ? AND id IS NOT ?"
        f" ORDER BY order_value {direction} LIMIT 1",
        (parent_id, order, mover),
    ).fetchone()
    return None if row is None else float(row[0])


_RANKS = "SELECT id, row_number() OVER (ORDER BY order_value) AS rank FROM nodes WHERE parent_id = ?"


def park(sql: sqlite3.Connection, parent_id: str) -> None:
    """Put all children below every order in use, in their order, so that new numbers are free for them."""
    row = sql.execute("SELECT count(*), min(order_value) FROM nodes WHERE parent_id = ?", (parent_id,)).fetchone()
    if row[0]:
        base = float(int(min(row[1], 0.0)) - 1) - row[0] - 1
        sql.execute(
            f"UPDATE nodes SET order_value = ? + r.rank FROM ({_RANKS}) r WHERE nodes.id = r.id", (base, parent_id)
        )


def renumber(sql: sqlite3.Connection, parent_id: str, now: str) -> None:
    """Number all children 1, 2, 3 … as they stand. Their hashes follow."""
    park(sql, parent_id)  # no two siblings may share an order at any time
    sql.execute(
        "UPDATE nodes SET order_value = r.rank, updated_at = ?,"
        " hash = node_hash(parent_id, context_type, context_name, context_value, text, r.rank)"
        f" FROM ({_RANKS}) r WHERE nodes.id = r.id",
        (now, parent_id),
    )
