"""A graph stays sound under any sequence of changes."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.reasoning import GraphError, ReasoningGraph, ReasoningMemory
from tests.reasoning.minds import turns

NUMBER = st.integers(1, 14)
MOVE = st.one_of(
    st.tuples(st.just("patch"), st.lists(st.tuples(NUMBER, st.integers(0, 3)), min_size=1, max_size=4)),
    st.tuples(st.just("between"), st.tuples(NUMBER, NUMBER)),
    st.tuples(st.just("edge"), st.tuples(NUMBER, NUMBER)),
    st.tuples(st.just("folds"), st.lists(NUMBER, min_size=2, max_size=3)),
    st.tuples(st.just("fold"), st.lists(NUMBER, min_size=1, max_size=5)),
    st.tuples(st.just("flush"), NUMBER),
    st.tuples(st.just("unfold"), NUMBER),
    st.tuples(st.just("supersede"), st.tuples(NUMBER, NUMBER)),
)


def move(graph: ReasoningGraph, kind: str, what: object, turn: list[int]) -> None:
    match kind, what:
        case "patch", list(wishes):
            nodes = [{"tmp_id": f"t{at}", "kind": "evidence", "thought": f"{at}"} for at in range(len(wishes))]
            edges = [{"src": f"t{at - back}" if 0 < back <= at else str(parent), "dst": f"t{at}"}
                     for at, (parent, back) in enumerate(wishes)]  # fmt: skip
            turn[0] += 1
            graph.apply_patch({"add_nodes": nodes, "add_edges": edges}, [turn[0]])
        case "between", (parent, child):  # what it says may be refused after the order of the nodes has changed
            edges = [{"src": "t", "dst": str(child)}, {"src": str(parent), "dst": "t"}]
            graph.apply_patch({"add_nodes": [{"tmp_id": "t", "kind": "subtask", "thought": "b"}], "add_edges": edges})
        case "edge", (src, dst):
            graph.add_edge(src, dst)
        case "folds", list(ids):  # the second may be refused after the first was done
            folds = [{"ids": [number], "notes": [{"role": "a", "content": "sum"}]} for number in ids]
            graph.apply_operations({"fold_ops": folds})
        case "fold", list(ids):
            graph.fold_nodes(ids, "sum")
        case "flush", number:
            graph.flush_node(number)  # type: ignore[arg-type]
        case "unfold", number:
            graph.unfold(number)  # type: ignore[arg-type]
        case "supersede", (old, new):
            graph.supersede(old, new)


def check(graph: ReasoningGraph) -> None:
    seen: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for edge in graph.edges:
        children.setdefault(edge.src, []).append(edge.dst)
        seen[edge.dst] = seen.get(edge.dst, 0) + 1
    ready = [number for number in graph.nodes if number not in seen]
    sorted_out = 0
    while ready:
        number = ready.pop()
        sorted_out += 1
        for child in children.get(number, ()):
            seen[child] -= 1
            if not seen[child]:
                ready.append(child)
    assert sorted_out == len(graph.nodes), "a cycle"
    reached = {node.node_id for node in graph.subtree(1)}
    assert {node.node_id for node in graph.active()} <= reached
    assert [node.node_id for node in graph.active()] == [n for n, node in graph.nodes.items() if node.active is True]
    leaves = [
        node.node_id
        for node in graph.active()
        if not any(below.active is True for below in graph.subtree(node.node_id) if below is not node)
    ]
    assert graph.get_leaf_node_ids() == leaves
    shown = {int(line.split()[0]) for line in graph.pretty_print().splitlines()}
    assert shown == {node.node_id for node in graph.active()}


@settings(max_examples=80, deadline=None)
@given(st.lists(MOVE, max_size=25))
def test_whatever_happens_the_graph_is_sound(moves: list[tuple[str, object]]) -> None:
    graph, turn, highest = ReasoningGraph(), [0], 1
    graph.add_node("task", "t")
    for kind, what in moves:
        before = graph.to_dict()
        try:
            move(graph, kind, what, turn)
        except GraphError:
            assert graph.to_dict() == before
        new = [number for number in graph.nodes if str(number) not in before["nodes"]]
        assert all(number > highest for number in new)
        highest = max([highest, *new])
    check(graph)
    loaded = ReasoningGraph.from_dict(json.loads(graph.to_json()))
    assert loaded == graph
    check(loaded)


@settings(max_examples=80, deadline=None)
@given(st.lists(MOVE, max_size=20), st.lists(NUMBER, min_size=1, max_size=5))
def test_unfolding_a_fold_gives_what_was(moves: list[tuple[str, object]], ids: list[int]) -> None:
    graph, turn = ReasoningGraph(), [0]
    graph.add_node("task", "t")
    for kind, what in moves:
        try:
            move(graph, kind, what, turn)
        except GraphError:
            continue
    before = graph.to_dict()
    try:
        summary = graph.fold_nodes(ids, "sum")
    except GraphError:
        return
    graph.unfold(summary.node_id)
    after = graph.to_dict()
    del after["nodes"][str(summary.node_id)]
    for part in ("nodes", "edges", "folded_edges", "links"):
        assert after.get(part) == before.get(part)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=12), st.lists(MOVE, max_size=8), st.integers(100, 4_000))
def test_every_context_is_within_its_budget_or_names_the_least_one(
    sizes: list[int], moves: list[tuple[str, object]], budget: int
) -> None:
    memory = ReasoningMemory(None, len)
    memory.init_memory("t")
    for at, size in enumerate(sizes):
        memory.memorize(turns(at, size))
    for kind, what in moves:
        try:
            move(memory.graph, kind, what, [10_000])
        except GraphError:
            continue
    try:
        shown = memory.recall(budget)
    except GraphError as error:
        least = error.min_budget  # type: ignore[attr-defined]
        assert least > budget
        assert len(json.dumps(memory.recall(least))) == least
    else:
        assert len(json.dumps(shown)) <= budget
        assert memory.recall(budget) == shown


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["assistant", "user", "tool", "system"]), max_size=20), st.data())
def test_every_turn_is_in_the_graph_once_or_waits(roles: list[str], data: st.DataObject) -> None:
    memory = ReasoningMemory(None, len)
    memory.init_memory("t")
    messages = [{"role": role, "content": str(at)} for at, role in enumerate(roles)]
    while messages:
        some = data.draw(st.integers(1, len(messages)))
        memory.memorize(messages[:some])
        messages = messages[some:]
    held = [turn for node in memory.graph.nodes.values() for turn in node.related_turn_ids]
    waiting = memory.turn_ids[-1:] if roles and roles[-1] == "assistant" else []
    assert sorted(held + waiting) == list(range(len(roles)))
