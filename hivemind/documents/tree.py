"""Reading the tree: one node, its children, a subtree in reading order. Nothing here recurses, nothing writes."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator

from hivemind.documents.errors import NodeNotFoundError
from hivemind.documents.node import COLUMNS, Node

__all__ = [
    "ancestors", "children", "descendant_ids", "find", "first_child", "get", "get_many", "has_children",
    "interior_ids", "roots",
    "siblings_around", "size", "subtree",
]  # fmt: skip

_ALL = ", ".join(COLUMNS)
_N_ALL = ", ".join(f"n.{column}" for column in COLUMNS)

# All below a node, in no order that SQLite would promise.
_BELOW = """
WITH RECURSIVE below(id) AS (
    SELECT id FROM nodes WHERE id = ?
    UNION ALL
    SELECT n.id FROM below JOIN nodes n ON n.parent_id = below.id
)
"""


def find(sql: sqlite3.Connection, node_id: str) -> Node | None:
    """The node with this id, or None."""
    if not isinstance(node_id, str):
        return None
    try:
        row = sql.execute(f"SELECT {_ALL} FROM nodes WHERE id = ?", (node_id,)).fetchone()
    except UnicodeEncodeError:  # half a character: SQLite can't even look for it, and no id has one
        return None
    return None if row is None else Node(*row)


def get(sql: sqlite3.Connection, node_id: str) -> Node:
    """The node with this id. Raises NodeNotFoundError."""
    node = find(sql, node_id)
    if node is None:
        raise NodeNotFoundError(node_id)
    return node


def get_many(sql: sqlite3.Connection, node_ids: Iterable[str]) -> list[Node]:
    """Those of the nodes that exist, in the order of the ids."""
    rows = sql.execute(
        f"SELECT {_N_ALL} FROM json_each(?) j CROSS JOIN nodes n ON n.id = j.value ORDER BY j.key",
        (json.dumps(list(node_ids)),),
    )
    return [Node(*row) for row in rows]


def roots(sql: sqlite3.Connection) -> list[Node]:
    """Every root, oldest first."""
    rows = sql.execute(f"SELECT {_ALL} FROM nodes WHERE parent_id IS NULL ORDER BY created_at, seq")
    return [Node(*row) for row in rows]


def children(sql: sqlite3.Connection, node_id: str) -> list[Node]:
    """The children in reading order."""
    rows = sql.execute(f"SELECT {_ALL} FROM nodes WHERE parent_id = ? ORDER BY order_value", (node_id,))
    return [Node(*row) for row in rows]


def first_child(sql: sqlite3.Connection, node_id: str) -> str | None:
    """The id of the first child; None for a leaf."""
    row = sql.execute("SELECT id FROM nodes WHERE parent_id = ? ORDER BY order_value LIMIT 1", (node_id,)).fetchone()
    return None if row is None else str(row[0])


def interior_ids(sql: sqlite3.Connection, node_id: str) -> set[str]:
    """The ids of those children that have children themselves."""
    rows = sql.execute(
        "SELECT id FROM nodes n WHERE parent_id = ? AND EXISTS (SELECT 1 FROM nodes c WHERE c.parent_id = n.id)",
        (node_id,),
    )
    return {row[0] for row in rows}


def has_children(sql: sqlite3.Connection, node_id: str) -> bool:
    """False for a leaf."""
    return sql.execute("SELECT 1 FROM nodes WHERE parent_id = ? LIMIT 1", (node_id,)).fetchone() is not None


def subtree(sql: sqlite3.Connection, node_id: str) -> list[Node]:
    """The node and all below it in reading order. Raises NodeNotFoundError."""
    get(sql, node_id)
    rows = sql.execute(f"{_BELOW} SELECT {_N_ALL} FROM below CROSS JOIN nodes n ON n.id = below.id", (node_id,))
    nodes = {row[0]: Node(*row) for row in rows}
    order = _reading_order(node_id, ((node.id, node.parent_id, node.order_value) for node in nodes.values()))
    return [nodes[found] for found in order]


def descendant_ids(sql: sqlite3.Connection, node_id: str) -> list[str]:
    """The ids of the node and all below it, in reading order; empty if there is no such node."""
    rows = sql.execute(
        f"{_BELOW} SELECT n.id, n.parent_id, n.order_value FROM below CROSS JOIN nodes n ON n.id = below.id",
        (node_id,),
    )
    return _reading_order(node_id, rows)


def size(sql: sqlite3.Connection, node_id: str) -> tuple[int, int]:
    """How many nodes there are at and below the node, and their tokens together."""
    row = sql.execute(
        f"{_BELOW} SELECT count(*), coalesce(sum(n.token_count), 0) FROM below CROSS JOIN nodes n ON n.id = below.id",
        (node_id,),
    ).fetchone()
    return int(row[0]), int(row[1])


def _reading_order(root_id: str, rows: Iterable[tuple[str, str | None, float]]) -> list[str]:
    """Ids of a subtree's nodes (id, parent, order), depth first, siblings by order."""
    below: dict[str | None, list[tuple[float, str]]] = {}
    for found_id, parent_id, order in rows:
        below.setdefault(parent_id if found_id != root_id else None, []).append((order, found_id))
    ordered: list[str] = []
    stack = [found_id for _, found_id in below.get(None, ())]
    while stack:
        ordered.append(found_id := stack.pop())
        if found_id in below:
            stack += [child for _, child in sorted(below[found_id], reverse=True)]
    return ordered


def ancestors(sql: sqlite3.Connection, node_id: str | None) -> Iterator[tuple[str, str | None]]:
    """(id, parent id) of the node itself, its parent, and so on up to the root: parent pointers only."""
    while node_id is not None:
        row = sql.execute("SELECT parent_id FROM nodes WHERE id = ?", (node_id,)).fetchone()
        if row is None:
            return
        yield node_id, row[0]
        node_id = row[0]


def siblings_around(sql: sqlite3.Connection, node: Node) -> tuple[Node | None, Node | None]:
    """The sibling before and the one after; (None, None) for a root."""
    found: list[Node | None] = []
    for sign, direction in (("<", "DESC"), (">", "ASC")):
        row = sql.execute(
            f"SELECT {_ALL} FROM nodes WHERE parent_id = ? AND order_value {sign} ?"
            f" ORDER BY order_value {direction} LIMIT 1",
            (node.parent_id, node.order_value),
        ).fetchone()
        found.append(None if row is None else Node(*row))
    return found[0], found[1]
