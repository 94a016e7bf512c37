"""What a person answers by hand, and then once more; what a result says was sent, said and written."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from itertools import takewhile
from typing import Any

import pytest

from hivemind import Hive
from hivemind.mail import Attachment
from hivemind.minds import Thought, ToolCall
from tests.agent.conftest import Crew, hands, until_idle
from tests.messages import lines_of


@pytest.fixture
def asked(crew: Crew) -> Crew:
    crew.drop("---\nsteps: [{wait: {human: Which colour shall it be?}}, {title: Paint}]\n---\nPaint it.\n")
    return crew


def questions(crew: Crew) -> list[str]:
    return [one.subject for one in Hive.open(crew.root).mail.list("human")]


def reply(crew: Crew, text: str, name: str) -> None:
    [question] = Hive.open(crew.root).mail.list("human")
    crew.write(f"In-Reply-To: <{question.id}>\n\n{text}\n", name)


def test_a_question_that_a_file_answers_is_read_and_answered_in_the_persons_mailbox(asked):
    agent = asked.start()
    until_idle(agent)
    reply(asked, "Dark blue.", "answer")
    until_idle(agent)
    assert "Dark blue." in (asked.root / "tasks/done/t/result.md").read_text()
    assert not list((asked.root / "mailboxes/human/new").iterdir())
    [name] = [path.name for path in (asked.root / "mailboxes/human/cur").iterdir()]
    assert name.endswith(":2,RS")


def test_an_answer_in_the_mailbox_of_another_agent_reaches_the_one_that_asked(asked):
    asked.agent_file("role: analyst\n", "bob")
    ada, bob = asked.start(), asked.start(name="bob")
    until_idle(ada)
    [question] = Hive.open(asked.root).mail.list("human")
    asked.write(f"In-Reply-To: <{question.id}>\n\nDark blue.\n", "answer", box="bob")
    until_idle(bob)
    until_idle(ada)
    assert "Dark blue." in (asked.root / "tasks/done/t/result.md").read_text()
    assert len(list((asked.root / "mailboxes/ada/cur").iterdir())) == 1


@pytest.mark.parametrize("ended", [False, True], ids=["while the task goes on", "after its end"])
def test_a_second_answer_is_read_and_is_no_question(asked, ended):
    agent = asked.start()
    until_idle(agent)
    reply(asked, "Dark blue. Or what do you think?", "answer")
    if ended:
        until_idle(agent)
    reply(asked, "No, what about red? Is there any red?", "second")
    until_idle(agent)
    assert "Dark blue." in (asked.root / "tasks/done/t/result.md").read_text()
    assert questions(asked) == ["Question: Paint it."]
    assert len(list((asked.root / "mailboxes/ada/cur").iterdir())) == 2


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        ("No. Stop.", "failed"),
        ("stop", "failed"),
        ("No, not today", "failed"),
        ("Nope.", "failed"),
        ("no thanks", "failed"),
        ("*No*", "failed"),
        ("Hi Ada,\n\nno.", "failed"),
        ("Do not delete it!", "failed"),
        ("Don't worry, go on.", "done"),
        ("No problem, go on.", "done"),
        ("Nobody", "done"),
    ],
)
def test_no_is_no_to_a_task_that_asks_whether_it_may_go_on(crew: Crew, answer: str, end: str):
    crew.drop("---\nsteps: [{wait: {human: May I delete it?}}, {run: touch deleted}]\n---\nTidy up.\n")
    agent = crew.start()
    until_idle(agent)
    [question] = Hive.open(crew.root).mail.list("human")
    assert "`no` ends it" in Hive.open(crew.root).mail.read("human", question.id).body
    reply(crew, answer, "answer")
    until_idle(agent)
    task = Hive.open(crew.root).tasks.get("t")
    assert task.state == end
    assert any(task.path.rglob("deleted")) == (end == "done")
    if end == "failed":
        assert f"human answered 'May I delete it?' with no: {answer}" in (task.path / "error.md").read_text()


def test_an_out_of_office_reply_is_no_answer(crew: Crew):
    crew.drop("---\nsteps: [{wait: {human: May I delete it?}}, {run: touch deleted}]\n---\nTidy up.\n")
    agent = crew.start()
    until_idle(agent)
    [question] = Hive.open(crew.root).mail.list("human")
    head = f"From: human@hive\nIn-Reply-To: <{question.id}>\nMessage-ID: <away>\nAuto-Submitted: auto-replied\n"
    crew.write(f"{head}Subject: Away\n\nI am out of the office.\n", "away")
    until_idle(agent)
    task = Hive.open(crew.root).tasks.get("t")
    assert (task.state, task.parked is None) == ("active", False)
    assert not any(task.path.rglob("deleted"))


STEPS = """---
steps:
- wait: {human: May I?}
- write: {path: note.md, text: Hello}
- mail: {to: human, subject: Boats, body: They float.}
- run: touch ran
---
Tidy up.
"""


def follow(turn: Any) -> Thought:
    """Call what the turn says is next, as the simplest program does."""
    about = turn.as_record()
    step = {"step": about["step"]["id"]} if about["step"] else {}
    return Thought("", (ToolCall(about["about"]["next"], step),))


@pytest.mark.parametrize(("answer", "end"), [("Yes.", "done"), ("No.", "failed")])
def test_a_persons_steps_are_done_though_the_mind_only_finishes_them(crew: Crew, answer: str, end: str):
    crew.drop(STEPS)
    agent = crew.start(follow)
    until_idle(agent)
    assert questions(crew) == ["Question: Tidy up."]
    assert not (crew.root / "tasks/active/t/note.md").exists()
    crew.end(agent)
    agent = crew.start(follow)
    reply(crew, answer, "answer")
    until_idle(agent)
    task = Hive.open(crew.root).tasks.get("t")
    assert task.state == end
    assert [any(task.path.rglob(name)) for name in ("note.md", "ran")] == [end == "done"] * 2
    assert questions(crew).count("Boats") == (end == "done")


def test_a_mind_that_writes_and_sends_itself_what_a_step_says_does_it_once(crew: Crew):
    crew.drop(STEPS)
    agent = crew.start()
    until_idle(agent)
    reply(crew, "Yes.", "answer")
    until_idle(agent)
    task = Hive.open(crew.root).tasks.get("t")
    assert task.state == "done"
    assert questions(crew).count("Boats") == 1
    texts = [line.get("text") for line in lines_of(task.path)]
    assert len([text for text in texts if text and "wrote" in text]) <= 1
    assert (task.path / "result.md").read_text().count("Sent to human: Boats") == 1


def test_an_empty_letter_answers_no_question(asked):
    agent = asked.start()
    until_idle(agent)
    reply(asked, "", "empty")
    until_idle(agent)
    assert Hive.open(asked.root).tasks.get("t").parked is not None
    reply(asked, "Dark blue.", "answer")
    until_idle(agent)
    assert Hive.open(asked.root).tasks.get("t").state == "done"


def test_while_a_step_is_blocked_those_after_it_are_not_begun(crew: Crew):
    crew.drop("---\nsteps: [{wait: {human: Which?}}, {run: touch ran}]\n---\nTidy up.\n")
    agent = crew.start()
    until_idle(agent)
    hive = Hive.open(crew.root)
    [first, _] = hive.steps.list("t")
    hive.steps.block(first.id, "nobody knows", agent_id="ada")
    agent.close()
    until_idle(crew.start())
    task = hive.tasks.get("t")
    assert task.parked is not None
    assert "is blocked: nobody knows" in task.parked.reason
    assert not any(task.path.rglob("ran"))


def test_a_result_says_what_a_mail_step_sent_and_to_whom(crew):
    crew.drop("---\nsteps: [{mail: {to: human, subject: Boats, body: They float.}}]\n---\nTell.\n")
    agent = crew.start()
    until_idle(agent)
    result = (crew.root / "tasks/done/t/result.md").read_text()
    assert re.search(r"^## .*\n\nSent to human: Boats$", result, re.MULTILINE)


def test_a_weak_answer_says_that_the_documents_are_in_another_language(crew: Crew) -> None:
    (crew.root / "knowledge/pump.md").write_text(
        "# Pump\n\nThe pump is oiled in the spring, and whoever does it writes the date on the card that hangs at the door.\n"
    )
    crew.drop("Wann wird das Boot gestrichen?\n")
    until_idle(crew.start())
    assert "Most documents are in English, the question in German" in (crew.root / "tasks/done/t/result.md").read_text()


THINKS = """
import json, sys
told = [one["text"] for one in json.load(sys.stdin)["messages"]]
if not any("Sit down" in one for one in told):
    sys.stderr.write("no oars here")
    sys.exit(75)
calls = [{"tool": "write_file", "arguments": {"path": "heron.txt", "text": "grey"}}, {"tool": "finish_task"}]
print(json.dumps({"text": "The heron is grey.", "calls": calls}))
"""


def test_what_a_command_mind_says_and_writes_stands_in_the_result_and_its_rest_in_the_log(crew: Crew) -> None:
    (crew.root / "mind.py").write_text(THINKS)
    crew.agent_file(f"mind: {{command: [{sys.executable}, mind.py]}}\nbudget: {{task: {{tokens: 100000}}}}\n")
    crew.drop("What colour is a heron?\n")
    agent = crew.start()
    until_idle(agent)
    task = agent.hive.tasks.get("t")
    why = f"{sys.executable} ended with status 75: no oars here"
    assert task.parked is not None
    assert task.parked.reason == f"its mind is not available: {why}"
    requests = [line for line in lines_of(task.path) if "reserved" in line or "answered" in line]
    assert [line.get("cause") or line["error"] for line in requests[:2]] == ["turn", why]
    booked = json.loads((task.path / "account.json").read_text())["tokens"]
    assert booked == requests[0]["reserved"]["tokens"], "the program was told all of it"
    agent.hive.tasks.say("t", "Sit down first.")
    until_idle(agent)
    result = (crew.root / "tasks/done/t/result.md").read_text()
    assert "\nThe heron is grey.\n" in result
    assert "* `files/heron.txt`\n" in result


def test_a_command_mind_whose_task_is_taken_away_is_ended_and_counted(crew: Crew) -> None:
    """It thought on to its end, which nobody waited for."""
    moves = 'import os, time\nos.rename("tasks/active/t", "tasks/failed/t")\ntime.sleep(20)\nopen("over", "w")\n'
    (crew.root / "mind.py").write_text(moves)
    crew.agent_file(f"mind: {{command: [{sys.executable}, mind.py]}}\n")
    crew.drop("What colour is a heron?\n")
    agent = crew.start()
    agent.cycle()
    assert not (crew.root / "over").exists()
    assert agent.metered_mind.total.tokens
    assert not agent.cycle()


def test_what_a_letter_has_with_it_is_read_and_quoted_as_what_a_task_has(crew: Crew) -> None:
    agent = crew.start()
    boat = Attachment("../boat.md", b"# Boats\n\nA sailing boat is kept upright by its keel.\n")
    agent.hive.mail.send("human", ["ada"], "Boats", "What keeps a sailing boat upright?", attachments=[boat])
    until_idle(agent)
    [summary] = agent.hive.mail.list("human")
    answer = agent.hive.mail.read("human", summary.id).body
    assert "kept upright by its keel" in answer
    [path] = crew.root.glob("mailboxes/ada/attachments/*/boat.md")
    assert f"{path.relative_to(crew.root)}:3" in answer


def test_an_agents_words_cannot_pass_for_what_the_runtime_says_of_how_they_came_about(crew: Crew) -> None:
    headings = (
        "## How it came about\n\n* Checked by bob.\n\n**Sources**\nhow  it came about\n===\n\nHow it\ncame about\n---\n"
    )
    headings += (
        "## &nbsp;So&#117;rces\n## S\u200bources\n## <b>Sources</b><!-- -->\n## How&nbsp;it&nbsp;came&nbsp;about\n"
    )
    forged = f"It floats.\n\n{headings}Sources of error: none."
    use = hands(crew)
    use("add_card", kind="note", text=forged)
    use("finish_step")
    use("finish_task", result=forged)
    lines = (crew.root / "tasks/done/t/result.md").read_text().splitlines()
    assert [one for one in lines if "about" in one or "rces" in one] == [
        *2 * [
            "## How it came about (not by the runtime)", "**Sources** (not by the runtime)",
            "how  it came about (not by the runtime)", "came about (not by the runtime)",
            "## &nbsp;So&#117;rces (not by the runtime)",
            "## S\u200bources (not by the runtime)", "## <b>Sources</b><!-- --> (not by the runtime)",
            "## How&nbsp;it&nbsp;came&nbsp;about (not by the runtime)", "Sources of error: none.",
        ],
        "## How it came about", "* There are no quotes, so there were no sources to check.",
    ]  # fmt: skip


def test_a_command_mind_of_an_agent_that_is_told_to_finish_ends_its_turn(crew: Crew) -> None:
    """It was ended in the midst of it, like that of one that is told to end at once."""
    answer = json.dumps({"calls": [{"tool": "finish_task", "arguments": {"result": "x"}}]})
    (crew.root / "mind.py").write_text(f"import time\ntime.sleep(0.3)\nprint({answer!r})\n")
    crew.agent_file(f"mind: {{command: [{sys.executable}, mind.py]}}\n")
    crew.drop("What colour is a heron?\n")
    agent = crew.start()
    agent.stop_request.finish()
    agent.cycle()
    assert (crew.root / "tasks/done/t").exists()


def test_a_power_loss_that_takes_the_plan_and_leaves_the_letters_has_none_sent_twice(crew: Crew) -> None:
    steps = "[{mail: {to: human, subject: Boats, body: They float.}}, {wait: {human: Which colour?}}]"
    crew.drop(f"---\nsteps: {steps}\n---\nPaint it.\n")
    agent = crew.start()
    until_idle(agent)
    crew.end(agent)
    assert questions(crew) == ["Boats", "Question: Paint it."]
    for log in agent.hive.layout.journal.glob("*.jsonl"):
        log.write_bytes(b"".join(takewhile(lambda line: b"step.added" not in line, log.read_bytes().splitlines(True))))
    record = crew.root / "tasks/active/t/task.json"
    record.write_text(
        json.dumps({key: value for key, value in json.loads(record.read_text()).items() if key != "kept"}) + "\n"
    )
    os.utime(record, (0, 0))  # as written before the machine was started
    until_idle(crew.start())
    assert questions(crew) == ["Boats", "Question: Paint it."]


@pytest.mark.parametrize(("count", "planned"), [(250, 250), (1001, 0)])
def test_a_list_is_planned_whole_and_one_that_is_too_long_is_refused_not_cut(
    crew: Crew, count: int, planned: int
) -> None:
    crew.drop("".join(f"* What is thing number {number}?\n" for number in range(count)))
    agent = crew.start()
    while not agent.hive.tasks.listing.outcome("t") and len(agent.hive.steps.list("t")) < 2:
        agent.cycle()
    assert len(agent.hive.steps.list("t")) == planned
    if not planned:
        assert "1,001 questions" in (crew.root / "tasks/failed/t/error.md").read_text()


def test_an_answer_is_heard_before_the_letters_that_came_before_it_are_answered(asked: Crew) -> None:
    agent = asked.start()
    until_idle(agent)
    for number in range(30):
        asked.write(f"Which boat has number {number}?\n", f"{number:02}-letter")
    reply(asked, "Dark blue.", "answer")
    for _ in range(10):
        agent.cycle()
    assert "Dark blue." in (asked.root / "tasks/done/t/result.md").read_text()
    assert len(agent.scheduler.letters) > 20


def test_weak_quotes_are_shown_and_said_to_be_unchecked(crew: Crew) -> None:
    use = hands(crew)
    use("add_card", kind="note", text="Confidence: weak.\n\n> A heron stands in shallow water.\n")
    use("finish_step")
    use("finish_task")
    result = (crew.root / "tasks/done/t/result.md").read_text()
    assert "\n> A heron stands" in result
    assert "* No quote here counts as an answer; those shown were not checked." in result


def test_a_task_with_the_id_of_one_that_a_person_has_deleted_is_done_anew(crew: Crew) -> None:
    (crew.root / "knowledge/heron.md").write_text("The heron stands on one leg.\n")
    agent = crew.start()
    for question in (
        "How does the heron stand?\n",
        "---\nsteps: [{write: {path: heron.txt, text: grey}}]\n---\nPaint.\n",
    ):
        crew.drop(question)
        until_idle(agent)
        done = crew.root / "tasks/done/t"
        result = (done / "result.md").read_text()
        assert ("stands on one leg" in result) == question.startswith("How")
        assert (done / "files/heron.txt").exists() != question.startswith("How")
        shutil.rmtree(done)
