"""Dividing a task: subtasks, waiting for them, telling them more, and their end."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.swarm.until_idle import survey
from hivemind.web.snapshot import take_snapshot
from tests.agent.conftest import Crew, Mind, doing, until_idle, wants
from tests.messages import lines_of, messages_of
from tests.program import Python, run
from tests.waiting import until

LEAD = "---\nsteps: [{title: Lead it}]\n---\nBuild a boat.\n"


@pytest.fixture
def crew(crew: Crew) -> Crew:
    crew.agent_file("role: lead\n")
    crew.agent_file("role: builder\n", "bob")
    return crew


def divided(crew: Crew, *tasks: dict[str, Any]) -> tuple[Agent, list[str]]:
    """A lead that has a task in hand, and has made these subtasks of it."""
    crew.drop(LEAD)
    ada = crew.start(doing())
    return ada, wants(ada, ("delegate", {"tasks": list(tasks)}))["result"]["ids"]


def states(crew: Crew) -> dict[str, str]:
    return {one.id: one.state.value for one in Hive.open(crew.root).tasks.list()}


PLAN = ("plan_steps", {"steps": [{"title": "do it"}]})


def done(bob: Agent, answer: str = "The mast stands.") -> None:
    """One task in hand, done."""
    for turn in ([PLAN], [("finish_step", {})], [("finish_task", {"result": answer})]):
        wants(bob, *turn)


def test_subtasks_are_made_at_once_and_show_whose_they_are(crew):
    ada, ids = divided(
        crew,
        {"text": "Saw the keel.", "to": "bob"},
        {"text": "Step the mast.", "role": "builder", "title": "Mast", "depends_on": [1]},
        {"text": "Rig it.", "depends_on": ["Mast"]},
    )
    tasks = {one.id: one for one in Hive.open(crew.root).tasks.list("inbox")}
    assert list(tasks) == ids
    assert [(one.parent, one.maker, one.assignee, one.role) for one in tasks.values()] == [
        ("t", "ada", "bob", None),
        ("t", "ada", None, "builder"),
        ("t", "ada", None, None),
    ]
    assert [Hive.open(crew.root).tasks.get(one).dependencies for one in ids] == [(), (ids[0],), (ids[1],)]
    assert [work.task.id for work in ada.scheduler.active_tasks.runs] == ["t"], "the lead goes on"


def test_several_calls_in_one_turn_lose_nothing(crew):
    ada, first = divided(crew, {"text": "Saw the keel."})
    wants(ada, *(("delegate", {"tasks": [{"text": text}]}) for text in ("Step the mast.", "Rig it.")))
    waiting = [one for one, state in states(crew).items() if state == "inbox"]
    assert len(waiting) == 3
    assert first[0] in waiting


CHILD = """
import os, sys
from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.presence.identity import lock_name, journal_start
from tests.agent.conftest import Mind, doing
hive = Hive.open(sys.argv[1])
lock = lock_name(hive.layout, "ada")
agent = Agent(hive, "ada", journal_start(hive.journal, "ada", os.getpid()))
agent.mind = Mind(doing(("delegate", {"tasks": [{"text": "Saw."}, {"text": "Rig.", "depends_on": [1]}]})))
agent.scheduler.active_tasks.resume()
agent.cycle()
"""


@pytest.mark.parametrize("point", ["tasks.add.written", "tasks.add.dropped", "messages.append.written:3"])
def test_killed_anywhere_each_subtask_is_made_once(crew, point):
    crew.drop(LEAD)
    killed = run(
        ["-c", CHILD, str(crew.root)], start=Python, env={**os.environ, "HIVEMIND_CRASH_AT": point}, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    ada = crew.start(doing())
    ids = wants(ada, ("delegate", {"tasks": [{"text": "Saw."}, {"text": "Rig.", "depends_on": [1]}]}))["result"]["ids"]
    assert [one for one, state in states(crew).items() if state == "inbox"] == ids
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([{"text": "x", "to": "carol"}], "no agent 'carol'"),
        ([{"text": "x", "role": "cook"}], "no agent has the role 'cook'"),
        ([{"text": "x", "to": "bob", "role": "builder"}], "not both"),
        ([{"text": "x", "depends_on": [2]}], "no subtask 2"),
        ([{"text": "x", "depends_on": ["nothing"]}], "no such task"),
        ([{"text": "x", "depends_on": [2]}, {"text": "y", "depends_on": [1]}], "in a cycle"),
        ([{"text": "x", "attach": ["none.txt"]}], "none.txt"),
    ],
)
def test_what_cannot_be_is_refused_in_words_and_nothing_is_made(crew, tasks, said):
    crew.drop(LEAD)
    ada = crew.start(doing())
    assert said in wants(ada, ("delegate", {"tasks": tasks}))["error"]
    assert states(crew) == {"t": "active"}


def test_a_file_goes_with_it_and_its_opening_says_what_it_is_a_part_of(crew):
    crew.drop(LEAD)
    ada = crew.start(doing())
    wants(ada, ("write_file", {"path": "plan.txt", "content": "Oak.\n"}))
    [made] = wants(ada, ("delegate", {"tasks": [{"text": "Saw.", "to": "bob", "attach": ["plan.txt"]}]}))["result"][
        "ids"
    ]
    bob = crew.start(doing(PLAN), "bob")
    bob.cycle()
    opening = next(line["opening"] for line in lines_of(crew.root / "tasks/active" / made) if "opening" in line)
    assert "A part of Build a boat. (`t`) › Lead it." in opening[1]["text"]
    [attached] = Hive.open(crew.root).tasks.get(made).attachments
    assert attached.read_text() == "Oak.\n"


def test_the_results_of_all_come_when_the_last_is_over_at_its_bell(crew):
    ada, ids = divided(crew, {"text": "Keel.", "to": "bob"}, {"text": "Mast.", "to": "bob"})
    wait = ("wait_for", {"tasks": ids})
    assert "waits for all" in wants(ada, wait)["parked"]
    until_idle(ada)
    assert take_snapshot(Hive.look(crew.root)).needs == (), "nobody can do anything for it"
    bob = crew.start(doing(), "bob")
    done(bob, "The keel is sawn.")
    ada._bell.wait(0)
    assert not ada.cycle(), "one of two"
    wants(bob, PLAN)
    wants(bob, ("fail_task", {"reason": "there is no pine"}))
    assert ada._bell.wait(5), "its end rings for the one that waits"
    told = wants(ada, wait)["result"]["tasks"]
    assert [(one["task"], one["state"]) for one in told] == [(ids[0], "done"), (ids[1], "failed")]
    assert "The keel is sawn." in told[0]["result"]
    assert "there is no pine" in told[1]["error"]
    [work] = ada.scheduler.active_tasks.runs
    graph = work.trail.store.graph
    nodes = {node.meta["task"]: node for node in graph.nodes.values() if "task" in node.meta}
    assert list(nodes) == ids, "each is one settled node of its parent's graph"
    assert "The keel is sawn." in str(nodes[ids[0]].thought)
    assert {node.status for node in nodes.values()} == {"closed"}


def test_any_is_over_with_the_first(crew):
    ada, ids = divided(crew, {"text": "Keel.", "to": "bob"}, {"text": "Mast.", "to": "bob"})
    wait = ("wait_for", {"tasks": ids, "mode": "any"})
    wants(ada, wait)
    done(crew.start(doing(), "bob"))
    assert [one["state"] for one in wants(ada, wait)["result"]["tasks"]] == ["done", "inbox"]


def test_a_wait_ends_with_its_time(crew):
    ada, ids = divided(crew, {"text": "Keel.", "to": "bob"})
    told = wants(ada, ("wait_for", {"tasks": ids, "timeout_s": 0.000001}))["result"]
    assert (told["timed_out"], told["tasks"][0]["state"]) == (True, "inbox")


def test_a_question_from_an_awaited_subtask_wakes_the_lead_early(crew):
    ada, ids = divided(crew, {"text": "Keel.", "to": "bob"})
    wait = ("wait_for", {"tasks": ids})
    wants(ada, wait)
    bob = crew.start(doing(), "bob")
    wants(bob, PLAN)
    wants(bob, ("send_mail", {"to": ["ada"], "subject": "Keel", "body": "I have begun."}))
    ada.scheduler.sense()
    assert ada.scheduler.active_tasks.next() is None, "a note wakes nobody"
    wants(bob, ("send_mail", {"to": ["ada"], "subject": "Keel", "body": "Oak or pine?", "expects_reply": True}))
    ada.scheduler.sense()
    [work] = ada.scheduler.active_tasks.runs
    assert ada.scheduler.active_tasks.next() is work
    told = wants(ada)["result"]
    assert (told["letter"]["from"], told["letter"]["body"].strip()) == ("bob", "Oak or pine?")


def test_what_is_said_to_the_task_wakes_it_early(crew):
    ada, ids = divided(crew, {"text": "Keel.", "to": "bob"})
    wait = ("wait_for", {"tasks": ids})
    wants(ada, wait)
    assert not ada.cycle()
    Hive.open(crew.root).tasks.say("t", "Make it of pine.")
    assert wants(ada, wait)["result"]["added"] == [{"by": "human", "text": "Make it of pine."}]


def test_a_wait_that_has_been_answered_is_no_idle_swarm(crew):
    """`up --until-idle` once ended here: the agent's status says idle until it has looked."""
    ada, ids = divided(crew, {"text": "Keel.", "to": "bob"})
    wants(ada, ("wait_for", {"tasks": ids}))
    until_idle(ada)
    bob = crew.start(doing(), "bob")
    done(bob)
    until_idle(bob)
    for agent in (ada, bob):
        agent.status.update(state="idle", task=None)
    hive = Hive.open(crew.root)
    assert survey(hive, ["ada", "bob"]).busy == ("task t",)


def test_a_step_whose_awaited_task_is_done_is_no_idle_swarm(crew):
    crew.drop("---\nsteps: [{wait: {task: other}}, {wait: {human: Which?}}]\n---\nx\n")
    crew.drop("---\nsteps: [{title: x}]\nassignee: bob\n---\nx\n", "other.md")
    ada = crew.start(doing(("wait", {"until": {"task": "other"}})))
    until_idle(ada)
    bob = crew.start(doing(("finish_step", {}), ("finish_task", {})), "bob")
    until_idle(bob)
    for agent in (ada, bob):
        agent.status.update(state="idle", task=None)
    hive = Hive.open(crew.root)
    assert survey(hive, ["ada", "bob"]).busy == ("task t",)
    wants(ada)
    wants(ada, ("finish_step", {}))
    wants(ada, ("ask_human", {"question": "Which?"}))
    assert not ada.cycle(), "what it waited for once wakes it no more"
    ada.status.update(state="idle", task=None)
    assert survey(hive, ["ada", "bob"]).busy == ()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("task: ghost", "it waits for the task 'ghost', which does not exist"),
        ("task: other", "it waits for the task 'other', which does not exist"),  # deleted while it was waited for
        ("task: t", "the task waits for itself"),
        ("mail: ghost", "it waits for mail from 'ghost', which is not an agent"),
    ],
)
def test_a_step_that_waits_for_what_there_is_not_fails_its_task_as_a_dependency_does(crew: Crew, what: str, why: str):
    """It rested for ever."""
    other = crew.root / "tasks/inbox/other.md"
    other.write_text("---\nassignee: bob\n---\nx\n")
    crew.drop(f"---\nsteps: [{{wait: {{{what}}}}}]\n---\nx\n")
    agent = crew.start()
    agent.cycle()
    other.unlink()
    until(lambda: not agent.cycle() and (crew.root / "tasks/failed/t").is_dir())
    assert why in (crew.root / "tasks/failed/t/error.md").read_text()


def test_a_step_that_waits_for_a_task_that_comes_a_moment_later_waits_for_it(crew: Crew):
    crew.drop("---\nsteps: [{wait: {task: other}}]\n---\nx\n")
    agent = crew.start()
    agent.cycle()
    crew.drop("Which?\n", "other.md")
    until(lambda: not agent.cycle() and (crew.root / "tasks/done/t").is_dir())


def test_a_subtask_is_told_more_while_it_waits_or_is_at_work(crew):
    ada, [made] = divided(crew, {"text": "Keel.", "to": "bob"})
    wants(ada, ("send_to_task", {"id": made, "text": "Of oak."}))
    bob = crew.start(doing(), "bob")
    wants(bob, PLAN)
    wants(ada, ("send_to_task", {"id": made, "text": "How long is it?"}))
    wants(bob)
    task = Hive.open(crew.root).tasks.get(made)
    assert [(one.by, one.text) for one in task.said] == [("ada", "Of oak."), ("ada", "How long is it?")]
    assert any("How long is it?" in one["text"] for one in messages_of(task.path) if one["role"] == "user")


def test_only_ones_own_subtasks_are_told_and_ended(crew):
    crew.drop("---\nassignee: bob\n---\nAnother's.\n", "other.md")
    ada, [made] = divided(crew, {"text": "Keel.", "to": "bob"})
    assert "not a subtask of yours" in wants(ada, ("cancel_task", {"id": "other"}))["error"]
    assert "not a subtask of yours" in wants(ada, ("send_to_task", {"id": "other", "text": "x"}))["error"]
    assert wants(ada, ("cancel_task", {"id": made, "reason": "not needed"}))["result"]["state"] == "failed"
    assert "not needed" in (crew.root / "tasks/failed" / made / "error.md").read_text()


@pytest.mark.parametrize("how", ["done", "failed", "cancelled", "deleted"])
def test_the_end_of_a_task_ends_its_subtasks(crew, how):
    ada, _ = divided(crew, {"text": "Keel.", "to": "bob"}, {"text": "Mast.", "to": "bob"})
    bob = crew.start(doing(), "bob")
    wants(bob, PLAN)
    wants(bob, ("delegate", {"tasks": [{"text": "Saw."}]}))
    match how:
        case "done":
            wants(ada, ("finish_step", {}), ("finish_task", {}))
        case "failed":
            wants(ada, ("fail_task", {"reason": "no"}))
        case "cancelled":
            Hive.open(crew.root).tasks.cancel("t")
        case "deleted":
            (crew.root / "tasks/active/t").rename(crew.root / "away")
    bob.mind = Mind(doing())
    until_idle(bob)
    found = states(crew)
    assert {state for one, state in found.items() if one != "t"} == {"failed"}
    assert len([one for one in found if one != "t"]) == 3


def test_depth_is_bounded(crew):
    tasks = Hive.open(crew.root).tasks
    parent = None
    for name in ("t0", "t1", "t2"):
        tasks.add("x", id=name, by="bob", parent=parent)
        assert tasks.claim("bob") is not None
        parent = name
    tasks.add("x", id="t", by="bob", parent=parent)
    ada = crew.start(doing())
    assert "3 subtasks deep" in wants(ada, ("delegate", {"tasks": [{"text": "x"}]}))["error"]


def test_a_retried_subtask_whose_parent_is_over_is_a_task_of_its_own(crew):
    ada, [made] = divided(crew, {"text": "Keel.", "to": "bob"})
    wants(ada, ("finish_step", {}), ("finish_task", {}))
    hive = Hive.open(crew.root)
    assert hive.tasks.get(made).state.value == "failed"
    hive.tasks.retry(made)
    bob = crew.start(doing(PLAN), "bob")
    bob.cycle()
    task = Hive.open(crew.root).tasks.get(made)
    assert (task.state.value, task.parent) == ("active", None)


def test_the_record_names_the_parent(crew):
    _, [made] = divided(crew, {"text": "Keel.", "to": "bob"})
    assert json.loads((crew.root / "tasks/inbox" / made / "task.json").read_text())["parent"] == "t"


def test_a_file_that_has_just_come_and_is_still_being_written_is_no_idle_swarm(crew):
    """Found by tests/faults: `up --until-idle` called a task parked whose text had not come yet."""
    hive = Hive.open(crew.root)
    with open(hive.layout.inbox / "late.md", "w") as writing:
        ada = crew.start(doing())
        until_idle(ada)
        ada.status.update(state="idle")
        assert survey(hive, ["ada"]).busy == ("task late is being written",)
        writing.write("Build a boat.\n")
