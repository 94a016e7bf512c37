"""A program that speaks the Agent Client Protocol as a mind: whatever it sends, its task ends once, with all in its trail."""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hivemind.agent.agent import Agent
from hivemind.errors import UserError
from hivemind.minds import MindUnavailable, open_mind
from tests.agent.conftest import Crew, until_idle
from tests.agent.test_program import FINISH, answer, cancel_at_work, home, numbers, prompts, task
from tests.messages import lines_of
from tests.swarm.conftest import is_alive
from tests.waiting import until

PROGRAM = Path(__file__).parents[1] / "coding" / "acp_agent.py"


def mind_of(*flags: str, **more: object) -> str:
    return json.dumps({"acp": [sys.executable, str(PROGRAM), str(PROGRAM.with_name("fake_agent.py")), *flags], **more})


@pytest.fixture
def coder(crew: Crew) -> Crew:
    crew.agent_file(f"mind: {mind_of('resume')}\nrole: coder\n")
    return crew


def begin(crew: Crew, *flags: str, orders: str, sandbox: str = "auto", **more: object) -> Agent:
    crew.agent_file(f"mind: {mind_of(*flags, **more)}\nrole: coder\nsandbox: {sandbox}\n")
    crew.drop(f"x\n{orders}\n")
    return crew.start()


def update(kind: str, /, **fields: Any) -> str:
    return "!update " + json.dumps({"sessionUpdate": kind, **fields})


def received(crew: Crew) -> list[dict[str, Any]]:
    """The messages that the program has received."""
    return [json.loads(line) for line in (home(crew) / "received").read_text().splitlines()]


def methods(crew: Crew) -> list[str]:
    return [message["method"] for message in received(crew) if "method" in message]


def calls_in(crew: Crew) -> list[dict[str, Any]]:
    return [call for line in lines_of(task(crew)) for call in line.get("calls", ())]


def texts(crew: Crew) -> list[str]:
    return [line["text"] for line in lines_of(task(crew)) if line.get("role") == "assistant" and line["text"]]


def notes(crew: Crew, kind: str) -> list[str]:
    return [line["text"] for line in lines_of(task(crew)) if line.get("event") == kind]


def is_done(crew: Crew) -> bool:
    path = task(crew) / "result.md"
    return path.exists() and "It is done." in path.read_text()


def test_a_task_is_worked_on_and_its_trail_has_messages_calls_diffs_thoughts_and_the_plan(coder: Crew):
    chunk = {"type": "text", "text": "Let me see."}
    edit = {
        "toolCallId": "c1", "status": "completed", "content": [
            {"type": "diff", "path": "/a.py", "oldText": "one\ntwo\n", "newText": "one\n2\n"},
            {"type": "content", "content": {"type": "text", "text": "edited"}},
        ],
    }  # fmt: skip
    begun = {
        "toolCallId": "c1",
        "title": "Edit a.py",
        "kind": "edit",
        "status": "pending",
        "rawInput": {"path": "/a.py"},
    }
    plan = [{"content": "Look", "priority": "high", "status": "completed"}, {"content": "Do", "status": "pending"}]
    orders = [
        update("agent_thought_chunk", content=chunk),
        "!say Hello there.",
        update("tool_call", **begun),
        update("tool_call_update", toolCallId="c1", locations=[{"path": "/a.py", "line": 2}]),
        update("tool_call_update", **edit),
        update("plan", entries=plan),
        update("plan", entries=plan),
        update("weather_update", degrees=3),
        "!write notes.txt five words",
        FINISH,
    ]
    agent = begin(coder, "resume", orders="\n".join(orders))
    until_idle(agent)
    assert is_done(coder)
    assert (task(coder) / "files" / "notes.txt").read_text() == "five words"
    assert texts(coder) == ["Hello there."]
    assert notes(coder, "thought") == ["Let me see."]
    assert notes(coder, "plan") == ["* [completed] Look\n* [pending] Do"]
    assert notes(coder, "update") == ['weather_update: {"sessionUpdate": "weather_update", "degrees": 3}']
    [edited, finished] = calls_in(coder)
    assert (edited["tool"], edited["arguments"], finished["tool"]) == ("edit", {"path": "/a.py"}, "finish_task")
    [result] = [line for line in lines_of(task(coder)) if line.get("call_id") == edited["id"]]
    assert result["result"] == {"title": "Edit a.py", "kind": "edit", "paths": ["/a.py"]}
    assert "-two\n+2\nedited" in result["text"]
    assert set(numbers(coder, agent).values()) == {110}
    shown = received(coder)[0]["params"]
    assert shown["clientCapabilities"] == {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}


def test_what_comes_for_another_session_or_in_no_known_form_harms_nothing(coder: Crew):
    stray = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Not mine."}}
    orders = [
        f"!as s99 {json.dumps(stray)}",
        "!send Loading the model ...",
        '!send {"id": 3, "result": {}}',
        '!send {"id": 99, "result": {}}',
        '!send {"jsonrpc": "2.0", "method": "session/update", "params": []}',
        '!send {"jsonrpc": "2.0", "method": "_vendor/note", "params": {"a": 1}}',
        "!request fs/read_text_file",
        "!request terminal/create",
        update("tool_call_update", toolCallId=["c"], content={"a": 1}, status=4, locations="none"),
        update("agent_message_chunk", content=7),
        update("plan", entries=[1, None]),
        update("agent_message_chunk", content={"type": "text", "text": "\ud83d"}),
        "!say  Mine.",
        FINISH,
        "!stop because_i_say_so",
    ]
    agent = begin(coder, "resume", orders="\n".join(orders))
    until_idle(agent)
    assert is_done(coder)
    assert texts(coder) == ["? Mine."]
    assert (home(coder) / "asked").read_text().split() == ["-32601", "-32601"]
    kept = "\n".join(notes(coder, "update"))
    for part in ("Not mine.", "Loading the model", "answers no request", "_vendor/note", "fs/read_text_file"):
        assert part in kept


def test_an_unknown_reason_for_the_end_of_a_turn_loses_no_answer(coder: Crew):
    coder.agent_file(f"mind: {mind_of('resume')}\nrole: coder\n")
    coder.drop("---\nfinish: implicit\n---\nx\n!say It is a boat.\n!stop tired\n")
    until_idle(coder.start())
    assert "It is a boat." in (task(coder) / "result.md").read_text()
    assert notes(coder, "turn")[0] == "The program ended its turn: tired"


def test_what_is_said_while_it_works_is_the_next_prompt_of_the_same_session(coder: Crew):
    agent = begin(coder, "resume", orders="!child\n!hang")

    def say() -> None:
        until((home(coder) / "child").exists)
        agent.hive.tasks.say("t", f"The keel is red.\n{FINISH}")
        (home(coder) / "go").touch()

    with ThreadPoolExecutor() as pool:
        saying = pool.submit(say)
        until_idle(agent)
        saying.result()
    assert is_done(coder)
    assert [session for session, _ in prompts(coder)] == ["s1", "s1"]
    assert "The keel is red." in prompts(coder)[1][1]
    assert methods(coder).count("initialize") == 1


def test_a_program_that_ends_its_turn_is_reminded_once_in_its_session_then_a_person_is_asked(coder: Crew):
    agent = begin(coder, "resume", orders="!say It is complicated.")
    until_idle(agent)
    assert [session for session, _ in prompts(coder)] == ["s1", "s1"]
    assert "the task is not over" in prompts(coder)[1][1]
    assert methods(coder).count("initialize") == 1
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert "unfinished: look at it" in parked.reason
    answer(agent, f"Simply say so.\n{FINISH}\n")
    until_idle(agent)
    assert is_done(coder)
    assert methods(coder)[-2:] == ["session/resume", "session/prompt"]
    assert set(numbers(coder, agent).values()) == {330}
    money = json.loads((task(coder) / "account.json").read_text())["money"]
    assert money == pytest.approx(0.03), "a cost that grows with the session is booked by its differences"


@pytest.mark.parametrize("flags", [["resume"], ["load"], ["late"], ["boast", "load"]])
def test_what_a_session_replays_is_never_recorded_again_and_its_settings_are_made_again(coder: Crew, flags: list[str]):
    tool = update("tool_call", toolCallId="c1", title="Run make", kind="execute", status="completed", rawOutput="ok")
    orders = f"!say Half of it.\n{tool}\n!call nothing\n!die\n!say The rest.\n{FINISH}"
    choices = {"mode": "careful", "model": "large"}
    agent = begin(coder, *flags, "modes=wild,careful", "models=small,large", orders=orders, **choices)
    until_idle(agent)
    agent.hive.tasks.say("t", "And now?")
    until_idle(agent)
    assert is_done(coder)
    assert texts(coder) == ["Half of it.", "The rest."]
    assert [call["tool"] for call in calls_in(coder)] == ["execute", "nothing", "finish_task"]
    assert (home(coder) / "settings").read_text().split() == ["careful", "large"] * 2
    assert [session for session, _ in prompts(coder)] == ["s1", "s1"]


def test_a_program_that_continues_no_session_is_told_its_texts_and_calls_in_a_new_one(coder: Crew):
    tool = update("tool_call", toolCallId="c1", title="Run make", kind="execute", status="completed", rawOutput="ok")
    agent = begin(coder, orders=f'!say Half of it.\n{tool}\n!say Which?\n!call ask_human {{"question": "Which boat?"}}')
    until_idle(agent)
    answer(agent, "The red boat.")
    until_idle(agent)
    _, (session, opening), *_ = prompts(coder)
    assert session == "s2"
    outline = opening.partition("Earlier turns, folded")[2]
    assert [outline.count(words) for words in ("Half of it.", "execute(", "The red boat.")] == [1, 1, 1]


@pytest.mark.parametrize(
    "method", ["initialize", "session/new", "session/set_mode", "session/prompt", "session/resume", "session/load"]
)
def test_a_kill_between_any_two_messages_leaves_the_task_to_end_once(coder: Crew, method: str):
    sessions = "load" if method == "session/load" else "resume"
    orders = f"!say Half of it.\n!exit 3 broken\n{FINISH}"
    agent = begin(coder, sessions, f"die={method}", "modes=a,b", orders=orders, mode="b")
    for _ in range(3):
        until_idle(agent)
        agent.hive.tasks.say("t", "And now?") if not is_done(coder) else None
    assert is_done(coder)
    assert (home(coder) / "died").exists()
    assert [call["tool"] for call in calls_in(coder)] == ["finish_task"]
    assert len(set(numbers(coder, agent).values())) == 1


def test_a_session_that_cannot_be_continued_is_begun_anew_with_all_that_was_done(coder: Crew):
    agent = begin(coder, orders="!say I have looked at the keel.")
    until_idle(agent)
    answer(agent, f"Go on.\n{FINISH}\n")
    until_idle(agent)
    assert is_done(coder)
    last = prompts(coder)[-1][1]
    assert "You are ada" in last
    assert "I have looked at the keel." in last


def test_a_program_that_wants_a_login_has_its_task_parked_with_what_to_do(coder: Crew):
    agent = begin(coder, "resume", "login", orders=FINISH)
    until_idle(agent)
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert "has no valid key or login (Authentication required): log in with" in parked.reason
    assert parked.until is not None, "it is tried again by itself"
    assert set(numbers(coder, agent).values()) == {0}


def test_a_program_takes_its_key_where_it_says_how(crew: Crew):
    (crew.root / "agents" / "profiles").mkdir()
    words = json.dumps([str(PROGRAM), str(PROGRAM.with_name("fake_agent.py")), "login", "key=by-key"])
    profile = f"program: {sys.executable}\nlogin_command: log in here\nprotocol: acp\n"
    profile += f"acp: {{words: {words}, authenticate: by-key}}\n"
    (crew.root / "agents" / "profiles" / "mine.yaml").write_text(profile)
    crew.agent_file("mind: {agent: mine}\n")
    crew.drop(f"x\n{FINISH}\n")
    until_idle(crew.start())
    assert is_done(crew)
    (crew.root / "agents" / "profiles" / "mine.yaml").write_text(profile.replace("by-key}", "other}"))
    crew.drop("x\n", name="u.md")
    crew.close()
    agent = crew.start()
    until_idle(agent)
    parked = agent.hive.tasks.get("u").parked
    assert parked is not None
    assert "log in: log in here" in parked.reason


def test_a_server_of_the_person_is_there_when_it_is_named_and_no_other(crew: Crew, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(crew.root.parent))
    local = {"command": "weather", "args": ["-v"], "env": {"TOKEN": "t"}}
    distant = {"type": "http", "url": "http://localhost/mcp", "headers": {"x-key": "k"}}
    servers = {"mine": local, "far": distant, "other": {"command": "other"}}
    (crew.root.parent / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    (crew.root / "agents" / "profiles").mkdir()
    words = json.dumps([str(PROGRAM), str(PROGRAM.with_name("fake_agent.py"))])
    profile = (
        f"program: {sys.executable}\nservers: [~/servers.json, mcpServers]\nprotocol: acp\nacp: {{words: {words}}}\n"
    )
    (crew.root / "agents" / "profiles" / "mine.yaml").write_text(profile)
    crew.agent_file("mind: {agent: mine, mcp: [mine, far]}\n")
    crew.drop(f"x\n{FINISH}\n")
    until_idle(crew.start())
    assert is_done(crew)
    [opened] = [message["params"] for message in received(crew) if message.get("method") == "session/new"]
    assert [server["name"] for server in opened["mcpServers"]] == ["hivemind", "mine", "far"]
    assert opened["mcpServers"][1:] == [
        {"name": "mine", "command": "weather", "args": ["-v"], "env": [{"name": "TOKEN", "value": "t"}]},
        {**distant, "name": "far", "headers": [{"name": "x-key", "value": "k"}]},
    ]
    with pytest.raises(UserError, match="no MCP server is called 'mien'; mcp: may name mine, far, other"):
        open_mind({"agent": "mine", "mcp": ["mien"]}, root=crew.root)


@pytest.mark.parametrize(
    ("permissions", "kind", "chosen"),
    [
        ({"execute": "allow"}, "execute", "yes"),
        ({"execute": "deny"}, "execute", "no"),
        ({"fetch": "allow"}, "fetch", "yes"),
    ],
)
def test_a_call_is_allowed_once_or_rejected_once_by_its_kind(
    coder: Crew, permissions: dict[str, str], kind: str, chosen: str
):
    names = {"allow_always": "ever", "allow_once": "yes", "reject_always": "never", "reject_once": "no"}
    options = [{"optionId": name, "name": name, "kind": option} for option, name in names.items()]
    ask = {"toolCall": {"toolCallId": "c1", "title": "make", "kind": kind}, "options": options}
    agent = begin(coder, "resume", orders=f"!ask {json.dumps(ask)}\n{FINISH}", permissions=permissions)
    until_idle(agent)
    assert is_done(coder)
    assert json.loads((home(coder) / "asked").read_text()) == {"outcome": "selected", "optionId": chosen}
    assert notes(coder, "denied") == ([] if chosen == "yes" else [f"{kind}: make: this agent may not do that"])


def test_the_hives_own_tools_are_allowed_and_stand_in_the_trail_once(coder: Crew):
    call = {"toolCallId": "c1", "title": "mcp__hivemind__finish_task", "kind": "other", "status": "pending"}
    fake = {"toolCallId": "c2", "title": "mcp__hivemind__x; rm -rf /", "kind": "execute"}
    options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
    orders = [
        f"!ask {json.dumps({'toolCall': call, 'options': options})}",
        f"!ask {json.dumps({'toolCall': fake, 'options': options})}",
        update("tool_call", **{**call, "status": "completed"}),
        update("tool_call", toolCallId="c3", title="hivemind/cli.py", kind="read", status="completed"),
        FINISH,
    ]
    agent = begin(coder, "resume", orders="\n".join(orders), permissions={"other": "deny", "execute": "deny"})
    until_idle(agent)
    assert is_done(coder)
    asked = [json.loads(line)["optionId"] for line in (home(coder) / "asked").read_text().splitlines()]
    assert asked == ["yes", "no"]
    assert [call["tool"] for call in calls_in(coder)] == ["read", "finish_task"]


@pytest.mark.parametrize("order", ["!hang", "!deaf"])
def test_a_program_whose_task_is_cancelled_is_asked_to_end_and_its_usage_is_booked(
    coder: Crew, order: str, caplog: pytest.LogCaptureFixture
):
    agent = begin(coder, "resume", orders=f"!child\n{order}", sandbox="none")  # a box has process ids of its own
    cancel_at_work(coder, agent, "child", caplog)
    assert methods(coder)[-1] == "session/cancel"
    assert not is_alive(int((home(coder) / "child").read_text())), "what it has started is ended with it"
    spent = json.loads((coder.root / ".hive/budget.json").read_text())["tokens"]
    assert spent == 110 if order == "!hang" else spent != 110


@pytest.mark.parametrize(
    ("order", "quiet_s", "reason"),
    [("!hang", 1, "it printed nothing for 1 s"), ("!flood", 60, "it printed more than 8,388,608 bytes")],
)
def test_a_program_that_does_not_come_to_an_end_is_ended_and_its_task_fails_in_words(
    coder: Crew, order: str, quiet_s: int, reason: str
):
    agent = begin(coder, "resume", "reexec", orders="\n".join([order] * 4), quiet_s=quiet_s)
    until_idle(agent)
    assert reason in (task(coder) / "error.md").read_text()


@pytest.mark.parametrize(("method", "runs"), [("session/new", 3), ("session/prompt", 10)])
def test_a_program_that_always_dies_costs_nothing_and_is_not_tried_for_ever(coder: Crew, method: str, runs: int):
    agent = begin(coder, "resume", f"dead={method}", orders=FINISH)
    until_idle(agent)
    for _ in range(runs - 1):
        agent.hive.tasks.say("t", "Try again.")
        until_idle(agent)
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert f"It has ended {runs} times before it did anything" in parked.reason
    assert runs <= methods(coder).count("initialize") <= 2 * runs
    assert set(numbers(coder, agent).values()) == {0}


def test_an_error_of_its_provider_parks_the_task_with_its_words(coder: Crew):
    agent = begin(coder, "resume", orders=f"!say I try.\n!error -32603 the model is overloaded\n{FINISH}")
    until_idle(agent)
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert "refuses session/prompt: the model is overloaded" in parked.reason
    agent.hive.tasks.say("t", "Try again.")
    until_idle(agent)
    assert is_done(coder)


def test_what_comes_after_the_answer_is_recorded_with_it_and_its_cost_is_booked(coder: Crew):
    cost = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 0.05, "currency": "USD"}}
    call = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed", "rawOutput": {"code": 0}}
    begun = update("tool_call", toolCallId="c1", title="make", kind="execute", status="in_progress")
    orders = f"{begun}\n!late {json.dumps(call)}\n"
    begin(coder, "resume", orders=orders)
    until_idle(coder._agents[0])
    [line] = [line for line in lines_of(task(coder)) if line.get("role") == "tool" and "code" in line["text"]]
    assert line["ok"]
    answer(coder._agents[0], f"!late {json.dumps(cost)}\n{FINISH}")
    until_idle(coder._agents[0])
    assert json.loads((task(coder) / "account.json").read_text())["money"] == pytest.approx(0.05)


def test_a_call_without_a_result_is_in_the_trail(coder: Crew):
    begun = update("tool_call", toolCallId="c1", title="make", kind="execute", rawInput={"command": "make"})
    agent = begin(coder, "resume", orders=f"{begun}\n!die\n{FINISH}")
    until_idle(agent)
    agent.hive.tasks.say("t", "And now?")
    until_idle(agent)
    assert is_done(coder)
    assert [call["tool"] for call in calls_in(coder)] == ["execute", "finish_task"]
    assert any("no result was reported" in line.get("text", "") for line in lines_of(task(coder)))


@pytest.mark.parametrize(
    ("flags", "more", "problem"),
    [
        (["version=7"], {}, "speaks version 7 of the protocol, not 1"),
        (["modes=a,b"], {"mode": "c"}, "has no mode 'c'; it has a, b"),
        (["models=x", "refuses"], {"model": "y"}, "has no model 'y'; it has x (there is no y)"),
    ],
)
def test_a_program_that_cannot_serve_says_why(coder: Crew, flags: list[str], more: dict[str, str], problem: str):
    agent = begin(coder, *flags, orders=FINISH, **more)
    until_idle(agent)
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert problem in parked.reason


@pytest.mark.parametrize(
    ("mind", "problem"),
    [
        ({"acp": "nobody"}, "no profile of a coding agent is called 'nobody'"),
        ({"acp": ["./not-here"]}, "the program ./not-here was not found"),
        ({"acp": []}, "name the program by agent: NAME"),
        ({"acp": "gemini", "agent": "gemini"}, "name the program by agent: NAME"),
        ({"agent": "codex", "sandbox": "read-only"}, "mode: read-only"),
        ({"acp": "gemini", "permissions": {"fly": "allow"}}, "permissions"),
    ],
)
def test_a_mind_that_cannot_be_is_refused_in_words(mind: dict[str, object], problem: str):
    with pytest.raises(UserError, match=re.escape(problem)):
        open_mind(mind)


def test_one_prompt_can_be_tried_by_hand(coder: Crew):
    program = open_mind(json.loads(mind_of("resume", "modes=a,b")), root=coder.root)
    trial = program.try_prompt("!say Well.\n!say Hello.\n")
    assert (trial.text, trial.usage.tokens, trial.usage.cached, trial.usage.money) == ("Well.Hello.", 110, 40, 0.01)
    assert trial.announcement.endswith("; sessionCapabilities.resume; modes a, b")
    with pytest.raises(MindUnavailable, match="ended with status 4: no credit"):
        program.complete("!say Well.\n!exit 4 no credit\n")
    assert not list((coder.root / ".hive").glob("prompt-*"))


def test_a_prompt_longer_than_a_pipe_reaches_a_program_that_reads_slowly(coder: Crew):
    agent = begin(coder, "resume", orders=f"{'漢字の話。' * 4_000}\n{FINISH}", timeout_s=60)
    until_idle(agent)
    assert is_done(coder)
    assert max(map(len, (home(coder) / "received").read_text().splitlines())) > 1 << 16


def test_an_agent_made_with_the_protocols_own_package_works_on_a_task(coder: Crew):
    pytest.importorskip("acp")
    words = [sys.executable, *(str(PROGRAM.with_name(name)) for name in ("sdk_agent.py", "fake_agent.py"))]
    coder.agent_file("mind: " + json.dumps({"acp": words, "mode": "code"}) + "\n")
    coder.drop("Write notes.txt.\n")
    agent = coder.start()
    until_idle(agent)
    assert is_done(coder)
    assert (task(coder) / "files" / "notes.txt").read_text() == "code, selected"
    assert [call["tool"] for call in calls_in(coder)] == ["edit", "finish_task"]
    assert texts(coder) == ["I have written it."]
    assert notes(coder, "plan") == ["* [in_progress] Write notes.txt"]
    assert set(numbers(coder, agent).values()) == {110}


def test_a_program_over_its_budget_is_asked_to_end_its_turn(coder: Crew):
    coder.agent_file(f"mind: {mind_of('resume', 'pauses')}\nbudget: {{task: {{money: 0.005}}}}\n")
    coder.drop("x\n!spend\n!hang\n")
    agent = coder.start()
    until_idle(agent)
    assert methods(coder)[-1] == "session/cancel"
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert "budget" in parked.reason
    assert set(numbers(coder, agent).values()) == {110}
