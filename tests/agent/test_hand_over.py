from __future__ import annotations

import os
import signal

import pytest

from hivemind import Hive
from hivemind.reasoning import TaskGraph
from tests.agent.conftest import Crew, doing, until_idle, wants
from tests.messages import turns_of
from tests.program import Python, run

TASK = "---\nsteps: [{title: The keel}, {title: The mast}]\n---\nBuild a boat.\n"
FIRST = ("add_card", {"kind": "note", "text": "The keel is of oak."}), ("finish_step", {})


@pytest.fixture
def two(crew: Crew) -> Crew:
    crew.agent_file("role: builder\n", "bob")
    crew.drop(TASK)
    return crew


def test_the_other_goes_on_with_what_was_done_and_does_none_of_it_again(two):
    ada = two.start(doing(*FIRST))
    ada.cycle()
    ada.mind = type(ada.mind)(
        doing(("hand_over", {"to": "bob", "reason": "he knows masts"}), ("fail_task", {"reason": "no"}))
    )
    ada.cycle()
    assert not ada.scheduler.active_tasks.runs
    waiting = Hive.open(two.root).tasks.list("inbox")
    assert [(one.id, one.assignee) for one in waiting] == [("t", "bob")]
    assert not ada.cycle()  # it is not hers to claim
    bob = two.start(doing(("finish_step", {})), "bob")
    bob.cycle()
    [work] = bob.scheduler.active_tasks.runs
    assert [step.step.status for step in work.steps()] == ["done", "done"]
    assert any("he knows masts" in note.text for note in work.trail.store.notes())
    shared = [node.text for node in work.trail.store.graph.by_lane("shared")]
    assert "The keel is of oak." in shared
    bob.mind = type(bob.mind)(doing(("finish_task", {"result": "Built."})))
    until_idle(bob)
    result = (two.root / "tasks/done/t/result.md").read_text()
    assert result.count("The keel is of oak.") == 1
    assert [one["agent"] for one in turns_of(two.root / "tasks/done/t")] == ["ada", "ada", "bob", "bob"]
    assert [event.payload["to"] for event in two.events("task.handed_over")] == ["bob"]


def test_a_role_gets_it_and_it_can_come_back(two):
    ada = two.start(doing(("hand_over", {"role": "builder", "reason": "x"})))
    ada.cycle()
    bob = two.start(doing(("hand_over", {"to": "ada", "reason": "y"})), "bob")
    bob.cycle()
    assert not bob.cycle()
    ada.mind = type(ada.mind)(doing(("finish_step", {}), ("finish_step", {})))
    assert ada.cycle()
    assert [work.task.id for work in ada.scheduler.active_tasks.runs] == ["t"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"to": "ada"}, "no other agent 'ada'"),
        ({"to": "carol"}, "no other agent 'carol'"),
        ({"role": "analyst"}, "no other agent has the role 'analyst'"),
        ({}, "name an agent (to)"),
        ({"to": "bob", "role": "builder"}, "name an agent (to)"),
    ],
)
def test_whom_there_is_not_is_refused_in_words(two, asked, said):
    assert said in wants(two.start(), ("hand_over", {"reason": "x", **asked}))["error"]


CHILD = """
import sys
from pathlib import Path
from tests.agent.conftest import Crew, doing
from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.presence.identity import lock_name, journal_start
import os
hive = Hive.open(sys.argv[1])
lock = lock_name(hive.layout, "ada")
agent = Agent(hive, "ada", journal_start(hive.journal, "ada", os.getpid()))
from tests.agent.conftest import Mind
agent.mind = Mind(doing(("hand_over", {"to": "bob", "reason": "x"})))
agent.scheduler.active_tasks.resume()
agent.cycle()
"""


@pytest.mark.parametrize(
    "point",
    [
        "messages.append.written:3",
        "tasks.hand_over.written",
        "messages.append.written:4",
        "tasks.release.ready",
        "journal.commit.synced",
    ],
)
def test_killed_anywhere_it_is_handed_over_once_or_not_yet(two, point):
    two.configure()
    done = run(["-c", CHILD, str(two.root)], start=Python, env={**os.environ, "HIVEMIND_CRASH_AT": point}, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL)
    ada = two.start(doing(("hand_over", {"to": "bob", "reason": "x"})))
    while ada.cycle():
        pass
    assert not ada.scheduler.active_tasks.runs
    bob = two.start(doing(("finish_step", {}), ("finish_step", {})), "bob")
    bob.cycle()
    [work] = bob.scheduler.active_tasks.runs
    assert (work.task.id, len(work.steps())) == ("t", 2)
    assert sum("hands this over" in note.text for note in TaskGraph(work.task.path).notes()) == 1
