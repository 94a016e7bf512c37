from __future__ import annotations

import json

import pytest

from hivemind.errors import UnknownVersion, UserError
from hivemind.reasoning import Notes, ReasoningGraph


@pytest.fixture
def graph() -> ReasoningGraph:
    graph = ReasoningGraph()
    graph.add_node("task", "T", [0, 1])
    graph.add_node("subtask", [Notes("assistant", "ä"), Notes("Agent_B", "x")], [2, 3])
    graph.add_node(
        "evidence", "E", [4], title="t", tags=["a"], lane="agent/b", step="s", pinned=True, meta={"run": "x"}
    )
    graph.add_edge(1, 2, "decompose task")
    graph.add_edge(2, 3, "because", "refine")
    graph.add_link(3, 2, "supports")
    return graph


def test_the_snapshot_is_the_seeds_and_what_it_lacks(graph: ReasoningGraph) -> None:
    snapshot = json.loads(graph.to_json())
    assert snapshot["nodes"]["2"] == {
        "node_id": 2,
        "kind": "subtask",
        "thought": [{"role": "assistant", "content": "ä"}, {"role": "Agent_B", "content": "x"}],
        "related_turn_ids": [2, 3],
        "active": True,
    }
    assert snapshot["nodes"]["3"]["meta"] == {
        "run": "x", "title": "t", "tags": ["a"], "lane": "agent/b", "step": "s", "pinned": True,
    }  # fmt: skip
    assert snapshot["edges"] == [
        {"src": 1, "dst": 2, "rationale": "decompose task"},
        {"src": 2, "dst": 3, "rationale": "because", "relation": "refine"},
    ]
    assert snapshot["next_id"] == 4
    assert ReasoningGraph.from_dict(snapshot) == graph


def test_ids_are_not_used_again_after_loading(graph: ReasoningGraph) -> None:
    with pytest.raises(ZeroDivisionError), graph.transaction():
        raise ZeroDivisionError
    snapshot = graph.to_dict()
    snapshot["next_id"] = 9
    assert ReasoningGraph.from_dict(snapshot).add_node("note", "x").node_id == 9
    del snapshot["next_id"]
    assert ReasoningGraph.from_dict(snapshot).add_node("note", "x").node_id == 4


def test_edges_are_read_with_numbers_or_texts(graph: ReasoningGraph) -> None:
    snapshot = graph.to_dict()
    snapshot["edges"] = [{**edge, "src": str(edge["src"]), "dst": str(edge["dst"])} for edge in snapshot["edges"]]
    assert ReasoningGraph.from_dict(snapshot) == graph


NODE = {"node_id": 4, "kind": "evidence", "thought": "x", "related_turn_ids": [], "active": True}


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": None},
        {"nodes": {"4": {"node_id": 4}}},
        {"nodes": {"4": {**NODE, "kind": "x"}}},
        {"nodes": {"4": {**NODE, "active": "no"}}},
        {"nodes": {"4": {**NODE, "node_id": 0}}},
        {"nodes": {"4": {**NODE, "meta": [1]}}},
        {"nodes": {"4": NODE, "5": NODE}},
        {"nodes": {"4": {**NODE, "kind": "task"}, "5": {**NODE, "kind": "task", "node_id": 5}}},
        {"nodes": {"4": {**NODE, "kind": "summary", "meta": {"folded": [9]}}}},
        {"nodes": {"4": {**NODE, "kind": "summary", "meta": {"folded": [4]}}}},
        {"edges": [{"src": 1}]},
        {"edges": [{"src": 1, "dst": 9}]},
        {"edges": [{"src": 1, "dst": 1}]},
        {"edges": [{"src": 2, "dst": 1}]},
        {"edges": [{"src": 2, "dst": 3}, {"src": 3, "dst": 2}]},
        {"links": [{"src": 1, "dst": 9, "relation": "blocks"}]},
        {"next_id": "x"},
    ],
)
def test_a_broken_snapshot_is_refused(graph: ReasoningGraph, change: dict[str, object]) -> None:
    with pytest.raises(UserError):
        ReasoningGraph.from_dict({**graph.to_dict(), **change})


def test_another_version_is_refused(graph: ReasoningGraph) -> None:
    with pytest.raises(UnknownVersion):
        ReasoningGraph.from_dict({**graph.to_dict(), "version": 3})


def test_a_summary_that_came_by_edges_of_two_kinds_is_the_same_after_loading(graph: ReasoningGraph) -> None:
    graph.add_node("evidence", "F")
    graph.add_edge(2, 4)
    graph.add_node("subtask", "G")
    graph.add_edge(2, 5)
    graph.fold_nodes([5, 4], "the subtask first: its edge refines, the older one supports")
    assert ReasoningGraph.from_dict(json.loads(graph.to_json())) == graph
