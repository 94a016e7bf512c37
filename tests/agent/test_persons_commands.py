"""A step that a person wrote as a command is closed by that command alone, whatever its mind asks for."""

from __future__ import annotations

import signal

from hivemind import Hive
from hivemind.tools.registry import use_by_hand
from tests.agent.conftest import Crew, doing, hands, until_idle, using_tools
from tests.program import Python, run

ONCE = "---\nsteps: [{run: '%s', once: true}]\n---\nx\n"
CLOSES = doing(("finish_step", {}), ("finish_task", {"result": "All is well."}))
DIES = """
import os, sys
from pathlib import Path
from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.presence.identity import lock_name, journal_start
from tests.agent.conftest import Mind, doing

hive = Hive.open(sys.argv[1])
lock = lock_name(hive.layout, "ada")
(Path(sys.argv[1]) / "pid").write_text(str(os.getpid()))
agent = Agent(hive, "ada", journal_start(hive.journal, "ada", os.getpid()))
agent.mind = Mind(doing(("run_command", {})))
agent.cycle()
"""


def test_a_mind_cannot_close_a_persons_run_step_that_did_not_run(crew: Crew) -> None:
    use = hands(crew, "---\nsteps: [{run: 'echo oak && test -e saw'}]\n---\nx\n")
    assert "has not run to its end" in use("finish_step")["error"]
    assert "has not run" in use("finish_step", evidence=["rom/hive.md"])["error"]
    assert use("run_command")["result"]["exit_status"] == 1
    assert "ended with status 1" in use("finish_step")["error"]
    assert use("write_file", path="saw", text="")["result"]
    assert use("run_command", command="echo oak && test -e saw")["result"]["output"] == "oak\n", (
        "the person's words, in a shell"
    )
    assert use("finish_step")["result"]["status"] == "done"


def test_nor_can_another_agent_that_leased_it_but_a_person_may(crew: Crew) -> None:
    crew.agent_file("role: builder\n", "bob")
    hands(crew, "---\nsteps: [{title: Saw}, {run: make}]\n---\nx\n")
    crew.drop("---\nassignee: bob\nsteps: [{title: y}]\n---\ny\n", "u.md")
    bob = using_tools(crew.start(name="bob"))
    assert bob("claim_step", step="t.s2")["result"]["holder"] == "bob"
    assert "has not run to its end" in bob("finish_step", step="t.s2")["error"]
    hive = Hive.open(crew.root)
    hive.leases.release("t.s2", "bob")
    use_by_hand(hive, "human", "claim_step", {"step": "t.s2"})
    assert use_by_hand(hive, "human", "finish_step", {"step": "t.s2"})["status"] == "done"


def test_a_command_that_may_run_once_and_was_interrupted_fails_its_task_whatever_its_mind_does(crew: Crew) -> None:
    crew.drop(ONCE % 'kill -9 $(cat "$HIVEMIND_HIVE/pid"); sleep 60')
    assert run(["-c", DIES, str(crew.root)], start=Python, timeout=60).returncode == -signal.SIGKILL
    until_idle(crew.start(CLOSES))
    assert "may run only once, and was interrupted" in (crew.root / "tasks/failed/t/error.md").read_text()


def test_a_command_that_may_run_once_and_did_not_start_may_start_later(crew: Crew) -> None:
    use = hands(crew, ONCE % "echo oak")
    artifacts = crew.root / "tasks/active/t/artifacts"
    (artifacts / "step-1.out").mkdir(parents=True)
    assert "is not a regular file" in use("run_command")["error"]
    (artifacts / "step-1.out").rmdir()
    assert use("run_command")["result"]["output"] == "oak\n"
    assert use("run_command")["result"]["receipt"] == "t.s1#1"


def test_so_does_one_whose_reaper_was_killed(crew: Crew) -> None:
    crew.drop(ONCE % "kill -9 $PPID")
    until_idle(crew.start(doing(("run_command", {}), ("finish_step", {}), ("finish_task", {}))))
    assert "may run only once, and was interrupted" in (crew.root / "tasks/failed/t/error.md").read_text()


def test_a_question_about_repeated_calls_names_them_and_is_short(crew: Crew) -> None:
    crew.drop(ONCE % "true")
    agent = crew.start(doing(("list_files", {"path": "knowledge"}), ("saw", {"what": "x" * 999})))
    until_idle(agent)
    [question] = agent.hive.mail.list("human")
    body = agent.hive.mail.read("human", question.id).body
    assert 'list_files {"path": "knowledge"}' in body
    assert 'saw {"what": "xxx' in body
    assert len(body) < 1500


def test_a_question_about_repeated_calls_says_what_the_last_one_failed_of(crew: Crew) -> None:
    crew.drop(ONCE % "true")
    agent = crew.start(CLOSES)
    until_idle(agent)
    [question] = agent.hive.mail.list("human")
    assert "(finish_step {}: the command of step t.s1 has not run" in agent.hive.mail.read("human", question.id).body
