"""What can still be read of a damaged database, row by row, and a sound one made of it (README, *A damaged database*)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import math
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hivemind.documents.edit import Draft, Edit
from hivemind.documents.files import GONE
from hivemind.documents.node import COLUMNS, Context, Node, node_hash
from hivemind.fs.salvage import open_damaged, rows_by_id, rows_of

__all__ = ["Salvaged", "read_damaged", "write_salvaged"]

_LEAST_ROW = 40  # bytes: no more rows than this many to a file can be in it
_FILES = (
    "id", "path", "kept", "size", "mtime_ns", "ctime_ns", "inode", "seen_ns", "digest", "root_id", "title", "labels",
    "class", "why", "note",
)  # fmt: skip
_PIECES = frozenset({"heading", "paragraph", "item", "table", "code", "quote", "frontmatter"})
_BESIDE = ("versions", "summaries", "tags", "places")


@dataclass(slots=True)
class Salvaged:
    """What was read. `unfit` counts texts that do not fit their hash, `orphans` nodes whose parent is lost."""

    nodes: dict[str, Node] = field(default_factory=dict)
    files: list[tuple[Any, ...]] = field(default_factory=list)
    beside: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)  # the rows of tables that belong to nodes
    unfit: int = 0
    orphans: int = 0


def read_damaged(path: str) -> Salvaged:
    """Everything in the database file `path` (a copy: it may be changed by reading) that makes sense."""
    found = Salvaged()
    ids = range(os.path.getsize(path) // _LEAST_ROW + 2)
    try:
        with open_damaged(path) as sql:
            for row in rows_by_id(sql, f"SELECT {', '.join(COLUMNS)} FROM nodes", ids):
                if (node := _node(row)) is not None:
                    found.nodes[node.id] = node
            found.files = list(rows_by_id(sql, f"SELECT {', '.join(_FILES)} FROM files", ids))
            found.beside = {table: list(_beside(sql, table, found.nodes)) for table in _BESIDE}
    except sqlite3.DatabaseError:  # no database at all any more: nothing can be read
        return found
    return found


def _node(row: tuple[Any, ...]) -> Node | None:
    """The row as a node, if it can be one."""
    node = Node(*row)
    texts = (node.id, node.text, node.created_at, node.updated_at, *node.context)
    sound = all(isinstance(text, str) for text in texts) and isinstance(node.token_count, int)
    orders = isinstance(node.order_value, float) and math.isfinite(node.order_value)
    importance = isinstance(node.importance, float) and 0 <= node.importance <= 1
    flags = node.readonly in (0, 1) and node.sticky in (0, 1)
    parent = node.parent_id is None or isinstance(node.parent_id, str)
    return node if sound and orders and importance and flags and parent else None


def _beside(sql: sqlite3.Connection, table: str, nodes: dict[str, Node]) -> Iterator[tuple[Any, ...]]:
    for node_id in nodes:  # one by one: some have gone with the page that they stood on
        yield from rows_of(sql, f"SELECT * FROM {table} WHERE node_id = ?", (node_id,))


def write_salvaged(edit: Edit, found: Salvaged) -> None:
    """Put what was read into a new, empty database: each tree with its root, what lost its parent below a new one.

    Pieces of files that are read in anew anyway are left out where it is not known any more where they stood; what others
    hung on them hangs on the nearest node above.
    """
    placed = {row[0]: row[1] for row in found.beside.get("places", [])}
    roots = {row[0]: row[9] for row in found.files}
    parents = _parents(found, placed, roots)
    kept = {node_id for node_id in found.nodes if not _is_double(found.nodes[node_id], placed, found)}
    lost_root: list[str] = []

    def above(node_id: str) -> str | None:
        parent = parents[node_id]
        while parent is not None and parent not in kept:
            parent = parents.get(parent)
        if parent is None and found.nodes[node_id].parent_id is not None:
            found.orphans += 1
            if not lost_root:
                lost_root.append(
                    edit.add(None, 0.0, Draft(Context("root", "recovered", "documents.db"), "Recovered")).id
                )
            return lost_root[0]
        return parent

    edit.insert_all(_trees(found, {node_id: above(node_id) for node_id in found.nodes if node_id in kept}))
    _write_beside(edit, found, kept)


def _parents(found: Salvaged, placed: dict[str, Any], roots: dict[Any, Any]) -> dict[str, str | None]:
    """The parent of each node; for a piece of a file that has lost its own, the file's root."""
    parents: dict[str, str | None] = {}
    for node in found.nodes.values():
        parents[node.id] = node.parent_id
        if node.parent_id is not None and node.parent_id not in found.nodes:
            parents[node.id] = roots.get(placed.get(node.id))
    for node_id in found.nodes:  # a garbled parent must not lead in a circle
        seen, at = {node_id}, parents[node_id]
        while at is not None and at in parents:
            if at in seen:
                parents[node_id] = None
                break
            seen.add(at)
            at = parents[at]
    return parents


def _is_double(node: Node, placed: dict[str, Any], found: Salvaged) -> bool:
    """Whether the node is a piece of a file in the hive that is not known as one any more: it will be read in again."""
    piece = node.readonly == 1 and node.context_name == "section" and node.context_type in _PIECES
    if not piece or node.id in placed:
        return False
    top, steps = node, 0
    while top.parent_id in found.nodes and steps < len(found.nodes):
        top, steps = found.nodes[top.parent_id], steps + 1
    return not os.path.isabs(top.context_value)


def _trees(found: Salvaged, parents: dict[str, str | None]) -> Iterator[Node]:
    """The nodes, parents first, siblings in their order under numbers that are theirs alone."""
    below: dict[str | None, list[Node]] = defaultdict(list)
    for node_id, parent_id in parents.items():
        below[parent_id].append(found.nodes[node_id])
    todo = [None, *sorted({parent for parent in below if parent is not None and parent not in parents})]
    while todo:
        parent_id = todo.pop()
        siblings = sorted(below.get(parent_id, ()), key=lambda node: (node.order_value, node.created_at, node.id))
        orders = [node.order_value for node in siblings]
        distinct = parent_id is None or len(set(orders)) == len(orders)
        for place, node in enumerate(siblings, 1):
            order = node.order_value if distinct else float(place)
            if node.hash != node_hash(node.parent_id, node.context, node.text, node.order_value):
                found.unfit += 1
            fit = node_hash(parent_id, node.context, node.text, order)
            yield replace(node, parent_id=parent_id, order_value=order, hash=fit)
            todo.append(node.id)


def _write_beside(edit: Edit, found: Salvaged, kept: set[str]) -> None:
    known = {row[0] for row in _write_files(edit, found, kept)}
    for table, rows in found.beside.items():
        at = 1 if table == "tags" else 0  # where the node's id stands
        sound = [row for row in rows if row[at] in kept and (table != "places" or row[1] in known)]
        if sound:
            marks = ", ".join("?" * len(sound[0]))
            edit.sql.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", sound)


def _write_files(edit: Edit, found: Salvaged, kept: set[str]) -> Sequence[tuple[Any, ...]]:
    """The files that are known, all to be read anew; those that only their document's root still tells of, too."""
    rows = [row for row in found.files if isinstance(row[1], str) and (row[9] is None or row[9] in kept)]
    told = {row[9] for row in rows}
    paths = {row[1] for row in rows}
    last = max((row[0] for row in rows), default=0)
    for node in found.nodes.values():
        path = node.context_value
        imported = node.parent_id is None and node.readonly == 1 and node.context_type == "root"
        if imported and node.id not in told and path not in paths:
            last += 1
            rows.append(
                (last, path, not os.path.isabs(path), 0, 0, 0, 0, 0, GONE, node.id, node.text, "", "", "", None)
            )
            paths.add(path)
    marks = ", ".join("?" * len(_FILES))
    edit.sql.executemany(f"INSERT OR IGNORE INTO files ({', '.join(_FILES)}) VALUES ({marks})", rows)
    return rows
