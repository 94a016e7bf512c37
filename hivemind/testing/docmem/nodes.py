"""Nodes and their fields (seed 003, *Node Structure*)."""

from __future__ import annotations

from datetime import datetime

from hivemind.documents import Docmem, DocmemError
from hivemind.testing.case import Case, refused, says
from hivemind.testing.docmem.trees import add, family, hash_of

__all__ = ["CASES"]

CASES: list[Case[Docmem]] = []


@says(CASES, "A node MUST contain the following fields: id … hash")
def a_node_has_the_seeds_fields(docmem: Docmem) -> None:
    root, (first, *_) = family(docmem)
    assert root.parent_id is None
    assert first.parent_id == root.id
    assert first.text == "child 1"
    assert (first.context_type, first.context_name, first.context_value) == ("message", "role", "user")
    assert first.token_count == docmem.count("child 1")
    assert first.readonly == 0
    assert datetime.fromisoformat(first.created_at).tzinfo is not None
    assert first.updated_at == first.created_at
    assert docmem.find(first.id) == first


@says(CASES, "id: Unique identifier")
def ids_are_unique_and_a_taken_one_is_refused(docmem: Docmem) -> None:
    root = docmem.create_root("mine")
    assert root.id == "mine"
    with refused(DocmemError):
        docmem.create_root("mine")
    assert len({add(docmem, root, "x").id for _ in range(50)}) == 50


@says(CASES, "The hash MUST be computed from parent_id|context_type|context_name|context_value|text|order")
def the_hash_covers_what_the_seed_says(docmem: Docmem) -> None:
    root, (first, second, _) = family(docmem)
    between = docmem.insert_after(first.id, "message", "role", "user", "between")
    assert root.hash == hash_of(root, "0")
    assert second.hash == hash_of(second, "2")
    assert between.hash == hash_of(between, "1.2")


@says(CASES, "The readonly field MUST NOT be included in the hash calculation")
def readonly_is_no_part_of_the_hash(docmem: Docmem) -> None:
    free = docmem.create_root("same", text="x")
    docmem.delete("same")
    locked = docmem.create_root("same", text="x", readonly=1)
    assert locked.readonly == 1
    assert free.hash == locked.hash


@says(CASES, "All context metadata fields MUST be provided")
def contexts_are_trimmed_and_bounded(docmem: Docmem) -> None:
    root = docmem.create_root()
    found = docmem.append_child(root.id, "  a ", "b" * 64, "c" * 256, "")
    assert (found.context_type, len(found.context_name), len(found.context_value)) == ("a", 64, 256)
    for context in (
        ("", "b", "c"),
        ("a" * 25, "b", "c"),
        ("a", "  ", "c"),
        ("a", "b" * 65, "c"),
        ("a", "b", "c" * 257),
    ):
        with refused(DocmemError):
            docmem.append_child(root.id, *context, "")
