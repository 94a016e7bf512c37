from __future__ import annotations

import json

import pytest

from hivemind.reasoning import FLUSHED, FlushAndFoldOp, FlushOp, FoldOp, GraphError, Notes, ReasoningGraph


def build(*edges: tuple[int, int], nodes: int = 0) -> ReasoningGraph:
    graph = ReasoningGraph()
    graph.add_node("task", "T")
    for number in range(2, max([nodes, *(max(edge) for edge in edges)]) + 1):
        graph.add_node("subtask", f"n{number}", [number * 2, number * 2 + 1])
    for src, dst in edges:
        graph.add_edge(src, dst, f"{src}{dst}")
    return graph


def shape(graph: ReasoningGraph) -> tuple[list[tuple[int, int, str]], dict[int, bool | str]]:
    edges = [(edge.src, edge.dst, edge.rationale) for edge in graph.edges]
    return edges, {number: node.active for number, node in graph.nodes.items()}


def test_a_summary_takes_turns_and_outside_edges_and_unfolds_to_what_was() -> None:
    graph = build((1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (4, 6))
    before = shape(graph)
    summary = graph.fold_nodes([3, 4], [Notes("assistant", "both")], "finished")
    assert summary.related_turn_ids == [6, 7, 8, 9]
    assert summary.meta == {"folded": [3, 4], "rationale": "finished"}
    assert [(edge.src, edge.dst) for edge in graph.edges] == [(1, 2), (7, 5), (7, 6), (2, 7)]
    assert graph.node(3).active is False
    assert ReasoningGraph.from_dict(json.loads(graph.to_json())) == graph
    assert [node.node_id for node in graph.unfold(summary.node_id)] == [3, 4]
    edges, active = shape(graph)
    assert edges == before[0]
    assert active == {**before[1], 7: FLUSHED}
    assert graph.add_node("note", "next").node_id == 8
    with pytest.raises(GraphError):
        graph.unfold(summary.node_id)


def test_folds_unfold_in_any_order() -> None:
    graph = build((1, 2), (2, 3), (3, 4), (4, 5), (1, 6), (6, 4))
    before = shape(graph)
    one, other = graph.fold_nodes([2, 3], "a"), graph.fold_nodes([4, 5], "b")
    for first, second in ((one, other), (other, one)):
        copy = ReasoningGraph.from_dict(graph.to_dict())
        copy.unfold(first.node_id)
        copy.unfold(second.node_id)
        assert shape(copy)[0] == before[0]


def test_a_summary_of_summaries_unfolds_level_by_level() -> None:
    graph = build((1, 2), (2, 3), (3, 4), (4, 5))
    before = shape(graph)
    inner = graph.fold_nodes([3, 4], "inner")
    middle = shape(graph)
    outer = graph.fold_nodes([2, inner.node_id], "outer")
    assert ReasoningGraph.from_dict(graph.to_dict()) == graph
    with pytest.raises(GraphError, match=f"folded into {outer.node_id}"):
        graph.unfold(inner.node_id)
    graph.unfold(outer.node_id)
    assert shape(graph)[0] == middle[0]
    graph.unfold(inner.node_id)
    assert shape(graph)[0] == before[0]


def test_what_was_tied_to_a_summary_goes_to_its_first_member() -> None:
    graph = build((1, 2), (1, 3), (1, 4))
    summary = graph.fold_nodes([3, 2], "s")
    node = graph.add_node("evidence", "late")
    graph.add_edge(summary.node_id, node.node_id, "late")
    graph.add_edge(4, summary.node_id, "from above")
    graph.unfold(summary.node_id)
    assert [parent.node_id for parent in graph.parents(node.node_id)] == [3]
    assert [parent.node_id for parent in graph.parents(3)] == [1, 4]
    assert graph.parents(summary.node_id) == graph.children(summary.node_id) == []


def test_no_edge_is_drawn_to_what_is_folded_away() -> None:
    graph = build((1, 2), (1, 3))
    graph.fold_nodes([2], "s")
    with pytest.raises(GraphError, match="folded into 4"):
        graph.add_edge(3, 2)


@pytest.mark.parametrize("ids", [[], [1], [1, 2], [99], [2, 99], [2, 4], [2, 5], ["x"], [True]])
def test_a_bad_fold_is_refused_and_changes_nothing(ids: list[int]) -> None:
    graph = build((1, 2), (2, 3), (3, 4), (4, 5))
    before = graph.to_dict()
    with pytest.raises(GraphError):
        graph.fold_nodes(ids, "s")
    assert graph.to_dict() == before


def test_a_path_through_a_flushed_node_counts_too() -> None:
    graph = build((1, 2), (2, 3), (3, 4))
    graph.flush_node(3)
    with pytest.raises(GraphError, match="2 → 3 → 4"):
        graph.fold_nodes([2, 4], "s")


def test_a_flushed_summary_hides_its_members_and_can_still_be_unfolded() -> None:
    graph = build((1, 2), (1, 3))
    summary = graph.fold_nodes([2, 3], "s", "done")
    graph.flush_node(summary.node_id, "useless")
    assert graph.get_leaf_node_ids() == [1]
    assert summary.meta["rationale"] == "done"
    assert summary.meta["flush_rationale"] == "useless"
    graph.unfold(summary.node_id)
    assert graph.get_leaf_node_ids() == [2, 3]


def test_operations_apply_whole_or_not_at_all() -> None:
    graph = build((1, 2), (1, 3), (2, 4), (3, 5), (1, 6))
    before = graph.to_dict()
    bad: list[dict[str, object]] = [
        {},
        {"flush_ops": [{"id": 4}, {"id": 4}]},
        {"flush_ops": [{"id": 4}], "fold_ops": [{"ids": [4, 2], "notes": "x"}]},
        {"fold_ops": [{"ids": [4], "notes": "x"}, {"ids": [4], "notes": "x"}]},
        {"fold_ops": [{"ids": [4], "notes": "x"}, {"ids": [77], "notes": "x"}]},
        {"fold_ops": [{"ids": [4], "notes": []}]},
        {"flush_ops": [{"id": 1}]},
        {"flush_ops": [{"rationale": "no id"}]},
        {"flush_ops": [{"id": 6}], "fold_ops": [{"ids": []}]},
    ]
    for operations in bad:
        with pytest.raises(GraphError):
            graph.apply_operations(operations)
        assert graph.to_dict() == before
    done = FlushAndFoldOp(flush_ops=[FlushOp(id=6)], fold_ops=[FoldOp(ids=[2, 4], notes=[Notes("assistant", "two")])])
    assert [node.meta["folded"] for node in graph.apply_operations(done)] == [[2, 4]]


def test_two_folds_that_would_close_a_cycle_together_are_refused() -> None:
    graph = build((1, 2), (2, 3), (1, 4), (4, 5))
    graph.add_edge(4, 3)
    graph.add_edge(2, 5)
    before = graph.to_dict()
    with pytest.raises(GraphError, match=r"fold_ops\[1\]"):
        # 2→3, 4→5 with 2→5 and 4→3: {2,5} and {3,4} would point at each other
        graph.apply_operations({"fold_ops": [{"ids": [2, 5], "notes": "a"}, {"ids": [3, 4], "notes": "b"}]})
    assert graph.to_dict() == before


def test_a_chain_of_twenty_thousand_works() -> None:
    graph = ReasoningGraph()
    graph.add_node("task", "T")
    for number in range(2, 20_002):
        graph.add_node("subtask", "x")
        graph.add_edge(number - 1, number)
    assert len(graph.path_to_root(20_001)) == 20_001
    assert len(graph.subtree(1)) == 20_001
    assert graph.get_leaf_node_ids() == [20_001]
    assert len(graph.pretty_print()) < 20_001 * 60
    with pytest.raises(GraphError, match="cycle"):
        graph.add_edge(20_001, 2)
    summary = graph.fold_nodes(range(2, 20_002), "all")
    assert graph.get_leaf_node_ids() == [summary.node_id]
    graph.unfold(summary.node_id)
    assert len(graph.path_to_root(20_001)) == 20_001
