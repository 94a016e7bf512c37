"""A finished task is run again from its log: nothing happens outside, and what would now go another way is shown."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

TASK = """---
steps:
  - title: Count
    run: echo counted; echo x >> {marker}
  - title: Look
    ask: What does a sailing boat need?
  - title: Note
    write: note.md
---
Do it
"""


def contents(root: Path) -> dict[str, str]:
    """Every file of a hive with its digest, but for SQLite's list of readers and a log of writes that is empty."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not path.name.endswith("-shm")
        and not (path.name.endswith("-wal") and not path.stat().st_size)
    }


@pytest.fixture
def done(hive, tmp_path):
    hive.drop("t.md", TASK.format(marker=tmp_path / "marker"))
    hive.run("up", "--until-idle")
    assert hive.task("t") == "done"
    return hive


def test_a_task_goes_as_it_went_and_nothing_is_touched(done, tmp_path):
    before = contents(done.root)
    assert "all of them as they went" in done.run("task", "replay", "t")
    assert contents(done.root) == before
    assert (tmp_path / "marker").read_text() == "x\n"


def test_what_a_command_printed_may_be_long(hive):
    hive.drop("t.md", "---\nsteps: [{run: seq 3000}]\n---\nCount\n")
    hive.run("up", "--until-idle")
    assert hive.task("t") == "done"
    assert "all of them as they went" in hive.run("task", "replay", "t")


def test_a_task_with_a_dependency_and_a_message_goes_as_it_went(hive):
    hive.drop("first.md", "---\nsteps: [{run: echo 1}]\n---\nFirst\n")
    mail = "{to: human, subject: Done, body: It is done.}"
    hive.drop("then.md", f"---\ndependencies: [first]\nsteps:\n  - mail: {mail}\n  - run: echo 2\n---\nThen\n")
    hive.run("up", "--until-idle")
    assert hive.task("then") == "done"
    assert "all of them as they went" in hive.run("task", "replay", "then")


def test_what_a_changed_file_would_change_is_shown_turn_by_turn(done):
    boats = done.root / "knowledge/boats.md"
    boats.write_text(boats.read_text().replace("needs wind and has a keel", "needs a lot of wind, and it has a keel"))
    found = json.loads(done.run("task", "replay", "t", "--json", status=1))
    assert found["differs"]
    kinds = {one["what"] for turn in found["turns"] for one in turn["differences"]}
    assert kinds == {"action", "result"}
    told = done.run("task", "replay", "t", status=1)
    assert "needs a lot of wind" in told
    assert "Turn 1," not in told  # planning was not about boats


def test_a_task_that_is_not_finished_cannot_be_run_again(hive):
    hive.drop("t.md", "Wait")
    hive.run("task", "replay", "t", status=2)
    assert "only a finished task can be replayed" in hive.errors


def test_a_call_that_was_refused_and_a_look_at_other_folders_are_no_differences(hive):
    thoughts = [
        [["plan_steps", {"steps": [{"title": "Do it"}]}]],
        [
            ["run_command", {"comand": "echo one"}],
            ["run_command", {"command": "echo two"}],
            ["list_files", {"path": "."}],
            ["search_files", {"pattern": "scripted", "path": "."}],
            ["finish_step", {}],
        ],
        [["finish_task", {"result": "It is done."}]],
    ]
    lines = [
        {"text": "", "calls": [{"tool": tool, "arguments": arguments} for tool, arguments in calls]}
        for calls in thoughts
    ]
    (hive.root / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path in (hive.root / "agents").glob("*.yaml"):
        path.unlink()
    (hive.root / "agents/actor.yaml").write_text(
        json.dumps({"mind": {"scripted": "script.jsonl"}, "commands": ["echo"]})
    )
    hive.drop("t.md", "Do it")
    hive.run("up", "--until-idle")
    log = (hive.root / "tasks/done/t/messages.jsonl").read_text().splitlines()
    assert [one["ok"] for one in map(json.loads, log) if "ok" in one] == [True, False, True, True, True, True, True]
    assert "all of them as they went" in hive.run("task", "replay", "t")
