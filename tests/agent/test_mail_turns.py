"""Turns about mail come to an end, whatever the mind does, and within the budget."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.unread_mail import MAX_TURNS
from hivemind.cli.log import agent_log_text
from hivemind.mail.maildir import BaseNames
from hivemind.minds import MindError, MindUnavailable, Thought, ToolCall, Usage
from hivemind.minds.scripted import parse_thought
from hivemind.swarm.overview import overview
from hivemind.swarm.until_idle import survey
from hivemind.taskrun.waits import LONGEST_PAUSE_S, ParkedRest
from tests.agent.conftest import Crew, doing, hands, until_idle, using_tools
from tests.fs.children import run_child, start_child
from tests.fs.small_disk import fill, small_disk

MAIL = ("send_mail", {"to": ["human"], "subject": "x", "body": "y"})


def reasons(crew: Crew) -> list[str]:
    return [path.read_text() for path in (crew.root / "mailboxes/ada/.Dead").rglob("*.why")]


def replying(crew_agent, *more):
    """A mind that answers what is in focus, before or after other things."""

    def think(turn):
        message = crew_agent[0].scheduler.focus.message
        reply = ToolCall("reply_mail", {"id": message.id, "body": "Yes."})
        return Thought("", tuple(reply if one == "reply" else ToolCall(*one) for one in more))

    return think


def test_a_mind_that_never_answers_is_given_up_with_the_reason(crew: Crew):
    crew.write()
    agent = crew.start(doing(MAIL))
    assert until_idle(agent) == MAX_TURNS
    [why] = reasons(crew)
    assert f"{MAX_TURNS} turns" in why
    [letter] = [one for one in letters_of(crew, "human") if one.sender == "postmaster"]
    assert f"to ada was not answered: its mind had {MAX_TURNS} turns" in letter.body
    note = crew.root / "mailboxes/human/new/9763765400.M1P1.host"
    note.write_text("From: postmaster\nSubject: Unanswered: who?\n\nA subject alone says nothing.\n")
    assert overview(agent.hive).needs_you == ((letter.id, letter.subject),)


def test_a_mind_whose_every_answer_is_refused_is_given_up_with_the_reason_and_each_turn_is_in_its_log(crew: Crew):
    crew.write()
    agent = crew.start(doing(("reply_mail", {"body": "Yes."})))
    assert until_idle(agent) == MAX_TURNS
    [letter] = [one for one in letters_of(crew, "human") if one.sender == "postmaster"]
    assert "did not answer; its last call failed: reply_mail: id is missing" in letter.body
    logged = [agent_log_text(record) for record in agent.log.records()]
    assert len(logged) == MAX_TURNS
    assert all('tool=reply_mail  ok=false  error="reply_mail: id is missing' in text for text in logged)


@pytest.mark.parametrize("wants", [["reply"], ["reply", MAIL], [MAIL, "reply"], ["reply", ("no_such_tool", {})]])
def test_a_message_is_over_once_a_reply_was_sent_whatever_else_was_wanted(crew: Crew, wants):
    crew.write()
    held: list = []
    held.append(crew.start(replying(held, *wants)))
    assert until_idle(held[0]) == 1
    assert not reasons(crew)
    assert len(list((crew.root / "mailboxes/human/new").iterdir())) == wants.count("reply") + wants.count(MAIL)


def asking(whom: str):
    """A mind that asks another one back, once a letter."""
    turns = count()
    question = ToolCall("send_mail", {"to": [whom], "subject": "And you?", "body": "Why?", "expects_reply": True})
    return lambda turn: Thought("", (question,) if next(turns) % 2 == 0 else ())


def test_two_minds_that_always_ask_each_other_are_held_at_the_seventh_letter_and_a_person_is_told(crew: Crew):
    crew.agent_file("{}\n", "bob")
    Hive.open(crew.root).mail.send("bob", ["ada"], "So?", "Why?", expects_reply=True)
    agents = crew.start(asking("bob")), crew.start(asking("ada"), "bob")
    for _ in range(100):
        if not sum(one.cycle() for one in agents):
            break
    else:
        raise AssertionError("they write to each other for ever")
    sent = [one for name in ("ada", "bob") for one in letters_of(crew, name) if one.subject in ("So?", "And you?")]
    assert len(sent) == 6
    assert [one.subject.split(":")[0] for one in letters_of(crew, "human")] == ["Held"]
    assert not reasons(crew)


def test_letters_of_a_thread_are_counted_however_they_branch_and_a_person_in_it_lets_them_go_on(crew: Crew):
    crew.agent_file("{}\n", "bob")
    mail = Hive.open(crew.root).mail
    asked = mail.send("bob", ["ada"], "So?", "Why?", expects_reply=True)
    use = using_tools(crew.start(doing()))
    sent = [use("send_mail", to=["bob"], subject=f"Part {at}", body="Because.", key=str(at)) for at in range(8)]
    assert ["error" in one for one in sent] == [False] * 5 + [True] * 3
    assert "6 letters" in sent[5]["error"]
    assert [one.subject for one in mail.list("human")] == ["Held: mail between ada and bob"]
    assert [one.subject for one in mail.list("bob")][-1] == "Held: mail between ada and bob"
    mail.send("human", ["ada", "bob"], "Go on", "Please.", references=[asked.message_id])
    assert "error" not in use("send_mail", to=["bob"], subject="Part 9", body="Because.", key="9")


def test_what_is_sent_in_two_threads_is_two_letters(crew: Crew):
    crew.write(name="one")
    crew.write(name="two")
    until_idle(crew.start(asking("human")))
    assert len(letters_of(crew, "human")) == 2


def test_a_letter_stands_in_its_conversation_once(crew: Crew):
    crew.write("Subject: Boats\n\nHow many boats?\n")
    seen = []

    def think(turn):
        seen.append(sum("How many boats?" in one.text for one in turn.messages if one.role == "user"))
        return Thought("", (ToolCall("check_mailbox", {}),) if len(seen) == 1 else ())

    until_idle(crew.start(think))
    assert seen == [1, 1]


def test_a_threads_new_epoch_keeps_what_the_thread_has_said_within_its_budget(crew: Crew):
    crew.agent_file("role: analyst\nmax_tokens: 16000\n")
    held: list = []
    answer = replying(held, "reply")
    held.append(crew.start(answer))
    agent = held[0]
    first = "I have a red boat." + " It is old." * 20
    crew.write(f"Message-ID: <a@x>\nSubject: Boats\n\n{first}\n", name="a")
    assert until_idle(agent) == 1
    crew.write(
        f"Message-ID: <b@x>\nIn-Reply-To: <a@x>\nReferences: <a@x>\nSubject: Boats\n\n{'It leaks. ' * 2_500}\n",
        name="b",
    )
    crew.write(
        "Message-ID: <c@x>\nIn-Reply-To: <b@x>\nReferences: <a@x> <b@x>\nSubject: Boats\n\nWhich colour?\n", name="c"
    )
    seen = []

    def think(turn):
        seen.append(turn.messages)
        return answer(turn)

    agent.mind.think = lambda turn, tools: think(turn)
    assert until_idle(agent) == 2
    [opening] = [one.text for one in seen[-1] if one.role == "user"]
    assert [one in opening for one in ("I have a red boat.", "It leaks.", "Which colour?")] == [True] * 3
    assert "read_file(path='" in opening, "a letter that is too long for its share is cut"
    assert agent.hive.count_tokens(opening) < 2_000


def test_mail_that_asks_nothing_takes_no_turn_of_a_mind_that_reads(crew: Crew):
    crew.agent_file("{}\n", "bob")
    crew.write("From: bob\nSubject: thanks\n\nThank you!\n")
    agent = crew.start(doing(MAIL))
    assert until_idle(agent) == 0
    assert agent.hive.mail.list("ada")[0].flags == "S"


def test_of_many_letters_that_asked_nothing_the_newest_are_kept_for_openings(crew: Crew):
    crew.agent_file("{}\n", "bob")
    for number in range(104):
        crew.write(f"From: bob\nSubject: note {number}\n\nThank you!\n", name=f"note{number:03}")
    agent = crew.start(doing(MAIL))
    while agent.hive.mail.count_unread("ada"):
        assert not agent.cycle()  # some are taken in at a time
    kept = {block.subject for block in agent.memory.blocks}
    assert len(kept) == 100
    assert len(agent.hive.mail.list("ada")) == 104


def test_letters_about_a_task_leave_working_memory_when_it_is_over(crew: Crew):
    crew.agent_file("{}\n", "bob")
    ada, bob = crew.start(doing()), crew.start(doing(("finish_task", {"result": "Done."})), "bob")
    for task in ("mast", "keel"):
        crew.drop(f"---\nid: {task}\nassignee: bob\n---\nSaw it.\n", f"{task}.md")
        bob.hive.mail.send("bob", ["ada"], f"The {task}", "It is oak.", task=task)
    ada.cycle()
    assert len(ada.memory.blocks) == 2
    until_idle(bob)
    bob.hive.mail.send("bob", ["ada"], "The rig", "It is hemp.", task="rig")
    ada.cycle()
    saved = (crew.root / ".hive/agents/ada/working-memory.json").read_text()
    assert [name in saved for name in ("The mast", "The keel", "The rig")] == [False, False, True]


def test_a_mind_that_writes_to_a_stranger_because_of_its_own_bounce_starts_no_storm(crew: Crew):
    crew.write()
    turns = until_idle(crew.start(doing(("send_mail", {"to": ["stranger@example.org"], "body": "x"}))), turns=30)
    assert turns == MAX_TURNS, "a bounce takes no turn"
    assert len(reasons(crew)) == 1


def test_a_mind_that_cannot_be_understood_puts_the_message_into_dead_and_says_why(crew: Crew):
    def think(turn):
        raise MindError("it printed no JSON")

    crew.write()
    assert until_idle(crew.start(think)) == 3
    [why] = reasons(crew)
    assert "it printed no JSON" in why


def test_a_task_whose_mind_cannot_be_understood_fails_with_that_reason(crew: Crew):
    def think(turn):
        raise MindError("it printed no JSON")

    crew.drop("Do it.")
    until_idle(crew.start(think))
    assert "it printed no JSON" in (crew.root / "tasks/failed/t/error.md").read_text()


def test_the_days_budget_bounds_mail_too_and_the_mail_stays(crew: Crew):
    crew.agent_file("budget: {day: {tokens: 10}}\n")
    crew.write()
    agent = crew.start(doing(MAIL))
    until_idle(agent)
    assert agent.mind.asked == 0
    assert agent.scheduler.letters.rest is not None
    assert "day's budget" in agent.scheduler.letters.rest.reason
    agent.stop()
    agent._wait_for_work()
    found = survey(agent.hive, ["ada"])
    assert found.busy == ()
    assert found.parked[0][0] == "mail for ada"
    assert "day's budget" in found.parked[0][1]
    crew.end(agent)
    crew.agent_file("role: analyst\n")
    again = crew.start(doing())
    assert until_idle(again) == 1, "given out again once there is money"


def test_a_message_that_a_person_marks_unread_again_is_not_waited_for(crew: Crew):
    crew.write()
    agent = crew.start(doing())
    until_idle(agent)
    [path] = (crew.root / "mailboxes/ada/cur").iterdir()
    path.rename(path.with_name(path.name.replace(":2,S", ":2,")))
    until_idle(agent)
    agent.status.update(state="idle")
    assert survey(agent.hive, ["ada"]).busy == ()


def test_a_provider_that_stays_down_is_asked_ever_less(crew: Crew):
    def think(turn):
        raise MindUnavailable("no network")

    crew.write()
    agent = crew.start(think)
    pauses = []
    for _ in range(10):
        agent.cycle()
        rest = agent.scheduler.letters.rest
        assert rest is not None
        pauses.append(round(rest.remaining_s))
        agent.scheduler.letters.rest = ParkedRest(rest.reason, datetime.now(UTC), 0.0, rest.looks)
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 512, LONGEST_PAUSE_S]


@pytest.mark.parametrize(
    "usage",
    [
        {"tokens_in": -1},
        {"tokens_out": "many"},
        {"tokens_in": True},
        {"tokens_in": 1.5},
        {"tokens_in": None},
        {"tokens_out": 10**400},
        {"money": float("nan")},
        {"money": float("inf")},
        {"money": -0.1},
        {"money": "1"},
        {"money": 10**400},
    ],
)
def test_usage_that_is_no_usage_is_refused(usage):
    with pytest.raises(MindError, match=r"usage|a number in it is not valid JSON"):
        parse_thought({"calls": [], "usage": usage})
    with pytest.raises(MindError, match="usage"):
        Usage(**usage)


def test_a_program_that_claims_less_than_nothing_fails_its_task_with_the_reason(crew: Crew):
    answer = json.dumps({"calls": [], "usage": {"tokens_in": -5}})
    crew.agent_file(json.dumps({"mind": {"command": ["echo", answer]}}))
    crew.drop("Do it.")
    until_idle(crew.start())
    assert "tokens_in is -5" in (crew.root / "tasks/failed/t/error.md").read_text()


_DIES = """
import os, sys
from pathlib import Path
from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.presence.identity import journal_start
from tests.agent.conftest import Mind
def think(turn):
    os.kill(os.getpid(), 9)
hive = Hive.open(Path(sys.argv[1]))
agent = Agent(hive, "ada", journal_start(hive.journal, "ada", os.getpid()))
agent.mind = Mind(think)
agent.scheduler.active_tasks.resume()
if sys.argv[2] == "task":
    agent.scheduler.active_tasks.claim()
    agent.scheduler.sense()
    think(None)
if sys.argv[2] == "idle":
    agent.scheduler.sense()
    think(None)
agent.cycle()
"""


def die(crew: Crew, where: str) -> None:
    child = start_child(_DIES, crew.root, where)
    child.communicate()
    assert child.returncode == -9


def test_a_message_over_whose_turn_five_processes_died_is_given_up_with_the_reason(crew: Crew):
    crew.write()
    for _ in range(5):
        die(crew, "turn")
    agent = crew.start(doing())
    assert until_idle(agent) == 0
    [why] = reasons(crew)
    assert "5 processes died" in why


@pytest.mark.parametrize("where", ["idle", "task"])
def test_deaths_that_have_nothing_to_do_with_a_message_are_not_held_against_it(crew: Crew, where: str):
    crew.write()
    crew.drop("Do it.")
    for _ in range(7):
        die(crew, where)
    agent = crew.start(doing())
    agent.cycle()
    assert agent.scheduler.focus.message is not None
    assert not reasons(crew)


def take_a_turn(agent) -> None:
    """As the agent's loop does, with its boundary."""
    try:
        agent.cycle()
    except Exception as error:
        if agent.scheduler.focus is None or not agent.scheduler.handle_error(error):
            raise


@pytest.mark.parametrize("pages_left", [0, 1, 2, 4, 8, 16])
def test_a_full_disk_is_a_pause_for_a_message_and_uses_up_no_try(tmp_path, pages_left: int):
    with small_disk(tmp_path / "hive", "size=4m"):
        crew = Crew(tmp_path / "hive")
        crew.write()
        held: list = []

        def think(turn):
            return Thought(
                "", (ToolCall("reply_mail", {"id": held[0].scheduler.focus.message.id, "body": "Yes. " * 40_000}),)
            )

        held.append(crew.start(think))
        agent = held[0]
        ballast = fill(crew.root, pages_left)
        for _ in range(5):
            take_a_turn(agent)
            rest = agent.scheduler.letters.rest
            assert rest is not None
            assert rest.reason == "disk full"
            agent.scheduler.letters.rest = ParkedRest(rest.reason, datetime.now(UTC), 0.0, rest.looks)
        ballast.unlink()
        assert until_idle(agent) == 1
        assert not reasons(crew)
        assert len(list((crew.root / "mailboxes/human/new").iterdir())) == 1
        assert agent.hive.mail.list("ada")[0].flags == "S"
        crew.close()


STRANGER = "From: Jo <jo@example.org>\nSubject: Boats\nMessage-ID: <1@example.org>\n{}\nHow many boats?\n"


def letters_of(crew: Crew, box: str) -> list[Any]:
    return [crew_mail(crew).read(box, one.id, mark=False) for one in crew_mail(crew).list(box)]


def crew_mail(crew: Crew):
    return Hive.open(crew.root).mail


def test_a_letter_from_an_unknown_address_needs_you_and_takes_no_turn(crew: Crew):
    crew.write(STRANGER.format(""))
    agent = crew.start(doing(MAIL))
    assert until_idle(agent) == 0
    assert agent.mind.asked == 0
    [kept] = letters_of(crew, "ada")
    [shown] = letters_of(crew, "human")
    assert (kept.flags, shown.flags, shown.sender, shown.body) == ("S", "", "jo@example.org", "How many boats?")
    [(needs, what)] = overview(agent.hive).needs_you
    assert needs == shown.id
    assert "jo@example.org" in what
    crew_mail(crew).read("human", shown.id)
    assert overview(Hive.open(crew.root)).needs_you == ()


@pytest.mark.parametrize("point", ["mail.send.delivered", "mail.intake.recorded"])
def test_a_letter_from_an_unknown_address_is_shown_once_also_across_a_crash(crew: Crew, point: str):
    crew.write(STRANGER.format(""))
    run_child(_DIES.replace("agent.cycle()", "agent.scheduler.sense()"), crew.root, "crash", crash_at=point)
    until_idle(crew.start(doing(MAIL)))
    assert len(letters_of(crew, "human")) == 1
    assert [one.flags for one in letters_of(crew, "ada")] == ["S"]


def test_a_letter_from_an_unknown_address_bounces_if_the_hive_says_so(crew: Crew):
    crew.configure("mail: {unknown_sender: bounce}\n")
    crew.write(STRANGER.format(""))
    crew.write(STRANGER.format("Auto-Submitted: auto-generated\n").replace("1@", "2@"), "automatic")
    agent = crew.start(doing(MAIL))
    assert until_idle(agent) == 0
    assert all("jo@example.org" in why for why in reasons(crew))
    assert len(reasons(crew)) == 2
    [bounce] = letters_of(crew, "human")
    assert (bounce.sender, bounce.to, bounce.in_reply_to) == ("postmaster", ("jo@example.org",), "1@example.org")
    assert "> How many boats?" in bounce.body


def test_a_letter_from_an_unknown_address_is_answered_through_your_mailbox_if_the_hive_says_so(crew: Crew):
    crew.configure("mail: {unknown_sender: answer}\n")
    crew.write(STRANGER.format(""))
    held: list = []
    held.append(crew.start(replying(held, "reply")))
    assert until_idle(held[0]) == 1
    [answer] = [one for one in letters_of(crew, "human") if one.sender == "ada"]
    assert (answer.to, answer.subject, answer.in_reply_to) == (("jo@example.org",), "Re: Boats", "1@example.org")
    assert not reasons(crew)


def test_the_extractive_mind_answers_an_unknown_address_if_the_hive_says_so(crew: Crew):
    crew.configure("mail: {unknown_sender: answer}\n")
    crew.write(STRANGER.format(""))
    assert until_idle(crew.start()) == 1
    assert [one.to for one in letters_of(crew, "human")] == [("jo@example.org",)]


@pytest.mark.parametrize("id_", ["i" * 2000 + "@x", "ö@x", "=?utf-7?q?+2AA-?=@x", "a<b@x"])
def test_a_letter_with_an_odd_id_is_answered_by_an_agent(crew: Crew, id_: str):
    crew.write(f"From: human@hive\nMessage-ID: <{id_}>\nReferences: <{id_}> <plain@x>\n\nHello?\n")
    held: list = []
    held.append(crew.start(replying(held, "reply")))
    assert until_idle(held[0]) == 1
    assert not reasons(crew)
    [asked], [answer] = letters_of(crew, "ada"), letters_of(crew, "human")
    assert answer.in_reply_to == asked.id
    assert answer.id in [one.id for one in crew_mail(crew).thread("ada", asked.id)]


def test_a_person_of_a_linked_hive_is_answered_by_rule_and_its_agents_are_not(crew: Crew) -> None:
    (crew.root / "knowledge/boats.md").write_text("# Boats\n\nThe oldest boat is made of oak.\n")
    hive = Hive.open(crew.root)
    hive.layout.link.mkdir(parents=True)
    hive.linked_hives.note(hives={"munich": {}})
    for sender in ("human", "coder"):
        head = f"From: {sender}@munich\nTo: ada@hive\nSubject: Boats\nMessage-ID: <{sender}@munich>\n"
        raw = f"{head}\nWhat is the oldest boat made of?\n"
        hive.mail.deliver("ada", BaseNames().next_name(datetime.now(UTC)), raw.encode(), "munich")
    until_idle(crew.start())
    [answer] = letters_of(crew, "exchange")
    assert (answer.to, "made of oak" in answer.body) == (("human@munich",), True)


@pytest.mark.parametrize(
    ("body", "said"), [("All there.", "approved\nAll there."), ("Approved: 2 of 2.", "Approved: 2 of 2.")]
)
def test_a_verdict_is_what_a_reply_begins_with(crew: Crew, body: str, said: str) -> None:
    crew.write("From: human@hive\nSubject: Check\n\nIs it so?\n")
    use = using_tools(crew.start())
    [asked] = letters_of(crew, "ada")
    reply: dict[str, Any] = {"id": asked.id, "body": body, "verdict": "approved"}
    assert "begins with rejected" in use("reply_mail", **{**reply, "body": "rejected: no"})["error"]
    assert "error" not in use("reply_mail", **reply)
    [answer] = (crew.root / "mailboxes/human/new").iterdir()
    assert answer.read_text().split("\n\n", 1)[1].startswith(said)


def test_letters_and_tasks_take_turns_however_many_letters_there_are(crew: Crew):
    for number in range(6):
        crew.write(f"Question {number}?\n", f"letter-{number}")
    for number in range(3):
        crew.drop("Build a boat.\n", f"boat-{number}.md")
    abouts = []

    def think(turn: Any) -> Thought:
        abouts.append(turn.focus.kind)
        if turn.focus.kind == "message":
            return Thought("", (ToolCall("reply_mail", {"id": turn.focus.id, "body": "Yes."}),))
        return Thought("Built.", (ToolCall("finish_task", {}),))

    until_idle(crew.start(think))
    assert abouts == ["message", "task"] * 3 + ["message"] * 3
    assert len(list((crew.root / "tasks/done").iterdir())) == 3


def test_what_is_said_to_a_task_in_hand_is_told_at_its_next_turn_whatever_other_letters_wait(crew: Crew):
    crew.drop("Build a boat.\n")
    agent = crew.start(doing())
    agent.cycle()
    for number in range(6):
        crew.write(f"Question {number}?\n", f"letter-{number}")
    crew.write("From: human@hive\nSubject: Colour\nX-Hive-Task: t\n\nPaint it blue.\n", "of-the-task")
    agent.cycle()
    agent.cycle()
    assert agent.scheduler.focus.work is not None
    assert "Paint it blue." in (crew.root / "tasks/active/t/messages.jsonl").read_text()
    assert len(agent.scheduler.letters) == 5


def test_a_letter_to_nobody_is_answered_with_the_names_that_there_are(crew: Crew) -> None:
    crew.agent_file("role: coder\n", "bob")
    refused = hands(crew)("send_mail", to=["bbo"], body="Hello?")["error"]
    assert "did you mean bob?" in refused
    assert "there are human, ada, bob" in refused
    assert "again" not in refused
