from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from hivemind.reasoning import NodeKind
from hivemind.views import SignalInput, signals

from .conftest import Place

Codes = Callable[..., list[str]]


def slice_of(place: Place) -> SignalInput:
    graph = place.graph.graph
    nodes = graph.visible("ada")
    return SignalInput(graph, nodes, visible=frozenset(node.node_id for node in nodes))


def score(place: Place, number: int) -> int:
    return slice_of(place).evidence_score(place.graph.graph.nodes[number])


def sure(place: Place, number: int) -> float:
    return slice_of(place).confidence(place.graph.graph.nodes[number])


def test_a_decision_left_in_an_agents_lane_is_to_be_published(place: Place, codes: Codes) -> None:
    code = "LANE_DECISION_NOT_PUBLISHED"
    draft = place.card("decision", lane="agent/ada")
    assert code in codes()
    place.graph.publish(draft, agent_id="ada")
    assert code not in codes()
    place.card("decision", lane="agent/bob", agent="bob")
    assert code not in codes(), "another's draft is not visible"
    assert code in codes(all_lanes=True)


def test_an_old_draft_is_left_alone_unless_it_is_pinned(place: Place, codes: Codes) -> None:
    draft = place.card("decision", lane="agent/ada")
    place.clock.pass_days(20)
    place.card("note")
    assert "LANE_DECISION_NOT_PUBLISHED" not in codes()
    place.update(draft, pinned=True)
    assert "LANE_DECISION_NOT_PUBLISHED" in codes()


def test_at_most_eight_drafts_are_told_of(place: Place, codes: Codes) -> None:
    for _ in range(10):
        place.card("decision", lane="agent/ada")
    assert codes().count("LANE_DECISION_NOT_PUBLISHED") == 8


@pytest.mark.parametrize("kind", ["hypothesis", "test", "decision"])
def test_something_open_that_is_both_supported_and_blocked_contradicts_itself(
    place: Place, codes: Codes, kind: str
) -> None:
    claim = place.card(kind)
    place.link(place.card("note"), "supports", claim)
    assert "BM1_CONTRADICTION" not in codes()
    place.link(place.card("note"), "blocks", claim)
    assert codes()[0] == "BM1_CONTRADICTION"
    place.update(claim, status="accepted")
    assert "BM1_CONTRADICTION" not in codes()


def test_what_is_only_blocked_or_whose_support_was_rejected_does_not_contradict_itself(
    place: Place, codes: Codes
) -> None:
    claim, support = place.card("hypothesis"), place.card("note")
    place.link(place.card("note"), "blocks", claim)
    assert "BM1_CONTRADICTION" not in codes()
    place.link(support, "supports", claim)
    assert "BM1_CONTRADICTION" in codes()
    place.update(support, status="rejected")
    assert "BM1_CONTRADICTION" not in codes()


def test_an_evidence_child_supports_its_parent(place: Place, codes: Codes) -> None:
    claim = place.card("hypothesis")
    place.card("evidence", under=claim)
    place.link(place.card("note"), "blocks", claim)
    assert "BM1_CONTRADICTION" in codes()


def test_evidence_is_scored_by_its_receipts_and_by_what_it_is_linked_to(place: Place) -> None:
    test, claim = place.card("test"), place.card("hypothesis")
    bare = place.card("evidence")
    assert score(place, bare) == 0
    place.link(bare, "supports", claim)
    assert score(place, bare) == 10
    place.link(bare, "supports", test)
    assert score(place, bare) == 20
    place.update(bare, meta={"command": "pytest", "exit_status": 0})
    assert score(place, bare) == 55
    place.update(bare, meta={"command": "pytest", "exit_status": 0, "artifact": "out.txt"})
    assert score(place, bare) == 80
    place.update(bare, meta={"command": "pytest", "exit_status": 0, "artifact": "out.txt", "ci": True})
    assert score(place, bare) == 90
    place.update(bare, meta={"command": "pytest", "exit_status": 1, "artifact": None})
    assert score(place, bare) == 20, "a command that failed is evidence against"


def test_receipts_stand_in_meta_or_in_the_text_and_placeholders_are_none(place: Place) -> None:
    assert score(place, place.card("evidence", "CMD: pytest -q\nLINK: https://ci.example/1")) == 60
    assert score(place, place.card("evidence", "CMD: <fill in>\nLINK: TODO")) == 0
    receipts = [{"kind": "CMD", "text": "pytest", "ci": True}, {"kind": "rubbish"}, 7]
    assert score(place, place.card("evidence", meta={"receipts": receipts})) == 45
    assert score(place, place.card("evidence", meta={"citation": {"path": "knowledge/a.md"}})) == 25


def test_weak_evidence_under_a_pinned_decision_is_told_the_worst_two(place: Place, codes: Codes) -> None:
    decision = place.card("decision")
    weak = [place.card("evidence") for _ in range(3)]
    for one in weak:
        place.link(one, "supports", decision)
    assert "BM2_EVIDENCE_WEAK" not in codes()
    place.update(decision, pinned=True)
    assert codes().count("BM2_EVIDENCE_WEAK") == 2
    strong = {"command": "pytest", "artifact": "a", "ci": True}
    for one in weak:
        place.update(one, meta=strong)
    assert "BM2_EVIDENCE_WEAK" not in codes()


def test_confidence_follows_the_formula(place: Place) -> None:
    claim = place.card("hypothesis")
    assert sure(place, claim) == 0.5
    proof = place.card("evidence", "CMD: pytest", under=claim)
    assert score(place, proof) == 45
    assert sure(place, claim) == pytest.approx((1 + 4 * 0.45) / (2 + 4 * 0.45))
    note = place.card("note")
    place.link(note, "blocks", claim)
    assert sure(place, claim) == pytest.approx((1 + 4 * 0.45) / (2 + 4 * 0.45 + 0.25 * 0.5))


def test_confidence_ends_in_a_cycle(place: Place) -> None:
    one, other = place.card("hypothesis"), place.card("hypothesis")
    place.link(one, "supports", other)
    place.link(other, "supports", one)
    inner = (1 + 0.75 * 0.5) / (2 + 0.75 * 0.5)
    assert sure(place, one) == pytest.approx((1 + 0.75 * inner) / (2 + 0.75 * inner))


def test_a_pinned_decision_that_little_speaks_for_is_unsure(place: Place, codes: Codes) -> None:
    decision = place.card("decision", pinned=True)
    found = next(one for one in signals(place, "ada", "t") if one["code"] == "BM3_LOW_CONFIDENCE")
    assert (found["severity"], found["action"]["priority"]) == ("warning", "medium")
    place.link(place.card("evidence", meta={"command": "x", "artifact": "a", "ci": True}), "supports", decision)
    assert "BM3_LOW_CONFIDENCE" not in codes()


def test_without_pinned_decisions_the_least_sure_hypothesis_is_looked_at(place: Place, codes: Codes) -> None:
    claim = place.card("hypothesis")
    assert "BM3_LOW_CONFIDENCE" not in codes()
    place.link(place.card("test"), "blocks", claim)
    assert "BM3_LOW_CONFIDENCE" in codes()


def test_a_hypothesis_needs_a_test_and_then_evidence(place: Place, codes: Codes) -> None:
    claim = place.card("hypothesis")
    assert "BM4_HYPOTHESIS_NO_TEST" in codes()
    test = place.card("test")
    place.link(test, "supports", claim)
    assert "BM4_HYPOTHESIS_NO_TEST" not in codes()
    assert "BM4_HYPOTHESIS_NO_EVIDENCE" in codes()
    place.link(place.card("evidence"), "supports", test)
    assert not any(code.startswith("BM4") for code in codes())


def test_a_test_that_can_be_run_is_to_be_run(place: Place, codes: Codes) -> None:
    place.card("test", meta={"run": "<fill in>"})
    assert "BM5_RUNNABLE_TEST" not in codes()
    place.steps.add("t", "x")
    test = place.card("test", meta={"run": ["pytest", "-q"]}, step="t.s1")
    found = next(one for one in signals(place, "ada", "t") if one["code"] == "BM5_RUNNABLE_TEST")
    assert found["action"]["arguments"] == {"step": "t.s1", "command": ["pytest", "-q"]}
    place.card("evidence", under=test)
    assert "BM5_RUNNABLE_TEST" not in codes()


def test_a_test_whose_command_is_among_the_steps_receipts_was_run(place: Place, codes: Codes) -> None:
    place.steps.add("t", "x")
    place.card("test", meta={"run": "pytest"}, step="t.s1")
    assert "BM5_RUNNABLE_TEST" in codes()
    place.steps.capture("t.s1", {"kind": "CMD", "text": "pytest"})
    assert "BM5_RUNNABLE_TEST" not in codes()


def test_an_assumption_that_changed_means_looking_again_at_what_rests_on_it(place: Place, codes: Codes) -> None:
    assumption, claim = place.card("note", tags=["assumption"]), place.card("hypothesis")
    place.link(assumption, "supports", claim)
    assert "BM6_ASSUMPTION_CHANGED" not in codes()
    place.update(assumption, status="rejected")
    assert "BM6_ASSUMPTION_CHANGED" in codes()
    place.update(claim, status="closed")
    assert "BM6_ASSUMPTION_CHANGED" not in codes()


def test_what_nothing_speaks_against_asks_for_a_counter_argument(place: Place, codes: Codes) -> None:
    claim = place.card("hypothesis")
    assert "BM7_NO_COUNTER_ARGUMENT" not in codes()
    place.card("evidence", under=claim)
    assert "BM7_NO_COUNTER_ARGUMENT" in codes()
    place.link(place.card("note"), "blocks", claim)
    assert "BM7_NO_COUNTER_ARGUMENT" not in codes()


def test_evidence_grows_stale_by_the_newest_time_in_the_slice(place: Place, codes: Codes) -> None:
    place.card("evidence")
    place.clock.pass_days(31)
    assert "BM8_EVIDENCE_STALE" not in codes(), "the clock alone says nothing"
    place.card("note")
    assert "BM8_EVIDENCE_STALE" in codes()
    assert "BM8_EVIDENCE_STALE" not in codes(stale_after=timedelta(days=40))
    place.card("evidence")
    assert "BM8_EVIDENCE_STALE" not in codes()


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [("question", "files vs. a database", "criteria_matrix"), ("decision", "speed/size", "criteria_matrix"),
     ("note", "a regression: good at 1.2, bad at 1.3", "bisect"), ("hypothesis", "try a smaller batch", "experiment")],
)  # fmt: skip
def test_patterns_of_reasoning_propose_their_method(place: Place, kind: str, text: str, name: str) -> None:
    place.card(kind, "nothing of the sort, see src/a/b.py and https://a/b")
    assert "BM9_PATTERN" not in [one["code"] for one in signals(place, "ada", "t")]
    place.card(kind, text)
    (found,) = [one for one in signals(place, "ada", "t") if one["code"] == "BM9_PATTERN"]
    assert (found["action"]["kind"], found["action"]["priority"]) == (name, "low")


def test_many_cards_and_no_evidence_is_being_stuck(place: Place, codes: Codes) -> None:
    for _ in range(11):
        place.graph.add_trace("add_card", "…", agent_id="ada")
    assert "BM10_STUCK" not in codes()
    place.graph.add_trace("add_card", "…", agent_id="ada")
    assert "BM10_STUCK" in codes()
    place.graph.add_trace("add_evidence", "…", agent_id="ada")
    assert "BM10_STUCK" not in codes()


def test_no_new_evidence_in_twenty_actions_is_told(place: Place, codes: Codes) -> None:
    for _ in range(20):
        assert "BM10_NO_NEW_EVIDENCE" not in codes()
        place.graph.add_trace("read_file", "…", agent_id="ada")
    assert "BM10_NO_NEW_EVIDENCE" in codes()
    place.card("evidence")
    assert "BM10_NO_NEW_EVIDENCE" not in codes()


def test_steps_added_faster_than_closed_are_scope_creep(place: Place, codes: Codes) -> None:
    place.steps.plan("t", [{"title": str(number)} for number in range(12)])
    assert "BM10_SCOPE_CREEP" not in codes(), "a plan alone is no creep"
    for number in range(1, 8):
        place.steps.verify(f"t.s{number}")
        place.steps.done(f"t.s{number}")
        place.steps.add("t", "one more")
        place.steps.add("t", "and another")
    assert "BM10_SCOPE_CREEP" in codes()
    for number in range(8, 21):
        place.steps.verify(f"t.s{number}")
        place.steps.done(f"t.s{number}")
    assert "BM10_SCOPE_CREEP" not in codes()


def test_signals_of_the_step_come_first_and_none_twice(place: Place) -> None:
    place.steps.add("t", "x")
    mine = place.card("hypothesis", step="t.s1")
    other = place.card("hypothesis")
    found = [one for one in signals(place, "ada", "t") if one["code"] == "BM4_HYPOTHESIS_NO_TEST"]
    assert [one["refs"] for one in found] == [[mine], [other]]


def test_severity_comes_before_age(place: Place, codes: Codes) -> None:
    place.card("hypothesis")
    place.card("test", meta={"run": "pytest"})
    assert codes() == ["BM4_HYPOTHESIS_NO_TEST", "BM5_RUNNABLE_TEST"]


def test_nothing_is_written(place: Place) -> None:
    place.card("hypothesis")
    before = {path: path.read_bytes() for path in place.layout.root.rglob("*") if path.is_file()}
    signals(place, "ada", "t")
    after = {path: path.read_bytes() for path in place.layout.root.rglob("*") if path.is_file()}
    assert {path: before[path] for path in before if path.parent.name != "journal"} == {
        path: after[path] for path in after if path.parent.name != "journal"
    }
    assert {path for path in after if path.suffix == ".jsonl"} == {path for path in before if path.suffix == ".jsonl"}


def test_every_kind_of_card_can_be_analysed(place: Place, codes: Codes) -> None:
    numbers = [place.card(kind.value, step=None, pinned=True) for kind in NodeKind if kind is not NodeKind.TASK]
    for one in numbers:
        for other in numbers:
            if one != other:
                place.link(one, "supports", other)
                place.link(one, "blocks", other)
    assert codes() == codes()
