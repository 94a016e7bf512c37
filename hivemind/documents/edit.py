"""Change the tree in a write transaction: add, change, move, copy and delete nodes, keep versions, mask secrets."""

# ruff: noqa: S608 - statements are built from constants of this module; values are always bound
from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal

from hivemind.documents import tree
from hivemind.documents.node import (
    COLUMNS,
    CycleError,
    DocmemError,
    Node,
    NodeContext,
    NodeGoneError,
    OptimisticLockError,
    ReadonlyError,
    check_flag,
    check_id,
    check_text,
    node_hash,
    tags_in,
)
from hivemind.frozen import frozen
from hivemind.fs import crash_point
from hivemind.masking import mask

_ID_CHARACTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # for ids that can be read aloud: without l, o, 0, 1
MAX_ORDER = 2.0**52
"""The largest order: above it, `order + 1` may equal `order`. Siblings are renumbered before one exceeds it."""


# -- the order of siblings -------------------------------------------------------------------------------------------
# First child: 1; before the first: first − 1; after the last: last + 1; between a and b: (4a + b) / 5.
# Siblings always have distinct orders. When no number is left between two neighbours, all siblings are renumbered
# 1, 2, 3 … in the same transaction, which keeps the reading order.

Position = Literal["child", "before", "after"]


def free_order(sql: sqlite3.Connection, position: Position, target: Node, now: str, mover_id: str | None) -> float:
    """Return a free order (the sort key among siblings) at `position`: last below the target, or directly before or after it.

    `mover_id` is the node that will move there, so its present order counts as free; None for a new node.
    """
    for _ in range(2):
        parent_id, bound = (target.id, float("inf")) if position == "child" else (target.parent_id, target.order_value)
        assert parent_id is not None
        comparison, direction = (">", "ASC") if position == "after" else ("<", "DESC")
        row = sql.execute(
            f"SELECT order_value FROM nodes WHERE parent_id = ? AND order_value {comparison} ? AND id IS NOT ?"
            f" ORDER BY order_value {direction} LIMIT 1",
            (parent_id, bound, mover_id),
        ).fetchone()
        neighbour = None if row is None else float(row[0])
        low, high = (bound, neighbour) if position == "after" else (neighbour, bound if position == "before" else None)
        order = (low or 0.0) + 1.0 if high is None else high - 1.0 if low is None else (low * 4 + high) / 5
        if (low is None or low < order) and (high is None or order < high) and abs(order) <= MAX_ORDER:
            return order
        renumber(sql, parent_id, now)
        target = tree.get(sql, target.id)
    raise AssertionError("renumbered siblings leave room for an order")


_RANKS = "SELECT id, row_number() OVER (ORDER BY order_value) AS rank FROM nodes WHERE parent_id = ?"


def park(sql: sqlite3.Connection, parent_id: str) -> None:
    """Set the orders of all children to negative numbers, in their present sequence, so the orders from 1 on become free."""
    row = sql.execute("SELECT count(*), min(order_value) FROM nodes WHERE parent_id = ?", (parent_id,)).fetchone()
    if row[0]:
        base = float(int(min(row[1], 0.0)) - 1) - row[0] - 1
        sql.execute(
            f"UPDATE nodes SET order_value = ? + r.rank FROM ({_RANKS}) r WHERE nodes.id = r.id", (base, parent_id)
        )


def renumber(sql: sqlite3.Connection, parent_id: str, now: str) -> None:
    """Renumber all children 1, 2, 3 … in their present sequence, and update their hashes."""
    park(sql, parent_id)  # no two siblings may share an order at any time
    sql.execute(
        "UPDATE nodes SET order_value = r.rank, updated_at = ?,"
        " hash = node_hash(parent_id, context_type, context_name, context_value, text, r.rank)"
        f" FROM ({_RANKS}) r WHERE nodes.id = r.id",
        (now, parent_id),
    )


_INSERT = (
    f"INSERT INTO nodes ({', '.join(COLUMNS)}, seq)"
    f" VALUES ({', '.join('?' * len(COLUMNS))}, (SELECT coalesce(max(seq), 0) + 1 FROM nodes))"
)
_UPDATE = (
    "UPDATE nodes SET text = ?, token_count = ?, updated_at = ?, context_type = ?, context_name = ?, context_value = ?,"
    " readonly = ?, hash = ?, importance = ?, sticky = ? WHERE id = ?"
)
CONTEXT_FIELDS = ("context_type", "context_name", "context_value")
_MOVE = "UPDATE nodes SET parent_id = ?, order_value = ?, updated_at = ?, hash = ? WHERE id = ?"


@frozen
class NodeDraft:
    context: NodeContext
    text: str
    readonly: int = 0
    importance: float = 0.5
    sticky: int = 0
    id: str | None = None
    tokens: int | None = None  # the token count, if it is known


@frozen
class Edit:
    """A write transaction: its connection, its time, and the token counter."""

    sql: sqlite3.Connection
    now: str
    count: Callable[[str], int]

    # -- reading ----------------------------------------------------------------------------------------------------
    def expect(self, node_id: str, expected_hash: str | None) -> Node:
        """Return the node. Raises NodeNotFoundError if it does not exist.

        With `expected_hash`, raises OptimisticLockError if the node's hash differs, NodeGoneError if it does not exist.
        """
        if expected_hash is None:
            return tree.get(self.sql, node_id)
        node = tree.find(self.sql, node_id)
        if node is None or node.hash != expected_hash:
            actual_hash = None if node is None else node.hash
            raise (OptimisticLockError if node else NodeGoneError)(node_id, expected_hash, actual_hash)
        return node

    def writable(self, node_id: str, expected_hash: str | None) -> Node:
        """Return the node, with the checks and errors of `expect`. Raises ReadonlyError for a readonly node."""
        node = self.expect(node_id, expected_hash)
        if node.readonly:
            raise ReadonlyError(node_id)
        return node

    def free_slot(self, position: Position, target_id: str, mover_id: str | None = None) -> tuple[str, float]:
        """Return the parent's id and a free order for a node at `position`, relative to the target. Raises DocmemError
        for a position beside a root.

        `mover_id` is the node that will move there; None for a new node.
        """
        target = tree.get(self.sql, target_id)
        parent_id = target_id if position == "child" else target.parent_id
        if parent_id is None:
            raise DocmemError(f"node {target_id!r} is a root and has no siblings", remedy="append a child instead")
        return parent_id, free_order(self.sql, position, target, self.now, mover_id)

    # -- writing ----------------------------------------------------------------------------------------------------
    def add(self, parent_id: str | None, order: float, draft: NodeDraft) -> Node:
        """Insert a new node below `parent_id` (None: as a root) at this order, and return it. Raises DocmemError if the
        draft's id is taken."""
        if draft.id is None:
            (node_id,) = self.free_ids(1)
        elif tree.find(self.sql, node_id := check_id(draft.id)) is not None:
            raise DocmemError(f"there is a node {node_id!r} already", remedy="choose another id, or leave it out")
        node = self.build_node(node_id, parent_id, order, draft)
        self.sql.execute(_INSERT, _row(node))
        self._tag(node.id, tags_in(node.text))
        return node

    def build_node(self, node_id: str, parent_id: str | None, order: float, draft: NodeDraft) -> Node:
        """Return the draft's node, with secrets masked, without writing it."""
        text, readonly = mask(check_text(draft.text)), check_flag(draft.readonly, "readonly")
        tokens = self.count(text) if draft.tokens is None else draft.tokens
        digest = node_hash(parent_id, draft.context, text, order)
        return Node(
            node_id, parent_id, text, order, tokens, self.now, self.now, draft.context.type, draft.context.name,
            draft.context.value, readonly, digest, draft.importance, draft.sticky,
        )  # fmt: skip

    def insert_all(self, nodes: Iterable[Node]) -> None:
        """Insert nodes and their tags. Parents must precede their children."""
        tags: list[tuple[str, str]] = []

        def rows() -> Iterator[tuple[object, ...]]:
            for node in nodes:
                tags.extend((tag, node.id) for tag in sorted(tags_in(node.text)))
                yield _row(node)

        self.sql.executemany(_INSERT, rows())
        self.sql.executemany("INSERT INTO tags VALUES (?, ?)", tags)

    def free_ids(self, count: int) -> list[str]:
        """Return `count` unused short ids. They are sorted, because sorted inserts touch fewer pages of the index."""
        new_ids: set[str] = set()
        while len(new_ids) < count:
            new_ids |= {_short_id() for _ in range(count - len(new_ids))}
            taken = "SELECT n.id FROM json_each(?) j JOIN nodes n ON n.id = j.value"
            new_ids -= {node_id for (node_id,) in self.sql.execute(taken, (json.dumps([*new_ids]),))}
        return sorted(new_ids)

    def change(
        self, node: Node, *, keep_version: bool = True, context: NodeContext | None = None, **changes: Any
    ) -> Node:
        """Set the context and the fields `changes` of a node, and update its token count, hash, time and tags. Return
        the changed node.

        If text or context change, the history keeps the old version, unless `keep_version` is False.
        """
        if context is not None:
            changes = dict(zip(CONTEXT_FIELDS, context, strict=True)) | changes
        if "text" in changes:
            changes["text"] = mask(check_text(changes["text"]))
        is_reworded = changes.get("text", node.text) != node.text
        if is_reworded:
            changes["token_count"] = self.count(changes["text"])
        new_node = replace(node, **changes, updated_at=self.now)
        new_node = replace(
            new_node, hash=node_hash(new_node.parent_id, new_node.context, new_node.text, new_node.order_value)
        )
        if keep_version and (is_reworded or new_node.context != node.context):
            self.sql.execute(
                "INSERT INTO versions SELECT ?, coalesce(max(version), 0) + 1, ?, ?, ?, ?, ?, ?"
                " FROM versions WHERE node_id = ?",
                (node.id, node.text, *node.context, node.updated_at, node.hash, node.id),
            )
        is_moved = (new_node.parent_id, new_node.order_value) != (node.parent_id, node.order_value)
        if is_moved:  # a separate statement: it updates two indexes
            placement = (new_node.parent_id, new_node.order_value, new_node.updated_at, new_node.hash, new_node.id)
            self.sql.execute(_MOVE, placement)
        if not is_moved or _content_fields(new_node) != _content_fields(node):
            other_columns = (new_node.readonly, new_node.hash, new_node.importance, new_node.sticky, new_node.id)
            self.sql.execute(
                _UPDATE, (new_node.text, new_node.token_count, new_node.updated_at, *new_node.context, *other_columns)
            )
        if is_reworded and (old_tags := tags_in(node.text)) != (new_tags := tags_in(new_node.text)):
            if old_tags:
                self.sql.execute("DELETE FROM tags WHERE node_id = ?", (node.id,))
            self._tag(node.id, new_tags)
        return new_node

    def label(self, node_id: str, labels: Iterable[str]) -> None:
        """Set the node's tags to `labels` and the tags in the node's text. All other tags are removed."""
        self.sql.execute("DELETE FROM tags WHERE node_id = ?", (node_id,))
        self._tag(node_id, tags_in(tree.get(self.sql, node_id).text).union(labels))

    def _tag(self, node_id: str, tags: set[str]) -> None:
        if tags:
            self.sql.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, node_id) for tag in sorted(tags)])

    def remove(self, node_ids: Sequence[str]) -> None:
        """Delete nodes, children before their parents. `node_ids` must be in reading order."""
        self.sql.executemany("DELETE FROM nodes WHERE id = ?", ((node_id,) for node_id in reversed(node_ids)))


_row: Callable[[Node], tuple[object, ...]] = attrgetter(*COLUMNS)


def _short_id() -> str:
    number = int.from_bytes(os.urandom(5), "big")
    return "".join(_ID_CHARACTERS[number >> shift & 31] for shift in range(0, 40, 5))


def _content_fields(node: Node) -> tuple[object, ...]:
    return node.text, node.context, node.readonly, node.importance, node.sticky


def move(edit: Edit, node_id: str, target_id: str, position: Position, expected_hash: str | None) -> Node:
    """Move a node, with the siblings that stick to it, to `position`: last child of the target, before or after it.

    Raises CycleError if the target is in the moved subtree, and the errors of `Edit.expect`.
    """
    edit.expect(node_id, expected_hash)
    run = sticky_run(edit, node_id)
    movers = [node_id] if target_id in run else run  # next to a sibling that sticks to it, only the node moves
    parent_id, order = edit.free_slot(position, target_id, movers[0])
    ancestor_ids = {ancestor.id for ancestor in tree.ancestry(edit.sql, parent_id)}
    if target_id == node_id or not ancestor_ids.isdisjoint(run):
        raise CycleError(node_id, target_id)
    for previous, member in zip((None, *movers), movers, strict=False):
        if previous is not None:
            parent_id, order = edit.free_slot("after", previous, member)
        edit.change(tree.get(edit.sql, member), parent_id=parent_id, order_value=order)
        crash_point("documents.move.one")
    return tree.get(edit.sql, node_id)


def sticky_run(edit: Edit, node_id: str) -> list[str]:
    """Return the ids of the node and the siblings that move with it, in order. A sticky node moves with its next sibling."""
    node = tree.get(edit.sql, node_id)
    if node.parent_id is None:
        return [node_id]
    run = [node]
    while (previous_sibling := tree.siblings_around(edit.sql, run[0])[0]) is not None and previous_sibling.sticky:
        run.insert(0, previous_sibling)
    while run[-1].sticky and (next_sibling := tree.siblings_around(edit.sql, run[-1])[1]) is not None:
        run.append(next_sibling)
    return [member.id for member in run]


def copy(edit: Edit, node_id: str, target_id: str, position: Position) -> Node:
    """Copy a node and its descendants to `position`; return the root of the copy.

    The target may be in the copied subtree: the copy has the subtree's state before copying. Copies keep readonly,
    importance and sticky. Siblings below the copy's root get the orders 1, 2, 3 …
    """
    before = tree.subtree(edit.sql, node_id)
    parent_id, order = edit.free_slot(position, target_id)
    new_ids = dict(zip((node.id for node in before), edit.free_ids(len(before)), strict=True))
    counts: Counter[str] = Counter()

    def copies() -> Iterator[Node]:
        parent, number = parent_id, order
        for node in before:
            if node.id != node_id:
                assert node.parent_id is not None
                parent = new_ids[node.parent_id]
                counts[parent] += 1
                number = float(counts[parent])
            new_hash = node_hash(parent, node.context, node.text, number)
            new = replace(node, id=new_ids[node.id], parent_id=parent, order_value=number, hash=new_hash)
            yield replace(new, created_at=edit.now, updated_at=edit.now)
            crash_point("documents.copy.one")

    edit.insert_all(copies())
    edit.sql.executemany(
        "INSERT INTO summaries SELECT ?, stale FROM summaries WHERE node_id = ?",
        [(new_ids[node.id], node.id) for node in before],
    )
    return tree.get(edit.sql, new_ids[node_id])


@frozen
class Version:
    """A version of a node's text and context, written at `updated_at`. `version` counts from 1."""

    version: int
    text: str
    context_type: str
    context_name: str
    context_value: str
    updated_at: str
    hash: str
