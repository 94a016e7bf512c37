"""hivemind init, status, agent, log, context, doctor: what they show, and the JSON that programs read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.cli.log import agent_log_text
from tests.cli.conftest import Command
from tests.program import Program


def test_init_makes_a_healthy_hive_with_agents_and_mailboxes(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HIVEMIND_HIVE", raising=False)
    root = tmp_path / "new"
    made = run("init", str(root))
    assert made.status == 0
    assert str(root) in made.out
    assert {path.name for path in root.iterdir()} >= {"hive.yaml", "agents", "rom", "mailboxes", "knowledge", "tasks"}
    monkeypatch.chdir(root)
    assert [agent["name"] for agent in run("agent", "list", "--json").json] == ["analyst", "researcher", "reviewer"]
    assert run("doctor").status == 0
    assert run("task", "list", "--json").json == []
    again = run("init", str(root))
    assert again.status == 2
    assert "there is a hive already" in again.err


def test_init_names_the_workspace_after_the_folder_or_as_it_is_told(run: Command, tmp_path: Path) -> None:
    for folder, words, workspace in (
        ("Köln 2", (), "koln-2"),
        ("123", (), "123"),
        ("hive", ("--workspace", "Berlin"), "berlin"),
        ("long", ("--workspace", "ö" * 128), "ö" * 128),
    ):
        assert run("init", str(tmp_path / folder), *words).status == 0
        assert run("--hive", str(tmp_path / folder), "status", "--json").json["workspace"] == workspace
    for word, reason in (("a b", "must not contain white space"), ("o" * 129, "128 characters")):
        refused = run("init", str(tmp_path / "other"), "--workspace", word)
        assert (refused.status, (tmp_path / "other").exists(), reason in refused.err) == (2, False, True), refused.err


def test_status_tells_a_program_everything(run: Command, hive: Path) -> None:
    run("task", "add", "Wait", "--id", "one", "--assignee", "analyst")
    run("mail", "send", "--to", "researcher,human", "x")
    now = run("status", "--json").json
    assert (now["hive"], now["workspace"], now["supervisor"], now["watching"]) == (str(hive), "hive", None, None)
    assert now["tasks"] == {"inbox": 1, "active": 0, "done": 0, "failed": 0, "parked": 0}
    assert now["human_unread"] == 1
    (researcher,) = [agent for agent in now["agents"] if agent["name"] == "researcher"]
    assert researcher == {
        "name": "researcher",
        "role": "researcher",
        "mind": "extractive",
        "pid": None,
        "state": "down",
        "task": None,
        "step": None,
        "unread": 1,
        "tokens": 0,
        "budget": None,
        "last_action": None,
        "problem": None,
        "money": 0.0,
        "unpriced": 0,
        "cached": 0,
        "incarnation": 0,
        "mail_rests": None,
        "mail_rests_until": None,
        "since": "",
        "steps_finished": 0,
    }


def test_status_says_why_tasks_wait_and_who_they_wait_for(run: Command, hive: Path) -> None:
    run("task", "add", "x", "--id", "first")
    run("task", "add", "y", "--id", "second", "--depends", "first")
    tasks = Hive.open(hive).tasks
    task = tasks.claim("researcher")
    assert task is not None
    tasks.active.park(task, "waits for a person: which colour?")
    shown = run("status").out
    assert "1 waiting, 1 active (1 parked), 0 done" in shown
    assert 'first: "x": waits for a person: which colour?' in shown
    assert "  second: " in shown
    assert [agent["task"] for agent in run("agent", "list", "--json").json] == [None, "first", None]


def test_an_agent_is_added_with_a_mailbox_and_a_second_of_that_name_refused(run: Command, hive: Path) -> None:
    assert run("agent", "add", "Writer", "--role", "writer").status == 0
    assert (hive / "mailboxes" / "writer" / "new").is_dir()
    added = {agent["name"]: agent for agent in run("agent", "list", "--json").json}["writer"]
    assert (added["role"], added["mind"], added["state"]) == ("writer", "extractive", "down")
    (hive / "agents/writer.yaml").write_text("mind: {openai-compatible: {url: 'http://127.0.0.1:1', model: large-3}}\n")
    (hive / "agents/thinker.yaml").write_text("mind: {command: [./think, --fast]}\n")
    listing = run("agent", "list").out
    assert "openai-compatible:large-3" in listing
    assert "command: ./think --fast" in listing
    assert run("mail", "send", "--to", "writer", "x").status == 0
    assert run("agent", "add", "writer").status == 2


@pytest.mark.parametrize(
    "words",
    [["human"], ["exchange"], ["postmaster"], ["../x"], ["x", "--role", "a b"], ["x", "--mind", "dream"], ["analyst"]],
    ids=" ".join,
)
def test_a_bad_agent_is_refused_and_nothing_is_written(run: Command, hive: Path, words: list[str]) -> None:
    before = sorted((hive / "agents").iterdir())
    ended = run("agent", "add", *words)
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert sorted((hive / "agents").iterdir()) == before


def test_the_journal_is_shown_from_a_number_on_and_by_kind(run: Command, hive: Path) -> None:
    journal = Hive.open(hive).journal
    for number in range(3):
        journal.append("task.noted", number=number, text="two words")
    journal.append("agent.noted", agent_id="researcher")
    shown = run("log").out.splitlines()
    assert shown[0].split(None, 2) == ["1", "task.noted", 'number=0  text="two words"']
    assert [event["seq"] for event in run("log", "--since", "2", "--json").json] == [3, 4]
    assert [event["seq"] for event in run("log", "--kind", "agent", "--kind", "task.noted", "--json").json] == [
        1,
        2,
        3,
        4,
    ]
    assert run("log", "--kind", "tas", "--json").json == []
    assert "no event has the kind tas; kinds here: agent, task\n" in run("log", "--kind", "tas").err
    assert run("log", "--since", "99", "--json").json == []


def test_a_follower_shows_events_as_they_come(hive: Path) -> None:
    journal = Hive.open(hive).journal
    journal.append("task.noted", text="old")
    follower = Program(["log", "--follow", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["text"] == "old"
        for number in range(3):
            journal.append("task.noted", number=number)
            assert json.loads(follower.stdout.readline()) == {"seq": number + 2, "kind": "task.noted", "number": number}
    finally:
        follower.send_signal(signal.SIGINT)
        _, complaint = follower.communicate(timeout=30)
    assert (follower.returncode, complaint) == (130, b"")


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "turn", "calls": ["odd", None, {}, {"tool": 1, "arguments": [2]}], "about": 3, "time": 1e300},
        {"kind": "turn", "calls": 3, "at": 1e300},
        {"kind": 5},
        {},
    ],
)
def test_a_log_that_a_person_has_changed_is_still_told(record: dict[str, object]) -> None:
    assert isinstance(agent_log_text(record), str)


def test_an_opening_is_shown_and_explained_block_by_block(run: Command, hive: Path) -> None:
    (hive / "rom").mkdir()
    (hive / "rom" / "rules.md").write_text("# Rules\nQuote \x1b[2J exactly.\n")
    (hive / "knowledge").mkdir(exist_ok=True)
    (hive / "knowledge" / "sea.md").write_text("# The sea\n\nThe colour of the sea is green.\n")
    run("task", "add", "What colour is the sea?", "--id", "one")
    assert Hive.open(hive).tasks.claim("researcher") is not None
    shown = run("context", "researcher")
    assert shown.status == 0
    assert "Quote \\u001b[2J exactly." in shown.out
    system, task = run("context", "researcher", "--json").json
    assert (system["role"], task["role"]) == ("system", "user")
    assert "Quote" in system["text"]
    assert "What colour is the sea?" in task["text"]
    assert "is green" in task["text"]
    explained = run("context", "researcher", "--why", "--json").json
    [sea, *_] = [block for block in explained["blocks"] if "sea.md" in block["block"]]
    assert sea["in"] is True
    assert sea["tokens"] > 0
    assert set(sea["parts"]) >= {"confidence", "recency"}
    table = run("context", "researcher", "--why").out
    assert "BLOCK" in table.splitlines()[0]
    assert "confidence 1 × " in table
    assert run("context", "nobody").status == 2


def test_the_opening_of_a_task_that_waits_is_shown_for_the_agent_that_would_do_it(run: Command) -> None:
    run("task", "add", "Later.", "--id", "later", "--priority", "low", "--role", "researcher")
    run("task", "add", "Not hers.", "--id", "other", "--assignee", "archivist")
    run("task", "add", "Sooner.", "--id", "sooner", "--priority", "high")
    assert "for task sooner" in run("context", "researcher").out
    assert "for task later" in run("context", "researcher", "later").out
    assert run("context", "researcher", "none").status == 2


def test_looking_at_an_opening_changes_nothing_of_the_agents(run: Command, hive: Path) -> None:
    run("task", "add", "x", "--id", "one")
    opened = Hive.open(hive)
    opened.journal.append("task.noted")
    assert opened.tasks.claim("researcher") is not None

    def state() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for top in ("tasks", "mailboxes", ".hive/agents", ".hive/journal")
            for path in sorted((hive / top).rglob("*"))
            if path.is_file() and not path.name.startswith("journal.jsonl.")
        }

    before = state()
    assert "for task one" in run("context", "researcher").out
    assert state() == before


def test_the_doctor_says_what_it_found_mends_it_and_answers_in_json(run: Command, hive: Path) -> None:
    Hive.open(hive)
    (hive / "knowledge").rmdir()
    told = run("doctor")
    assert told.status == 1
    assert "problem: knowledge: is missing" in told.out
    assert told.out.endswith("1 problem; hivemind doctor --fix mends 1 of them.\n")
    record = run("doctor", "--json")
    assert record.status == 1
    assert record.json["healthy"] is False
    (found,) = [finding for finding in record.json["findings"] if not finding["note"]]
    assert (found["check"], found["where"], found["fixable"]) == ("folders", "knowledge", True)
    mended = run("doctor", "--fix")
    assert mended.status == 0
    assert "mended:  knowledge" in mended.out
    assert run("doctor", "--json").json["healthy"] is True


def test_the_doctor_examines_a_hive_whose_settings_are_broken(run: Command, hive: Path) -> None:
    (hive / "hive.yaml").write_text("version: 1\nwach: auto\n")
    told = run("doctor")
    assert told.status == 1
    assert "hive.yaml:2" in told.out
    assert "watch" in told.out
    assert run("doctor", "--fix").status == 1


def test_a_hive_whose_settings_have_become_invalid_is_still_shown_and_not_written(run: Command, hive: Path) -> None:
    run("status")
    Hive.open(hive).read_agents()
    (hive / "hive.yaml").write_text("version: 1\nwach: auto\n")
    shown = run("task", "list")
    assert (shown.status, shown.out) == (0, "No tasks.\n")
    assert "shown with the last valid settings: " in shown.err
    assert "hive.yaml:2" in shown.err
    assert "hive.yaml:2" in run("task", "add", "x").err
    assert not any((hive / "tasks" / "inbox").glob("x*"))


def test_a_folder_that_was_deleted_under_the_shell_is_said_to_be_gone(process: Command, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = (
        "import os, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\n"
        "from hivemind.cli import main; sys.exit(main(['status']))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "HIVEMIND_HIVE"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(gone)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("hivemind: the current folder has been deleted")
