"""A hive after a day's work: what failed says why, what waits for a person says how to answer, and the answer works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.presence.identity import lock_name
from tests.cli.conftest import Command, make_hive
from tests.program import run

DROPS = {
    "human.md": "---\ntitle: Paint\nsteps:\n- title: colour\n  wait: {human: Which colour shall it be?}\n---\nPaint it.\n",
    "runs.md": "---\nsteps:\n- run: exit 3\n---\nRun it.\n",
    "blob.md": b"a\0b",
    "bad.md": "---\npriorty: high\n---\nx\n",
    "written.md": "---\nsteps:\n- run: echo hello\n- write: {path: artifacts/so-far.md}\n- run: echo later\n---\nx\n",
}


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hive that has worked on those, and on one that was cancelled; it is not up."""
    root = make_hive(tmp_path_factory.mktemp("worked") / "hive")
    hive = Hive.open(root)
    for name, text in DROPS.items():
        (hive.layout.inbox / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    hive.tasks.add("Not now", id="cancelled")
    hive.tasks.cancel("cancelled")
    _up(root)
    return root


def _up(root: Path) -> None:
    words = ["--hive", str(root), "up", "--until-idle"]
    run(words, capture_output=True, timeout=60, check=False)


@pytest.fixture(autouse=True)
def _there(worked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVEMIND_HIVE", str(worked))


def test_the_list_says_why_each_task_failed_as_its_error_does(run: Command) -> None:
    listed = {task["id"]: task["error"] for task in run("task", "list", "--state", "failed", "--json").json}
    assert listed == {
        "bad": "bad.md:2: unknown key 'priorty'; did you mean 'priority'?",
        "blob": "blob.md: is not text (a NUL at byte 1); save it as UTF-8 text, or say what to do with it: "
        "hivemind task add TEXT --attach FILE, or drop it in a folder with a task.md",
        "cancelled": "Cancelled by human.",
        "runs": "the command `exit 3` ended with status 3; it had no output",
    }
    shown = run("task", "list").out
    for task, why in listed.items():
        assert re.search(rf"^{task} .* {re.escape(why)}$", shown, re.MULTILINE)


def test_a_cancelled_task_is_not_said_to_be_no_task(worked: Path) -> None:
    said = (worked / "tasks" / "failed" / "cancelled" / "error.md").read_text()
    assert said == "# cancelled was cancelled\n\nCancelled by human.\n"


def test_answers_so_far_have_no_headings_of_steps_that_are_to_come(worked: Path) -> None:
    written = (worked / "tasks" / "done" / "written" / "files" / "artifacts" / "so-far.md").read_text()
    assert re.findall("^## .*", written, re.MULTILINE) == ["## run echo hello", "## How it came about"]


def test_a_person_who_is_asked_is_told_how_to_answer_and_that_works_once(worked: Path, run: Command) -> None:
    capsule = run("view", "resume", "human", "--json").json["capsule"]
    assert capsule["next"]["primary"]["tool"] == "reply_mail"
    told = re.search(r"\(answer with: hivemind (mail reply human \S+) TEXT\)", run("task", "show", "human").out)
    assert told is not None
    reply = (*told[1].split(), "your answer")
    assert "Which colour shall it be?" in run("mail", "read", "human", reply[3]).out
    first = run(*reply)
    assert (first.status, first.err) == (0, "")
    second = run(*reply)
    assert (second.status, "answered before" in second.err) == (0, True)
    _up(worked)
    assert "your answer" in run("task", "show", "human").out
    assert "the task human that asked has ended" in run(*reply).err


def test_a_task_for_whom_nobody_runs_says_so_while_others_do(worked: Path, run: Command) -> None:
    hive = Hive.open(worked)
    for name in ("analyst", "reviewer"):
        hive.tasks.add(f"For the {name}", id=f"for-{name}", role=name)
    hive.tasks.add("For one", id="for-one", assignee="researcher")
    assert {one["waiting"] for one in run("task", "list", "--state", "inbox", "--json").json} == {None}
    lock = lock_name(hive.layout, "analyst")
    try:
        waiting = {one["id"]: one["waiting"] for one in run("task", "list", "--state", "inbox", "--json").json}
        status = run("status", "--json").json["waiting"]
    finally:
        lock.release()
    assert waiting == {
        "for-analyst": None,
        "for-reviewer": "no running agent has the role reviewer",
        "for-one": "its assignee researcher is not running",
    }
    assert {one["task"] for one in status} == {"for-reviewer", "for-one"}
