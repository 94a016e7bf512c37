"""Where nodes stand (seed 003, *Node Ordering*, *Append*, *Insert*)."""

from __future__ import annotations

from hivemind.documents import Docmem, DocmemError, NodeNotFoundError
from hivemind.testing.case import Case, refused, says
from hivemind.testing.docmem.trees import add, family, texts

__all__ = ["CASES"]

CASES: list[Case[Docmem]] = []


@says(CASES, "order_value MUST be set to max(sibling orders) + 1.0")
def appending_counts_up(docmem: Docmem) -> None:
    root, children = family(docmem)
    assert root.order_value == 0
    assert [child.order_value for child in children] == [1, 2, 3]
    docmem.delete(children[1].id)
    assert add(docmem, root, "next").order_value == 4


@says(CASES, "MUST use 20% interpolation: (a * 4 + b * 1) / 5")
def inserting_interpolates_towards_the_left(docmem: Docmem) -> None:
    _, (first, second, third) = family(docmem)
    context = ("message", "role", "user")
    assert docmem.insert_before(second.id, *context, "x").order_value == (1 * 4 + 2) / 5
    assert docmem.insert_after(second.id, *context, "y").order_value == (2 * 4 + 3) / 5
    assert docmem.insert_before(first.id, *context, "z").order_value == 0
    assert docmem.insert_after(third.id, *context, "w").order_value == 4


@says(CASES, "Decimal values to allow insertion without reindexing; no insert is ever refused (spec 5)")
def the_reading_order_survives_any_number_of_inserts(docmem: Docmem) -> None:
    root, (first, *_) = family(docmem)
    for number in range(100):
        docmem.insert_after(first.id, "message", "role", "user", f"inserted {number}")
    expected = ["root", "child 1", *(f"inserted {number}" for number in reversed(range(100))), "child 2", "child 3"]
    assert texts(docmem, root) == expected
    orders = [node.order_value for node in docmem.serialize(root.id)[1:]]
    assert orders == sorted(set(orders))


@says(CASES, "The target node MUST have a parent (cannot insert before/after root node)")
def nothing_stands_beside_a_root(docmem: Docmem) -> None:
    root, (first, *_) = family(docmem)
    for operation in (docmem.insert_before, docmem.insert_after):
        with refused(DocmemError):
            operation(root.id, "message", "role", "user", "x")
    for beside in (docmem.move_before, docmem.move_after, docmem.copy_before, docmem.copy_after):
        with refused(DocmemError):
            beside(first.id, root.id)


@says(CASES, "Unknown ids raise NodeNotFoundError; find gives None (spec 5)")
def unknown_ids_are_said_to_be_unknown(docmem: Docmem) -> None:
    root = docmem.create_root()
    assert docmem.find("nobody") is None
    for operation in (docmem.serialize, docmem.structure, docmem.delete, docmem.export_toml, docmem.history):
        with refused(NodeNotFoundError):
            operation("nobody")
    for pair in (docmem.move_append_child, docmem.move_before, docmem.copy_append_child, docmem.copy_after):
        with refused(NodeNotFoundError):
            pair("nobody", root.id)
        with refused(NodeNotFoundError):
            pair(root.id, "nobody")
    with refused(NodeNotFoundError):
        docmem.update_content("nobody", "x")
    with refused(NodeNotFoundError):
        docmem.append_child("nobody", "a", "b", "c", "x")
