"""The nodes that `summarize` chooses to summarise."""

from __future__ import annotations

import pytest

from hivemind.documents import Docmem, DocmemError, Node

CONTEXT = ("message", "role", "user")


def add(docmem: Docmem, parent: Node, text: str) -> Node:
    return docmem.append_child(parent.id, *CONTEXT, text)


def test_notes_at_the_beginning_are_not_summed_up(docmem: Docmem) -> None:
    root = docmem.create_root(text="root")
    leaves = [add(docmem, root, f"Heron {number} wades.") for number in range(2)]
    note = docmem.add_note(root.id, "on all of it", "ann")
    summary = docmem.summarize(root.id)
    assert [node.id for node in docmem.serialize(root.id)[1:]] == [note.id, summary.id, *(leaf.id for leaf in leaves)]


def test_front_matter_is_not_summed_up(docmem: Docmem) -> None:
    root = docmem.create_root(text="root")
    docmem.append_child(root.id, "frontmatter", "section", "birds", "---\ntags: [heron]\n---")
    leaf = add(docmem, root, "A heron wades.")
    assert docmem.summarize(root.id).text == leaf.text


def test_the_first_leaves_in_a_row_are_summed_up_wherever_they_stand(docmem: Docmem) -> None:
    root = docmem.create_root(text="root")
    docmem.add_note(root.id, "on all of it", "ann")
    add(docmem, add(docmem, root, "section"), "its text")
    leaf = add(docmem, root, "A heron wades.")
    summary = docmem.summarize(root.id)
    found = docmem.find(leaf.id)
    assert found is not None
    assert found.parent_id == summary.id


def test_notes_alone_are_nothing_to_sum_up(docmem: Docmem) -> None:
    root = docmem.create_root(text="root")
    docmem.add_note(root.id, "on nothing", "ann")
    with pytest.raises(DocmemError, match="no leaves to summarise"):
        docmem.summarize(root.id)


def test_who_names_a_document_or_a_leaf_is_told_what_to_name_instead(docmem: Docmem) -> None:
    root = docmem.create_root(text="root")
    heading = add(docmem, add(docmem, root, "# Birds"), "## Herons")
    leaf = add(docmem, heading, "A heron wades.")
    docmem.add_note(root.id, "on all of it", "ann")
    for node in (root, leaf):
        with pytest.raises(DocmemError, match="choose a heading with text right below it"):
            docmem.summarize(node.id)
