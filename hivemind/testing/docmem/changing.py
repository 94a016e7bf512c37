"""Changing nodes (seed 003, *Update Content*, *Update Context*, *Optimistic Locking*, *Delete*)."""

from __future__ import annotations

from hivemind.documents import Docmem, OptimisticLockError, ReadonlyError
from hivemind.testing.case import Case, refused, says
from hivemind.testing.docmem.trees import add, family, hash_of, now, texts, tree

__all__ = ["CASES"]

CASES: list[Case[Docmem]] = []


@says(CASES, "Token count, updated_at and hash MUST be recalculated when content is updated")
def updating_content_updates_what_follows_from_it(docmem: Docmem) -> None:
    _, (first, *_) = family(docmem)
    changed = docmem.update_content(first.id, "quite another text", first.hash)
    assert changed.text == "quite another text"
    assert changed.token_count == docmem.count("quite another text")
    assert changed.hash == hash_of(changed, "1") != first.hash
    assert changed.updated_at > first.updated_at
    assert changed.created_at == first.created_at
    assert now(docmem, first) == changed


@says(CASES, "update_context MUST update the context metadata of an existing node")
def updating_context_changes_the_hash(docmem: Docmem) -> None:
    _, (first, *_) = family(docmem)
    changed = docmem.update_context(first.id, "memory", "source", "book")
    assert (changed.context_type, changed.context_name, changed.context_value) == ("memory", "source", "book")
    assert changed.hash == hash_of(changed, "1") != first.hash


@says(CASES, "If the hash does not match, the operation MUST throw an OptimisticLockError")
def a_stale_hash_changes_nothing(docmem: Docmem) -> None:
    root, (first, second, _) = family(docmem)
    docmem.update_content(first.id, "theirs")
    with refused(OptimisticLockError):
        docmem.update_content(first.id, "mine", first.hash)
    with refused(OptimisticLockError):
        docmem.update_context(first.id, "a", "b", "c", first.hash)
    for move in (docmem.move_append_child, docmem.move_before, docmem.move_after):
        with refused(OptimisticLockError):
            move(first.id, second.id, first.hash)
    assert texts(docmem, root) == ["root", "theirs", "child 2", "child 3"]
    docmem.delete(first.id)
    with refused(OptimisticLockError):
        docmem.update_content(first.id, "mine", first.hash)


@says(CASES, "Nodes with readonly = 1 MUST NOT be modified by update operations")
def readonly_nodes_refuse_updates_and_take_notes(docmem: Docmem) -> None:
    root = docmem.create_root(text="root", readonly=1)
    locked = docmem.append_child(root.id, "message", "role", "user", "locked", readonly=1)
    add(docmem, root, "after")
    for node in (root, locked):
        with refused(ReadonlyError):
            docmem.update_content(node.id, "x")
        with refused(ReadonlyError):
            docmem.update_context(node.id, "a", "b", "c")
    note = docmem.add_note(locked.id, "but see there", "ann")
    assert note.context_type == "note"
    assert docmem.add_note(root.id, "on all of it", "ann").parent_id == root.id
    assert texts(docmem, root) == ["root", "on all of it", "locked", "but see there", "after"]
    assert docmem.move_after(locked.id, note.id).readonly == 1
    assert docmem.copy_append_child(locked.id, root.id).readonly == 1


@says(CASES, "delete MUST remove a node and all its descendants")
def deleting_takes_all_below(docmem: Docmem) -> None:
    root, made = tree(docmem)
    docmem.delete(made["a"].id)
    assert texts(docmem, root) == ["r", "b", "b1"]
    assert all(docmem.find(made[name].id) is None for name in ("a", "a1", "a2", "a11"))
    docmem.delete(root.id)
    assert docmem.roots() == []
