"""Coordinates, lanes, the wall around a workspace, publications."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hivemind.coordination import (
    Commits,
    CoordinateResolver,
    CoordinationError,
    Journal,
    ProjectGuardMismatch,
    StepLeaseHeld,
    StepLeases,
    Steps,
    UnknownStep,
    WorkspaceLocked,
    check_lane,
    check_workspace,
    is_lane_visible,
    lane_of,
)
from tests.durability import relaxed


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(relaxed(tmp_path / "journal"))


def test_in_focus_is_the_step_leased_last_and_an_explicit_argument_wins(journal: Journal) -> None:
    steps, places = Steps(journal), CoordinateResolver(journal, "w")
    steps.plan("one", [{"title": "a"}, {"title": "b"}])
    steps.plan("two", [{"title": "c"}])
    assert places.resolve("ada").task is None
    for step in ("two.s1", "one.s2"):
        StepLeases(journal).claim(step, "ada")
    at = places.resolve("Ada")
    assert (at.workspace, at.task, at.step, at.lane) == ("w", "one", "one.s2", "agent/ada")
    assert places.resolve("ada", step="focus").step == "one.s1"
    assert places.resolve("ada", task="two").step == "two.s1"
    assert places.resolve("ada", step="two.s1").task == "two"
    assert places.resolve(task="one").lane == "shared"
    assert places.resolve("bob").task is None, "the focus of each agent is its own"


def test_the_step_focus_moves_on_when_its_step_is_closed(journal: Journal) -> None:
    steps, places = Steps(journal), CoordinateResolver(journal, "w")
    steps.plan("t", [{"title": "a"}, {"title": "b"}])
    for step in ("t.s2", "t.s1"):
        StepLeases(journal).claim(step, "ada")
    assert places.resolve("ada").step == "t.s1"
    steps.verify("t.s1", agent_id="ada")
    steps.done("t.s1", agent_id="ada")
    assert places.resolve("ada").step == "t.s2"
    steps.block("t.s2", agent_id="ada")
    assert (places.resolve("ada").task, places.resolve("ada").step) == ("t", None)
    StepLeases(journal).release("t.s2", "ada")
    assert places.resolve("ada").task is None


def test_a_step_is_of_the_task_that_is_named(journal: Journal) -> None:
    Steps(journal).add("t", "x")
    places = CoordinateResolver(journal, "w")
    with pytest.raises(UnknownStep):
        places.resolve(step="nope")
    with pytest.raises(CoordinationError) as caught:
        places.resolve("ada", "other", "t.s1")
    assert caught.value.code == "STEP_OF_ANOTHER_TASK"


def test_what_is_visible_is_shared_and_ones_own() -> None:
    assert lane_of(" Ada") == "agent/ada"
    assert lane_of(None) == "shared"
    lanes = ["shared", None, "agent/ada", "agent/bob"]
    assert [is_lane_visible(lane, None) for lane in lanes] == [True, True, False, False]
    assert [is_lane_visible(lane, "ADA") for lane in lanes] == [True, True, True, False]
    assert all(is_lane_visible(lane, "ada", True) for lane in lanes)
    assert check_lane(" Agent/Ada ") == "agent/ada"
    for bad in ("", "agent/", "agent/../x", "ada", 7):
        with pytest.raises(CoordinationError):
            check_lane(bad)


def test_the_first_writer_sets_the_wall_and_others_are_measured_by_it(tmp_path: Path) -> None:
    path = tmp_path / "workspace.json"
    check_workspace(path, "w", tmp_path)
    check_workspace(path, "w", tmp_path / "." / "x" / "..")
    with pytest.raises(WorkspaceLocked) as locked:
        check_workspace(path, "v", tmp_path)
    with pytest.raises(ProjectGuardMismatch) as mismatch:
        check_workspace(path, "w", tmp_path / "elsewhere")
    assert (locked.value.code, mismatch.value.code) == ("WORKSPACE_LOCKED", "PROJECT_GUARD_MISMATCH")
    for bad in ("", "w" * 129):
        with pytest.raises(CoordinationError):
            check_workspace(path, bad, tmp_path)


def test_git_never_takes_in_the_state_of_a_hive_whatever_the_projects_own_gitignore_says(tmp_path: Path) -> None:
    (state := tmp_path / ".hive").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n")
    check_workspace(state / "workspace.json", "w", tmp_path)
    (state / "mail.key").write_text("secret")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    seen = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert seen.stdout == "?? .gitignore\n"


def test_a_guard_in_the_configuration_outlives_a_move(tmp_path: Path) -> None:
    path = tmp_path / "workspace.json"
    check_workspace(path, "w", tmp_path / "here", "my project")
    check_workspace(path, "w", tmp_path / "there", "my project")
    with pytest.raises(ProjectGuardMismatch):
        check_workspace(path, "w", tmp_path / "here", "another")


def test_a_publication_counts_once_its_event_is_there_and_needs_the_steps_lease(journal: Journal) -> None:
    commits = Commits(journal, "t")
    assert not commits.has("t:7")
    StepLeases(journal).claim("t.s1", "bob")
    with pytest.raises(StepLeaseHeld):
        commits.publish("t:7", card=3, agent_id="ada", step_id="t.s1")
    event = commits.publish("t:7", card=3, agent_id="ada")
    assert (event.kind, event.payload["lane"]) == ("lane.published", "agent/ada")
    assert commits.has("t:7")
    assert not Commits(journal, "u").has("t:7")
    Steps(journal).add("t", "x")
    Steps(journal).capture("t.s1", {"kind": "CMD", "text": "x"}, commit_id="t:8", agent_id="bob")
    assert commits.has("t:8")


def test_the_journal_knows_of_branches(journal: Journal) -> None:
    commits = Commits(journal, "t")
    commits.branch("created", "try", agent_id="Ada", base="main", base_seq=4)
    event = commits.branch("merged", "try", commit_id="t:9")
    assert (event.kind, event.payload["branch"], commits.has("t:9")) == ("branch.merged", "try", True)
