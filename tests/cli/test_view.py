"""hivemind view: the same answer for people and for programs."""

from __future__ import annotations

import gc
import json
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind import Hive
from hivemind.cli.view import answer_lines
from hivemind.reasoning import TaskGraph
from hivemind.views import VIEWS, render, resume, signals, snapshot, watch
from tests.cli.conftest import Command


def test_json_is_exactly_what_the_function_gives(run: Command, hive: Path, graph: TaskGraph) -> None:
    opened = Hive.open(hive)
    who = {"agent_id": "researcher", "task": "t"}
    assert run("view", "resume", "t", "--agent", "researcher", "--json").json == resume(opened, **who)
    assert run("view", "resume", "t", "--view", "full", "--limit", "2", "--json").json == resume(
        opened, task="t", view="full", limit=2
    )
    assert run("view", "snapshot", "--step", "t.s2", "--all-lanes", "--json").json == snapshot(
        opened, step="t.s2", all_lanes=True
    )
    assert run("view", "watch", "t", "--since", "2", "--since-card", "1", "--json").json == watch(
        opened, 2, task="t", since_card_seq=1
    )
    assert run("view", "signals", "t", "--agent", "researcher", "--json").json == signals(opened, **who)


@pytest.mark.parametrize("budget", [2, 17, 199, 200, 700, 2_000, 6_000])
def test_json_keeps_within_its_budget_of_bytes(run: Command, graph: TaskGraph, budget: int) -> None:
    ended = run("view", "resume", "t", "--agent", "researcher", "--budget", str(budget), "--json")
    assert ended.status == 0
    assert len(ended.out.rstrip("\n").encode()) <= budget
    assert ("capsule" in ended.json) == (budget >= 200)


def test_the_capsule_stands_first_then_the_cards_in_groups(run: Command, hive: Path, graph: TaskGraph) -> None:
    graph.publish(6, agent_id="researcher")
    Hive.open(hive).leases.claim("t.s1", "researcher", ttl_seq=7)
    shown = run("view", "resume", "t", "--agent", "researcher").out
    lines = shown.splitlines()
    assert lines[0] == "Task:     t: Which lock"
    assert lines[1].startswith("Where:    workspace hive, lane agent/researcher, branch main, event 4, card line 3")
    assert lines[2] == "Step:     t.s1: Look, leased by researcher to event 11 (generation 1)"
    assert lines[3] == "Lacks:    criteria; tests"
    assert any(line.startswith("Why:      ") for line in lines)
    assert "Next:     researcher calls verify_step: step t.s1, checkpoints criteria and tests" in shown
    heads = [line for line in lines if re.fullmatch(r"[A-Z][a-z ]+:", line)]
    assert heads == ["Steps:", "Cards of this step:", "Cards:", "Events:"]
    assert "\n  [ ] 1 Look\n  [ ] 2 Decide\n" in shown
    assert "8 [decision, accepted] Take \ufffd[2J the flock" in shown
    assert "\x1b" not in shown


def test_drafts_of_others_are_not_shown_unless_every_lane_is(run: Command, graph: TaskGraph) -> None:
    assert "the flock" not in run("view", "resume", "t", "--view", "full").out
    assert "[decision, accepted, agent/researcher]" in run("view", "resume", "t", "--view", "full", "--all-lanes").out
    assert "  agent/researcher: " in run("view", "resume", "t", "--view", "audit").out


def test_what_comes_next_is_a_command_where_there_is_one(run: Command, hive: Path, graph: TaskGraph) -> None:
    Hive.open(hive).leases.claim("t.s1", "researcher")
    shown = run("view", "resume", "t", "--agent", "analyst").out
    assert "Next:     hivemind lease list\n" in shown
    start = run("view", "resume").out
    assert start.startswith("Task:     none in focus")
    assert "Next:     hivemind task list --state inbox\nOr:       hivemind mail list\n" in start


def test_a_signal_says_what_would_help_and_that_can_be_typed(run: Command, graph: TaskGraph) -> None:
    shown = run("view", "signals", "t", "--agent", "researcher").out
    assert "warning  LANE_DECISION_NOT_PUBLISHED: decision 6 is in agent/researcher only" in shown
    publish = re.search(r"publish 6 \(medium\): hivemind (.*)", shown)
    assert publish is not None
    assert run(*shlex.split(publish[1])).status == 0
    assert "NOT_PUBLISHED" not in run("view", "signals", "t", "--agent", "researcher").out
    assert run("view", "signals").out == "Nothing calls for attention.\n"


def test_watching_shows_what_came_since(run: Command, hive: Path, graph: TaskGraph) -> None:
    first = run("view", "watch", "t", "--json").json
    Hive.open(hive).steps.note("t.s1", "seen")
    graph.add_note("looked twice", agent_id="researcher")
    seqs = ["--since", str(first["seq"]), "--since-card", str(first["card_seq"])]
    shown = run("view", "watch", "t", *seqs).out
    assert "looked twice" in shown
    assert re.findall(r"^ +\d+  (step\.\w+)", shown, re.MULTILINE) == ["step.noted"]
    assert "[subtask]" not in shown


def test_what_was_left_out_is_said(run: Command, graph: TaskGraph) -> None:
    shown = run("view", "resume", "t", "--view", "full", "--all-lanes", "--budget", "900").out
    assert "Left out to keep within 900 bytes: " in shown
    assert run("view", "resume", "t", "--budget", "20").out == "Nothing fits into so small a budget.\n"
    assert "4 more cards not in this view; --view full has them all.\n" in run(
        "view", "resume", "t", "--all-lanes", "--limit", "2"
    ).out  # fmt: skip


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(budget=st.integers(2, 6_000), view=st.sampled_from(VIEWS), agent=st.sampled_from([None, "researcher"]))
def test_an_answer_of_any_budget_can_be_shown(
    graph: TaskGraph, hive: Path, budget: int, view: str, agent: str | None
) -> None:
    answer = resume(Hive.open(hive), agent, "t", view=view, context_budget=budget)
    lines = list(answer_lines(answer, lambda call: str(call["call"])))
    assert lines
    assert all(line.isprintable() for line in lines)
    assert len(render(answer).encode()) <= budget


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["resume", "--view", "wide"], "INVALID_VIEW"),
        (["resume", "--view", "focus_only", "--all-lanes"], "INVALID_VIEW"),
        (["resume", "--budget", "1"], "INVALID_BUDGET"),
        (["resume", "--step", "nowhere.s1"], "UNKNOWN_STEP"),
        (["snapshot", "other", "--step", "t.s1"], "STEP_OF_ANOTHER_TASK"),
        (["signals", "t", "--agent", "a b"], "INVALID_AGENT_ID"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_arguments_that_make_no_sense_are_typed(
    run: Command, hive: Path, graph: TaskGraph, words: list[str], code: str
) -> None:
    Hive.open(hive).steps.add("other", "x")
    ended = run("view", *words)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"hivemind: {code}: ")
    assert ended.err.count("\n") == 1
    told = run("view", *words, "--json")
    assert (told.status, told.json["code"]) == (2, code)


def test_an_unknown_task_is_said_to_be_none(run: Command, hive: Path) -> None:
    ended = run("view", "resume", "nothing-there")
    assert ended.status == 2
    assert "nothing-there: there is no such task" in ended.err


def test_a_waiting_task_has_a_view_before_anyone_has_it(run: Command, hive: Path) -> None:
    run("task", "add", "Wait", "--id", "waits")
    assert run("view", "resume", "waits").out.startswith("Task:     waits")


def test_looking_changes_nothing(run: Command, hive: Path, graph: TaskGraph) -> None:
    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(hive.rglob("*")) if path.is_file()}

    run("view", "resume", "t")
    gc.collect()  # a hive that was opened in this process and dropped takes its mark of what it reads away
    before = files()
    for words in (["resume", "t"], ["snapshot", "t"], ["watch", "t"], ["signals", "t"]):
        assert run("view", *words, "--agent", "researcher").status == 0
    assert files() == before


def test_the_same_files_give_the_same_bytes_in_any_zone(process: Command, graph: TaskGraph) -> None:
    words = ["view", "resume", "t", "--view", "audit", "--json"]
    one, other = process(*words, TZ="Asia/Tokyo", PYTHONHASHSEED="1"), process(*words, TZ="UTC", PYTHONHASHSEED="2")
    assert one.out == other.out
    assert json.loads(one.out)["lanes"]
