"""Copying and moving (seed 003, *Copy*, *Move*)."""

from __future__ import annotations

from hivemind.documents import CycleError, Docmem
from hivemind.testing.case import Case, refused, says
from hivemind.testing.docmem.trees import hash_of, now, texts, tree

__all__ = ["CASES"]

CASES: list[Case[Docmem]] = []


@says(CASES, "Copy operations MUST copy all descendants, creating new node IDs, keeping structure and order")
def copies_are_whole_and_new(docmem: Docmem) -> None:
    root, made = tree(docmem)
    docmem.insert_before(made["a2"].id, "message", "role", "user", "a1b")
    copy = docmem.copy_append_child(made["a"].id, made["b"].id)
    assert copy.order_value == 2
    assert copy.parent_id == made["b"].id
    nodes = docmem.serialize(copy.id)
    assert [node.text for node in nodes] == ["a", "a1", "a11", "a1b", "a2"]
    assert [node.order_value for node in nodes] == [2, 1, 1, 2, 3]
    assert not {node.id for node in nodes} & {node.id for node in docmem.serialize(made["a"].id)}
    assert docmem.copy_before(made["b"].id, made["b"].id).order_value == (1 * 4 + 2) / 5
    assert docmem.copy_after(made["b"].id, made["b"].id).order_value == 3
    assert root == now(docmem, root)


@says(CASES, "A copy into the node's own subtree copies the state before, and ends (spec 5)")
def a_copy_into_itself_ends(docmem: Docmem) -> None:
    root, made = tree(docmem)
    copy = docmem.copy_append_child(root.id, made["a11"].id)
    assert texts(docmem, copy) == ["r", "a", "a1", "a11", "a2", "b", "b1"]
    assert len(docmem.serialize(root.id)) == 14


@says(CASES, "move_append_child … move_before … move_after: order recalculated, same rules as insert")
def moves_put_nodes_where_they_say(docmem: Docmem) -> None:
    root, made = tree(docmem)
    moved = docmem.move_append_child(made["b"].id, made["a1"].id, made["b"].hash)
    assert (moved.parent_id, moved.order_value) == (made["a1"].id, 2)
    assert moved.hash == hash_of(moved, "2")
    assert moved.updated_at > made["b"].updated_at
    assert texts(docmem, root) == ["r", "a", "a1", "a11", "b", "b1", "a2"]
    assert docmem.move_before(made["b1"].id, made["a2"].id).order_value == (1 * 4 + 2) / 5
    assert docmem.move_after(made["b1"].id, made["a2"].id).order_value == 3
    assert docmem.move_before(made["b1"].id, made["a1"].id).order_value == 0


@says(CASES, "All move operations MUST prevent cycles")
def nothing_becomes_a_part_of_itself(docmem: Docmem) -> None:
    root, made = tree(docmem)
    before = docmem.serialize(root.id)
    for target in ("a", "a1", "a11"):
        with refused(CycleError):
            docmem.move_append_child(made["a"].id, made[target].id)
    for target in ("a", "a1", "a11"):
        with refused(CycleError):
            docmem.move_before(made["a"].id, made[target].id)
        with refused(CycleError):
            docmem.move_after(made["a"].id, made[target].id)
    with refused(CycleError):
        docmem.move_append_child(root.id, made["b1"].id)
    assert docmem.serialize(root.id) == before
