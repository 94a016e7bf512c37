"""Reading documents (seed 003, *Serialization*, *Structure*, *Expand to Length*)."""

from __future__ import annotations

from hivemind.documents import Docmem
from hivemind.testing.case import Case, says
from hivemind.testing.docmem.trees import add, texts, tree

__all__ = ["CASES"]

_KEYS = {
    "id", "parentId", "order", "tokenCount", "createdAt", "updatedAt", "contextType", "contextName", "contextValue",
    "readonly",
}  # fmt: skip
CASES: list[Case[Docmem]] = []


@says(CASES, "Serialization MUST return a flat array of nodes in traversal order, depth first, by order_value")
def serializing_reads_as_the_document_does(docmem: Docmem) -> None:
    root, made = tree(docmem)
    docmem.insert_before(made["a2"].id, "message", "role", "user", "a1b")
    assert texts(docmem, root) == ["r", "a", "a1", "a11", "a1b", "a2", "b", "b1"]
    assert texts(docmem, made["b"]) == ["b", "b1"]


@says(CASES, "structure: preorder, exactly ten keys, excluding text and hash")
def structure_has_ten_keys_and_no_text(docmem: Docmem) -> None:
    root, _ = tree(docmem)
    found = docmem.structure(root.id)
    assert [entry["id"] for entry in found] == [node.id for node in docmem.serialize(root.id)]
    assert all(set(entry) == _KEYS for entry in found)


@says(CASES, "The starting node itself MUST be included in the result as the first element")
def expanding_begins_with_the_start(docmem: Docmem) -> None:
    root, _ = tree(docmem)
    assert docmem.expand_to_length(root.id, 0) == [root]
    assert docmem.expand_to_length(root.id, 10_000) == docmem.serialize(root.id)


@says(CASES, "breadth-first search to depth 1, then expand the children of those nodes in order_value order")
def expanding_goes_down_level_by_level(docmem: Docmem) -> None:
    root, made = tree(docmem)
    room = root.token_count
    taken = ["r"]
    for name in ("a", "b", "a1", "a2", "b1", "a11"):
        room += made[name].token_count
        taken.append(name)
        found = [node.text for node in docmem.expand_to_length(root.id, room)]
        assert sorted(found) == sorted(taken)
        assert found == [text for text in texts(docmem, root) if text in taken]


@says(CASES, "Nodes are added until the content reaches the token limit; what does not fit is passed over (spec 5)")
def expanding_never_exceeds_the_limit(docmem: Docmem) -> None:
    root = docmem.create_root(text="r")
    add(docmem, root, "long " * 40)
    small = add(docmem, root, "small")
    limit = root.token_count + small.token_count
    assert docmem.expand_to_length(root.id, limit) == [root, small]
    for most in range(60):
        found = docmem.expand_to_length(root.id, most)
        assert found == [root] or sum(node.token_count for node in found) <= most
