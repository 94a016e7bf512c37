"""Moving and copying subtrees (seed 003, *Move* and *Copy*; spec 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from hivemind.documents import tree
from hivemind.documents.edit import Edit
from hivemind.documents.errors import CycleError
from hivemind.documents.node import Node, node_hash
from hivemind.fs import reached

__all__ = ["Where", "copy", "move", "sticky_run"]

Where = Literal["child", "before", "after"]


def move(edit: Edit, node_id: str, target_id: str, where: Where, expected_hash: str | None) -> Node:
    """Move a node (and what is stuck to it) to be the target's last child, or to stand beside the target.

    Raises CycleError if that would make a node a part of itself, OptimisticLockError, NodeNotFoundError.
    """
    edit.expect(node_id, expected_hash)
    run = sticky_run(edit, node_id)
    tree.get(edit.sql, target_id)
    parent_id = target_id if where == "child" else edit.parent_of(target_id)
    for member in run:
        edit.refuse_cycle(member, parent_id, target_id)
    if target_id == node_id:
        raise CycleError(node_id, target_id)
    if target_id in run:  # beside what it is stuck to: the node alone changes its place
        run = [node_id]
    _move_one(edit, run[0], parent_id, _order(edit, parent_id, target_id, where, run[0]))
    for previous, member in pairwise(run):
        _move_one(edit, member, parent_id, edit.after(previous, member))
    return tree.get(edit.sql, node_id)


def _move_one(edit: Edit, node_id: str, parent_id: str, order: float) -> None:
    edit.change(tree.get(edit.sql, node_id), parent_id=parent_id, order_value=order)
    reached("documents.move.one")


def _order(edit: Edit, parent_id: str, target_id: str, where: Where, mover: str | None) -> float:
    if where == "child":
        return edit.last_in(parent_id, mover)
    return edit.before(target_id, mover) if where == "before" else edit.after(target_id, mover)


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
    tree.get(edit.sql, target_id)
    parent_id = target_id if where == "child" else edit.parent_of(target_id)
    order = _order(edit, parent_id, target_id, where, None)
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
