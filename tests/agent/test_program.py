"""A coding agent as an agent's mind: the program is run for a task, however it behaves, and the task ends once."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hivemind.agent.agent import Agent
from hivemind.agent.metering import RunAccount
from hivemind.cli.main import main
from hivemind.errors import UserError
from hivemind.masking import keep_secrets
from hivemind.minds import MindUnavailable, Usage, open_mind
from hivemind.minds.agents.events import Failure, Problem, UsageReport
from hivemind.minds.agents.lines import read_line
from hivemind.minds.agents.profile import AgentProgram, Profile
from hivemind.swarm.overview import agents_now
from hivemind.taskrun.report import Account
from hivemind.taskrun.transcript import Transcript
from hivemind.web.index import PageIndex, TokenUse
from tests.agent.conftest import Crew, until_idle
from tests.messages import lines_of
from tests.waiting import until

FAKE = Path(__file__).parents[1] / "coding" / "fake_agent.py"
PROFILE = f"""
program: {sys.executable}
keys: [FAKE_KEY]
home: FAKE_HOME
words: [{FAKE}, $line, $args, $session]
session: [$id]
hive_tools: hive_*
lines:
  - {{when: {{type: begin}}, session: session}}
  - {{when: {{type: text}}, text: text}}
  - {{when: {{type: tool}}, tool: name, arguments: input, result: output}}
  - {{when: {{type: ask}}, approval: what}}
  - {{when: {{type: end}}, usage: {{tokens_in: usage.in, tokens_out: usage.out}}}}
"""
FINISH = '!call finish_task {"result": "It is done."}'


@pytest.fixture
def coder(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> Crew:
    """A hive whose agent `ada` is the fake program."""
    monkeypatch.setenv("FAKE_KEY", "its-own-key-1234")
    keep_secrets({"FAKE_KEY": "its-own-key-1234"})  # as a process that was started with it does
    (crew.root / "agents" / "profiles").mkdir()
    (crew.root / "agents" / "profiles" / "fake.yaml").write_text(PROFILE)
    crew.agent_file("mind: {agent: fake}\nrole: coder\n")
    return crew


def home(crew: Crew, agent: str = "ada") -> Path:
    return crew.root / ".hive" / "agents" / agent / "program" / "home"


def prompts(crew: Crew, agent: str = "ada") -> list[tuple[str, str]]:
    """The runs of the program: (session, prompt)."""
    return [(one[0], one[1]) for one in map(json.loads, (home(crew, agent) / "prompts").read_text().splitlines())]


def answer(agent: Agent, text: str) -> None:
    """A person answers the question that the agent has asked."""
    [question] = agent.hive.mail.list("human")
    agent.hive.mail.send("human", [agent.name], "Re: so", text, in_reply_to=question.id, task="t")


def task(crew: Crew, name: str = "t") -> Path:
    return next(path for state in ("done", "failed", "active") if (path := crew.root / "tasks" / state / name).is_dir())


def cancel_at_work(crew: Crew, agent: Agent, sign: str, caplog: pytest.LogCaptureFixture) -> None:
    """A person cancels the task when the program has left a file in its home."""

    def cancel() -> None:
        until((home(crew) / sign).exists)
        assert main(["--hive", str(crew.root), "task", "cancel", "t"]) == 0

    with caplog.at_level(logging.INFO), ThreadPoolExecutor() as pool:
        cancelling = pool.submit(cancel)
        agent.cycle()
        cancelling.result()
    assert "its task was taken away" in caplog.text


def test_a_program_works_on_a_task_and_its_conversation_has_all_of_it(coder: Crew):
    coder.drop(f"Write a file.\n!say I begin.\n!write notes.txt five words\n{FINISH}\n")
    until_idle(coder.start())
    folder = task(coder)
    assert "It is done." in (folder / "result.md").read_text()
    assert (folder / "files" / "notes.txt").read_text() == "five words"
    lines = lines_of(folder)
    calls = [call["tool"] for one in lines for call in one.get("calls", ())]
    assert calls == ["write", "finish_task"]
    assert [one["text"] for one in lines if one.get("role") == "assistant" and one["text"]] == ["I begin."]
    [(session, prompt)] = prompts(coder)
    assert session == "s1"
    assert "You are ada, an agent of a hive" in prompt
    assert "MCP server `hivemind`" in prompt


def test_its_environment_has_its_own_key_and_no_other(coder: Crew, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANOTHER_API_KEY", "somebody-elses")
    monkeypatch.setenv("PASSED_ON", "yes")
    coder.agent_file("mind: {agent: fake, env: [PASSED_ON]}\n")
    coder.drop(f"x\n!write seen.txt its-own-key-1234\n!say my key is its-own-key-1234\n{FINISH}\n")
    until_idle(coder.start())
    environment = json.loads((home(coder) / "environment").read_text())
    assert environment["FAKE_KEY"] == "its-own-key-1234"
    assert environment["PASSED_ON"] == "yes"
    assert "ANOTHER_API_KEY" not in environment
    assert environment["HOME"] == environment["FAKE_HOME"] == str(home(coder))
    assert "its-own-key" not in (task(coder) / "messages.jsonl").read_text()


def test_a_program_that_ends_without_finishing_is_asked_once_then_a_person_is(coder: Crew):
    coder.drop("Think.\n!say It is complicated.\n")
    agent = coder.start()
    until_idle(agent)
    assert len(prompts(coder)) == 2
    assert "the task is not over" in prompts(coder)[1][1]
    assert prompts(coder)[1][0] == "s1"
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert "unfinished: look at it" in parked.reason
    assert "It is complicated." in parked.reason
    answer(agent, f"Simply say so.\n{FINISH}\n")
    until_idle(agent)
    assert "It is done." in (task(coder) / "result.md").read_text()
    assert "Simply say so." in prompts(coder)[2][1]


def test_a_program_that_ends_with_the_same_words_again_asks_again_and_done_takes_its_work(coder: Crew):
    coder.drop("Think.\n!say It is complicated.\n")
    agent = coder.start()
    until_idle(agent)
    [first] = agent.hive.mail.list("human")
    assert "`done`" in agent.hive.mail.read("human", first.id).body
    assert main(["--hive", str(coder.root), "mail", "reply", "human", first.id, "Go on."]) == 0
    until_idle(agent)
    [second] = [letter for letter in agent.hive.mail.list("human") if letter.id != first.id]
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert f"answer with: hivemind mail reply human {second.id} TEXT" in parked.reason
    runs = len(prompts(coder))
    assert main(["--hive", str(coder.root), "mail", "reply", "human", second.id, "Done."]) == 0
    until_idle(agent)
    assert "It is complicated." in (task(coder) / "result.md").read_text()
    assert len(prompts(coder)) == runs, "its program was not run again"


@pytest.mark.parametrize("is_added", [False, True], ids=["by mail", "by task say"])
@pytest.mark.parametrize("words", ["no", "stop", "No, leave it."])
def test_no_to_the_question_whether_a_task_shall_go_on_ends_it(coder: Crew, words: str, is_added: bool):
    coder.drop("Think.\n!say It is complicated.\n")
    agent = coder.start()
    until_idle(agent)
    [question] = agent.hive.mail.list("human")
    assert "`done` accepts the work, `no` ends the task." in agent.hive.mail.read("human", question.id).body
    runs = len(prompts(coder))
    if is_added:
        assert main(["--hive", str(coder.root), "task", "say", "t", words]) == 0
    else:
        answer(agent, words)
    until_idle(agent)
    assert f"human does not let it go on: {words}" in (coder.root / "tasks/failed/t/error.md").read_text()
    assert len(prompts(coder)) == runs, "its program was not run again"


@pytest.mark.parametrize("is_running", [True, False])
def test_task_say_frees_a_task_whose_agent_asks_whether_to_go_on(coder: Crew, is_running: bool):
    coder.drop("Think.\n!say It is complicated.\n")
    agent = coder.start()
    until_idle(agent)
    [question] = agent.hive.mail.list("human")
    if not is_running:
        coder.end(agent)
    assert main(["--hive", str(coder.root), "task", "say", "t", f"Simply say so.\n{FINISH}\n"]) == 0
    agent = agent if is_running else coder.start()
    until_idle(agent)
    assert "It is done." in (task(coder) / "result.md").read_text()
    assert "R" in agent.hive.mail.read("human", question.id).flags


def test_a_task_may_end_with_the_programs_last_words(coder: Crew):
    coder.drop("---\nfinish: implicit\n---\nWhat is it?\n!say It is a boat.\n")
    until_idle(coder.start())
    assert "It is a boat." in (task(coder) / "result.md").read_text()


def numbers(crew: Crew, agent: Agent) -> dict[str, int]:
    """The tokens that a task has used, wherever they are shown or counted; the agent has done nothing else."""
    lines, index = lines_of(task(crew)), PageIndex(crew.root)
    while not index.sync(1):
        pass
    counts = {
        "task show": Account(lines).usage().tokens,
        "transcript": sum(one.usage.tokens for one in Transcript(lines).entries),
        "status": agents_now(agent.hive)[0].tokens,
        "page": index.usage_of_tasks(["t"]).get("t", TokenUse()).tokens,
        "page, by agent": sum(one.tokens for (_, name), one in index.usage_by("agent", 0).items() if name == "ada"),
        "task's account": json.loads((task(crew) / "account.json").read_text())["tokens"],
        "day's account": json.loads((crew.root / ".hive/budget.json").read_text())["tokens"],
    }
    if (task(crew) / "result.md").exists():
        [said] = re.findall(r"([\d,]+) tokens", (task(crew) / "result.md").read_text().replace(" tokens at an", ""))
        counts["result.md"] = int(said.replace(",", ""))
    return counts


def test_what_a_program_reports_after_finish_task_is_counted_everywhere(coder: Crew):
    """It ends its turn by itself, and then the task ends: its result says what all of it has cost."""
    coder.drop(f"x\n{FINISH}\n!say Done.\n")
    agent = coder.start()
    until_idle(agent)
    assert set(numbers(coder, agent).values()) == {110}
    assert (home(coder) / "s1").read_text() == "[]", "it was not ended"
    texts = [one["text"] for one in lines_of(task(coder)) if one.get("role") == "assistant"]
    assert "Done." not in texts


def test_a_task_whose_program_was_killed_after_finish_task_ends_once(coder: Crew):
    coder.drop(f"x\n{FINISH}\n!die\n")
    agent = coder.start()
    until_idle(agent)
    assert [call["tool"] for one in lines_of(task(coder)) for call in one.get("calls", ())] == ["finish_task"]
    assert "It is done." in (task(coder) / "result.md").read_text()
    assert len(prompts(coder)) == 1
    [estimate] = set(numbers(coder, agent).values())
    assert estimate > 110, "its prompt was sent, and nothing was reported"


@pytest.mark.parametrize("victim", ["program", "agent"])
def test_what_a_session_reports_takes_the_place_of_the_estimate_for_a_killed_run(coder: Crew, victim: str):
    profile = coder.root / "agents" / "profiles" / "fake.yaml"
    profile.write_text(f"{PROFILE}usage_of: session\n")
    coder.drop(f"x\n!say Half of it.\n!{'die' if victim == 'program' else 'hang'}\n{FINISH}\n")
    agent = coder.start()
    if victim == "agent":

        def stop() -> None:
            until((home(coder) / "prompts").exists)
            until(lambda: '"text":"Half of it."' in (task(coder) / "messages.jsonl").read_text())
            agent.stop()

        with ThreadPoolExecutor() as pool:
            stopping = pool.submit(stop)
            agent.cycle()
            stopping.result()
        coder.end(agent)
    else:
        until_idle(agent)
    if victim == "program":
        [estimate] = set(numbers(coder, agent).values())
        assert estimate > 110
        agent.hive.tasks.say("t", "And now?")
    else:
        agent = coder.start()
    until_idle(agent)
    assert [session for session, _ in prompts(coder)] == ["s1", "s1"]
    assert set(numbers(coder, agent).values()) == {110}


def test_what_is_reported_once_the_task_was_cancelled_is_booked_with_it(coder: Crew):
    coder.drop("x\n")
    agent = coder.start()
    work = agent.scheduler.active_tasks.claim()
    assert work is not None
    assert agent.metered_mind.program is not None
    account = RunAccount(agent.metered_mind, agent.metered_mind.program, work, work.conversation, "a prompt", None)
    account.begin()
    agent.hive.tasks.cancel("t")
    account.report(Usage(60, 6), None, None)
    account.report(Usage(100, 10), None, None)
    account.close(was_heard=True)
    assert Account(lines_of(task(coder))).usage().tokens == 110
    assert json.loads((coder.root / ".hive/budget.json").read_text())["tokens"] == 110


def test_a_program_that_ends_at_once_costs_nothing_and_is_started_three_times(coder: Crew):
    coder.agent_file("mind: {agent: fake, args: [no-such-session]}\n")
    coder.drop("x\n")
    agent = coder.start()
    until_idle(agent)
    for text in ("Try again.", "And again."):
        agent.hive.tasks.say("t", text)
        until_idle(agent)
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert "no session no-such-session. It has ended 3 times before it did anything" in parked.reason
    assert set(numbers(coder, agent).values()) == {0}
    starts = len([one for one in lines_of(task(coder)) if "reserved" in one])
    until_idle(agent)
    assert starts == 3
    coder.drop("y\n", "other")
    until_idle(agent)
    other = agent.hive.tasks.get("other").parked
    assert other is not None
    assert "no-such-session" in other.reason
    assert "times before" not in other.reason, "each task has a count of its own"
    answer(agent, "It is mended, I think.")
    until_idle(agent)
    for _ in range(3):
        agent.hive.tasks.say("t", "And now?")
        until_idle(agent)
    assert task(coder).parent.name == "active", "an answer has it started once more, and fails no task"


def test_what_claude_code_reports_has_the_agents_that_it_has_started_itself():
    spent = {"inputTokens": 180, "outputTokens": 40, "cacheReadInputTokens": 160, "cacheCreationInputTokens": 20}
    models = {"large": spent, "small": {"inputTokens": 30, "outputTokens": 5}}
    line = {
        "type": "result",
        "usage": {"input_tokens": 60, "output_tokens": 20},
        "modelUsage": models,
        "total_cost_usd": 0.5,
    }
    [report] = read_line(Profile.load("claude"), json.dumps(line))
    assert isinstance(report, UsageReport)
    assert report.usage == Usage(390, 45, 0.5, cached=160, written=20)


def test_a_login_that_has_expired_is_no_failure_of_the_program() -> None:
    line = {"type": "result", "is_error": True, "api_error_status": 401, "result": "expired"}
    failure = next(event for event in read_line(Profile.load("claude"), json.dumps(line)) if isinstance(event, Failure))
    assert (failure.reason, failure.kind) == ("expired", "login")


def test_claude_code_is_not_left_to_try_a_refused_key_ten_times() -> None:
    retry = {"type": "system", "subtype": "api_retry", "error_status": 401, "error": "authentication_failed"}
    lines = [json.dumps({**retry, "attempt": attempt}) for attempt in (1, 2)]
    first, second = ([*read_line(Profile.load("claude"), line)] for line in lines)
    assert first == [Problem("authentication_failed")], "a login may be renewed after it"
    assert second[-1] == Failure("authentication_failed", "login")


@pytest.mark.parametrize(
    "words",
    [
        "unexpected status 401 Unauthorized: Incorrect API key provided: k-wrong*3456.",
        '[API Error: {"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}]',
        "authentication_error: invalid x-api-key",
    ],
)
def test_a_key_that_the_provider_refuses_parks_the_task_with_what_to_do(coder: Crew, words: str):
    coder.drop("x\n" + 4 * f"!exit 1 {words}\n")
    agent = coder.start()
    for _ in range(4):
        until_idle(agent)
        parked = agent.hive.tasks.get("t").parked
        assert parked is not None
        assert "has no valid key or login (ended with status 1: " in parked.reason
        assert parked.reason.endswith("): set FAKE_KEY")
        agent.hive.tasks.say("t", "And now?")


def test_what_a_program_counts_from_run_to_run_is_booked_once(coder: Crew):
    profile = coder.root / "agents" / "profiles" / "fake.yaml"
    profile.write_text(f"{PROFILE}usage_of: session\n")
    coder.drop(f'x\n!say Half of it.\n!print {{"type": "end", "usage": {{"in": 60, "out": 6}}}}\n!exit 0\n{FINISH}\n')
    agent = coder.start()
    until_idle(agent)
    assert len(prompts(coder)) == 2
    assert set(numbers(coder, agent).values()) == {110}


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("!hang", "it printed nothing for 1 s"),
        ("!flood", "it printed more than"),
        ("!close", "it closed its output and did not end"),
        ("!ask rm -rf /", "it waits for an approval (rm -rf /)"),
    ],
)
def test_a_program_that_does_not_come_to_an_end_is_ended_and_its_task_fails_in_words(
    coder: Crew, order: str, reason: str
):
    box = "none" if order == "!close" else "auto"  # the processes of a box hold the output
    quiet_s = 1 if order in ("!hang", "!close") else 60
    coder.agent_file(f"mind: {{agent: fake, quiet_s: {quiet_s}}}\nsandbox: {box}\n")
    coder.drop(f"x\n{order}\n{order}\n{order}\n{order}\n")
    agent = coder.start()
    until_idle(agent)
    assert reason in (task(coder) / "error.md").read_text()


def test_a_program_that_ends_with_an_error_has_its_task_parked_with_its_last_word(coder: Crew):
    coder.drop(f"x\n!say I try.\n!exit 3 quota exceeded\n{FINISH}\n")
    agent = coder.start()
    until_idle(agent)
    parked = agent.hive.tasks.get("t").parked
    assert parked is not None
    assert "ended with status 3: quota exceeded" in parked.reason
    agent.hive.tasks.say("t", "Try again.")
    until_idle(agent)
    assert [session for session, _ in prompts(coder)] == ["s1", "s1"]
    assert "It is done." in (task(coder) / "result.md").read_text()


def test_a_program_whose_task_is_cancelled_is_ended(coder: Crew, caplog: pytest.LogCaptureFixture):
    coder.agent_file("mind: {agent: fake, quiet_s: 20}\n")
    coder.drop("x\n!hang\n")
    agent = coder.start()
    cancel_at_work(coder, agent, "prompts", caplog)
    assert agent.hive.leases.list() == []


def test_a_killed_program_is_run_again_in_its_session(coder: Crew):
    coder.drop(f"x\n!say Half of it.\n!die\n{FINISH}\n")
    agent = coder.start()
    until_idle(agent)
    agent.hive.tasks.say("t", "And now?")
    until_idle(agent)
    assert [session for session, _ in prompts(coder)] == ["s1", "s1"]
    assert [one for one in lines_of(task(coder)) if "epoch" in one and "opening" in one].__len__() == 1
    assert "It is done." in (task(coder) / "result.md").read_text()


def test_a_session_that_the_program_does_not_know_any_more_is_begun_anew(coder: Crew):
    coder.drop("x\n!say I have looked at the keel.\n")
    agent = coder.start()
    until_idle(agent)
    (home(coder) / "s1").unlink()
    answer(agent, f"Go on.\n{FINISH}\n")
    until_idle(agent)
    last = prompts(coder)[-1][1]
    assert "You are ada" in last
    assert "I have looked at the keel." in last
    assert "It is done." in (task(coder) / "result.md").read_text()


def test_what_is_said_to_a_task_meanwhile_rides_in_the_result_of_the_next_call(coder: Crew):
    coder.drop(f'x\n!call remember {{"text": "Keels are heavy."}}\n{FINISH}\n')
    agent = coder.start()
    told = []
    remember = agent.tools["remember"]

    def call(session, arguments):
        agent.hive.tasks.say("t", "The keel is red.")
        told.append(1)
        return remember.call(session, arguments)

    agent.tools = {**agent.tools, "remember": Spied(remember, call)}
    until_idle(agent)
    assert told == [1]
    lines = lines_of(task(coder))
    heard = next(at for at, one in enumerate(lines) if one.get("role") == "user" and "The keel is red." in one["text"])
    assert heard < next(at for at, one in enumerate(lines) for c in one.get("calls", ()) if c["tool"] == "finish_task")


class Spied:
    """A tool of which each call is seen."""

    def __init__(self, tool, call) -> None:
        self._tool, self.call = tool, call

    def __getattr__(self, name: str):
        return getattr(self._tool, name)


def test_two_programs_divide_a_task_and_the_first_is_called_again_with_the_result(coder: Crew):
    coder.agent_file("mind: {agent: fake}\nrole: helper\n", name="bob")
    delegate = {"tasks": [{"text": 'Count the keels.\n!call finish_task {"result": "Seven keels."}', "role": "helper"}]}
    coder.drop(
        "---\nassignee: ada\n---\nx\n"
        f"!call delegate {json.dumps(delegate)}\n" + '!call wait_for {"tasks": {ids}}\n!say I wait.\n'
    )
    ada, bob = coder.start(), coder.start(name="bob")
    until_idle(ada)
    parked = ada.hive.tasks.get("t").parked
    assert parked is not None
    until_idle(bob)
    until_idle(ada)
    answer(ada, f"{FINISH}\n")
    until_idle(ada)
    assert any("Seven keels." in prompt for _, prompt in prompts(coder)[1:])
    assert "It is done." in (task(coder) / "result.md").read_text()


def test_a_call_without_the_token_is_refused(coder: Crew):
    coder.drop(f'x\n!call remember {{"text": "y"}}\n{FINISH}\n')
    agent = coder.start()
    answers = []
    remember = agent.tools["remember"]

    def call(session, arguments):
        attached = json.loads((home(coder).parent / "attached.json").read_text())
        stranger = socket.socket(socket.AF_UNIX)
        stranger.connect(attached["socket"])
        asked = {"token": "guessed", "tool": "finish_task", "arguments": {"result": "forged"}}
        stranger.sendall(json.dumps(asked).encode() + b"\n")
        answers.append(stranger)
        return remember.call(session, arguments)

    agent.tools = {**agent.tools, "remember": Spied(remember, call)}
    until_idle(agent)
    assert b"not your agent" in answers[0].makefile("rb").readline()
    answers[0].close()
    assert "It is done." in (task(coder) / "result.md").read_text()


def test_lines_that_are_no_json_and_broken_ones_are_passed_over(coder: Crew):
    coder.drop(
        f'x\n!print Warning: [1] {{"type": "text"\n!print {{"type": ["text"]}}\n!print [1, 2]\n!print null\n{FINISH}\n'
    )
    until_idle(coder.start())
    assert "It is done." in (task(coder) / "result.md").read_text()


def test_a_letter_is_answered_by_the_program(coder: Crew):
    hive = coder.start().hive
    hive.mail.send(
        "human", ["ada"], "A question", 'What is a keel?\n!call reply_mail {"id": "{mail}", "body": "A beam."}\n'
    )
    until_idle(coder._agents[0])
    [letter] = hive.mail.list("human")
    assert "A beam." in hive.mail.read("human", letter.id, mark=False).body


@pytest.mark.parametrize(
    ("mind", "problem"),
    [
        ({"agent": "nobody"}, "no profile of a coding agent is called 'nobody'"),
        ({"agent": "codex", "modle": "x"}, "modle"),
        ({"agent": "codex", "timeout_s": 0}, "timeout_s"),
    ],
)
def test_a_mind_that_cannot_be_is_refused_in_words(mind: dict[str, object], problem: str):
    with pytest.raises(UserError, match=problem):
        open_mind(mind)


def test_a_missing_program_and_a_missing_key_say_how_to_mend_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="the program codex was not found on the PATH") as refused:
        open_mind("agent: codex")
    assert "npm install" in str(refused.value.remedy)
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("CODEX_API_KEY", raising=False)
    with pytest.raises(UserError, match="codex has no key"):
        open_mind("agent: codex")


@pytest.mark.parametrize(
    ("program", "settings", "file", "leaves_out"),
    [
        ("claude", ".claude.json", "mcp.json", "--strict-mcp-config"),
        ("gemini", ".gemini/settings.json", "home/.gemini/settings.json", "--allowed-mcp-server-names=hivemind,mine"),
        ("opencode", ".config/opencode/opencode.json", "opencode.json", "XDG_CONFIG_HOME"),
        ("codex", ".codex/config.toml", None, "--ignore-user-config"),
    ],
)
def test_each_program_is_given_the_servers_that_are_named_in_its_own_form_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, settings: str, file: str | None, leaves_out: str
):
    monkeypatch.setenv("HOME", str(tmp_path))
    profile = Profile.load(program)
    server = {"command": "weather", "args": ["a", 'b "c"'], "env": {"TOKEN": "é"}}
    path, files = tmp_path / settings, tmp_path / "files"
    path.parent.mkdir(parents=True, exist_ok=True)
    files.mkdir()
    text = "command = 'weather'\nargs = ['a', 'b \"c\"']\nenv = {TOKEN = 'é'}\n"
    own = {"mcpServers": {"mine": server, "other": {}}, "mcp": {"mine": server, "other": {}}}
    path.write_text(f"[mcp_servers.mine]\n{text}[mcp_servers.other]\n" if file is None else json.dumps(own))
    config = AgentProgram(agent=program, mcp=("mine",), login=True)
    environment = profile.prepare(config, ["relay", "x"], files, is_boxed=False)
    words = profile.arguments(config, ["relay", "x"], files, None)
    assert leaves_out in {*words, *environment}
    if file is None:
        given = tomllib.loads("\n".join(word for word in words if word.startswith("mcp_servers.")))["mcp_servers"]
    else:
        written = json.loads((files / file).read_text())
        given = written.get("mcpServers") or written["mcp"]
    assert {*given} == {"mine", "hivemind"}
    assert given["mine"] == server


def test_one_prompt_can_be_tried_by_hand(coder: Crew):
    program = open_mind({"agent": "fake"}, root=coder.root)
    assert program.complete("!say Well.\n!say Hello.\n") == "Hello."
    with pytest.raises(MindUnavailable, match="ended with status 4: no credit"):
        program.complete("!say Well.\n!exit 4 no credit\n")
    assert not list((coder.root / ".hive").glob("prompt-*"))
