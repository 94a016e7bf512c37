"""One change of the tree: the primitive writes, moving and copying, versions. What is written is masked (seed 003, spec 5)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal

from hivemind.documents import tree
from hivemind.documents.node import (
    COLUMNS,
    Context,
    CycleError,
    DocmemError,
    Node,
    NodeGoneError,
    NodeNotFoundError,
    OptimisticLockError,
    ReadonlyError,
    check_flag,
    check_id,
    check_text,
    node_hash,
    tags_in,
)
from hivemind.frozen import frozen
from hivemind.fs import reached
from hivemind.masking import mask
from hivemind.words import shown

_NAMES = "abcdefghijkmnpqrstuvwxyz23456789"  # ids that a person can read aloud: no l, o, 0, 1
LARGEST = 2.0**52
"""Beyond this, `order + 1` may equal `order`: siblings are numbered anew before they come near it."""


# -- where a node stands among its siblings -------------------------------------------------------------------------
# First child 1; append = last + 1; before the first = first − 1; after the last = last + 1; between a and b: (4a + b) / 5
# (seed 003, *Insert*; spec 5). Orders of siblings are always distinct and the reading order is never broken: where no
# number is left between two neighbours, all siblings are numbered 1, 2, 3 … in the same transaction.

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
        row = sql.execute(
            f"SELECT order_value FROM nodes WHERE parent_id = ? AND order_value {side} ? AND id IS NOT ?"
            f" ORDER BY order_value {'DESC' if side == '<' else 'ASC'} LIMIT 1",
            (parent_id, here, mover),
        ).fetchone()
        other = None if row is None else float(row[0])
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
        target = tree.get(sql, target.id)
    raise AssertionError("whole numbers have room between them")


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


_INSERT = (
    f"INSERT INTO nodes ({', '.join(COLUMNS)}, seq)"
    f" VALUES ({', '.join('?' * len(COLUMNS))}, (SELECT coalesce(max(seq), 0) + 1 FROM nodes))"
)
_UPDATE = (
    "UPDATE nodes SET text = ?, token_count = ?, updated_at = ?, context_type = ?, context_name = ?, context_value = ?,"
    " readonly = ?, hash = ?, importance = ?, sticky = ? WHERE id = ?"
)
_MOVE = "UPDATE nodes SET parent_id = ?, order_value = ?, updated_at = ?, hash = ? WHERE id = ?"


@frozen
class Draft:
    """What a new node is to hold."""

    context: Context
    text: str
    readonly: int = 0
    importance: float = 0.5
    sticky: int = 0
    id: str | None = None
    tokens: int | None = None  # counted already


@frozen
class Edit:
    """A write transaction: its connection, its time, and what counts tokens."""

    sql: sqlite3.Connection
    now: str
    count: Callable[[str], int]

    # -- reading with the caller's expectation ----------------------------------------------------------------------
    def expect(self, node_id: str, expected_hash: str | None) -> Node:
        """The node, if its hash is the expected one (or none is expected).

        Raises NodeNotFoundError, or OptimisticLockError where a hash was given and is stale (NodeGoneError: deleted).
        """
        node = tree.find(self.sql, node_id)
        if node is None:
            raise NodeNotFoundError(node_id) if expected_hash is None else NodeGoneError(node_id, expected_hash)
        if expected_hash is not None and node.hash != expected_hash:
            raise OptimisticLockError(node_id, expected_hash, node.hash)
        return node

    def writable(self, node_id: str, expected_hash: str | None) -> Node:
        """The same, if its text and context may be changed. Raises ReadonlyError, too."""
        node = self.expect(node_id, expected_hash)
        if node.readonly:
            raise ReadonlyError(node_id)
        return node

    def place(self, where: Where, target_id: str, mover: str | None = None) -> tuple[str, float]:
        """(parent, order) of what is to be the target's last child, or to stand beside it. Raises DocmemError beside a root."""
        target = tree.get(self.sql, target_id)
        parent_id = target_id if where == "child" else target.parent_id
        if parent_id is None:
            raise DocmemError(f"node {target_id!r} is a root, nothing stands beside it", mend="append to it instead")
        return parent_id, free_order(self.sql, where, target, self.now, mover)

    # -- writing ----------------------------------------------------------------------------------------------------
    def add(self, parent_id: str | None, order: float, draft: Draft) -> Node:
        """Write one new node. Raises DocmemError for an id that is taken."""
        if draft.id is None:
            (node_id,) = self.free_ids(1)
        elif tree.find(self.sql, node_id := check_id(draft.id)) is not None:
            raise DocmemError(f"there is a node {node_id!r} already", mend="choose another id, or none")
        node = self.made(node_id, parent_id, order, draft)
        self.sql.execute(_INSERT, _row(node))
        self._tag(node.id, tags_in(node.text))
        return node

    def made(self, node_id: str, parent_id: str | None, order: float, draft: Draft) -> Node:
        """The node that a draft becomes at a place; it is not written."""
        text, readonly = mask(check_text(draft.text)), check_flag(draft.readonly, "readonly")
        tokens = self.count(text) if draft.tokens is None else draft.tokens
        digest = node_hash(parent_id, draft.context, text, order)
        return Node(
            node_id, parent_id, text, order, tokens, self.now, self.now, draft.context.type, draft.context.name,
            draft.context.value, readonly, digest, draft.importance, draft.sticky,
        )  # fmt: skip

    def insert_all(self, nodes: Iterable[Node]) -> None:
        """Write many nodes as they are, parents before their children."""
        tags: list[tuple[str, str]] = []

        def rows() -> Iterator[tuple[object, ...]]:
            for node in nodes:
                tags.extend((tag, node.id) for tag in sorted(tags_in(node.text)))
                yield _row(node)

        self.sql.executemany(_INSERT, rows())
        self.sql.executemany("INSERT INTO tags VALUES (?, ?)", tags)

    def free_ids(self, count: int) -> list[str]:
        """So many new short ids, in order; nothing has them yet. Nodes in the order of their ids go side by side into indexes."""
        found: dict[str, None] = {}
        while len(found) < count:
            more = [made for _ in range(count - len(found)) if (made := _short_id()) not in found]
            taken = self.sql.execute(
                "SELECT n.id FROM json_each(?) j JOIN nodes n ON n.id = j.value", (json.dumps(more),)
            )
            free = dict.fromkeys(more)
            for (node_id,) in taken.fetchall():
                del free[node_id]
            found |= free
        return sorted(found)

    def change(self, node: Node, *, keep_version: bool = True, **changes: Any) -> Node:
        """Write the node with some fields changed; token count, hash, time, history and tags follow."""
        if "text" in changes:
            changes["text"] = mask(check_text(changes["text"]))
        worded = changes.get("text", node.text) != node.text
        if worded:
            changes["token_count"] = self.count(changes["text"])
        after = replace(node, **changes, updated_at=self.now)
        after = replace(after, hash=node_hash(after.parent_id, after.context, after.text, after.order_value))
        if keep_version and (worded or after.context != node.context):
            self.sql.execute(
                "INSERT INTO versions SELECT ?, coalesce(max(version), 0) + 1, ?, ?, ?, ?, ?, ?"
                " FROM versions WHERE node_id = ?",
                (node.id, node.text, *node.context, node.updated_at, node.hash, node.id),
            )
        moved = (after.parent_id, after.order_value) != (node.parent_id, node.order_value)
        if moved:  # apart from the rest, because it costs two indexes
            place = (after.parent_id, after.order_value, after.updated_at, after.hash, after.id)
            self.sql.execute(_MOVE, place)
        if not moved or _but_place(after) != _but_place(node):
            more = (after.readonly, after.hash, after.importance, after.sticky, after.id)
            self.sql.execute(_UPDATE, (after.text, after.token_count, after.updated_at, *after.context, *more))
        if worded and (old := tags_in(node.text)) != (new := tags_in(after.text)):
            if old:
                self.sql.execute("DELETE FROM tags WHERE node_id = ?", (node.id,))
            self._tag(node.id, new)
        return after

    def label(self, node_id: str, labels: Iterable[str]) -> None:
        """Let the node be found by these tags, beside those in its text, and by no others."""
        self.sql.execute("DELETE FROM tags WHERE node_id = ?", (node_id,))
        self._tag(node_id, tags_in(tree.get(self.sql, node_id).text).union(labels))

    def _tag(self, node_id: str, tags: set[str]) -> None:
        if tags:
            self.sql.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, node_id) for tag in sorted(tags)])

    def remove(self, node_ids: Sequence[str]) -> None:
        """Delete nodes, given in reading order: children go before their parents (seed 003, *Delete*)."""
        self.sql.executemany("DELETE FROM nodes WHERE id = ?", ((node_id,) for node_id in reversed(node_ids)))


_row: Callable[[Node], tuple[object, ...]] = attrgetter(*COLUMNS)


def _short_id() -> str:
    """Eight characters at random (40 bits)."""
    number = int.from_bytes(os.urandom(5), "big")
    return "".join(_NAMES[number >> shift & 31] for shift in range(0, 40, 5))


def _but_place(node: Node) -> tuple[object, ...]:
    return node.text, node.context, node.readonly, node.importance, node.sticky


def move(edit: Edit, node_id: str, target_id: str, where: Where, expected_hash: str | None) -> Node:
    """Move a node (and what is stuck to it) to be the target's last child, or to stand beside the target.

    Raises CycleError if that would make a node a part of itself, OptimisticLockError, NodeNotFoundError.
    """
    edit.expect(node_id, expected_hash)
    run = sticky_run(edit, node_id)
    movers = [node_id] if target_id in run else run  # beside what it is stuck to the node alone changes its place
    parent_id, order = edit.place(where, target_id, movers[0])
    above = {found for found, _ in tree.ancestors(edit.sql, parent_id)}
    if target_id == node_id or not above.isdisjoint(run):
        raise CycleError(node_id, target_id)
    for previous, member in zip((None, *movers), movers, strict=False):
        if previous is not None:
            parent_id, order = edit.place("after", previous, member)
        edit.change(tree.get(edit.sql, member), parent_id=parent_id, order_value=order)
        reached("documents.move.one")
    return tree.get(edit.sql, node_id)


def sticky_run(edit: Edit, node_id: str) -> list[str]:
    """The ids of the siblings that go together with the node, in order: a sticky node holds its next sibling."""
    node = tree.get(edit.sql, node_id)
    if node.parent_id is None:
        return [node_id]
    run = [node]
    while (previous := tree.siblings_around(edit.sql, run[0])[0]) is not None and previous.sticky:
        run.insert(0, previous)
    while run[-1].sticky and (following := tree.siblings_around(edit.sql, run[-1])[1]) is not None:
        run.append(following)
    return [member.id for member in run]


def copy(edit: Edit, node_id: str, target_id: str, where: Where) -> Node:
    """Copy a node and all below it; gives the new subtree's root.

    The state before is what is copied, also into the node's own subtree. Readonly, importance and stickiness are
    kept; descendants are numbered 1, 2, 3 … under their new parents in the old order.
    """
    before = tree.subtree(edit.sql, node_id)
    parent_id, order = edit.place(where, target_id)
    new_ids = dict(zip((node.id for node in before), edit.free_ids(len(before)), strict=True))
    edit.insert_all(_copies(edit, before, new_ids, parent_id, order))
    edit.sql.executemany(
        "INSERT INTO summaries SELECT ?, stale FROM summaries WHERE node_id = ?",
        [(new_ids[node.id], node.id) for node in before],
    )
    return tree.get(edit.sql, new_ids[node_id])


def _copies(
    edit: Edit, before: Sequence[Node], new_ids: Mapping[str, str], parent_id: str, order: float
) -> Iterator[Node]:
    counts: dict[str, int] = {}
    for at, node in enumerate(before):
        if at:
            assert node.parent_id is not None
            counts[node.parent_id] = place = counts.get(node.parent_id, 0) + 1
            parent_id, order = new_ids[node.parent_id], float(place)
        new_hash = node_hash(parent_id, node.context, node.text, order)
        new = replace(node, id=new_ids[node.id], parent_id=parent_id, order_value=order, hash=new_hash)
        yield replace(new, created_at=edit.now, updated_at=edit.now)
        reached("documents.copy.one")


@frozen
class Version:
    """One state of a node's text and context; `updated_at` is when it came about. Versions count from 1."""

    version: int
    text: str
    context_type: str
    context_name: str
    context_value: str
    updated_at: str
    hash: str


def history(sql: sqlite3.Connection, node_id: str) -> list[Version]:
    """All versions, oldest first; the last one is how the node stands now. Raises NodeNotFoundError."""
    node = tree.get(sql, node_id)
    rows = sql.execute(
        "SELECT version, text, context_type, context_name, context_value, updated_at, hash"
        " FROM versions WHERE node_id = ? ORDER BY version",
        (node_id,),
    )
    found = [Version(*row) for row in rows]
    return [*found, Version(len(found) + 1, node.text, *node.context, node.updated_at, node.hash)]


def restore(edit: Edit, node_id: str, version: int, expected_hash: str | None) -> Node:
    """Give a node the text and context of one of its versions; what it said until now is kept as a version too.

    Raises OptimisticLockError, ReadonlyError, and DocmemError for a version that it never had.
    """
    node = edit.writable(node_id, expected_hash)
    found = next((old for old in history(edit.sql, node_id) if old.version == version), None)
    if found is None:
        raise DocmemError(f"node {node_id!r} has no version {shown(version)}", mend="history(node_id) lists them")
    return edit.change(
        node, text=found.text, context_type=found.context_type,
        context_name=found.context_name, context_value=found.context_value,
    )  # fmt: skip
