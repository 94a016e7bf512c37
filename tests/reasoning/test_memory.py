from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from hivemind.errors import UnknownVersion, UserError
from hivemind.reasoning import BudgetTooSmall, GraphError, Notes, ReasoningMemory, TaskGraph
from hivemind.tokens import count_tokens
from tests.durability import relaxed
from tests.reasoning.minds import Scripted, patch, turns


def size(messages: object) -> int:
    return count_tokens(json.dumps(messages))


def talk(episodes: int, mind: object = None, **fields: object) -> ReasoningMemory:
    memory = ReasoningMemory(mind, **fields)  # type: ignore[arg-type]
    memory.init_memory("Find the bug")
    memory.memorize([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Find the bug"}])
    for number in range(episodes):
        memory.memorize(turns(number))
    return memory


def test_a_task_is_needed_and_there_is_one() -> None:
    memory = ReasoningMemory()
    with pytest.raises(GraphError, match="init_memory"):
        memory.memorize(turns(1))
    memory.init_memory("t")
    with pytest.raises(GraphError):
        memory.init_memory("t")


def test_what_is_no_message_is_refused_whole() -> None:
    memory = talk(1)
    before = memory.graph.to_dict()
    for bad in ({"content": "no role"}, "text", {"role": "user", "content": object()}):
        with pytest.raises(UserError):
            memory.memorize([*turns(2), bad])  # type: ignore[list-item]
    assert memory.graph.to_dict() == before
    assert len(memory.messages) == 4


def test_within_the_budget_nothing_is_asked_and_nothing_changes() -> None:
    mind = Scripted(patch("x"))
    memory = talk(5, mind)
    asked = len(mind.prompts)
    assert memory.recall(100_000) == memory.messages
    assert len(mind.prompts) == asked


def test_the_task_is_in_the_context_even_if_nobody_said_it() -> None:
    memory = ReasoningMemory()
    memory.init_memory("Find the bug")
    memory.memorize(turns(1))
    assert memory.recall()[0] == {"role": "user", "content": "Find the bug"}
    assert memory.recall()[1:] == turns(1)


@pytest.mark.parametrize("budget", [8_000, 4_000, 2_000, 1_000, 500])
def test_by_rule_the_context_fits_with_its_first_and_last_turns(budget: int) -> None:
    memory = talk(60)
    shown = memory.recall(budget)
    assert size(shown) <= budget
    assert shown[:2] == memory.messages[:2]
    assert shown[-4:] == memory.messages[-4:]
    assert memory.recall(budget) == shown
    again = talk(60)
    assert again.recall(budget) == shown
    assert again.graph == memory.graph


def test_finished_work_is_folded_whole_and_can_be_brought_back() -> None:
    memory = talk(0, Scripted(patch("x")))
    with memory.graph.transaction() as graph:
        graph.apply_patch({"add_nodes": [{"tmp_id": "a", "kind": "subtask", "thought": "old line"}],
                           "add_edges": [{"src": 1, "dst": "a"}]})  # fmt: skip
    memory.mind = Scripted(*[patch(f"find {number}", below="2") for number in range(6)], patch("new"))
    for number in range(14):
        memory.memorize(turns(number))
    memory.mind = None
    memory.recall(size(memory.messages) - 100)
    summary = memory.graph.by_kind("summary")[0]
    assert summary.meta["folded"] == [2, 3, 4, 5, 6, 7, 8]
    memory.graph.unfold(summary.node_id)
    assert memory.recall(100_000) == memory.messages


def test_what_must_stay_is_excerpted_and_the_least_budget_is_named_and_true() -> None:
    memory = talk(3)
    memory.memorize([{"role": "assistant", "content": "long " * 3_000}, {"role": "user", "content": "short"}])
    shown = memory.recall(1_000)
    assert size(shown) <= 1_000
    assert shown[-1] == {"role": "user", "content": "short"}
    assert shown[:2] == memory.messages[:2]
    assert "…" in shown[-2]["content"]
    before = memory.graph.to_dict()
    with pytest.raises(BudgetTooSmall) as caught:
        memory.recall(20)
    assert memory.graph.to_dict() == before
    assert str(caught.value.min_budget) in str(caught.value)
    assert size(memory.recall(caught.value.min_budget)) == caught.value.min_budget
    with pytest.raises(BudgetTooSmall):
        memory.recall(caught.value.min_budget - 1)


def fold(*ids: int, notes: str = "SUMMARY") -> str:
    said = [{"role": "assistant", "content": notes}]
    return json.dumps({"flush_ops": [], "fold_ops": [{"ids": list(ids), "notes": said, "rationale": "done"}]})


def test_the_mind_folds_first() -> None:
    mind = Scripted(*[patch("x")] * 20, fold(*range(2, 18)))
    memory = talk(20, mind)
    shown = memory.recall(size(memory.messages) // 2)
    assert {"role": "assistant", "content": "SUMMARY"} in shown
    assert len(memory.graph.by_kind("summary")) == 1
    assert len(mind.prompts) == 21


BAD = [
    "prose only",
    "",
    "{",
    "[]",
    "null",
    "```json\n{}\n```",
    json.dumps({"flush_ops": [{"id": 1, "rationale": "the task"}]}),
    json.dumps({"fold_ops": [{"ids": [2, 3]}]}),
    json.dumps({"fold_ops": [{"ids": [2, 9999], "notes": [{"role": "a", "content": "b"}]}]}),
    fold(2, notes="much longer than what it stands for " * 500),
    RuntimeError("the provider is down"),
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_whatever_a_mind_answers_the_context_fits(bad: str | Exception) -> None:
    memory = talk(20)
    memory.mind = Scripted(bad)
    assert size(memory.recall(900)) <= 900
    memory.memorize(turns(99))
    assert memory.graph.node(memory.graph.next_id - 1).tags == ("unstructured",)


def test_a_bad_answer_is_shown_with_the_reason_and_asked_for_again_three_times_at_most() -> None:
    mind = Scripted("nonsense", patch("x", below="77"), patch("good"), "never")
    memory = talk(1, mind)
    assert len(mind.prompts) == 3
    assert "nonsense" in mind.prompts[1]
    assert "no JSON" in mind.prompts[1]
    assert "there is no node '77'" in mind.prompts[2]
    assert memory.graph.node(2).text == "good"
    mind = Scripted("nonsense")
    talk(1, mind)
    assert len(mind.prompts) == 3


def test_json_is_found_in_fences_and_between_prose() -> None:
    good = patch("found")
    for answer in (
        good,
        f"```json\n{good}\n```",
        f"I use {{braces}} here: {good} and {{there}}",
        f"```\n{good}```\nok",
    ):
        assert talk(1, Scripted(answer)).graph.node(2).text == "found"


def test_an_episode_that_could_not_be_written_waits_and_is_not_lost(tmp_path: Path) -> None:
    lost: list[str] = []

    def guard(steps: Sequence[str]) -> AbstractContextManager[None]:
        if lost:
            raise UserError(f"the lease on {steps[0]} is another's")
        return nullcontext()

    memory = ReasoningMemory(graph=TaskGraph(relaxed(tmp_path), guard=guard), step="s1")
    memory.init_memory("t")
    lost.append("now")
    with pytest.raises(UserError, match="another's"):
        memory.memorize(turns(1))
    lost.clear()
    memory.memorize(turns(2))
    assert [node.related_turn_ids for node in memory.graph.by_kind("evidence")] == [[0, 1], [2, 3]]


def test_several_memories_share_a_graph_each_in_its_lane(tmp_path: Path) -> None:
    memories = {name: ReasoningMemory(graph=TaskGraph(relaxed(tmp_path)), lane=f"agent/{name}") for name in "ab"}
    memories["a"].init_memory("t")
    for number in range(12):
        for name, memory in memories.items():
            memory.memorize(
                [{"role": "assistant", "content": f"{name}{number} " * 40}, {"role": "user", "content": "ok"}]
            )
    a, b = memories.values()
    whole = b.context()
    assert size(a.recall(400)) <= 400
    assert b.context() == whole
    assert a.graph == b.graph == TaskGraph(tmp_path).graph


def test_notes_speak_as_assistant_or_user_only() -> None:
    memory = talk(6)
    notes = [Notes("system", "obey"), Notes("Agent_Analyst", "I saw"), Notes("assistant", "plain")]
    memory.graph.fold_nodes([2, 3], notes)
    shown = memory.context()
    assert {"role": "user", "content": "system: obey"} in shown
    assert {"role": "user", "content": "Agent_Analyst: I saw"} in shown
    assert {"role": "assistant", "content": "plain"} in shown


def test_a_bare_seed_snapshot_and_a_wrapped_one_load(tmp_path: Path) -> None:
    seed = {
        "nodes": {
            "1": {"node_id": 1, "kind": "task", "thought": "T", "related_turn_ids": [0, 1], "active": True},
            "2": {"node_id": 2, "kind": "subtask", "thought": "S", "related_turn_ids": [2, 3], "active": False},
            "3": {"node_id": 3, "kind": "summary", "thought": '[{"role": "assistant", "content": "sum"}]',
                  "related_turn_ids": [2, 3], "active": True},
        },
        "edges": [{"src": "1", "dst": "3", "rationale": "r"}],
    }  # fmt: skip
    for at, record in enumerate((seed, {"memory": seed})):
        path = tmp_path / f"{at}.json"
        path.write_text(json.dumps(record))
        memory = ReasoningMemory()
        memory.load_memory(path)
        assert memory.graph.next_id == 4
        assert memory.context() == [{"role": "user", "content": "T"}, {"role": "assistant", "content": "sum"}]
        memory.memorize(turns(1))
        assert memory.graph.node(4).related_turn_ids == [4, 5]


def test_what_is_no_memory_is_refused_and_kept(tmp_path: Path) -> None:
    memory = talk(2)
    before = memory.context()
    path = tmp_path / "m.json"
    cases = {"{": UserError, "[]": UserError, '{"nodes": 1, "edges": []}': GraphError,
             '{"version": 9, "nodes": {}, "edges": []}': UnknownVersion,
             '{"nodes": {}, "edges": [{"src": 1, "dst": 2}]}': GraphError,
             '{"nodes": {}, "edges": [], "messages": [1]}': GraphError,
             "[" * 100_000: UserError}  # fmt: skip
    for text, kind in cases.items():
        path.write_text(text)
        with pytest.raises(kind, match=r"m\.json"):
            memory.load_memory(path)
        assert path.read_text() == text
    with pytest.raises(UserError):
        memory.load_memory(tmp_path / "missing.json")
    assert memory.context() == before


def test_a_waiting_turn_is_saved_and_goes_on_waiting(tmp_path: Path) -> None:
    memory = talk(2)
    memory.memorize([{"role": "assistant", "content": "and now"}])
    memory.save_memory(tmp_path / "m.json")
    loaded = ReasoningMemory()
    loaded.load_memory(tmp_path / "m.json")
    made = loaded.memorize([{"role": "user", "content": "this"}])
    assert made[0].related_turn_ids == [6, 7]
    assert made[0].node_id == 4


def test_a_call_is_not_parted_from_the_answers_that_must_stay() -> None:
    memory = talk(10)
    calls = [{"id": str(at), "function": {"name": "read", "arguments": "{}"}} for at in range(5)]
    memory.memorize([{"role": "assistant", "content": None, "tool_calls": calls}])
    memory.memorize([{"role": "tool", "tool_call_id": str(at), "content": f"answer {at}"} for at in range(5)])
    memory.graph.fold_nodes([12], "folded")
    assert memory.context()[-6:] == memory.messages[-6:]


def test_the_question_to_the_mind_does_not_grow_with_the_graph() -> None:
    mind = Scripted(patch("x" * 100))
    talk(120, mind)
    assert len(mind.prompts[-1]) < len(mind.prompts[50]) * 1.1


def test_memorizing_costs_the_same_for_the_last_episode_as_for_the_hundredth() -> None:
    memory = talk(0, Scripted(patch("x")))

    def calls(first: int) -> int:
        count = 0

        def each(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(each)
        for number in range(first, first + 20):
            memory.memorize(turns(number))
        sys.setprofile(None)
        return count

    costs = {}
    for number in range(0, 1_000, 20):
        if number in (100, 980):
            costs[number] = calls(number)
        else:
            for one in range(20):
                memory.memorize(turns(number + one))
    assert costs[980] <= 1.05 * costs[100]


@pytest.mark.parametrize("answer", [None, {"add_nodes": []}, 7, patch("x", below="9" * 5_000)])
def test_no_answer_whatever_its_type_ends_the_agent(answer: object) -> None:
    memory = talk(1, Scripted(answer))  # type: ignore[arg-type]
    (_, node) = memory.graph.nodes.values()
    assert node.tags == ("unstructured",)
    assert node.related_turn_ids == [2, 3]


def test_half_a_character_is_saved_and_comes_back(tmp_path: Path) -> None:
    memory = talk(1)
    memory.memorize([{"role": "assistant", "content": "read \udcff"}, {"role": "tool", "content": "\ud800"}])
    memory.save_memory(tmp_path / "m.json")
    loaded = ReasoningMemory()
    loaded.load_memory(tmp_path / "m.json")
    assert loaded.graph == memory.graph
    assert loaded.recall() == memory.recall()
