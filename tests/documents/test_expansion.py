"""Expansion by importance and relevance, with summaries and sticky nodes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.documents import Docmem, DocmemError, Node, NodeNotFoundError


@pytest.fixture
def counted(tmp_path: object) -> Docmem:
    return Docmem(":memory:", token_counter=lambda text: len(text.split()))


def _add(docmem: Docmem, parent: Node, text: str) -> Node:
    return docmem.append_child(parent.id, "m", "n", "v", text)


def _texts(nodes: list[Node]) -> list[str]:
    return [node.text for node in nodes]


def test_what_matters_more_goes_in_first(counted: Docmem) -> None:
    root = counted.create_root(text="r")
    for text in ("a a", "b b", "c c"):
        node = _add(counted, root, text)
        if text != "a a":
            counted.set_importance(node.id, 0.9 if text == "c c" else 0.6)
    assert _texts(counted.expand_to_length(root.id, 3, by="importance")) == ["r", "c c"]
    assert _texts(counted.expand_to_length(root.id, 5, by="importance")) == ["r", "b b", "c c"]


def test_what_answers_the_query_goes_in_first(counted: Docmem) -> None:
    root = counted.create_root(text="r")
    part = _add(counted, root, "about fruit")
    for text in ("pears are green", "bees make honey", "plums are blue"):
        _add(counted, part, text)
    assert _texts(counted.expand_to_length(root.id, 4, by="relevance", query="who makes honey?")) == [
        "r", "bees make honey",
    ]  # fmt: skip


def test_relevance_needs_a_query(counted: Docmem) -> None:
    root = counted.create_root()
    with pytest.raises(DocmemError):
        counted.expand_to_length(root.id, 4, by="relevance")


def test_a_summary_stands_in_for_children_that_do_not_fit(counted: Docmem) -> None:
    root = counted.create_root(text="r")
    for number in range(4):
        _add(counted, root, f"long text number {number}")
    nodes = counted.serialize(root.id)[1:]
    counted.add_summary(nodes[0].id, nodes[2].id, "in short")
    assert _texts(counted.expand_to_length(root.id, 14, resolution="mixed")) == ["r", "in short", nodes[3].text]
    everything = counted.serialize(root.id)
    assert counted.expand_to_length(root.id, 19, resolution="mixed") == everything
    replaced = [node.text for node in everything if node.text != "in short"]
    assert _texts(counted.expand_to_length(root.id, 17, resolution="mixed", interior="replace")) == replaced
    assert _texts(counted.serialize(root.id, interior="replace")) == replaced
    assert _texts(counted.serialize(root.id, interior="skip")) == replaced[1:]


def test_sticky_siblings_go_in_together_or_not_at_all(counted: Docmem) -> None:
    root = counted.create_root(text="r")
    lead, table, rest = (_add(counted, root, text) for text in ("as follows", "a b c d", "rest"))
    counted.set_sticky(lead.id)
    assert _texts(counted.expand_to_length(root.id, 4)) == ["r", "rest"]
    assert _texts(counted.expand_to_length(root.id, 7)) == ["r", "as follows", "a b c d"]
    part = _add(counted, root, "part")
    counted.move_append_child(table.id, part.id)
    assert _texts(counted.serialize(root.id)) == ["r", "rest", "part", "as follows", "a b c d"]
    assert counted.add_summary(lead.id, lead.id, "sum").parent_id == part.id
    assert _texts(counted.serialize(part.id)) == ["part", "sum", "as follows", "a b c d"]
    assert rest == counted.find(rest.id)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=30), st.integers(0, 60))
def test_expanding_is_greedy_in_breadth_first_order(tree: list[tuple[int, int]], limit: int) -> None:
    with Docmem(":memory:", token_counter=len) as docmem:
        nodes = [docmem.create_root(text="rr")]
        for parent, length in tree:
            nodes.append(_add(docmem, nodes[parent % len(nodes)], "x" * length))
        level, breadth_first = [nodes[0]], []
        while level:
            level = [child for node in level for child in nodes if child.parent_id == node.id]
            breadth_first += level
        left, wanted = limit - 2, {nodes[0].id}
        for node in breadth_first:
            if left > 0 and node.token_count <= left:
                left -= node.token_count
                wanted.add(node.id)
        found = docmem.expand_to_length(nodes[0].id, limit)
        reading = [node.id for node in docmem.serialize(nodes[0].id) if node.id in wanted]
        big = {node.id for node in found if node.token_count}
        assert [node.id for node in found if node.id in big] == [i for i in reading if i in big]
        assert big == {i for i in wanted if next(n for n in nodes if n.id == i).token_count}


@pytest.mark.parametrize("options", [{"interior": "keeep"}, {"resolution": "half"}, {"by": "luck"}])
def test_a_word_that_says_nothing_is_refused(counted: Docmem, options: dict[str, str]) -> None:
    root = counted.create_root(text="r")
    with pytest.raises(DocmemError, match="invalid"):
        counted.expand_to_length(root.id, 5, **options)  # type: ignore[arg-type]
    if "interior" in options:
        with pytest.raises(DocmemError, match="invalid"):
            counted.serialize(root.id, **options)  # type: ignore[arg-type]


def test_below_what_is_not_there_nothing_is_asked(counted: Docmem) -> None:
    with pytest.raises(NodeNotFoundError):
        counted.query("fruit", node_id="gone")


def test_half_a_character_names_no_node(counted: Docmem) -> None:
    assert counted.find("\ud800") is None
    with pytest.raises(NodeNotFoundError):
        counted.serialize("\ud800")
