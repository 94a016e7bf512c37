"""The full-text index is told of changes many at a time; nobody who searches can tell."""

from __future__ import annotations

import random

from hivemind.documents import Docmem
from hivemind.documents.schema import MAX_UNINDEXED

CONTEXT = ("message", "role", "user")


def waiting(docmem: Docmem) -> int:
    with docmem.database.read() as sql:
        return int(sql.execute("SELECT count(*) FROM unindexed").fetchone()[0])


def found(docmem: Docmem, word: str) -> set[str]:
    return {hit.node.text for hit in docmem.query(word, 1_000)}


def test_what_was_just_written_is_found_and_what_was_just_changed_is_not(docmem: Docmem) -> None:
    root = docmem.create_root(text="root")
    node = docmem.append_child(root.id, *CONTEXT, "a heron wades")
    assert found(docmem, "heron") == {"a heron wades"}
    docmem.update_content(node.id, "a kestrel hovers")
    assert waiting(docmem) == 2
    assert found(docmem, "heron") == set()
    assert found(docmem, "kestrel") == {"a kestrel hovers"}
    docmem.update_context(node.id, "message", "role", "falconer")
    assert found(docmem, "falconer") == {"a kestrel hovers"}
    docmem.delete(node.id)
    assert found(docmem, "kestrel") == set()


def test_the_index_is_told_before_too_many_changes_wait(docmem: Docmem) -> None:
    root = docmem.create_root(text="root")
    for number in range(3 * MAX_UNINDEXED):
        node = docmem.append_child(root.id, *CONTEXT, f"heron {number}")
        docmem.update_content(node.id, f"kestrel {number}")
        assert waiting(docmem) <= MAX_UNINDEXED
    assert found(docmem, "heron") == set()
    assert len(found(docmem, "kestrel")) == 3 * MAX_UNINDEXED


def test_a_transaction_finds_all_that_it_has_written(docmem: Docmem) -> None:
    root = docmem.create_root(text="root")
    with docmem.transaction():
        for number in range(2 * MAX_UNINDEXED):
            docmem.append_child(root.id, *CONTEXT, f"heron {number}")
        assert waiting(docmem) > MAX_UNINDEXED  # told at the end, all at once
        assert len(found(docmem, "heron")) == 2 * MAX_UNINDEXED
    assert waiting(docmem) == 0


def test_a_number_that_is_used_again_has_the_words_of_its_node_now(docmem: Docmem) -> None:
    root = docmem.create_root(text="root")
    with docmem.transaction():
        nodes = [docmem.append_child(root.id, *CONTEXT, f"heron {number}") for number in range(MAX_UNINDEXED + 1)]
    docmem.delete(nodes[-1].id)
    docmem.append_child(root.id, *CONTEXT, "kestrel")
    docmem.delete(nodes[0].id)
    assert found(docmem, "kestrel") == {"kestrel"}
    assert len(found(docmem, "heron")) == MAX_UNINDEXED - 1
    assert docmem.check() == []  # which tells the index first
    assert waiting(docmem) == 0
    assert len(found(docmem, "heron")) == MAX_UNINDEXED - 1


def test_any_changes_end_in_the_index_that_would_be_built_anew(docmem: Docmem) -> None:
    chance = random.Random(7)
    ids = [docmem.create_root(text="root").id]
    for number in range(300):
        node_id = chance.choice(ids)
        match chance.randrange(3):
            case 0:
                ids.append(docmem.append_child(ids[0], *CONTEXT, f"word{chance.randrange(9)}").id)
            case 1:
                docmem.update_content(node_id, f"word{chance.randrange(9)} {number}")
            case _ if node_id != ids[0]:
                docmem.delete(node_id)
                ids.remove(node_id)
    before = {word: found(docmem, word) for word in (f"word{number}" for number in range(9))}
    for word, texts in before.items():
        assert texts == {node.text for node in docmem.serialize(ids[0]) if word in node.text.split()}
    docmem.rebuild()
    assert {word: found(docmem, word) for word in before} == before
