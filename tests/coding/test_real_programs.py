"""Real coding agents from npm, their models played on loopback, in a real swarm.

Skipped where a program is not installed; `.ci/run` installs them, but for Kimi Code, and fails if they were skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import pytest

from hivemind.minds.agents import relay
from tests.coding.hives import empty_hive, git, repository
from tests.coding.played import Answer, Asked, Call, Played, played
from tests.coding.test_permissions import reply
from tests.messages import calls_of, lines_of
from tests.sample import IS_WHOLE, sampled
from tests.swarm.conftest import Swarm
from tests.waiting import until

SHELLS = {
    "exec_command": "cmd",
    "shell_command": "command",
    "run_shell_command": "command",
    "bash": "command",
    "Bash": "command",
}
PROGRAMS = ("codex", "gemini", "opencode", "qwen", "kimi", "claude")
CHECK = 'import app\nassert app.SAYS == "three", app.SAYS\nprint("CHECKED")\n'
RELAUNCHES = ("GEMINI_CLI_NO_RELAUNCH", "QWEN_CODE_NO_RELAUNCH")  # these start themselves anew with more memory
NEEDED = os.environ.get("HIVEMIND_CODING_AGENTS", "").split()


def mind(program: str, root: str) -> dict[str, object]:
    """What an agent's file says so that the program asks the played model."""
    provider = (
        f'model_providers.play={{name="play",base_url="{root}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    )
    more: dict[str, object] = {
        "codex": {"model": "gpt-5", "args": ["-c", provider, "-c", 'model_provider="play"']},
        "claude": {"model": "claude-sonnet-4-5", "env": ["ANTHROPIC_BASE_URL"]},
        "gemini": {"model": "gemini-2.5-pro", "env": ["GOOGLE_GEMINI_BASE_URL", "GEMINI_CLI_NO_RELAUNCH"]},
        "opencode": {"model": "play/m", "env": ["OPENCODE_CONFIG_CONTENT"]},
        "qwen": {"model": "m", "env": ["OPENAI_BASE_URL", "QWEN_CODE_NO_RELAUNCH"]},
        "kimi": {"model": "m", "env": ["KIMI_MODEL_BASE_URL"]},
    }[program]
    return {"agent": program, **more}  # type: ignore[dict-item]


def environment(root: str) -> dict[str, str]:
    options = {"baseURL": f"{root}/v1", "apiKey": "k"}
    play = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}}
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "k-played-1234")
    return {
        **keys, **({} if IS_WHOLE else dict.fromkeys(RELAUNCHES, "true")),
        "ANTHROPIC_BASE_URL": root, "GOOGLE_GEMINI_BASE_URL": root, "OPENAI_BASE_URL": f"{root}/v1",
        "KIMI_MODEL_API_KEY": "k-played-1234", "KIMI_MODEL_BASE_URL": f"{root}/v1",
        "OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"play": play}}),
    }  # fmt: skip


def shell(asked: Asked, command: str) -> Answer:
    for tool, name in SHELLS.items():
        if tool in asked.tools:
            return Call(tool, {name: command, **({} if tool == "exec_command" else {"description": "see"})})
    return f"There is no shell among {asked.tools}."


def lead(asked: Asked) -> Answer:
    """What the first agent's model does next, by what has come of it so far: reads, edits, tests, writes, divides, waits, ends.

    A session that is gone on with after a kill may be laid out in another way, so that nothing is counted.
    """
    told = "\n".join([*asked.said, *asked.results])
    if "Result of wait_for" in told:
        over = any("result.md" in one for one in asked.results)
        result = f"It says three. {'WAITED' if 'WHAT APP SAYS' in told else 'ALONE'}"
        return "Done." if over else Call("finish_task", {"result": result})
    if told.count("tools are gone") < told.count("Transport closed"):
        return "I end my turn: the hive's tools are gone."
    if "SAYS = " not in told:
        return shell(asked, "cat app.py")
    if "EDITED" not in told:
        return shell(asked, "sed -i s/two/three/ app.py && echo EDI''TED")
    if "CHECKED" not in told:
        return shell(asked, "python3 check.py")
    if "delivered" not in told:
        return Call("send_mail", {"to": ["human"], "subject": "Under way", "body": "CHECKED"})
    ids = re.findall(r"\bjob\.[0-9a-f]{6}\.[0-9]+", told)
    if not ids:
        return Call("delegate", {"tasks": [{"text": "Say what app.py says.", "role": "helper"}]})
    waits = asked.results and "The task rests" in asked.results[-1]
    return "I end my turn." if waits else Call("wait_for", {"tasks": sorted(set(ids))})


def helper(asked: Asked) -> Answer:
    if asked.turn == 0:
        return shell(asked, "cat app.py")
    return Call("finish_task", {"result": "WHAT APP SAYS: three"}) if asked.turn == 1 else "Done."


def by_name(asked: Asked) -> Answer:
    if any("Say hello." in text for text in asked.said):
        return "Hello."
    return helper(asked) if any("You are helper" in one for one in asked.said) else lead(asked)


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if shutil.which(name) is None:
        if name in NEEDED:
            pytest.fail(f"{name} should be installed here")
        pytest.skip(f"{name} is not installed: npm install -g installs it")
    return name


@pytest.fixture
def folder(program: str):
    """A folder outside of memory: sandboxes of these programs hide /dev/shm, and refuse to work in /tmp."""
    with TemporaryDirectory(dir="/var/tmp", prefix="hivemind-") as folder:
        yield Path(folder)


@pytest.fixture
def hive(program: str, folder: Path):
    leaked = []
    rests = Event()

    def answered(asked: Asked) -> Answer:
        if "The task rests" in "".join(asked.results[-1:]):
            rests.set()
        elif any("You are helper" in text for text in asked.said):
            rests.wait(60)  # so that the lead's program has ended, and is started again for the result
        words = ["grep", "-rsl", "k-played-1234", folder / "hive/.hive"]
        found = subprocess.run(words, capture_output=True, check=False)
        leaked.append(found.stdout)
        return by_name(asked)

    with played(answered) as server:
        root = repository(folder / "app", app_py='SAYS = "two"\n', check_py=CHECK)
        roots = [{"path": str(root), "worktree": True, "land": "auto", "check": "python3 check.py"}]
        swarm = empty_hive(folder / "hive", roots=roots)
        for name in ("lead", "helper"):
            text = {"role": name, "mind": mind(program, server.root)}
            (swarm.root / "agents" / f"{name}.yaml").write_text(json.dumps(text))
        yield swarm, server, root
        swarm.end()
    assert not any(leaked), "the key stands nowhere in the hive, while the program works either"


def done(swarm: Swarm, server: Played, root: Path) -> None:
    """The task has ended once, with all that it should have come to."""
    assert "It says three. WAITED" in swarm.result("job")
    folder = swarm.root / "tasks" / "done" / "job"
    tools = [one["tool"] for one in calls_of(folder)]
    assert [tools.count(one) for one in ("delegate", "finish_task")] == [1, 1]
    assert git(root, "show", "main:app.py") == 'SAYS = "three"\n'  # the work has landed
    assert "CHECKED" in swarm.run("mail", "list", "human", "--json") + str(lines_of(folder))
    assert "k-played-1234" not in (folder / "messages.jsonl").read_text()
    assert not list((swarm.root / "tasks" / "failed").iterdir())


def counted(swarm: Swarm, server: Played, program: str) -> None:
    """Every request is counted, those after finish_task too, and each task's number is one wherever it is shown. (OpenCode and
    Gemini CLI make requests of their own that they do not report.)"""
    [helped] = (path.name for path in (swarm.root / "tasks" / "done").glob("job.*"))
    spent = {}
    for task, agent in (("job", "lead"), (helped, "helper")):
        used = json.loads(swarm.run("task", "show", task, "--json"))["used"]
        status = json.loads((swarm.root / ".hive" / "agents" / agent / "status.json").read_text())
        assert f", {used['tokens']:,} tokens" in swarm.result(task)
        assert status["tokens"] == used["tokens"]
        spent[task] = used["tokens"]
    if program in ("claude", "codex"):
        assert sum(spent.values()) == 110 * len(server.requests)


@pytest.mark.slow
@sampled
def test_a_dropped_task_is_read_edited_tested_divided_and_finished(hive: tuple[Swarm, Played, Path], program: str):
    swarm, server, root = hive
    if not IS_WHOLE and shutil.which("codex"):  # a start of it costs a sixth of one of OpenCode
        text = {"role": "helper", "mind": mind("codex", server.root)}
        (swarm.root / "agents/helper.yaml").write_text(json.dumps(text))
    swarm.drop("job.md", "---\nrole: lead\n---\nLet app.py say three.\n")
    up = swarm.start("up", "--until-idle", **environment(server.root))
    until(
        lambda: up.poll() is not None, swarm.logs, limit_s=240
    )  # OpenCode and Qwen Code start slowly on a busy machine
    done(swarm, server, root)
    counted(swarm, server, program)
    if IS_WHOLE or program == "codex":
        trial = swarm.run("agent", "try", "helper", "Say hello.", **environment(server.root))
        cost = "not reported" if program == "kimi" else "1 turn, 110 tokens.*"
        assert re.search(rf"cost: +{cost}\n\nHello.\n", trial), trial


MODES = {"claude": {}, "gemini": {"mode": "default"}, "opencode": {"mode": "ask"}, "qwen": {"mode": "default"}}


@pytest.mark.parametrize("program", MODES, indirect=True)
def test_the_operator_answers_what_the_program_asks(hive: tuple[Swarm, Played, Path], program: str):
    by_hand(program, "claude")
    swarm, server, _ = hive

    def script(asked: Asked) -> Answer:
        told = "\n".join([*asked.said, *asked.results]).casefold()
        if asked.turn == 0:
            return shell(asked, "python3 app.py")
        if "that is wrong" not in told:  # some programs end the turn after a denial
            return shell(asked, "python3 check.py") if asked.turn == 1 else "I end my turn."
        result = f"permission: {any('permission' in tool for tool in asked.tools)}"
        return "Done." if "is over" in asked.results[-1] else Call("finish_task", {"result": result})

    server.script = script
    path = swarm.root / "agents" / "helper.yaml"
    agent = json.loads(path.read_text())
    protocol = {} if program == "claude" else {"acp": program, "agent": None}
    settings = {**agent["mind"], **protocol, **MODES[program], "permissions": {"execute": "ask"}}
    path.write_text(json.dumps({**agent, "mind": settings}))
    swarm.drop("job.md", "---\nrole: helper\n---\nRun app.py.\n")
    swarm.start("up", **environment(server.root))
    for number, answer in enumerate(["once", "deny that is wrong"], 1):
        reply(swarm, number, answer)
    until(lambda: swarm.task("job") in ("done", "failed"), swarm.logs, limit_s=120)
    swarm.run("down")
    assert "permission: False" in swarm.result("job")
    calls = [(call["tool"], call["ok"]) for call in calls_of(swarm.root / "tasks" / "done" / "job")]
    assert [is_done for tool, is_done in calls if tool != "network"] == [True, False, True], calls
    assert calls[-1][0] == "finish_task"


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "kimi"], indirect=True)
def test_a_cancelled_task_ends_its_program_while_the_model_is_silent(hive: tuple[Swarm, Played, Path], program: str):
    by_hand(program, "codex")
    swarm, server, _ = hive
    is_asked, is_over = Event(), Event()

    def script(asked: Asked) -> Answer:
        if asked.turn == 0:
            return shell(asked, "cat app.py")
        is_asked.set()
        is_over.wait()
        return "Too late."

    server.script = script
    swarm.drop("job.md", "---\nrole: lead\n---\nLet app.py say three.\n")
    swarm.start("up", **environment(server.root))
    try:
        assert is_asked.wait(240), swarm.logs()
        swarm.run("task", "cancel", "job")
        until(lambda: swarm.task("job") == "failed" and children_of(swarm, program) == [], swarm.logs)
    finally:
        is_over.set()
    swarm.run("down")
    assert "cancelled" in swarm.error("job")
    assert json.loads(swarm.run("task", "show", "job", "--json"))["used"]["tokens"] > 0


@pytest.mark.parametrize("victim", ["program", "relay", "agent", "supervisor"])
def test_a_kill_in_the_middle_leaves_the_task_to_end_once(hive: tuple[Swarm, Played, Path], victim: str, program: str):
    by_hand(program)
    swarm, server, root = hive
    swarm.drop("job.md", "---\nrole: lead\n---\nLet app.py say three.\n")
    up = swarm.start("up", **environment(server.root))
    until(lambda: any("CHECKED" in "".join(one.results) for one in server.requests), limit_s=240)
    status = json.loads((swarm.root / ".hive" / "agents" / "lead" / "status.json").read_text())
    match victim:
        case "program" | "relay":  # the relay is the program's child: the hive's tools
            for pid in children_of(swarm, program if victim == "program" else f"-I -S {relay.__file__}"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        case "agent":
            os.kill(status["pid"], signal.SIGKILL)
        case "supervisor":
            os.killpg(up.pid, signal.SIGKILL)
            up.wait()
            swarm.start("up", **environment(server.root))
    until(lambda: swarm.task("job") in ("done", "failed"), limit_s=240)
    swarm.run("down")
    done(swarm, server, root)
    until(lambda: children_of(swarm, program) == [])


def by_hand(program: str, *in_ci: str) -> None:
    """Skip a program that takes too long for every run of CI."""
    if program not in in_ci and not os.environ.get("HIVEMIND_CODING_KILLS"):
        pytest.skip(
            "takes minutes: HIVEMIND_CODING_KILLS=1 tries it; test_program.py and test_acp.py have a played one"
        )


def children_of(swarm: Swarm, program: str) -> list[int]:
    """Return the processes with a program in their command that the agent `lead` of this hive runs."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            environ = (path / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if program in command and f"{swarm.root}/.hive/agents/lead/program" in command + environ:
            pids.append(int(path.name))
    return pids
