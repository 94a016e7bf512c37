"""Read nodes, subtrees in reading order, the places of nodes in files, and subtrees as text. No function here writes."""

# ruff: noqa: S608 - statements are built from constants of this module; values are always bound
from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Literal

from hivemind.documents.node import COLUMNS, DamagedError, Node, NodeNotFoundError, is_utf8
from hivemind.frozen import frozen

_ALL = ", ".join(COLUMNS)
_N_ALL = ", ".join(f"n.{column}" for column in COLUMNS)

_BELOW = """
WITH RECURSIVE below(id, depth, place) AS (
    SELECT id, 0, 0.0 FROM nodes WHERE id = ?
    UNION ALL
    SELECT n.id, below.depth + 1, n.order_value FROM below JOIN nodes n ON n.parent_id = below.id
    ORDER BY 2 DESC, 3 LIMIT -1 -- depth first; without a limit SQLite drops the order
)
SELECT {} FROM below CROSS JOIN nodes n ON n.id = below.id
"""


def find(sql: sqlite3.Connection, node_id: str) -> Node | None:
    if not isinstance(node_id, str) or not is_utf8(node_id):  # SQLite cannot encode a lone surrogate
        return None
    row = sql.execute(f"SELECT {_ALL} FROM nodes WHERE id = ?", (node_id,)).fetchone()
    return None if row is None else Node(*row)


def get(sql: sqlite3.Connection, node_id: str) -> Node:
    """Return the node. Raises NodeNotFoundError for an unknown id."""
    node = find(sql, node_id)
    if node is None:
        raise NodeNotFoundError(node_id)
    return node


def get_many(sql: sqlite3.Connection, node_ids: Iterable[str]) -> list[Node]:
    """Return the nodes with these ids in the order of the ids; unknown ids are skipped."""
    rows = sql.execute(
        f"SELECT {_N_ALL} FROM json_each(?) j CROSS JOIN nodes n ON n.id = j.value ORDER BY j.key",
        (json.dumps(list(node_ids)),),
    )
    return [Node(*row) for row in rows]


def children(sql: sqlite3.Connection, node_id: str) -> list[Node]:
    """Return the node's children in reading order."""
    rows = sql.execute(f"SELECT {_ALL} FROM nodes WHERE parent_id = ? ORDER BY order_value", (node_id,))
    return [Node(*row) for row in rows]


def first_child(sql: sqlite3.Connection, node_id: str) -> str | None:
    """Return the id of the first child, or None for a leaf."""
    row = sql.execute("SELECT id FROM nodes WHERE parent_id = ? ORDER BY order_value LIMIT 1", (node_id,)).fetchone()
    return None if row is None else str(row[0])


def subtree(sql: sqlite3.Connection, node_id: str) -> list[Node]:
    """Return the node and its descendants in reading order. Raises NodeNotFoundError."""
    return [Node(*row) for row in _select_below(sql, node_id, _N_ALL)]


def subtree_ids(sql: sqlite3.Connection, node_id: str) -> list[str]:
    """Return the ids of the node and its descendants in reading order. Raises NodeNotFoundError."""
    return [row[0] for row in _select_below(sql, node_id, "n.id")]


def size(sql: sqlite3.Connection, node_id: str) -> tuple[int, int]:
    """Return the number of nodes in the subtree, the node included, and the sum of their tokens."""
    ((nodes, tokens),) = _select_below(sql, node_id, "count(*), coalesce(sum(n.token_count), 0)")
    return int(nodes), int(tokens)


def _select_below(sql: sqlite3.Connection, node_id: str, columns: str) -> sqlite3.Cursor:
    """Select `columns` (of the table alias `n`) of the node and its descendants in reading order.

    Raises NodeNotFoundError, and DamagedError for a cycle.
    """
    ancestry(sql, node_id)  # raises DamagedError for a cycle: in a cycle, the query would never end
    return sql.execute(_BELOW.format(columns), (node_id,))


def ancestry(sql: sqlite3.Connection, node_id: str) -> list[Node]:
    """Return the node, its parent and so on up to the root. Raises NodeNotFoundError, DamagedError for a cycle."""
    nodes = ancestries(sql, [get(sql, node_id).id])[node_id]
    if nodes[-1].parent_id is not None:
        raise DamagedError("is damaged: its parents form a cycle", location=node_id, remedy="see: hivemind doctor")
    return nodes


_ANCESTRIES = f"""
WITH RECURSIVE up(id) AS (SELECT value FROM json_each(?) UNION SELECT n.parent_id FROM up JOIN nodes n ON n.id = up.id)
SELECT {_N_ALL} FROM up JOIN nodes n ON n.id = up.id
"""


def ancestries(sql: sqlite3.Connection, node_ids: Iterable[str]) -> dict[str, list[Node]]:
    """Return, for each id, its node's path to the root as a list: the node, its parent, and so on. Unknown ids are skipped.

    If parents form a cycle (a damaged database), the list has each node once.
    """
    requested_ids = list(node_ids)
    nodes = {row[0]: Node(*row) for row in sql.execute(_ANCESTRIES, (json.dumps(requested_ids),))}
    ancestry_by_id: dict[str, list[Node]] = {}
    for node_id in requested_ids:
        ancestry: dict[str | None, Node] = {}
        current_id: str | None = node_id
        while current_id in nodes and current_id not in ancestry:
            ancestry[current_id] = nodes[current_id]
            current_id = nodes[current_id].parent_id
        if ancestry:
            ancestry_by_id[node_id] = list(ancestry.values())
    return ancestry_by_id


def siblings_around(sql: sqlite3.Connection, node: Node) -> tuple[Node | None, Node | None]:
    """Return the node's previous and next sibling; None in place of a missing one."""
    neighbours: list[Node | None] = []
    for sign, direction in (("<", "DESC"), (">", "ASC")):
        row = sql.execute(
            f"SELECT {_ALL} FROM nodes WHERE parent_id = ? AND order_value {sign} ?"
            f" ORDER BY order_value {direction} LIMIT 1",
            (node.parent_id, node.order_value),
        ).fetchone()
        neighbours.append(None if row is None else Node(*row))
    return neighbours[0], neighbours[1]


@frozen
class NodeSource:
    """The place in a file from which a node was imported: path, lines (in a PDF: pages), the file's SHA-256 `digest`.

    `path` is relative to the hive for knowledge and task files, otherwise absolute. `why` explains `document_class`.
    """

    path: str
    start_line: int
    end_line: int
    digest: str
    kind: str
    document_class: str
    why: str

    @property
    def citation(self) -> str:
        """Return `path:line-line`."""
        return f"{self.path}:{self.start_line}-{self.end_line}"


_REFERENCE = re.compile(r"(?P<path>.+?)(?::(?P<line>[1-9]\d{0,8})(?:-\d+)?)?", re.DOTALL)


def split_reference(reference: str) -> tuple[str, int | None]:
    """Split `path`, `path:line` or `path:line-line` into the path and the first line (from 1; None for `path`)."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return reference, None
    return match["path"], None if match["line"] is None else int(match["line"])


def node_at(sql: sqlite3.Connection, path: str, line: int | None) -> str | None:
    """Return the id of the first node on the line of the imported file or, if there is none, of the last node before it.

    If `line` is None, return the root's id. Return None if the file was not imported or has no node up to the line.
    """
    statement = "SELECT id, root_id FROM files WHERE path = ?"
    file_id, root_id = (is_utf8(path) and sql.execute(statement, (path,)).fetchone()) or (None, None)
    if line is None:
        return None if root_id is None else str(root_id)
    node_row = sql.execute(
        "SELECT node_id FROM places WHERE file_id = ? AND number > 0 AND start_line <= ?"
        " ORDER BY end_line >= ? DESC, CASE WHEN end_line >= ? THEN number ELSE -number END LIMIT 1",
        (file_id, line, line, line),
    ).fetchone()
    return None if node_row is None else str(node_row[0])


Form = Literal["full", "outline", "excerpt"]
_SEPARATOR = "\n\n"
_ELLIPSIS = "\n\n[…]\n\n"


@frozen
class NodeListing:
    """The text of nodes in reading order, with `[…]` where nodes of their file are left out.

    `form` is "full" if all descendants of the first node are included, "outline" if only interior nodes are included,
    otherwise "excerpt".
    """

    text: str
    form: Form
    nodes: tuple[Node, ...]


def show(sql: sqlite3.Connection, nodes: Sequence[Node]) -> NodeListing:
    """Return the text of `nodes`: a node and some of its descendants, in reading order.

    Nodes that follow each other in a file are joined by the file's text between them. The root of an imported document
    is left out: its text, the title, is also the file's first heading.
    """
    (node_count,) = sql.execute(  # one node more than given proves that some are left out
        "WITH RECURSIVE below(id) AS (SELECT ? UNION ALL SELECT n.id FROM below JOIN nodes n ON n.parent_id = below.id"
        " LIMIT ?) SELECT count(*) FROM below",
        (nodes[0].id, len(nodes) + 1),
    ).fetchone()
    form: Form = "full"
    if node_count > len(nodes):
        form = "outline" if all(first_child(sql, node.id) for node in nodes) else "excerpt"
    return NodeListing(_join_texts(sql, nodes), form, tuple(nodes))


def _join_texts(sql: sqlite3.Connection, nodes: Sequence[Node]) -> str:
    parts: list[str] = []
    previous: tuple[int, int, str] | None = None  # file id, number in the file, text up to the next node
    for node in nodes:
        row = sql.execute("SELECT file_id, number, gap FROM places WHERE node_id = ?", (node.id,)).fetchone()
        if row is not None and row[1] == 0 and len(nodes) > 1:
            previous = (row[0], 0, "")
            continue
        if parts and (previous is None or row is None or previous[0] != row[0]):
            parts.append(_SEPARATOR)
        elif parts and previous is not None:
            parts.append(previous[2] if row[1] == previous[1] + 1 else _ELLIPSIS)
        parts.append(node.text)
        previous = row
    return "".join(parts)
