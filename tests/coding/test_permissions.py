"""What a coding agent may do: by the policy of its file, or by the operator's answer, which may come after its task rests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hivemind.minds.agents.events import ProgramCall
from hivemind.minds.agents.permissions import call_key, decide
from tests.agent.test_program import PROFILE
from tests.coding.hives import empty_hive
from tests.messages import calls_of
from tests.swarm.conftest import Swarm
from tests.waiting import until

PROGRAM = Path(__file__).parent / "acp_agent.py"
FINISH = '!call finish_task {"result": "It is done."}'
OPTIONS = [
    {"optionId": "always", "kind": "allow_always", "name": "Always"},
    {"optionId": "once", "kind": "allow_once", "name": "Allow"},
    {"optionId": "never", "kind": "reject_always", "name": "Never"},
    {"optionId": "no", "kind": "reject_once", "name": "Reject"},
]


def ask(command: str, kind: str = "execute") -> str:
    """An order by which the program asks to be allowed a command."""
    call = {"toolCallId": "c1", "kind": kind, "title": command, "rawInput": {"command": command}}
    return f"!ask {json.dumps({'toolCall': call, 'options': OPTIONS})}"


@pytest.fixture
def swarm(tmp_path: Path):
    made = empty_hive(tmp_path / "hive")
    yield made
    made.end()


def coder(swarm: Swarm, settings: dict[str, Any] | None = None, **mind: Any) -> None:
    mind = {"acp": [sys.executable, str(PROGRAM), "load"], "permissions": {"execute": "ask"}, **mind}
    (swarm.root / "agents" / "coder.yaml").write_text(
        json.dumps({"role": "coder", "sandbox": "none", "mind": mind, **(settings or {})})
    )


def drop(swarm: Swarm, *orders: str) -> None:
    swarm.drop("job.md", "x\n" + "\n".join([*orders, FINISH]) + "\n")


def outcomes(swarm: Swarm) -> list[str]:
    """The options that were chosen so far, `cancelled` for none."""
    path = swarm.root / ".hive/agents/coder/program/home/asked"
    lines = path.read_text().splitlines() if path.exists() else []
    return [answer.get("optionId", answer["outcome"]) for answer in map(json.loads, lines)]


def questions(swarm: Swarm) -> list[dict[str, Any]]:
    letters = json.loads(swarm.run("mail", "list", "human", "--json"))
    return [letter for letter in letters if letter["subject"].startswith("Permission")]


def reply(swarm: Swarm, number: int, text: str) -> None:
    until(lambda: len(questions(swarm)) == number)
    open_question = next(letter for letter in questions(swarm) if "R" not in letter["flags"])
    swarm.run("mail", "reply", "human", open_question["id"], text)


def ended(swarm: Swarm) -> str:
    until(lambda: swarm.task("job") in ("done", "failed"), swarm.logs)
    swarm.run("down")
    assert "It is done." in swarm.result("job")
    return (swarm.root / "tasks/done/job/messages.jsonl").read_text()


def test_the_operator_allows_a_command_while_the_program_waits(swarm: Swarm):
    coder(swarm)
    drop(swarm, ask("make test"), ask("make test"))
    swarm.start("up")
    reply(swarm, 1, "allow")
    until(lambda: outcomes(swarm) == ["once"])
    reply(swarm, 2, "Allow.")
    ended(swarm)
    assert outcomes(swarm) == ["once", "once"], (
        "an answer holds once, and the program is never told that it holds for ever"
    )


def test_an_answer_that_comes_after_the_task_rests_holds_when_the_program_asks_again(swarm: Swarm):
    coder(swarm, ask_s=0)
    drop(swarm, ask("make test"), ask("make test"), ask("make test"))
    swarm.start("up")
    until(lambda: "asks for permission: execute" in swarm.run("status"))
    assert outcomes(swarm) == ["cancelled"]
    reply(swarm, 1, "always")
    text = ended(swarm)
    assert outcomes(swarm) == ["cancelled", "once", "once"]
    assert "The operator allows what you asked for" in text
    assert len(questions(swarm)) == 1
    call, *_ = calls_of(swarm.root / "tasks/done/job")
    assert (call["tool"], call["ok"]) == ("execute", False), "the first was not carried out"


def test_a_program_of_lines_asks_by_a_tool_of_the_hive(swarm: Swarm):
    profile = swarm.root / "agents" / "profiles" / "fake.yaml"
    profile.parent.mkdir()
    profile.write_text(f"{PROFILE}permission_kinds: {{sh: execute}}\n")
    settings = {"sandbox": "none", "mind": {"agent": "fake", "permissions": {"execute": "ask"}, "ask_s": 0}}
    (swarm.root / "agents" / "coder.yaml").write_text(json.dumps({"role": "coder", **settings}))
    drop(swarm, "!permit make test", "!permit make test", "!permit make it")
    swarm.start("up", FAKE_KEY="its-own-key-1234")
    until(lambda: "asks for permission: execute (sh): make test" in swarm.run("status"))
    reply(swarm, 1, "always")
    reply(swarm, 2, "deny it is wrong")
    text = ended(swarm)
    assert outcomes(swarm) == ["allow"], "a program whose request waits is ended, and asks again when it goes on"
    assert "The operator allows what you asked for: execute (sh): make test" in text
    assert "The operator does not allow what you asked for: execute (sh): make it\\nit is wrong" in text


def test_a_denial_has_its_reason_and_does_not_end_the_turn(swarm: Swarm):
    coder(swarm)
    drop(swarm, ask("rm -r build"), '!call send_mail {"to": ["human"], "subject": "s", "body": "b"}')
    swarm.start("up")
    reply(swarm, 1, "deny use make clean")
    text = ended(swarm)
    assert outcomes(swarm) == ["no"]
    assert "Not allowed: execute: rm -r build. Use make clean" in text


def test_an_unclear_answer_is_no_answer_and_the_question_comes_again(swarm: Swarm):
    coder(swarm)
    drop(swarm, ask("make test"))
    swarm.start("up")
    reply(swarm, 1, "vielleicht")
    reply(swarm, 2, "Yes, please, but only once")
    ended(swarm)
    assert outcomes(swarm) == ["once"]
    second = next(letter for letter in questions(swarm) if "unclear: vielleicht" in letter["preview"])
    assert "Answer `once`, `always` or `deny`" in swarm.run("mail", "read", "human", second["id"])


def test_an_unclear_answer_to_a_task_that_rests_does_not_run_its_program(swarm: Swarm):
    coder(swarm, ask_s=0)
    drop(swarm, ask("make test"), ask("make test"))
    swarm.start("up")
    until(lambda: "asks for permission: execute" in swarm.run("status"))
    reply(swarm, 1, "vielleicht")
    until(lambda: len(questions(swarm)) == 2)
    assert outcomes(swarm) == ["cancelled"]
    reply(swarm, 2, "once, and not again")
    ended(swarm)
    assert outcomes(swarm) == ["cancelled", "once"]


def test_the_policy_answers_without_the_operator(swarm: Swarm):
    permissions = {"execute": "commands", "fetch": "deny", "other": "allow", "read": "deny"}
    coder(swarm, {"commands": ["make", "ls"]}, permissions=permissions)
    orders = (ask("make test | ls"), ask("http", "fetch"), ask("x", "other"), ask("x", "read"), ask("x", "unheard"))
    drop(swarm, *orders)
    swarm.run("up", "--until-idle")
    ended(swarm)
    assert outcomes(swarm) == ["once", "no", "once", "no", "once"]
    assert questions(swarm) == []


def call(command: Any, kind: str = "execute") -> ProgramCall:
    return ProgramCall("c", "Bash", {"command": command}, kind=kind)


@pytest.mark.parametrize(
    "command",
    ["make", "make test && ls -l", "ls | make 'a; rm b'", ["make", "a b"], ["bash", "-lc", "ls; make"], "ls # rm"],
)
def test_a_command_of_listed_programs_alone_is_allowed(command: Any) -> None:
    assert decide(call(command), {}, ["make", "ls"]) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "rm x", "make; rm x", "make\nrm x", "make $(rm x)", "make `rm x`", "ls > /etc/x", "make & rm x", "make|rm", "X=1 make",
        "./make", "ls '", "(rm x)", "make <(rm x)", "env make", ["bash", "-c", "rm x"], "", ["sh", "make"], {"a": 1}, "ls \\\nrm",
    ],
)  # fmt: skip
def test_any_other_command_is_asked_about(command: Any) -> None:
    assert decide(call(command), {}, ["make", "ls"]) == "ask"


def test_without_a_list_a_box_is_what_allows_commands() -> None:
    assert decide(call("rm x"), {}, is_boxed=True) == "allow"
    assert decide(call("rm x"), {}) == "ask"
    assert decide(call("rm x"), {"execute": "deny"}, ["rm"], is_boxed=True) == "deny"


def test_tools_of_the_hive_are_always_allowed() -> None:
    assert decide(ProgramCall("c", "finish_task", is_hive_tool=True), {"other": "deny"}) == "allow"


def test_a_grant_is_for_the_command_and_not_for_its_title() -> None:
    first, second = (ProgramCall("1", "Bash", {"command": c}, "Run tests", "execute") for c in ("make test", "rm -r x"))
    again = ProgramCall("2", "shell", {"command": "make test"}, "Another title", "execute")
    assert call_key(first) == call_key(again) != call_key(second)
