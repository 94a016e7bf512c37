"""The reading order, whatever is inserted where."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind.documents import Docmem, Node


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["before", "after", "append", "move"]), st.integers(0, 60)), max_size=60))
def test_siblings_keep_the_order_in_which_they_were_put(steps: list[tuple[str, int]]) -> None:
    with Docmem(":memory:") as docmem:
        root = docmem.create_root()
        expected = [docmem.append_child(root.id, "m", "n", "v", "0").id]
        for how, at in steps:
            target = expected[at % len(expected)]
            if how == "append":
                expected.append(docmem.append_child(root.id, "m", "n", "v", "").id)
            elif how == "move":
                mover = expected.pop()
                if mover == target or not expected:
                    expected.append(mover)
                    continue
                docmem.move_before(mover, target)
                expected.insert(expected.index(target), mover)
            else:
                insert = docmem.insert_before if how == "before" else docmem.insert_after
                place = expected.index(target) + (how == "after")
                expected.insert(place, insert(target, "m", "n", "v", "").id)
        nodes = docmem.serialize(root.id)[1:]
        assert [node.id for node in nodes] == expected
        assert len({node.order_value for node in nodes}) == len(nodes)
        assert docmem.check() == []


def _fill_one_spot(docmem: Docmem, target: Node, count: int) -> list[Node]:
    return [docmem.insert_after(target.id, "m", "n", "v", str(number)) for number in range(count)]


def test_siblings_are_numbered_anew_when_precision_runs_out(docmem: Docmem) -> None:
    root = docmem.create_root()
    first, last = (docmem.append_child(root.id, "m", "n", "v", text) for text in ("first", "last"))
    _fill_one_spot(docmem, first, 22)
    assert docmem.find(last.id) == last  # nobody was touched so far
    _fill_one_spot(docmem, first, 3)
    nodes = docmem.serialize(root.id)[1:]
    expected = ["first", "2", "1", "0", *(str(number) for number in reversed(range(22))), "last"]
    assert [node.text for node in nodes] == expected
    assert nodes[-1].order_value == int(nodes[-1].order_value) > 22


def test_moving_a_node_beside_its_own_place_keeps_the_others_where_they_are(docmem: Docmem) -> None:
    root = docmem.create_root()
    a, b, c = (docmem.append_child(root.id, "m", "n", "v", text) for text in "abc")
    assert docmem.move_before(b.id, c.id).order_value == (1 * 4 + 3) / 5
    assert docmem.move_append_child(b.id, root.id).order_value == 4
    assert [node.text for node in docmem.serialize(root.id)[1:]] == ["a", "c", "b"]
    assert docmem.find(a.id) == a


def test_numbering_anew_goes_through_no_order_that_a_sibling_has(docmem: Docmem) -> None:
    root = docmem.create_root()
    first, *_ = (docmem.append_child(root.id, "m", "n", "v", text) for text in "bcd")
    for text in ("a", "-"):
        docmem.insert_before(docmem.serialize(root.id)[1].id, "m", "n", "v", text)  # orders 0 and −1
    _fill_one_spot(docmem, first, 30)  # b goes from 1 to 3, where d was
    texts = [node.text for node in docmem.serialize(root.id)[1:]]
    assert texts == ["-", "a", "b", *map(str, reversed(range(30))), "c", "d"]
