"""The fourteen faults of the published implementation (shared/baselines/reasoning-graph.md): none may exist here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hivemind.reasoning import GraphError, ReasoningGraph, ReasoningMemory
from tests.reasoning.minds import Scripted, patch, turns


def characters(text: str) -> int:
    return len(text)


def remembering(episodes: int, mind: Scripted | None = None) -> ReasoningMemory:
    memory = ReasoningMemory(mind, characters, 100_000)
    memory.init_memory("the task")
    for number in range(episodes):
        memory.memorize(turns(number))
    return memory


def said(memory: ReasoningMemory) -> str:
    return json.dumps(memory.context())


def test_fault_1_a_summary_whose_last_turn_is_protected_is_shown() -> None:
    memory = remembering(6)
    memory.graph.fold_nodes([2, 3, 6, 7], "THE SUMMARY")  # turns 0-3 and the protected 8-11
    shown = said(memory)
    assert "THE SUMMARY" in shown
    assert "file 0." not in shown
    assert "file 5." in shown


def test_fault_2_two_summaries_that_end_on_one_turn_are_both_shown() -> None:
    memory = remembering(6, Scripted(patch("one", "two")))
    memory.graph.fold_nodes([2, 4], "SUMMARY A")
    memory.graph.fold_nodes([3, 5], "SUMMARY B")
    assert "SUMMARY A" in said(memory)
    assert "SUMMARY B" in said(memory)


def test_fault_3_a_summary_that_is_folded_or_flushed_is_shown_no_more() -> None:
    memory = remembering(8)
    inner = memory.graph.fold_nodes([2, 3], "INNER")
    outer = memory.graph.fold_nodes([inner.node_id, 4], "OUTER")
    assert "INNER" not in said(memory)
    assert "OUTER" in said(memory)
    memory.graph.flush_node(outer.node_id)
    graph = memory.graph.pretty_print()
    assert "OUTER" not in graph
    assert "INNER" not in graph
    assert "INNER" not in said(memory)


def test_fault_4_a_turn_that_an_active_node_shares_stays() -> None:
    memory = remembering(6, Scripted(patch("one", "two")))
    memory.graph.fold_nodes([2], "SUMMARY")
    assert "file 0." in said(memory)
    memory.graph.flush_node(3)
    assert "file 0." not in said(memory)
    assert "SUMMARY" in said(memory)


def test_fault_5_a_patch_that_fails_changes_nothing_and_shifts_no_turn() -> None:
    broken = patch("x", below="99")
    memory = ReasoningMemory(Scripted(patch("first"), broken, broken, broken, patch("third")), characters, 100_000)
    memory.init_memory("t")
    for number in range(3):
        memory.memorize(turns(number))
    nodes = list(memory.graph.nodes.values())[1:]
    assert [node.related_turn_ids for node in nodes] == [[0, 1], [2, 3], [4, 5]]
    assert [node.text.split()[0] for node in nodes] == ["first", "I", "third"]


def test_fault_6_turn_ids_belong_to_messages_and_dangling_ones_wait() -> None:
    memory = remembering(0)
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}, {"id": "b"}]}
    memory.memorize([{"role": "system", "content": "s"}, {"role": "user", "content": "the task"}, call])
    memory.memorize([{"role": "tool", "tool_call_id": "a", "content": "A"}])
    assert len(memory.graph) == 1
    memory.memorize([{"role": "tool", "tool_call_id": "b", "content": "B"}])
    assert memory.graph.node(2).related_turn_ids == [2, 3, 4]
    memory.memorize([*turns(1), {"role": "assistant", "content": "odd"}])
    assert memory.graph.node(3).related_turn_ids == [5, 6]
    memory.memorize([{"role": "user", "content": "even"}])
    assert memory.graph.node(4).related_turn_ids == [7, 8]
    assert memory.graph.node(1).related_turn_ids == [0, 1]


def test_fault_7_a_tmp_id_never_shadows_a_node() -> None:
    graph = ReasoningGraph()
    graph.add_node("task", "t")
    for bad in ("1", "01", "1.0"):
        with pytest.raises(GraphError, match="must not be a number"):
            graph.apply_patch(json.loads(patch("x").replace("tmp0", bad)))
    node = json.loads(patch("x"))
    with pytest.raises(GraphError, match="twice"):
        graph.apply_patch({**node, "add_nodes": node["add_nodes"] * 2})
    with pytest.raises(GraphError, match="no tmp_id 'tmp1'"):
        graph.apply_patch(json.loads(patch("x", below="tmp1")))
    assert list(graph.nodes) == [1]


def test_fault_8_no_empty_summary_no_second_one_no_way_back_by_flushing() -> None:
    memory = remembering(2)
    graph = memory.graph
    for nobody in ([], [99], [2, 99]):
        with pytest.raises(GraphError):
            graph.fold_nodes(nobody, "s")
    graph.fold_nodes([2, 3], "s")
    for again in ([2], [2, 3]):
        with pytest.raises(GraphError):
            graph.fold_nodes(again, "s")
    with pytest.raises(GraphError):
        graph.flush_node(2)
    assert graph.node(2).active is False
    assert graph.next_id == 5


def test_fault_9_the_task_is_neither_flushed_nor_folded() -> None:
    graph = remembering(1).graph
    with pytest.raises(GraphError, match="task node"):
        graph.flush_node(1)
    with pytest.raises(GraphError, match="task node"):
        graph.fold_nodes([1, 2], "s")
    assert graph.node(1).active is True


def test_fault_10_the_ends_of_a_chain_are_not_folded_without_its_middle() -> None:
    graph = ReasoningGraph()
    graph.add_node("task", "t")
    for number in (2, 3, 4):
        graph.add_node("subtask", "s")
        graph.add_edge(number - 1, number)
    with pytest.raises(GraphError, match="2 → 3 → 4"):
        graph.fold_nodes([2, 4], "s")
    assert graph.path_to_root(4)[-1].node_id == 1


def test_fault_11_a_recall_applies_whole_or_not_at_all() -> None:
    half = json.dumps({"flush_ops": [{"id": 2, "rationale": ""}, {"id": 99, "rationale": ""}], "fold_ops": []})
    missing = json.dumps({"flush_ops": [{"rationale": "no id"}]})
    mind = Scripted(*[patch("x")] * 8, half, missing, "nonsense", "nonsense")
    memory = remembering(8, mind)
    budget = len(json.dumps(memory.messages)) - 500
    assert len(json.dumps(memory.recall(budget))) <= budget
    assert "99" in mind.prompts[9]
    assert memory.graph.node(2).active is False  # by rule; never "Flushed" by half an answer


def test_fault_12_bad_json_loses_no_episode() -> None:
    fenced = f"Here it is:\n```json\n{patch('from a fence')}\n```\nDone."
    memory = remembering(1, Scripted(fenced))
    assert memory.graph.node(2).text == "from a fence"
    for bad in ("{broken", "", "no JSON", json.dumps({"add_nodes": [], "add_edges": []})):
        memory = remembering(1, Scripted(bad))
        node = memory.graph.node(2)
        assert node.tags == ("unstructured",)
        assert node.related_turn_ids == [0, 1]
        assert [note.as_dict() for note in node.thought if not isinstance(note, str)] == turns(0)


def test_fault_13_a_snapshot_has_the_messages_and_an_empty_one_loads(tmp_path: Path) -> None:
    memory = remembering(6)
    memory.graph.fold_nodes([2, 3], "SUMMARY")
    memory.save_memory(tmp_path / "memory.json")
    loaded = ReasoningMemory(None, characters)
    loaded.load_memory(tmp_path / "memory.json")
    assert loaded.graph == memory.graph
    assert loaded.context() == memory.context()
    ReasoningMemory().save_memory(tmp_path / "empty.json")
    loaded.load_memory(tmp_path / "empty.json")
    assert len(loaded.graph) == 0
    assert loaded.context() == []
    assert ReasoningGraph.from_dict({"nodes": {}, "edges": []}) == ReasoningGraph()
    assert not list(tmp_path.glob(".tmp-*"))


def test_fault_14_deep_chains_work_and_flushed_nodes_are_out_of_sight() -> None:
    graph = ReasoningGraph()
    graph.add_node("task", "t")
    for number in range(2, 3_002):
        graph.add_node("subtask", f"link {number} of the chain")
        graph.add_edge(number - 1, number)
    assert len(graph.pretty_print().splitlines()) == 3_001
    graph.flush_node(3_001)
    assert "link 3001 of" not in graph.pretty_print()
    assert graph.get_leaf_node_ids() == [3_000]
