"""hivemind task: what a person types and what it answers."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.errors import UserError
from tests.cli.conftest import Command


def test_a_task_is_added_listed_and_shown(run: Command, hive: Path) -> None:
    ended = run("task", "add", "What is a lease?")
    assert (ended.status, ended.out) == (0, "what-is-a-lease\n")
    (listed,) = run("task", "list", "--json").json
    assert (listed["id"], listed["state"], listed["title"]) == ("what-is-a-lease", "inbox", "What is a lease?")
    shown = run("task", "show", "what-is-a-lease").out
    assert "State:    inbox, in " in shown
    assert run("task", "show", "what-is-a-lease", "--json").json["text"].strip() == "What is a lease?"


def test_an_id_ends_with_a_whole_word(run: Command, hive: Path) -> None:
    question = "Which borg command checks the consistency of a repository?"
    assert run("task", "add", question).out == "which-borg-command-checks-the-consistency-of-a\n"
    assert run("task", "add", f"x{'y' * 60}").out == f"x{'y' * 47}\n"


def test_a_deadline_that_is_over_is_said(run: Command, hive: Path) -> None:
    ended = run("task", "add", "First", "--deadline", "2020-01-01")
    assert (ended.status, ended.out) == (0, "first\n")
    assert "first: its deadline is over (2020-01-01)" in ended.err
    run("task", "add", "Second", "--deadline", "2999-01-01")
    listed = run("task", "list")
    assert [line.endswith("its deadline is over") for line in listed.out.splitlines()[1:3]] == [True, False]
    assert [one["deadline"][:4] for one in run("task", "list", "--json").json] == ["2020", "2999"]


def test_a_task_that_waits_for_a_time_is_shown_with_it_to_the_second(run: Command, hive: Path) -> None:
    run("task", "add", "--id", "keel", "Build it")
    tasks = Hive.open(hive).tasks
    task = tasks.claims.claim_one("ada", "keel", "analyst", 1)
    tasks.active.park(task, "waits", datetime(2999, 1, 2, 3, 4, 5, 678901, UTC))
    assert "Parked:   waits (until 2999-01-02 03:04:05 UTC)\n" in run("task", "show", "keel").out


def test_waiting_for_tasks_ends_by_how_they_end(run: Command, hive: Path) -> None:
    for name in ("keel", "mast"):
        run("task", "add", "--id", name, "Build it")
    late = run("task", "wait", "keel", "--timeout", "1")
    assert (late.status, "is not over after 1 s" in late.err) == (2, True)
    assert "no swarm is up: hivemind up starts it" in late.err
    assert "no swarm is up: hivemind up starts it" in run("task", "list").out
    assert run("task", "wait", "yacht").status == 2
    process = subprocess.Popen(
        [sys.executable, "-m", "hivemind", "--hive", str(hive), "task", "wait", "keel", "mast"], stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    tasks = Hive.open(hive).tasks
    tasks.finish(tasks.claims.claim_one("ada", "keel", "analyst", 1), "# Built")
    run("task", "cancel", "mast")
    assert process.communicate(timeout=60)[0] == "keel is done: tasks/done/keel\nmast is failed: tasks/failed/mast\n"
    assert process.returncode == 1
    assert (over := run("task", "wait", "keel")).status == 0
    assert (over.err, "swarm" in run("task", "list", "--state", "done").out) == ("", False)


def test_every_option_reaches_the_task(run: Command, hive: Path, tmp_path: Path) -> None:
    (tmp_path / "figures.csv").write_text("a,b\n")
    run("task", "add", "First", "--id", "first")
    ended = run(
        "task", "add", "Second\n\ntext", "--title", "A title", "--assignee", "researcher", "--role", "researcher",
        "--priority", "high", "--project", "p", "--depends", "first", "--id", "second",
        "--deadline", "2030-01-01", "--budget", "500", "--attach", str(tmp_path / "figures.csv"), "--json",
    )  # fmt: skip
    assert ended.json == {"id": "second"}
    shown = run("task", "show", "second", "--json").json
    assert {key: shown[key] for key in ("title", "assignee", "role", "priority", "project", "dependencies")} == {
        "title": "A title",
        "assignee": "researcher",
        "role": "researcher",
        "priority": 2,
        "project": "p",
        "dependencies": ["first"],
    }
    assert [Path(path).name for path in shown["attachments"]] == ["figures.csv"]
    assert "first" in shown["waiting"]
    assert Hive.look(hive).tasks.get("second").budget.tokens == 500
    assert run("task", "add", "Third", "--every", "2h", "--id", "third").status == 0
    assert "every: 2h" in (hive / "tasks/schedule/third.md").read_text()


def test_a_hive_that_is_not_linked_is_refused_with_those_that_are(run: Command, hive: Path) -> None:
    refused = run("task", "add", "x", "--where", "paris")
    assert (refused.status, "no linked hive is called 'paris'; write one of any, hive" in refused.err) == (2, True)


def test_a_program_is_refused_what_the_command_line_refuses(hive: Path) -> None:
    opened = Hive.open(hive)
    for wrong, reason in (
        (lambda: opened.tasks.add("x", dependencies=["ghost"]), "dependencies: there is no task 'ghost'"),
        (lambda: opened.tasks.add("x", attachments=["nofile"]), "nofile: does not exist and cannot be attached"),
        (lambda: opened.mail.send("nobody", "researcher", "a", "b"), "no agent is called 'nobody'"),
        (lambda: Hive.open(hive / "none"), "no hive.yaml there; make one with: hivemind init"),
    ):
        with pytest.raises(UserError, match=reason):
            wrong()


def test_the_path_of_a_file_is_no_text_and_the_option_that_was_meant_is_named(
    run: Command, hive: Path, tmp_path: Path
) -> None:
    (tmp_path / "survey.md").write_text("Survey the field\n")
    refused = run("task", "add", str(tmp_path / "survey.md"))
    assert (refused.status, refused.out) == (2, "")
    assert f"hivemind task add --file {tmp_path}/survey.md" in refused.err
    assert not (hive / "tasks/inbox/survey.md").exists()
    assert run("task", "add", "survey.md").out == "survey.md\n"  # there is no such file here


def test_the_text_may_come_from_a_file_or_from_standard_input(
    process: Command, run: Command, hive: Path, tmp_path: Path
) -> None:
    (tmp_path / "survey.md").write_text("---\npriority: high\n---\nSurvey the field\n")
    (tmp_path / "survey.yaml").write_text("id: from-yaml\ntitle: 'Yes: no'\ntext: |\n  Survey\n")
    assert run("task", "add", "--file", str(tmp_path / "survey.md")).out == "survey-the-field\n"
    assert run("task", "show", "survey-the-field", "--json").json["priority"] == 2
    assert run("task", "add", "--file", str(tmp_path / "survey.yaml"), "--priority", "low").out == "from-yaml\n"
    shown = run("task", "show", "from-yaml", "--json").json
    assert (shown["title"], shown["text"].strip(), shown["priority"]) == ("Yes: no", "Survey", 4)
    assert process("task", "add", "-", given="Aus der Röhre\n".encode()).out == "aus-der-rohre\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a task needs a text"),
        (["  "], "is empty"),
        (["x", "--file", "y"], "exclude each other"),
        (["--file", "/nowhere/x.md"], "cannot be read"),
        (["x", "--assignee", "nobody"], "its agents: analyst, researcher, reviewer"),
        (["x", "--role", "cook"], "their roles: analyst, researcher, reviewer"),
        (["x", "--depends", "nothing"], "no such task"),
        (["x", "--priority", "huge"], "is not a priority"),
        (["x", "--id", "../x"], "is not a valid id"),
        (["x", "--attach", "/nowhere/x.csv"], "does not exist and cannot be attached"),
        (["---\nstep: []\n---\nx"], "steps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_a_task_is_refused_in_one_line_and_nothing_is_dropped(
    run: Command, hive: Path, words: list[str], said: str
) -> None:
    ended = run("task", "add", *words)
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert said in ended.err
    assert run("task", "list", "--json").json == []


def test_an_id_that_is_taken_is_refused(run: Command, hive: Path) -> None:
    run("task", "add", "x", "--id", "one")
    assert run("task", "add", "y", "--id", "one").status == 2


def test_a_finished_task_shows_its_result_and_a_failed_one_why(run: Command, hive: Path) -> None:
    run("task", "add", "Good", "--id", "good")
    run("task", "add", "Bad", "--id", "bad")
    tasks = Hive.open(hive).tasks
    for _ in range(2):
        task = tasks.claim("researcher")
        assert task is not None
        if task.id == "good":
            tasks.finish(task, "# All is well\n")
        else:
            tasks.fail(task, "It could not be done.")
    assert "# All is well" in run("task", "show", "good").out
    assert "It could not be done." in run("task", "show", "bad").out
    both = run("task", "show", "good", "bad", "--json").json
    assert [(one["state"], one["result"] is None, one["error"] is None) for one in both] == [
        ("done", False, True),
        ("failed", True, False),
    ]
    assert [one["id"] for one in run("task", "list", "--state", "failed", "--json").json] == ["bad"]


def test_an_ended_task_without_its_result_says_so_and_so_does_doctor(run: Command, hive: Path) -> None:
    for name in ("done", "failed"):
        (hive / "tasks" / name / f"t-{name}").mkdir(parents=True)
        (hive / "tasks" / name / f"t-{name}" / "task.md").write_text("Rig it.\n")
    shown, doctor = run("task", "show", "t-done", "t-failed").out, run("doctor").out
    assert "there is no result.md" in shown
    assert "there is no error.md" in shown
    assert "tasks/done/t-done: has no result.md" in doctor
    assert "tasks/failed/t-failed: has no error.md" in doctor


def test_a_failed_task_is_retried_and_a_waiting_one_cancelled(run: Command, hive: Path) -> None:
    run("task", "add", "x", "--id", "one")
    assert run("task", "cancel", "one").status == 0
    assert run("task", "list", "--state", "failed", "--json").json[0]["id"] == "one"
    assert "ancelled" in run("task", "show", "one").out
    assert run("task", "retry", "one").out.startswith("one is back in the inbox: tasks/inbox/one")
    assert run("task", "list", "--json").json[0]["state"] == "inbox"


def test_a_failed_task_that_is_archived_no_longer_needs_anyone(run: Command, hive: Path) -> None:
    for name in ("one", "two", "open"):
        run("task", "add", name)
    tasks = Hive.open(hive).tasks
    for name in ("one", "two"):
        task = tasks.claims.claim_one("ada", name, "analyst", 1)
        assert task is not None
        tasks.fail(task, "It leaks.")
    assert "hivemind archive one puts it away" in run("task", "cancel", "one").err
    ended = run("archive", "one", "two")
    assert (ended.status, len(ended.out.splitlines())) == (0, 2)
    assert run("status", "--json").json["needs_you"] == []
    assert run("task", "show", "one", "--json").json["state"] == "failed"
    assert "one: is archived already" in run("archive", "one").err
    refused = run("archive", "open")
    assert (refused.status, "open: is not over; end it: hivemind task cancel open" in refused.err) == (2, True)
    assert "exclude each other" in run("archive", "open", "--older-than", "1d").err


def test_a_drop_that_never_became_a_task_is_archived_as_cancel_says(run: Command, hive: Path) -> None:
    (hive / "tasks/inbox").mkdir(parents=True, exist_ok=True)
    (hive / "tasks/inbox/bad.md").write_text("---\npriority: silly\n---\nx\n")
    assert Hive.open(hive).tasks.claims.claim("ada") is None, "it goes to failed/"
    assert "hivemind archive bad puts it away" in run("task", "cancel", "bad").err
    assert run("archive", "bad").status == 0
    assert "nothing: there is no such task" in run("archive", "nothing").err


@pytest.mark.parametrize("word", ["show", "retry", "cancel"])
def test_a_task_that_is_not_there_is_wrong_use(run: Command, hive: Path, word: str) -> None:
    ended = run("task", word, "nothing")
    assert ended.status == 2
    assert "hivemind task list" in ended.err


def test_a_title_cannot_steer_the_terminal(run: Command, hive: Path) -> None:
    run("task", "add", "Title \x1b[2J gone", "--id", "evil")
    assert "\x1b" not in run("task", "list").out + run("task", "show", "evil").out


def test_a_task_dropped_by_hand_is_listed_with_what_is_wrong_with_it(run: Command, hive: Path) -> None:
    Hive.open(hive)
    (hive / "tasks" / "inbox" / "bad.md").write_text("---\npriorty: high\n---\nx\n")
    (listed,) = run("task", "list", "--json").json
    assert "priorty" in listed["waiting"] or "priorty" in listed["problem"]


def test_a_drop_that_is_no_task_is_shown_with_the_reason_where_it_waits_and_where_it_failed(
    run: Command, hive: Path
) -> None:
    (hive / "tasks" / "inbox").mkdir(parents=True, exist_ok=True)
    (hive / "tasks" / "inbox" / "bad.md").write_text("---\npriorty: high\n---\nx\n")
    waiting = run("task", "show", "bad")
    assert waiting.status == 0
    assert "State:    inbox, in " in waiting.out
    assert "'priorty'" in waiting.out
    assert Hive.open(hive).tasks.claim("researcher") is None
    failed = run("task", "show", "bad")
    assert failed.status == 0
    assert "State:    failed, in " in failed.out
    assert "did you mean 'priority'?" in failed.out
    assert run("task", "show", "bad", "--json").json.keys() == _shown_of_a_task(run)


def _shown_of_a_task(run: Command) -> set[str]:
    run("task", "add", "x", "--id", "good")
    return set(run("task", "show", "good", "--json").json)


def test_a_refused_option_is_said_without_a_line_that_nobody_wrote(run: Command, hive: Path) -> None:
    assert run("task", "add", "x", "--priority", "huge").err.startswith(
        "hivemind: the task: priority: 'huge' is not a priority"
    )


def test_input_without_end_is_refused_before_it_fills_the_memory(hive: Path) -> None:
    done = subprocess.run(
        f"yes | {sys.executable} -m hivemind task add -", shell=True, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "more than 32 MiB" in done.stderr


def test_a_list_with_a_limit_shows_what_comes_next_and_what_came_last_and_says_how_many_there_are(
    run: Command, hive: Path
) -> None:
    for name in "abcd":
        run("task", "add", name, "--id", name)
    run("task", "cancel", "a")
    run("task", "cancel", "b")
    run("task", "add", "e", "--id", "e", "--priority", "high")
    told = run("task", "list", "--limit", "1").out.splitlines()
    assert [line.split()[:2] for line in told[1:3]] == [["e", "inbox"], ["b", "failed"]]
    assert told[3:] == [
        "no swarm is up: hivemind up starts it",
        "3 are in inbox, the first 1 are shown: --limit 3 shows all",
        "2 are in failed, the latest 1 are shown: --limit 2 shows all",
    ]
    assert [one["id"] for one in run("task", "list", "--limit", "1", "--json").json] == ["e", "b"]
    assert len(run("task", "list").out.splitlines()) == 7


def test_what_is_ignored_in_the_inbox_is_listed_by_the_command(run: Command, hive: Path) -> None:
    run("task", "add", "x", "--id", "x")
    names = ["a.bak", "b.orig", "c.rej", "d.md~"]
    for name in names:
        (hive / "tasks" / "inbox" / name).write_text("x")
    told = run("task", "list", "--ignored").out
    assert [name for name in names if name not in told] == []
    assert {one["name"] for one in run("task", "list", "--ignored", "--json").json} >= set(names)
    assert [one["id"] for one in run("task", "list", "--json").json] == ["x"]
    (hive / "tasks" / "active" / "stray").write_text("x")
    assert "ignored names in tasks/: 5; hivemind task list --ignored shows why\n" in run("task", "list").out
