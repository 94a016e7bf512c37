"""hivemind view: the same answer for people and for programs."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
import yaml

from hivemind import Hive
from hivemind.masking import strip_controls
from hivemind.reasoning import TaskGraph
from hivemind.views import resume, signals, snapshot, watch
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


def test_for_a_person_the_same_answer_is_yaml_in_which_nothing_steers(run: Command, graph: TaskGraph) -> None:
    for words in (["resume", "t", "--view", "audit"], ["snapshot", "t"], ["watch", "t"], ["signals", "t"]):
        shown = run("view", *words, "--agent", "researcher")
        assert yaml.safe_load(shown.out) == run("view", *words, "--agent", "researcher", "--json").json
        assert strip_controls(shown.out) == shown.out
    assert run("view", "signals").out == "Nothing.\n"


def test_drafts_of_others_are_not_shown_unless_every_lane_is(run: Command, graph: TaskGraph) -> None:
    assert "the flock" not in run("view", "resume", "t", "--view", "full").out
    assert "the flock" in run("view", "resume", "t", "--view", "full", "--all-lanes").out
    assert "lane: agent/researcher" in run("view", "resume", "t", "--view", "audit").out


def test_watching_shows_what_came_since(run: Command, hive: Path, graph: TaskGraph) -> None:
    first = run("view", "watch", "t", "--json").json
    Hive.open(hive).steps.note("t.s1", "seen")
    graph.add_note("looked twice", agent_id="researcher")
    seqs = ["--since", str(first["seq"]), "--since-card", str(first["card_seq"])]
    shown = run("view", "watch", "t", *seqs, "--json").json
    assert [one["text"] for one in shown["notes"]] == ["looked twice"]
    assert [one["kind"] for one in shown["events"]] == ["step.noted"]
    assert shown["cards"] == []


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
    assert run("view", "resume", "waits", "--json").json["capsule"]["where"]["target"]["id"] == "waits"


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
