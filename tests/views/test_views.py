from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind.coordination import CoordinationError, UnknownStep
from hivemind.views import VIEWS, capsule, render, resume, snapshot, watch

from .conftest import Place, make_place


def ids(answer: dict[str, Any]) -> list[int]:
    return [card["id"] for card in answer["cards"]]


def two_steps(place: Place) -> None:
    place.journal.append("task.claimed", task_id="t", agent_id="ada", title="Find out")
    place.steps.plan("t", [{"title": "one"}, {"title": "two"}])


# where, why, next


def test_the_capsule_says_where_the_agent_is(place: Place) -> None:
    two_steps(place)
    lease = place.leases.claim("t.s1", "ada")
    place.graph.add_note("a note", agent_id="ada")
    where = resume(place, "ada")["capsule"]["where"]
    assert (where["workspace"], where["lane"], where["branch"]) == ("w", "agent/ada", "main")
    assert where["target"] == {"kind": "task", "id": "t", "title": "Find out"}
    assert where["docs"] == {"notes": 1, "trace": 0, "radar": 0}
    assert where["step_focus"] == {
        "id": "t.s1",
        "path": "1",
        "title": "one",
        "lease": {"agent_id": "ada", "expires_seq": lease.expires_seq, "generation": 1},
    }


def test_the_capsule_alone_is_that_of_a_view(place: Place) -> None:
    two_steps(place)
    place.card("hypothesis")
    assert capsule(place, "ada", "t") == resume(place, "ada", "t")["capsule"]


def test_why_is_the_three_signals_that_matter_most(place: Place) -> None:
    for _ in range(5):
        place.card("hypothesis")
    why = resume(place, "ada", "t")["capsule"]["why"]
    assert [one["code"] for one in why] == ["BM4_HYPOTHESIS_NO_TEST"] * 3


def next_of(place: Place, agent: str = "ada", task: str | None = "t") -> tuple[str | None, str | None]:
    told = snapshot(place, agent, task)["capsule"]["next"]
    return tuple(told[which] and told[which]["tool"] for which in ("primary", "backup"))  # type: ignore[return-value]


def test_what_comes_next_follows_the_rule(place: Place) -> None:
    assert next_of(place, task=None) == ("list_files", "check_mailbox"), "no focus: start"
    assert next_of(place) == ("plan_steps", "fail_task"), "no steps: plan"
    two_steps(place)
    assert next_of(place) == ("finish_step", "block_step")
    place.leases.claim("t.s1", "bob")
    assert next_of(place) == ("resume", "send_mail"), "leased by another: look at the lease, ask"
    assert next_of(place, "human") == ("resume", "claim_step"), "a person may take it over"
    assert next_of(place, "bob") == ("finish_step", "block_step")
    for step in ("t.s1", "t.s2"):
        place.steps.verify(step, agent_id="bob")
        place.steps.done(step, agent_id="bob")
    assert next_of(place)[0] == "finish_task", "none open: finish the task"
    place.steps.reopen("t.s1", agent_id="ada")
    place.steps.block("t.s1", "no oak", agent_id="ada")
    assert next_of(place) == ("check_mailbox", "resume"), "blocked: the answer, and what it waits for"
    place.steps.unblock("t.s1", agent_id="ada")
    place.steps.done("t.s1", agent_id="ada", confirm=("criteria", "tests"))
    place.steps.end_task("t", agent_id="ada")
    assert next_of(place) == (None, None), "done: nothing"


def test_calls_can_be_made_as_they_stand(place: Place) -> None:
    tools = []
    while (primary := resume(place, "ada", "t")["capsule"]["next"]["primary"]) is not None:
        tools.append(primary["tool"])
        eval(primary["call"], {"hive": place})
    assert tools == ["plan_steps", "finish_step", "finish_task"]


def test_the_backup_is_the_best_action_of_the_signals(place: Place) -> None:
    place.card("hypothesis")
    assert resume(place, "ada", "t")["capsule"]["next"]["backup"]["kind"] == "add_test"


def test_a_step_that_needs_a_proof_says_so(place: Place) -> None:
    place.steps.add("t", "x", proof="require")
    answer = resume(place, "ada", "t")
    assert answer["capsule"]["next"]["primary"]["lacks"] == ["criteria", "tests", "security", "perf", "docs", "proof"]


# which cards


def test_smart_shows_anchors_the_step_and_what_is_open_and_nothing_cold(place: Place) -> None:
    two_steps(place)
    closed = place.card("note", status="closed")
    recent = place.card("note")
    question = place.card("question")
    mine = place.card("note", step="t.s1", status="closed")
    anchor = place.card("decision", pinned=True, status="accepted")
    place.card("note", lane="agent/bob", agent="bob")
    assert ids(resume(place, "ada", "t")) == [anchor, mine, question, recent]
    assert closed in ids(resume(place, "ada", "t", view="explore"))


def test_each_share_has_its_limit_and_the_rest_fills_up_by_recency(place: Place) -> None:
    questions = [place.card("question") for _ in range(9)]
    assert ids(resume(place, "ada", "t")) == questions[::-1]
    pinned = [place.card("note", pinned=True, status="closed") for _ in range(10)]
    shown = ids(resume(place, "ada", "t"))
    assert shown[:8] == pinned[:1:-1]
    assert set(shown) == {*pinned[2:], *questions}, "what is closed and over its share is cold"


@pytest.mark.parametrize(
    ("budget", "smart", "explore"), [(None, 60, 100), (12_000, 40, 70), (6_000, 26, 40), (2_000, 18, 26)]
)
def test_the_number_of_cards_grows_with_the_budget(place: Place, budget: int | None, smart: int, explore: int) -> None:
    with place.graph.change("ada") as graph:
        for _ in range(101):
            graph.add_edge(1, graph.add_node("note", "").node_id)
    for view, most in (("smart", smart), ("audit", smart), ("explore", explore)):
        shown = len(resume(place, "ada", "t", view=view, context_budget=budget)["cards"])
        assert shown == most if budget in (None, 12_000) else shown <= most, "a small one trims them, too"
    assert len(resume(place, "ada", "t", view="full")["cards"]) == 101


def test_anothers_drafts_cannot_starve_a_view(place: Place) -> None:
    mine = place.card("question")
    with place.graph.change("bob") as graph:
        for _ in range(150):
            graph.add_edge(1, graph.add_node("question", "b", lane="agent/bob").node_id)
    place.graph.add_note("theirs", agent_id="bob", lane="agent/bob")
    place.graph.add_trace("add_card", "theirs", agent_id="bob", lane="agent/bob")
    answer = resume(place, "ada", "t", context_budget=2_000)
    assert ids(answer) == [mine]
    assert (answer["notes"], answer["trace"]) == ([], [])
    audit = resume(place, "ada", "t", view="audit")
    assert {lane["lane"]: lane["cards"] for lane in audit["lanes"]} == {"shared": 2, "agent/bob": 150}
    assert len(audit["notes"]) == len(audit["trace"]) == 1
    assert len(ids(audit)) == 60


def test_focus_only_shows_the_step_and_what_bears_on_it(place: Place) -> None:
    two_steps(place)
    mine = [place.card("note", step="t.s1", status="closed") for _ in range(5)]
    place.card("note")
    asked = [place.card("question") for _ in range(14)]
    anchor = place.card("note", pinned=True)
    place.graph.add_note("a note", agent_id="ada")
    answer = resume(place, "ada", "t", view="focus_only")
    assert ids(answer) == [anchor, *mine[::-1], *asked[:1:-1]]
    place.steps.note("t.s1", "mine")
    place.steps.note("t.s2", "not mine")
    events = resume(place, "ada", "t", view="focus_only")["events"]
    assert [event["step_id"] for event in events] == ["t.s1"]
    assert "notes" not in answer
    assert "trace" not in answer


def test_what_a_signal_refers_to_is_in_focus(place: Place) -> None:
    note, assumption = place.card("note"), place.card("note", tags=["assumption"], status="rejected")
    place.link(assumption, "supports", note)
    assert ids(resume(place, "ada", "t", view="focus_only")) == [assumption, note]


def test_a_step_that_is_named_narrows_the_cards_to_its_own(place: Place) -> None:
    two_steps(place)
    own = place.card("note", step="t.s2")
    place.card("note", pinned=True)
    for view in VIEWS:
        assert ids(resume(place, "ada", step="t.s2", view=view)) == [own]


def test_full_shows_everything_by_recency_also_what_is_folded(place: Place) -> None:
    numbers = [place.card("note", status="closed") for _ in range(120)]
    with place.graph.change("ada") as graph:
        graph.fold_nodes(numbers[:2], "both")
    answer = resume(place, "ada", "t", view="full")
    assert len(ids(answer)) == 121
    assert ids(answer)[1:] == numbers[::-1]
    assert ids(resume(place, "ada", "t", view="full", limit=3)) == ids(answer)[:3]


def test_a_snapshot_is_short_and_watch_shows_what_came_since(place: Place) -> None:
    two_steps(place)
    for _ in range(12):
        place.card("note", pinned=True)
    first = snapshot(place, "ada", "t")
    assert len(first["cards"]) == 8
    assert not {"notes", "trace", "events"} & set(first)
    new = place.card("note")
    place.graph.add_note("new", agent_id="ada")
    place.steps.note("t.s1", "something")
    place.journal.append("step.noted", step_id="other.s1", task_id="other")
    place.leases.claim("t.s1.s1", "ada")  # the first step of a task named t.s1
    later = watch(place, first["seq"], "ada", "t", since_card_seq=first["card_seq"])
    assert ids(later) == [new]
    assert [note["text"] for note in later["notes"]] == ["new"]
    assert [event["kind"] for event in later["events"]] == ["step.noted"]
    assert watch(place, later["seq"], "ada", "t")["events"] == []


# arguments


@pytest.mark.parametrize(
    "arguments",
    [{"view": "clever"}, {"view": "focus_only", "all_lanes": True}, {"limit": 0}, {"limit": "3"}, {"context_budget": 1},
     {"context_budget": -5}, {"context_budget": 2.5}, {"context_budget": True}, {"task": "../x"}, {"task": "u", "step": "t.s1"}],
)  # fmt: skip
def test_arguments_that_make_no_sense_are_typed_errors(place: Place, arguments: dict[str, Any]) -> None:
    two_steps(place)
    for view in (resume, snapshot, lambda hive, **more: watch(hive, 0, **more)):
        with pytest.raises(CoordinationError):
            view(place, **arguments)
    with pytest.raises(UnknownStep):
        resume(place, step="nope")


def test_a_hive_without_anything_has_a_capsule(place: Place) -> None:
    answer = resume(place)
    assert answer["capsule"]["where"]["target"] is None
    assert answer["cards"] == []
    assert resume(place, "ada", "unknown")["capsule"]["where"]["target"]["id"] == "unknown"


# the budget


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.just("lang " * 300) | st.just('ü\n"\\' * 40)
CARD = st.tuples(
    st.sampled_from(["note", "decision", "hypothesis", "question", "test", "evidence"]),
    TEXT,
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(CARD, max_size=25),
    st.lists(TEXT, max_size=8),
    st.lists(st.integers(2, 9_000), min_size=4, max_size=8),
    st.data(),
)
def test_any_graph_under_any_budget_gives_valid_json_within_it(
    tmp_path_factory: pytest.TempPathFactory,
    cards: list[tuple[str, str, bool, bool]],
    notes: list[str],
    budgets: list[int],
    data: st.DataObject,
) -> None:
    place = make_place(tmp_path_factory.mktemp("hive"))
    place.config.workspace = data.draw(st.sampled_from(["w", "ü" * 128, '"' * 128]))
    two_steps(place)
    with place.graph.change("ada") as graph:
        for kind, text, pinned, mine in cards:
            node = graph.add_node(kind, text, pinned=pinned, step="t.s1" if mine else None)
            graph.add_edge(1, node.node_id)
    for text in notes:
        place.graph.add_note(text, agent_id="ada")
        place.graph.add_trace("say", text, agent_id="ada")
    view = data.draw(st.sampled_from(VIEWS))
    for budget in [*budgets, 2, 17, 18, 199, 200, 201, 500]:
        answer = resume(place, "ada", "t", view=view, context_budget=budget)
        raw = render(answer).encode()
        assert len(raw) <= budget
        assert json.loads(raw) == answer
        if budget < 200:
            assert answer in ({}, {"truncated": True}) or "capsule" in answer
            continue
        assert "where" in answer["capsule"]
        assert answer["budget"] == {
            "max_chars": budget,
            "used_chars": len(raw),
            "truncated": bool(answer["degradation"]),
        }


def test_what_goes_goes_in_the_fixed_order(place: Place) -> None:
    two_steps(place)
    place.card("hypothesis", "x" * 5_000)
    for number in range(20):
        place.card("note", f"card {number} " + "x" * 100)
        place.graph.add_note(f"note {number} " + "x" * 100, agent_id="ada")
        place.graph.add_trace("say", f"trace {number} " + "x" * 100, agent_id="ada")
    whole = len(render(resume(place, "ada", "t")).encode())
    seen: list[set[str]] = []
    for budget in range(whole, 200, -150):
        answer = resume(place, "ada", "t", context_budget=budget)
        seen.append(set(answer["degradation"]))
        if "NOTES_TRIMMED" in seen[-1]:
            assert answer.get("trace", [{"type": "summary"}])[0]["type"] == "summary"
        if "CARDS_TRIMMED" in seen[-1] and "cards" in answer and answer["cards"][0].get("type") != "summary":
            assert answer["notes"][0] == {"type": "summary", "label": "notes", "count": 10}
        has_room = seen[-1] != {"CAPSULE_CUT"}  # for the other codes
        if has_room and "STATS_DROPPED" not in seen[-1]:
            assert "stats" in answer
    order = ["TEXT_CUT", "TRACE_TRIMMED", "NOTES_TRIMMED", "EVENTS_TRIMMED", "CARDS_TRIMMED", "STATS_DROPPED", "SIGNALS_TRIMMED",
             "LISTS_DROPPED", "CAPSULE_CUT"]  # fmt: skip
    first = [next((at for at, codes in enumerate(seen) if code in codes), len(seen)) for code in order]
    assert first == sorted(first)
    assert first[-1] < len(seen)


def test_the_oldest_notes_and_the_last_cards_go_first(place: Place) -> None:
    for number in range(10):
        place.graph.add_note(f"note {number}", agent_id="ada")
        place.card("note", f"card {number}")
    whole = resume(place, "ada", "t")
    less = resume(place, "ada", "t", context_budget=whole["budget"]["used_chars"] - 200)
    assert less["degradation"] == ["NOTES_TRIMMED"]
    assert less["notes"] == whole["notes"][-len(less["notes"]) :]
    least = resume(place, "ada", "t", context_budget=whole["budget"]["used_chars"] - 1_500)
    kept = [card for card in least["cards"] if "id" in card]
    assert 0 < len(kept) < 10
    assert kept == whole["cards"][: len(kept)]


# determinism


def test_the_same_files_give_the_same_bytes_in_any_time_zone_and_process(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    two_steps(place)
    for kind in ("hypothesis", "decision", "question"):
        place.card(kind, f"{kind} vs. another", lane="agent/ada")
        place.clock.pass_days(9)
    code = """
import sys, types
from hivemind.coordination import Journal
from hivemind.layout import Layout
from hivemind.views import render, resume
layout = Layout.at(sys.argv[1])
config, journal = types.SimpleNamespace(workspace="w"), Journal(layout.journal)
hive = types.SimpleNamespace(agents={}, layout=layout, config=config, journal=journal)
print(render(resume(hive, "ada", "t", view="audit", context_budget=4000)))
"""

    def told(zone: str, seed: str) -> str:
        environ = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()}
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout

    here = render(resume(place, "ada", "t", view="audit", context_budget=4_000)) + "\n"
    assert told("Pacific/Auckland", "1") == told("America/Los_Angeles", "2") == here


def test_a_view_leaves_no_event(place: Place) -> None:
    two_steps(place)
    views: list[Callable[..., Any]] = [resume, snapshot, lambda hive, *rest: watch(hive, 0, *rest)]
    before = place.journal.seq, place.graph.seq
    for view in views:
        view(place, "ada", "t")
    assert (place.journal.seq, place.graph.seq) == before


def test_an_agent_that_drafts_in_another_lane_sees_its_drafts_there(place: Place) -> None:
    place.agents["ada"] = SimpleNamespace(lane="agent/pair")
    mine = place.card("note", "mine", lane="agent/pair")
    place.graph.add_note("to myself", agent_id="ada", lane="agent/pair")
    for who, seen in (("ada", True), ("bob", False), (None, False)):
        answer = snapshot(place, who, "t", view="full")
        assert (mine in [card["id"] for card in answer["cards"]]) == seen, who
        assert answer["capsule"]["where"]["docs"]["notes"] == seen, who
    assert resume(place, "ada", "t")["capsule"]["where"]["lane"] == "agent/pair"
