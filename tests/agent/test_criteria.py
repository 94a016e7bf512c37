"""Review by criteria: another agent judges the result before a task ends, and sends it back."""

from __future__ import annotations

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from tests.agent.conftest import Crew, Mind, doing, until_idle, wants
from tests.messages import calls_of

TASK = """---
steps: [{title: Build it}]
review: {by: critic, criteria: [it floats, it is painted], rounds: 2}
---
Build a boat.
"""
FINISH = ("finish_task", {"result": "Here is the boat."})


@pytest.fixture
def crew(crew: Crew) -> Crew:
    crew.agent_file("role: critic\nmind: command:true\n", "eve")
    crew.drop(TASK)
    return crew


def reviewing(crew: Crew) -> str:
    """The review that waits, or is under way."""
    [task] = [one.id for one in Hive.open(crew.root).tasks.list() if one.parent == "t" and one.state.value != "done"]
    return task


def judge(crew: Crew, eve: Agent, *missing: str) -> None:
    eve.mind = Mind(doing(("verdict", {"approved": not missing, "missing": list(missing)})))
    until_idle(eve)


def test_what_is_missing_comes_back_and_what_is_approved_ends(crew):
    ada, eve = crew.start(doing()), crew.start(doing(), "eve")
    wants(ada, ("finish_step", {}))
    assert "waits for all of its tasks: t.review1" in wants(ada, FINISH)["parked"]
    until_idle(ada)
    text = Hive.open(crew.root).tasks.get(reviewing(crew)).text
    assert all(one in text for one in ("1. it floats", "2. it is painted", "Build a boat.", "Here is the boat."))
    judge(crew, eve, "paint it red")
    assert ada._bell.wait(5), "a review's end wakes who waits for it"
    again = wants(ada, FINISH)["result"]
    assert (again["state"], again["missing"], again["round"]) == ("again", ["paint it red"], "1 of 2")
    wants(ada, FINISH)
    assert "paint it red" in Hive.open(crew.root).tasks.get(reviewing(crew)).text
    judge(crew, eve)
    assert wants(ada, FINISH)["result"]["state"] == "done"
    assert "Approved by eve" in (crew.root / "tasks/done/t/result.md").read_text()


def rejected_twice(crew: Crew) -> Agent:
    ada, eve = crew.start(doing()), crew.start(doing(), "eve")
    wants(ada, ("finish_step", {}))
    for _ in range(2):
        wants(ada, FINISH)
        judge(crew, eve, "it leaks")
        told = wants(ada, FINISH)
    assert "still missing: it leaks" in told["parked"]
    return ada


def answer(crew: Crew, text: str) -> None:
    hive = Hive.open(crew.root)
    [question] = [one for one in hive.mail.list("human") if one.subject.startswith("Review:")]
    asked = hive.mail.read("human", question.id).body
    assert "Here is the boat." in asked
    assert "tasks/active/t" in asked
    quoted = "\n".join(f"> {line}" for line in asked.splitlines())
    body = f"On 26/11/2026 12:00, ada@hive wrote:\n{quoted}\n\n{text}\n\n-- \nJo\n"
    hive.mail.send("human", ["ada"], "Re: Review", body, in_reply_to=question.id, task="t")


def test_a_reviewer_by_rule_judges_nothing_and_a_person_is_asked(crew):
    crew.agent_file("role: critic\n", "eve")
    ada = crew.start(doing())
    wants(ada, ("finish_step", {}))
    assert "no agent of the role critic has a model" in wants(ada, FINISH)["parked"]


def test_after_so_many_rounds_a_person_is_asked_who_may_approve_it(crew):
    ada = rejected_twice(crew)
    answer(crew, "approved")
    ada.mind = Mind(doing(FINISH))
    until_idle(ada)
    assert "Approved by human" in (crew.root / "tasks/done/t/result.md").read_text()


def test_or_say_what_is_to_be_done_and_the_rounds_begin_again(crew):
    ada = rejected_twice(crew)
    answer(crew, "Tar it.")
    ada.mind = Mind(doing(FINISH))
    until_idle(ada)
    told = [call["result"] for call in calls_of(crew.root / "tasks/active/t") if "result" in call]
    assert [one["answer"] for one in told if "answer" in one] == ["Tar it."]
    assert Hive.open(crew.root).tasks.get(reviewing(crew)).state.value == "inbox", "a new review"


def test_without_a_reviewer_a_person_is_asked(crew):
    (crew.root / "agents/eve.yaml").unlink()
    ada = crew.start(doing())
    wants(ada, ("finish_step", {}))
    assert "no other agent has the role critic" in wants(ada, FINISH)["parked"]


def test_a_review_that_fails_asks_a_person(crew):
    ada, eve = crew.start(doing()), crew.start(doing(), "eve")
    wants(ada, ("finish_step", {}))
    wants(ada, FINISH)
    eve.mind = Mind(doing(("fail_task", {"reason": "no boat here"})))
    until_idle(eve)
    assert "ended without a verdict" in wants(ada, FINISH)["parked"]


def test_a_review_ends_with_a_verdict_alone_and_nothing_else_takes_one(crew):
    ada, eve = crew.start(doing()), crew.start(doing(), "eve")
    assert "not a review" in wants(ada, ("verdict", {"approved": True}))["error"]
    wants(ada, ("finish_step", {}))
    wants(ada, FINISH)
    eve.mind = Mind(doing(("plan_steps", {"steps": [{"title": "look"}]}), ("finish_step", {})))
    eve.cycle()
    made = reviewing(crew)
    assert "end it with verdict" in wants(eve, ("finish_task", {}), task=made)["error"]
    assert "list the missing points" in wants(eve, ("verdict", {"approved": False}), task=made)["error"]


def test_what_is_said_to_the_task_breaks_its_review_off(crew):
    ada = crew.start(doing())
    wants(ada, ("finish_step", {}))
    wants(ada, FINISH)
    Hive.open(crew.root).tasks.say("t", "Paint it red.")
    assert "t.s2" in wants(ada)["error"], "what was said is a step"
    wants(ada, ("finish_step", {}))
    assert "Paint it red." in wants(ada, FINISH)["error"]
    assert [one.state.value for one in Hive.open(crew.root).tasks.list() if one.parent == "t"] == ["failed"]
    assert "t.review2" in wants(ada, FINISH)["parked"]


@pytest.mark.parametrize(
    ("written", "said"),
    [("{criteria: [x]}", "by"), ("{by: critic}", "criteria"), ("{by: critic, criteria: [], rounds: 1}", "criteria")],
)
def test_a_review_that_says_too_little_fails_the_task_with_the_key(crew, written, said):
    (crew.root / "tasks/inbox/t.md").unlink()
    crew.drop(f"---\nreview: {written}\n---\nx\n", "bad.md")
    agent = crew.start(doing())
    agent.cycle()
    assert said in (crew.root / "tasks/failed/bad/error.md").read_text()
