"""Reading the tree: nodes, subtrees in reading order, where a node stands in its file, a part as text. Nothing writes."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from hivemind.documents.node import COLUMNS, DamagedError, Node, NodeNotFoundError
from hivemind.frozen import frozen

_ALL = ", ".join(COLUMNS)
_N_ALL = ", ".join(f"n.{column}" for column in COLUMNS)

_BELOW = """
WITH RECURSIVE below(id) AS (
    SELECT id FROM nodes WHERE id = ?
    UNION ALL
    SELECT n.id FROM below JOIN nodes n ON n.parent_id = below.id
)
SELECT {} FROM below CROSS JOIN nodes n ON n.id = below.id
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


def subtree(sql: sqlite3.Connection, node_id: str) -> list[Node]:
    """The node and all below it in reading order. Raises NodeNotFoundError."""
    get(sql, node_id)
    nodes = {row[0]: Node(*row) for row in _below(sql, node_id, _N_ALL)}
    order = _reading_order(node_id, ((node.id, node.parent_id, node.order_value) for node in nodes.values()))
    return [nodes[found] for found in order]


def descendant_ids(sql: sqlite3.Connection, node_id: str) -> list[str]:
    """The ids of the node and all below it, in reading order; empty if there is no such node."""
    return _reading_order(node_id, _below(sql, node_id, "n.id, n.parent_id, n.order_value"))


def size(sql: sqlite3.Connection, node_id: str) -> tuple[int, int]:
    """How many nodes there are at and below the node, and their tokens together."""
    ((nodes, tokens),) = _below(sql, node_id, "count(*), coalesce(sum(n.token_count), 0)")
    return int(nodes), int(tokens)


def _below(sql: sqlite3.Connection, node_id: str, columns: str) -> sqlite3.Cursor:
    """The columns `n.…` of the node and all below it, in no order that SQLite would promise. Raises DamagedError."""
    for _ in ancestors(sql, node_id):
        pass  # it does not lie below itself: this would never end
    return sql.execute(_BELOW.format(columns), (node_id,))


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
    """(id, parent id) of the node itself, its parent, and so on up to the root: parent pointers only. Raises DamagedError."""
    seen: set[str] = set()
    while node_id is not None:
        if node_id in seen:
            raise DamagedError("is damaged: its parents form a cycle", where=node_id, mend="see: hivemind doctor")
        seen.add(node_id)
        row = sql.execute("SELECT parent_id FROM nodes WHERE id = ?", (node_id,)).fetchone()
        if row is None:
            return
        yield node_id, row[0]
        node_id = row[0]


_WAYS = f"""
WITH RECURSIVE up(id) AS (SELECT value FROM json_each(?) UNION SELECT n.parent_id FROM up JOIN nodes n ON n.id = up.id)
SELECT {_N_ALL} FROM up JOIN nodes n ON n.id = up.id
"""


def ways_up(sql: sqlite3.Connection, node_ids: Iterable[str]) -> dict[str, list[Node]]:
    """Each of the nodes that exist, in their order, with those above it: itself, its parent, and so on up to its root (in a
    damaged database, where parents form a cycle, once around)."""
    wanted = list(node_ids)
    nodes = {row[0]: Node(*row) for row in sql.execute(_WAYS, (json.dumps(wanted),))}
    found: dict[str, list[Node]] = {}
    for node_id in wanted:
        way: dict[str | None, Node] = {}
        at: str | None = node_id
        while at in nodes and at not in way:
            way[at] = nodes[at]
            at = nodes[at].parent_id
        if way:
            found[node_id] = list(way.values())
    return found


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


@frozen
class Source:
    """A node's place: file, lines (pages in a PDF), the file's SHA-256 when it was read, and what class it has and why.

    `path` is as it was imported: relative to the hive for knowledge, else absolute.
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
        """`path:line-line`."""
        return f"{self.path}:{self.start_line}-{self.end_line}"


def source_of(sql: sqlite3.Connection, node_id: str) -> Source | None:
    """The place of a node; None for one that came from no file."""
    row = sql.execute(
        "SELECT f.path, p.start_line, p.end_line, f.digest, p.kind, f.class, f.why"
        " FROM places p JOIN files f ON f.id = p.file_id WHERE p.node_id = ?",
        (node_id,),
    ).fetchone()
    return None if row is None else Source(*row)


def root_source(sql: sqlite3.Connection, node_id: str) -> str | None:
    """The path of the file that the node's document came from; None for a document from none."""
    root_id = next((found for found, parent in ancestors(sql, node_id) if parent is None), None)
    row = sql.execute("SELECT path FROM files WHERE root_id = ?", (root_id,)).fetchone()
    return None if row is None else str(row[0])


_REFERENCE = re.compile(r"(?P<path>.+?)(?::(?P<line>[1-9]\d{0,8})(?:-\d+)?)?", re.DOTALL)


def split_reference(reference: str) -> tuple[str, int | None]:
    """(path, line) of `path`, `path:line` or `path:line-line`; a line counts from 1, None where none is named."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        return reference, None
    return found["path"], None if found["line"] is None else int(found["line"])


def node_at(sql: sqlite3.Connection, path: str, line: int | None) -> str | None:
    """The id of what a file, named as it was imported, has at a line: the first node on it, else the last before it.

    Without a line the document's root. None if the file is no document, or has nothing there.
    """
    try:
        row = sql.execute("SELECT id, root_id FROM files WHERE path = ?", (path,)).fetchone()
    except UnicodeEncodeError:  # half a character: no file that is a document is named so
        return None
    if row is None:
        return None
    file_id, root_id = row
    if line is None:
        return None if root_id is None else str(root_id)
    found = sql.execute(
        "SELECT node_id FROM places WHERE file_id = ? AND number > 0 AND start_line <= ?"
        " ORDER BY end_line >= ? DESC, CASE WHEN end_line >= ? THEN number ELSE -number END LIMIT 1",
        (file_id, line, line, line),
    ).fetchone()
    return None if found is None else str(found[0])


Form = Literal["full", "outline", "excerpt"]
_APART = "\n\n"
_LEFT_OUT = "\n\n[…]\n\n"


@frozen
class Shown:
    """The text of some nodes in reading order, `[…]` where others of the same file are left out between them.

    `form`: "full" if nothing below the first one is missing; "outline" if only headings, summaries and the like are
    there, whose children are not; "excerpt" otherwise. `nodes` are those that the text is of.
    """

    text: str
    form: Form
    nodes: tuple[Node, ...]


def show(sql: sqlite3.Connection, nodes: Sequence[Node]) -> Shown:
    """The first of the nodes and those below it that are given with it, as text.

    What stood in one file one after the other has between it what stood between it there. A document that came from a
    file shows no title of its own: the file's first heading says it.
    """
    (there,) = sql.execute(  # no more is looked at than could be all of it
        "WITH RECURSIVE below(id) AS (SELECT ? UNION ALL SELECT n.id FROM below JOIN nodes n ON n.parent_id = below.id"
        " LIMIT ?) SELECT count(*) FROM below",
        (nodes[0].id, len(nodes) + 1),
    ).fetchone()
    form: Form = "full"
    if there > len(nodes):
        form = "outline" if all(first_child(sql, node.id) for node in nodes) else "excerpt"
    return Shown(_joined(sql, nodes), form, tuple(nodes))


def _joined(sql: sqlite3.Connection, nodes: Sequence[Node]) -> str:
    parts: list[str] = []
    before: tuple[int, int, str] | None = None  # file, number in it, what stands after it
    for node in nodes:
        row = sql.execute("SELECT file_id, number, gap FROM places WHERE node_id = ?", (node.id,)).fetchone()
        if row is not None and row[1] == 0 and len(nodes) > 1:
            before = (row[0], 0, "")
            continue
        if parts and (before is None or row is None or before[0] != row[0]):
            parts.append(_APART)
        elif parts and before is not None:
            parts.append(before[2] if row[1] == before[1] + 1 else _LEFT_OUT)
        parts.append(node.text)
        before = row
    return "".join(parts)
