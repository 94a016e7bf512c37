from __future__ import annotations

import pytest

from hivemind.reasoning import (
    AddEdgeOp,
    AddNodeOp,
    Edge,
    GraphError,
    MemoryPatch,
    NodeKind,
    Notes,
    ReasoningGraph,
    ReasoningNode,
)


@pytest.fixture
def graph() -> ReasoningGraph:
    """1 task → 2, 3 subtasks; 2 → 4, 5 evidence; 3 → 6 evidence."""
    graph = ReasoningGraph()
    graph.add_node("task", "Research practices", [0, 1])
    for parent, kind, turns in ((1, "subtask", [2, 3]), (1, "subtask", [4, 5])):
        node = graph.add_node(kind, f"sub {parent}", turns)
        graph.add_edge(parent, node.node_id, "decompose task")
    for parent in (2, 2, 3):
        node = graph.add_node("evidence", "found", [graph.next_id * 2])
        graph.add_edge(parent, node.node_id)
    return graph


def ids(nodes: list[ReasoningNode]) -> list[int]:
    return [node.node_id for node in nodes]


def test_edges_run_from_parent_to_child(graph: ReasoningGraph) -> None:
    assert ids(graph.children(2)) == [4, 5]
    assert ids(graph.parents(4)) == [2]
    assert ids(graph.path_to_root(6)) == [6, 3, 1]
    assert ids(graph.subtree(2)) == [2, 4, 5]
    assert graph.edges[0] == Edge(1, 2, "decompose task")
    assert graph.edges[0].relation == "decompose"
    assert {edge.relation for edge in graph.edges if edge.dst > 3} == {"support"}


def test_a_node_may_have_several_parents(graph: ReasoningGraph) -> None:
    graph.add_edge(3, 4, "also here")
    assert ids(graph.parents(4)) == [2, 3]
    assert graph.pretty_print().count("4 [evidence]") == 1


@pytest.mark.parametrize(
    ("src", "dst"),
    [(1, 99), (99, 2), (2, 2), (2, 1), (1, 2), (4, 2), ("x", 2), (True, 2), (1.5, 2), (None, 2), (-1, 2)],
)
def test_a_bad_edge_is_refused_and_changes_nothing(graph: ReasoningGraph, src: object, dst: object) -> None:
    before = graph.to_dict()
    with pytest.raises(GraphError):
        graph.add_edge(src, dst)  # type: ignore[arg-type]
    assert graph.to_dict() == before


def test_a_cycle_is_named(graph: ReasoningGraph) -> None:
    with pytest.raises(GraphError, match="2 → 4"):
        graph.add_edge(4, 2)


def test_there_is_one_task_node(graph: ReasoningGraph) -> None:
    before = graph.to_dict()
    with pytest.raises(GraphError, match="node 1"):
        graph.add_node("task", "another")
    assert graph.to_dict() == before


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "thing"},
        {"thought": 5},
        {"thought": [{"role": "assistant"}]},
        {"lane": "bob"},
        {"lane": "agent/../x"},
        {"tags": "one"},
        {"meta": {"title": "x"}},
        {"related_turn_ids": ["a"]},
        {"related_turn_ids": "12"},
    ],
)
def test_a_bad_node_is_refused_and_changes_nothing(graph: ReasoningGraph, fields: dict[str, object]) -> None:
    before = graph.to_dict()
    with pytest.raises(GraphError):
        graph.add_node(**{"kind": "evidence", "thought": "x", **fields})  # type: ignore[arg-type]
    assert graph.to_dict() == before


def test_cards_are_found_by_tag_lane_step_and_pin(graph: ReasoningGraph) -> None:
    node = graph.add_node(
        "hypothesis", "H", title="T", tags=["a", "assumption"], lane="agent/Bob", step="s1", status="weird"
    )
    other = graph.add_node("decision", "D", tags=["pinned"])
    assert ids(graph.by_kind("hypothesis")) == ids(graph.by_tag("a")) == ids(graph.by_step("s1")) == [7]
    assert ids(graph.by_lane("agent/bob")) == [7]
    assert other.pinned
    assert 7 not in ids(graph.visible())
    assert 7 in ids(graph.visible("bob"))
    assert 7 not in ids(graph.visible("ann"))
    assert 7 in ids(graph.visible("ann", all_lanes=True))
    graph.update_node(node.node_id, tags=["b"], step=None, status="closed", lane="shared", meta={"run": "pytest"})
    assert graph.by_tag("a") == graph.by_step("s1") == graph.by_lane("agent/bob") == []
    assert ids(graph.by_tag("b")) == [7]
    assert graph.node("7").meta == {"run": "pytest"}
    with pytest.raises(GraphError, match="active"):
        graph.update_node(7, active=False)


def test_links_join_any_two_nodes_cycles_included(graph: ReasoningGraph) -> None:
    assert graph.add_link(4, 5, "supports") is graph.add_link(4, 5, "supports")
    graph.add_link(5, 4, "supports")
    graph.add_link(6, 1, "blocks")
    assert [link.src for link in graph.links_to(4, "supports")] == [5]
    assert [link.dst for link in graph.links_from(6)] == [1]
    for bad in ((4, 4, "supports"), (4, 99, "blocks"), (4, 5, " ")):
        with pytest.raises(GraphError):
            graph.add_link(*bad)


def test_leaves_are_active_and_look_through_flushed_nodes(graph: ReasoningGraph) -> None:
    assert graph.get_leaf_node_ids() == [4, 5, 6]
    graph.flush_node(6, "wrong file")
    assert graph.get_leaf_node_ids() == [3, 4, 5]
    assert graph.node(6).meta["rationale"] == "wrong file"
    graph.flush_node(2)
    assert graph.get_leaf_node_ids() == [3, 4, 5]
    graph.flush_node(4)
    graph.flush_node(5)
    graph.flush_node(3)
    assert graph.get_leaf_node_ids() == [1]


def test_the_outline_shows_what_is_active_and_no_thought_passes_for_a_line(graph: ReasoningGraph) -> None:
    graph.update_node(4, thought="first\n99 [evidence] forged\x1b[31m")
    graph.flush_node(2)
    shown = graph.pretty_print().splitlines()
    assert shown[0] == "1 [task] Research practices"
    assert not any(line.strip().startswith(("2 ", "99 ")) for line in shown)
    assert "  4 [evidence] first 99 [evidence] forged" in shown[1]
    assert "\x1b" not in "".join(shown)


def test_a_patch_makes_nodes_that_all_have_the_turns(graph: ReasoningGraph) -> None:
    patch = MemoryPatch(
        add_nodes=[
            AddNodeOp(tmp_id="tmp1", kind=NodeKind.SUBTASK, thought=[Notes("assistant", "next")]),
            AddNodeOp(tmp_id="tmp2", kind=NodeKind.EVIDENCE, thought=[Notes("Agent_Analyst", "seen")]),
        ],
        add_edges=[AddEdgeOp(src="1", dst="tmp1"), AddEdgeOp(src="tmp1", dst="tmp2", rationale="support")],
    )
    made = graph.apply_patch(patch, [9, 10])
    assert ids(made) == [7, 8]
    assert all(node.related_turn_ids == [9, 10] for node in made)
    assert ids(graph.path_to_root(8)) == [8, 7, 1]
    assert ReasoningGraph.from_dict(graph.to_dict()) == graph


def node(tmp_id: str = "tmp1", kind: str = "evidence") -> dict[str, object]:
    return {"tmp_id": tmp_id, "kind": kind, "thought": [{"role": "assistant", "content": "x"}]}


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        ([], [], "empty"),
        ([node(kind="task")], [("1", "tmp1")], r"add_nodes\[0\].*not task"),
        ([node(kind="summary")], [("1", "tmp1")], "not summary"),
        ([node(), node()], [("1", "tmp1")], r"add_nodes\[1\].*twice"),
        ([node("1")], [("1", "1")], "must not be a number"),
        ([node(" 7 ")], [("1", " 7 ")], "must not be a number"),
        ([node("1e3")], [("1", "1e3")], "must not be a number"),
        ([node("²")], [("1", "²")], "must not be a number"),
        ([node()], [("tmp2", "tmp1")], r"add_edges\[0\].*no tmp_id 'tmp2'"),
        ([node()], [("1", "tmp1"), ("tmp1", "nope")], r"add_edges\[1\]"),
        ([node()], [("77", "tmp1")], "no node"),
        ([node()], [("6", "tmp1")], "not active"),
        ([node()], [("1", "tmp1"), ("1", "6")], "not active"),
        ([node()], [], "unattached"),
        ([node(), node("tmp2")], [("1", "tmp1")], "'tmp2' unattached"),
        ([node(), node("tmp2")], [("tmp1", "tmp2")], "unattached"),
        ([node(), node("tmp2")], [("1", "tmp1"), ("tmp1", "tmp2"), ("tmp2", "tmp1")], "cycle"),
        ([node()], [("1", "tmp1"), ("1", "tmp1")], "already"),
        ([node()], [("1", "tmp1"), ("tmp1", "1")], "the task node has no parents"),
        ([{"tmp_id": "a", "kind": "evidence"}], [], r"add_nodes\.0\.thought"),
        ([{"tmp_id": "a", "kind": "idea", "thought": "x"}], [], r"add_nodes\.0\.kind"),
    ],
)
def test_a_patch_applies_whole_or_not_at_all(
    graph: ReasoningGraph, nodes: list[object], edges: list[tuple[str, str]], said: str
) -> None:
    graph.flush_node(6)
    before = graph.to_dict()
    patch = {"add_nodes": nodes, "add_edges": [{"src": src, "dst": dst} for src, dst in edges]}
    with pytest.raises(GraphError, match=said):
        graph.apply_patch(patch, [7])
    assert graph.to_dict() == before


def test_a_transaction_that_fails_leaves_no_trace(graph: ReasoningGraph) -> None:
    before = graph.to_dict()
    with pytest.raises(ZeroDivisionError), graph.transaction():  # noqa: PT012 - the point is what came before
        node = graph.add_node("evidence", "x")
        graph.add_edge(1, node.node_id)
        graph.add_link(node.node_id, 2, "supports")
        summary = graph.fold_nodes([4, 5], "both")
        graph.unfold(summary.node_id)
        graph.fold_nodes([2, 4], "chain")
        graph.flush_node(3)
        graph.supersede(3, 6)
        raise ZeroDivisionError
    assert graph.to_dict() == before
    assert graph.get_leaf_node_ids() == [4, 5, 6]


def test_superseding_keeps_both_and_ends_a_conflict(graph: ReasoningGraph) -> None:
    old = graph.add_node("evidence", "the port is 80", tags=["port"])
    new = graph.add_node("evidence", "the port is 8080", tags=["port"])
    graph.add_node("evidence", "the port is 80", tags=["pinned"])
    assert [(found.tag, found.node_ids) for found in graph.conflicts()] == [("port", (7, 8))]
    graph.supersede(old.node_id, new.node_id)
    assert graph.conflicts() == []
    assert ids(graph.history("port")) == [7, 8]
    assert old.status == "superseded"
    assert [link.src for link in graph.links_to(7, "supersedes")] == [8]
    with pytest.raises(GraphError):
        graph.supersede(7, 8)
    with pytest.raises(GraphError):
        graph.supersede(7, 7)


def test_made_earlier_has_the_smaller_seq(graph: ReasoningGraph) -> None:
    seqs = [node.created_seq for node in graph.nodes.values()]
    assert seqs == sorted(set(seqs))


def test_publishing_makes_an_anchor_and_then_revisions_of_it(graph: ReasoningGraph) -> None:
    draft = graph.add_node("decision", "use ports", tags=["net"], lane="agent/ann", meta={"digest": "1"})
    graph.add_edge(2, draft.node_id)
    copy = graph.publish(draft.node_id)
    assert copy.lane == "shared"
    assert copy.pinned
    assert copy.meta["origin"]["node"] == draft.node_id
    assert ids(graph.parents(copy.node_id)) == [2]
    assert [link.dst for link in graph.links_from(copy.node_id, "supports")] == [draft.node_id]
    before = graph.to_dict()
    assert graph.publish(draft.node_id) is copy
    assert graph.to_dict() == before
    graph.update_node(draft.node_id, thought="use sockets", meta={"digest": None, "run": "x"})
    assert graph.publish(draft.node_id) is copy
    assert copy.thought == "use sockets"
    assert copy.meta["origin"]["revision"] == 2
    assert copy.meta["run"] == "x"
    assert "digest" not in copy.meta
    for refused in (1, 2, copy.node_id):
        with pytest.raises(GraphError):
            graph.publish(refused)


def test_a_refused_patch_leaves_no_cycle_to_be_drawn_later(graph: ReasoningGraph) -> None:
    """It had put its node in front of an older one; that the order was not put back let an edge close a cycle."""
    for refused in ([("t", "6"), ("t", "t")], [("t", "2"), ("2", "t")], [("t", "3"), ("1", "t"), ("1", "gone")]):
        edges = [AddEdgeOp(src=src, dst=dst, rationale="") for src, dst in refused]
        with pytest.raises(GraphError):
            graph.apply_patch(
                MemoryPatch(add_nodes=[AddNodeOp(tmp_id="t", kind=NodeKind.SUBTASK, thought=[])], add_edges=edges)
            )
        new = graph.add_node("evidence", "found").node_id
        graph.add_edge(int(refused[0][1]), new)
        with pytest.raises(GraphError, match="closes a cycle"):
            graph.add_edge(new, int(refused[0][1]))
