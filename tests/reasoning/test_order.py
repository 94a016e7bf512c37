from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.reasoning.order import Order

NODES = 9
END = st.integers(1, NODES)  # ids of nodes begin with 1


def reaches(out: dict[int, dict[int, None]], start: int, end: int) -> bool:
    seen, todo = {start}, [start]
    while todo:
        for child in out[todo.pop()]:
            if child not in seen:
                seen.add(child)
                todo.append(child)
    return end in seen


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(END, END), max_size=40), st.sets(END, min_size=1, max_size=4))
def test_edges_go_forward_cycles_are_found_and_so_are_ways_back(
    edges: list[tuple[int, int]], members: set[int]
) -> None:
    order = Order()
    out: dict[int, dict[int, None]] = {node: {} for node in range(1, NODES + 1)}
    into: dict[int, dict[int, None]] = {node: {} for node in range(1, NODES + 1)}
    for node in range(1, NODES + 1):
        order.add(node)
    for src, dst in edges:
        if src == dst:
            continue
        closes = reaches(out, dst, src)
        path = order.forward(src, dst, out, into)
        assert (path is not None) == closes
        if path is None:
            out[src][dst] = into[dst][src] = None
        else:
            assert (path[0], path[-1]) == (dst, src)
            assert all(after in out[before] for before, after in itertools.pairwise(path))
        for before, after in ((node, child) for node in out for child in out[node]):
            assert order.rank[before] < order.rank[after]
    outside = [child for member in members for child in out[member] if child not in members]
    comes_back = any(reaches(out, child, member) for child in outside for member in members)
    assert (order.way_back(members, out) is not None) == comes_back
