"""A task's conversation: it only grows, and goes on across deaths as it stood."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.mcp_server.member import Member
from hivemind.minds import ChatMessage, Thought, ToolCall, Turn
from tests.agent.conftest import Crew, Mind, doing, until_idle, wants
from tests.messages import calls_of, lines_of, messages_of, turns_of
from tests.program import Python, run

Wish = tuple[str, dict[str, Any]]
READ: Wish = ("read_file", {"path": "knowledge/boats.md"})


class Script:
    """A mind that has its thoughts ready, and keeps what it was sent."""

    def __init__(self, *turns: Iterable[Wish]) -> None:
        self._left = iter(turns)
        self.sent: list[list[dict[str, Any]]] = []

    def of(self, agent: Agent) -> Agent:
        """The agent, thinking so."""
        agent.mind = self
        return agent

    def think(self, turn: Turn, tools: Any) -> Thought:
        self.sent.append([one.as_record() for one in turn.messages])
        return Thought(f"thought {len(self.sent)}", tuple(ToolCall(*wish) for wish in next(self._left)))

    def complete(self, text: str, schema: Any = None) -> str:
        raise AssertionError("nothing is to be completed")


@pytest.fixture
def crew(crew: Crew) -> Crew:
    crew.agent_file("role: builder\n", "bob")
    (crew.root / "knowledge/boats.md").write_text("# Boats\n\n" + "A rowing boat is moved with oars.\n" * 120)
    crew.drop("---\nsteps: [{title: Saw the keel}, {title: Step the mast}]\n---\nBuild a boat of oak.\n")
    return crew


def epochs(crew: Crew) -> list[dict[str, Any]]:
    return [line for line in lines_of(crew.root / "tasks/active/t") if "opening" in line]


def told(messages: Iterable[dict[str, Any]]) -> str:
    return "\n".join(one["text"] for one in messages)


def test_who_comes_back_goes_on_with_the_same_bytes(crew: Crew) -> None:
    first, second = Script([READ], [READ]), Script([READ])
    agent = first.of(crew.start())
    for _ in range(2):
        agent.cycle()
    crew.end(agent)
    path = crew.root / "tasks/active/t/messages.jsonl"
    before = path.read_bytes()
    second.of(crew.start()).cycle()
    assert path.read_bytes().startswith(before)
    assert second.sent[0][: len(first.sent[1])] == first.sent[1]
    assert len(epochs(crew)) == 1


def test_a_torn_last_line_is_set_aside_and_what_stood_before_it_is_gone_on_from(crew: Crew) -> None:
    first, second = Script([READ]), Script([READ])
    agent = first.of(crew.start())
    agent.cycle()
    crew.end(agent)
    path = crew.root / "tasks/active/t/messages.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:30])
    second.of(crew.start()).cycle()  # the call whose result was torn is made again
    second.of(agent := crew._agents[-1]).cycle()
    assert second.sent[0][: len(first.sent[0])] == first.sent[0]
    assert [call["ok"] for call in calls_of(path.parent)] == [True, True]
    assert all(line.endswith(b"\n") for line in path.read_bytes().splitlines(keepends=True))
    assert agent.hive.tasks.get("t").parked is None


DIES = """
import json, os, sys
from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.presence.identity import lock_name, journal_start
from tests.agent.conftest import Mind, doing
hive = Hive.open(sys.argv[1])
lock = lock_name(hive.layout, "ada")
agent = Agent(hive, "ada", journal_start(hive.journal, "ada", os.getpid()))
agent.mind = Mind(doing(*map(tuple, json.loads(sys.argv[2]))))
agent.scheduler.active_tasks.resume()
agent.cycle()
"""


def dies_at(crew: Crew, point: str, *actions: Wish) -> None:
    """One turn in a process that is killed at a point of it."""
    done = run(
        ["-c", DIES, str(crew.root), json.dumps(actions)], start=Python,
        env={**os.environ, "HIVEMIND_CRASH_AT": point}, timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL


def test_a_call_that_an_earlier_process_began_is_made_once_or_answered_as_interrupted(crew: Crew) -> None:
    (crew.root / "knowledge/log.md").write_text("begun\n")
    edit: Wish = ("edit_file", {"path": "knowledge/log.md", "old": "begun", "new": "begun begun"})
    dies_at(crew, "messages.append.written:3", edit, READ)
    agent = crew.start(doing(READ))
    agent.cycle()
    first, second = calls_of(crew.root / "tasks/active/t")
    assert "interrupted" in first["error"]
    assert second["ok"]
    assert (crew.root / "knowledge/log.md").read_text() == "begun\n", "nobody knows: it is not done a second time"


LIVES = """
import json, os, sys
from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.minds import ToolCall, Thought
from hivemind.presence.identity import lock_name, journal_start
from tests.agent.conftest import Mind, until_idle

def think(turn):
    with open(sys.argv[2], "a") as file:
        file.write(json.dumps([one.as_record() for one in turn.messages]) + "\\n")
    at = sum(one.role == "assistant" for one in turn.messages)
    read = ToolCall("read_file", {"path": "knowledge/boats.md"})
    write = ToolCall("write_file", {"path": f"{at}.txt", "text": "oak"})
    return Thought(f"Turn {at}", (read, write, ToolCall("finish_step", {})) if at < 2 else (ToolCall("finish_task", {}),))

hive = Hive.open(sys.argv[1])
lock = lock_name(hive.layout, "ada")
agent = Agent(hive, "ada", journal_start(hive.journal, "ada", os.getpid()))
agent.mind = Mind(think)
agent.scheduler.active_tasks.resume()
until_idle(agent)
agent.close()
"""


@pytest.mark.parametrize("point", [1, 2, 3, 4, 6, 12])
def test_killed_after_any_line_the_conversation_goes_on_byte_for_byte(crew: Crew, point: int) -> None:
    sent = crew.root.parent / "sent"
    path = crew.root / "tasks/active/t/messages.jsonl"
    words = ["-c", LIVES, str(crew.root), str(sent)]
    environment = {**os.environ, "HIVEMIND_CRASH_AT": f"messages.append.written:{point}"}
    assert run(words, start=Python, env=environment, timeout=60).returncode == -signal.SIGKILL
    before = path.read_bytes()
    assert run(words, start=Python, timeout=60).returncode == 0
    done = crew.root / "tasks/done/t"
    assert (done / "messages.jsonl").read_bytes().startswith(before)
    requests = [json.loads(line) for line in sent.read_text().splitlines()]
    assert all(now[: len(earlier)] == earlier for earlier, now in pairwise(requests))
    assert [call["tool"] for call in calls_of(done) if call["ok"]].count("finish_step") == 2


def test_a_letter_that_an_earlier_process_sent_is_sent_once(crew: Crew) -> None:
    letter: Wish = ("send_mail", {"to": ["human"], "subject": "Boats", "body": "Oak."})
    dies_at(crew, "mail.send.delivered", letter)
    crew.start(doing(READ)).cycle()
    assert [one.subject for one in Hive.open(crew.root).mail.list("human")] == ["Boats"]
    assert [call["ok"] for call in calls_of(crew.root / "tasks/active/t")] == [True]


def test_a_persons_retry_begins_anew_and_what_is_sent_then_is_another_letter(crew: Crew) -> None:
    letter: Wish = ("send_mail", {"to": ["human"], "subject": "Boats", "body": "Oak."})
    agent = crew.start(doing(letter, ("fail_task", {"reason": "no wood"})))
    until_idle(agent)
    agent.hive.tasks.retry("t")
    agent.cycle()
    folder = crew.root / "tasks/failed/t"
    assert [one["text"] for one in turns_of(folder / "attempts/1")] == [""]
    assert len(turns_of(folder)) == 1
    assert len(agent.hive.mail.list("human")) == 2


def test_whoever_takes_a_task_over_sees_the_last_turns_of_the_one_before(crew: Crew) -> None:
    first, second = Script([READ], [("hand_over", {"to": "bob", "reason": "he knows masts"})]), Script([READ])
    agent = first.of(crew.start())
    until_idle(agent)
    second.of(crew.start(name="bob")).cycle()
    opening = told(second.sent[0][1:])
    assert "You are bob" in second.sent[0][0]["text"]
    assert "thought 1" in opening
    assert [one["agent"] for one in turns_of(crew.root / "tasks/active/t")] == ["ada", "ada", "bob"]


def test_what_happens_meanwhile_is_news_after_the_last_result_once(crew: Crew) -> None:
    mind = Script(*[[READ]] * 3)
    agent = mind.of(crew.start())
    agent.cycle()
    hive = Hive.open(crew.root)
    hive.tasks.say("t", "Tar it as well.")
    hive.mail.send("bob", ["ada"], "Masts", "Pine is better.", task="t")
    for _ in range(2):
        agent.cycle()
    first, second, third = (told(sent) for sent in mind.sent)
    assert "Tar it" not in first + mind.sent[1][3]["text"]
    for news in ("The operator adds to the task:\n\nTar it as well.", "Pine is better."):
        assert second.count(news) == third.count(news) == 1
    assert [one["role"] for one in mind.sent[1]] == ["system", "user", "assistant", "tool", "user", "user"]


def test_what_is_new_in_the_hive_and_about_the_task_is_referred_to_once(crew: Crew) -> None:
    """News of blocks is a reference: id, source, one line. What the mind wrote itself, and what is about something
    else, is no news."""
    own = ("write_file", {"path": "knowledge/keels.md", "text": "# Keels\n\nThe keel of a boat is of oak.\n"})
    mind = Script([READ], [own], [READ], [READ], [READ])
    agent = mind.of(crew.start())
    for _ in range(3):
        agent.cycle()
    (crew.root / "knowledge/oak.md").write_text("# Oak\n\nSaw the keel of oak\nthat was felled in winter.\n")
    (crew.root / "knowledge/bread.md").write_text("# Bread\n\nBake it for an hour.\n")
    for _ in range(2):
        agent.cycle()
    news = [one["text"] for one in mind.sent[-1] if "New in the hive" in one["text"]]
    assert len(news) == 1
    assert '<material from="knowledge/oak.md:' in news[0]
    assert "knowledge:knowledge/oak.md:" in news[0]
    assert "felled in winter" not in news[0]
    assert "Bread" not in news[0]
    assert all("New in the hive" not in told(sent) for sent in mind.sent[:3])
    assert mind.sent[4][: len(mind.sent[3])] == mind.sent[3]


def test_a_file_that_somebody_else_changes_is_told_once_and_what_the_mind_changes_itself_is_not(crew: Crew) -> None:
    edit = ("edit_file", {"path": "knowledge/boats.md", "old": "# Boats", "new": "# Many boats"})
    script = Script([READ], [edit], [("list_files", {"path": "knowledge"})], [READ], [READ])
    agent = script.of(crew.start())
    for _ in range(3):
        agent.cycle()
    (crew.root / "knowledge/boats.md").write_text("# No boats\n")
    for _ in range(2):
        agent.cycle()
    news = "Changed by someone else since you read it: knowledge/boats.md."
    assert [told(sent).count(news) for sent in script.sent] == [0, 0, 0, 1, 1]


def test_what_changes_while_no_process_is_there_is_told_and_what_the_minds_commands_change_is_not(crew: Crew) -> None:
    crew.agent_file("role: analyst\nshell: true\n")
    (crew.root / "knowledge/oars.md").write_text("# Oars\n")
    crew.configure("roots: [{path: knowledge, write: true}]\n")
    sed = ("run_command", {"command": "echo more >> oars.md", "cwd": str(crew.root / "knowledge")})
    first, second = Script([READ, ("read_file", {"path": "knowledge/oars.md"})], [sed]), Script([READ], [READ])
    agent = first.of(crew.start())
    for _ in range(2):
        agent.cycle()
    crew.end(agent)
    assert (crew.root / "knowledge/oars.md").read_text() == "# Oars\nmore\n"
    (crew.root / "knowledge/boats.md").write_text("# No boats\n")
    agent = second.of(crew.start())
    for _ in range(2):
        agent.cycle()
    news = [told(sent).count("Changed by someone else since you read it: knowledge/boats.md.") for sent in second.sent]
    assert news == [1, 1]
    assert "Changed by someone else since you read it: knowledge/oars.md" not in told(second.sent[-1])


def test_a_lease_that_was_lost_meanwhile_is_told_once(crew: Crew) -> None:
    script = Script(*[[READ]] * 3)
    agent = script.of(crew.start())
    agent.cycle()
    [step] = [one.id for one in agent.hive.steps.list("t")][:1]
    leases = Hive.open(crew.root).leases
    leases.claim(step, "human", force=True)
    leases.release(step, "human")
    for _ in range(2):
        agent.cycle()
    assert [told(sent).count(f"The lease of step {step} was taken from you") for sent in script.sent] == [0, 1, 1]


def test_after_its_lease_was_lost_a_turn_writes_nothing_more(crew: Crew) -> None:
    edit: Wish = ("edit_file", {"path": "knowledge/boats.md", "old": "# Boats", "new": "# Ships"})
    agent = Script([READ, edit, READ]).of(crew.start())

    def lose_and_read(session: Any, arguments: Any) -> dict[str, Any]:
        leases = Hive.open(crew.root).leases
        leases.claim(session.focus.step.id, "human", force=True)
        leases.release(session.focus.step.id, "human")
        return read.use(session, arguments)

    read = agent.tools["read_file"]
    agent.tools = {**agent.tools, "read_file": replace(read, use=lose_and_read)}
    agent.cycle()
    calls = calls_of(crew.root / "tasks/active/t")
    assert [call["ok"] for call in calls] == [True, False, True]
    assert "refused: The lease of step" in calls[1]["text"]
    assert (crew.root / "knowledge/boats.md").read_text().startswith("# Boats")


def test_a_budget_that_comes_to_its_end_is_told_once_at_four_fifths(crew: Crew) -> None:
    crew.agent_file("role: analyst\nbudget: {task: {tokens: 6000}}\n")
    script = Script(*([("list_files", {"path": "knowledge", "glob": f"{at}.md"})] for at in range(12)))
    agent = script.of(crew.start())
    until_idle(agent)
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert "budget of 6000 tokens is used up" in parked.reason
    news = [told(sent).count("of the task's 6,000 tokens are used. Come to an end.") for sent in script.sent]
    assert (news[0], news[-1]) == (0, 1)


def test_an_epoch_ends_when_its_tools_change_and_when_no_cache_has_it_any_more(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Script(*[[READ]] * 4).of(crew.start())
    for _ in range(2):
        agent.cycle()
    crew.end(agent)
    crew.agent_file("role: analyst\ntoolset: researcher\n")
    agent = Script(*[[READ]] * 4).of(crew.start())
    for _ in range(3):
        agent.cycle()
    monkeypatch.setattr("hivemind.agent.select._CACHE_S", -1.0)
    agent.cycle()
    assert [one["cause"] for one in epochs(crew)] == ["start", "changed", "cold"]


def test_what_belongs_to_a_finished_task_makes_no_later_opening_longer(crew: Crew) -> None:
    (crew.root / "tasks/inbox/t.md").unlink()
    lengths = []

    def think(turn: Turn) -> Thought:
        lengths.append(sum(len(one.text) for one in turn.messages[:2]))
        return Thought("", (ToolCall("finish_task", {"result": "oak " * 50}),))

    agent = crew.start(think)
    for number in range(8):
        crew.drop(f"---\ntitle: Build boat {number}\n---\nBuild boat {number} of oak.\n", f"boat-{number}.md")
        agent.hive.mail.send("bob", ["ada"], f"Boat {number}", "Oak for the boat. " * 20, task=f"boat-{number}")
        until_idle(agent)
    assert len(lengths) == 8
    assert max(lengths) - min(lengths) < 100


def test_secrets_are_masked_before_they_are_stored_and_what_is_stored_is_what_is_sent(crew: Crew) -> None:
    secret = "ghp_a1b2c3d4e5f6g7h8i9j0k1l2m3n4"
    (crew.root / "knowledge/key.md").write_text(f"The key is {secret}.\n")
    mind = Script([("read_file", {"path": "knowledge/key.md"}), ("search_files", {"pattern": secret, "path": "knowledge"})],
                  [READ])  # fmt: skip
    agent = mind.of(crew.start())
    for _ in range(2):
        agent.cycle()
    assert secret not in json.dumps(mind.sent)
    assert "The key is [masked]." in told(mind.sent[1])
    assert secret not in (crew.root / "tasks/active/t/messages.jsonl").read_text()
    stored = [ChatMessage.of(one) for one in messages_of(crew.root / "tasks/active/t")]
    assert [one.as_record() for one in stored][: len(mind.sent[1])] == mind.sent[1]


def test_an_answer_without_calls_is_corrected_and_the_third_fails_the_task(crew: Crew) -> None:
    mind = Script([], [READ], [], [], [])
    agent = mind.of(crew.start())
    until_idle(agent)
    assert "No tool was called" in mind.sent[1][-1]["text"]
    assert "called no tool" in (crew.root / "tasks/failed/t/error.md").read_text()
    assert len(mind.sent) == 5


def test_a_call_that_fails_stops_no_other_and_after_the_end_the_rest_is_skipped(crew: Crew) -> None:
    missing: Wish = ("read_file", {"path": "knowledge/none.md"})
    last = wants(crew.start(), missing, READ, ("fail_task", {"reason": "no wood"}), READ)
    assert [call["ok"] for call in calls_of(crew.root / "tasks/failed/t")] == [False, True, True, False]
    assert "skipped" in last["error"]


def test_the_same_calls_with_the_same_results_five_times_are_a_persons_to_judge(crew: Crew) -> None:
    crew.drop("Build a boat.\n")
    agent = crew.start(doing(READ))
    until_idle(agent)
    assert len(turns_of(crew.root / "tasks/active/t")) == 5
    [question] = agent.hive.mail.list("human")
    agent.hive.mail.send("human", ["ada"], "Re: so", "Go on, please.", in_reply_to=question.id, task="t")
    agent.mind = Mind(doing(("finish_step", {})))
    agent.cycle()
    assert "Go on, please." in told(messages_of(crew.root / "tasks/active/t"))


def test_a_command_that_fails_five_times_alike_is_the_same_result_however_long_it_took(crew: Crew) -> None:
    crew.agent_file(f"role: analyst\ncommands: [{sys.executable}]\n")
    crew.drop("Build a boat.\n")
    check = "import time; print(f'1 failed in {time.perf_counter():.6f}s'); raise SystemExit(1)"
    agent = crew.start(doing(("run_command", {"command": [sys.executable, "-c", check]})))
    until_idle(agent)
    turns = turns_of(crew.root / "tasks/active/t")
    assert len(turns) == 5
    assert len({turn["calls"][0]["text"] for turn in turns}) == 5
    assert agent.hive.mail.list("human")


def test_calls_of_a_rules_turn_that_a_power_cut_tore_are_answered_as_interrupted(crew: Crew) -> None:
    """Found by make faults (tasks, power): a rule's turn is appended in one go, not flushed, and may be torn between lines."""
    crew.drop("---\nsteps: [{run: 'true'}, {run: 'true'}]\n---\nRun.\n", "run.md")
    agent = crew.start()
    agent.scheduler.active_tasks.claim("run")
    agent.cycle()
    crew.end(agent)
    path = crew.root / "tasks/active/run/messages.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    asked = next(at for at, line in enumerate(lines) if b'"calls"' in line)
    path.write_bytes(b"".join(lines[: asked + 1]) + lines[asked + 1][:30])
    until_idle(crew.start())
    folder = crew.root / "tasks/done/run"
    calls = [call["id"] for turn in turns_of(folder) for call in turn["calls"]]
    assert [one["call_id"] for one in messages_of(folder) if one["role"] == "tool"] == calls
    assert "interrupted" in calls_of(folder)[0]["text"]


def test_a_call_of_a_members_that_a_power_cut_tore_is_answered_as_interrupted(crew: Crew) -> None:
    """Found by make faults (member, power): a member's call and its result are two lines that are not flushed."""
    crew.agent_file("mind: mcp\n", "claude")
    crew.drop("---\nassignee: claude\n---\nSay it.\n", "said.md")
    path = crew.root / "tasks/active/said/messages.jsonl"
    for tool, arguments in (
        ("write_file", {"path": "a.txt", "content": "a"}),
        ("finish_task", {"result": "It is said."}),
    ):
        member = Member(Hive.open(crew.root), "claude", "full")
        try:
            if tool == "write_file":
                member.call("claim_task", {"task": "said"})
            member.call(tool, arguments)
        finally:
            member.close()
        if tool == "write_file":
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[:-1]) + lines[-1][:30])
    folder = crew.root / "tasks/done/said"
    calls = [call["id"] for turn in turns_of(folder) for call in turn["calls"]]
    assert [one["call_id"] for one in messages_of(folder) if one["role"] == "tool"] == calls
    assert any("interrupted" in one["text"] for one in calls_of(folder))
