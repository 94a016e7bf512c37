"""A model that works like a coding agent on a real repository: the requests that it gets, and their cost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hivemind.tokens import count_tokens as count
from tests.agent.conftest import Crew, until_idle
from tests.messages import lines_of
from tests.minds.server import ModelServer, Request, model_server

pytestmark = pytest.mark.usefixtures("language_models")

Calls = list[tuple[str, dict[str, Any]]]
TURNS = 30
CHECK = """import app
for case in range(150):
    got = app.weight(case)
    print(f"case {case}: expected {case * 7}, got {got}: {'ok' if got == case * 7 else 'FAILED'}")
print("summary:", app.__doc__)
raise SystemExit(app.weight(9) != 63)
"""
TASK = "The weights in app.py are wrong. Mend them until `python check.py` passes, and commit each change.\n"


def turn(number: int, app: Path) -> Calls:
    """What the model asks for in its turn: it looks, runs the tests, edits, commits, and looks again."""
    run = ("run_command", {"command": [sys.executable, "check.py"], "cwd": str(app)})
    match number % 5:
        case 0:
            return [("read_file", {"path": f"{app}/app.py"}), ("search_files", {"pattern": "weight", "path": str(app)})]
        case 1 | 3:
            return [run]
        case 2:
            old, new = f'"""Try {number // 5}"""', f'"""Try {number // 5 + 1}"""'
            return [("edit_file", {"path": f"{app}/app.py", "old": old, "new": new})]
        case _:
            commit = ["git", "commit", "-qam", f"Try {number // 5 + 1}"]
            return [("run_command", {"command": commit, "cwd": str(app)})]


def said(number: int) -> str:
    return f"Turn {number}: I look at what came of it, and go on with the next thing that is to be done."


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


def repository(folder: Path) -> Path:
    folder.mkdir()
    (folder / "app.py").write_text('"""Try 0"""\n\n\ndef weight(case):\n    return case * 7 - 1\n')
    (folder / "check.py").write_text(CHECK)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "begin"]):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *words], cwd=folder, check=True)
    for key, value in {"user.name": "A", "user.email": "a@b"}.items():
        subprocess.run(["git", "config", key, value], cwd=folder, check=True)
    return folder


def coder(crew: Crew, server: ModelServer, **more: Any) -> None:
    crew.configure("roots: [{path: ../app, write: true}]\n")
    mind = {"openai-compatible": {"url": server.url, "model": "played"}}
    crew.agent_file(json.dumps({"mind": mind, "toolset": "coder", "commands": [sys.executable, "git"], **more}))


def work(
    crew: Crew, server: ModelServer, app: Path, turns: int = TURNS, think: Callable[[int], Calls] | None = None
) -> None:
    """Let the model do its task, one turn a request."""
    done = iter(range(turns))

    def play(request: Request) -> None:
        number = next(done, None)
        calls = (
            [("finish_task", {"result": "It is mended."})]
            if number is None
            else (think or (lambda at: turn(at, app)))(number)
        )
        request.answer("The end." if number is None else said(number), calls)

    server.think = play
    crew.drop(TASK)
    until_idle(crew.start())


def price(requests: list[list[str]]) -> float:
    """What requests cost, each as its parts in order: what is the same as in the one before is read from the cache."""
    whole = 0.0
    for before, now in pairwise([[], *requests]):
        same = next(
            (at for at, (one, other) in enumerate(zip(before, now, strict=False)) if one != other),
            min(len(before), len(now)),
        )
        whole += 0.1 * sum(map(count, now[:same])) + sum(map(count, now[same:]))
    return whole


def parts(body: dict[str, Any]) -> list[str]:
    return [json.dumps(body["tools"]), *map(json.dumps, body["messages"])]


def append_only_loop(app: Path, tools: list[dict[str, Any]]) -> list[list[str]]:
    """The requests of a plain loop for comparison: the same tools and actions, results as they come."""
    system = {"role": "system", "content": "word " * 1000}
    messages: list[dict[str, Any]] = [system, {"role": "user", "content": TASK}]
    requests = []
    for number in range(TURNS + 1):
        requests.append([json.dumps(tools), *map(json.dumps, messages)])
        if number == TURNS:
            break
        calls = turn(number, app)
        functions = [{"name": tool, "arguments": json.dumps(given)} for tool, given in calls]
        told = [{"id": f"call-{at}", "type": "function", "function": one} for at, one in enumerate(functions)]
        messages.append({"role": "assistant", "content": said(number), "tool_calls": told})
        for at, (tool, given) in enumerate(calls):
            messages.append({"role": "tool", "tool_call_id": f"call-{at}", "content": made(tool, given)})
    return requests


def made(tool: str, given: dict[str, Any]) -> str:
    """The tools of the plain loop."""
    match tool:
        case "run_command":
            ran = subprocess.run(given["command"], cwd=given["cwd"], capture_output=True, text=True)
            return f"exit {ran.returncode}\n{ran.stdout}{ran.stderr}"
        case "edit_file":
            path = Path(given["path"])
            path.write_text(path.read_text().replace(given["old"], given["new"]))
            return "edited"
        case "read_file":
            return Path(given["path"]).read_text()
        case _:
            ran = subprocess.run(
                ["grep", "-n", given["pattern"], "-r", given["path"], "--include=*.py"], capture_output=True, text=True
            )
            return ran.stdout


def test_thirty_turns_cost_what_an_append_only_loop_costs(crew: Crew, server: ModelServer, tmp_path: Path) -> None:
    """Each request begins with the one before it exactly, and a failing test's whole output stands in the next once."""
    coder(crew, server)
    work(crew, server, repository(crew.root.parent / "app"))
    assert (crew.root / "tasks/done/t/result.md").exists()
    bodies = server.requests
    assert len(bodies) == TURNS + 2, "the last one asks for lessons"
    for before, now in pairwise(bodies):
        assert now["messages"][: len(before["messages"])] == before["messages"]
        assert now["tools"] == before["tools"]
    output = "".join(f"case {case}: expected {case * 7}, got {case * 7 - 1}: FAILED\\n" for case in range(150))
    assert json.dumps(bodies[2]["messages"]).count(output) == 1
    loop = append_only_loop(repository(tmp_path / "plain"), bodies[0]["tools"])
    assert price(list(map(parts, bodies))) <= 1.3 * price(loop)


def test_every_request_names_its_cause(crew: Crew, server: ModelServer) -> None:
    coder(crew, server)
    app = repository(crew.root.parent / "app")
    odd = {3: [], 5: [("read_file", {"path": "none"}), ("no_such_tool", {})]}
    work(crew, server, app, 8, lambda at: odd.get(at, turn(at, app)))
    causes = [line["cause"] for line in lines_of(crew.root / "tasks/done/t") if "reserved" in line]
    assert causes == ["turn"] * 4 + ["correction"] + ["turn"] * 4 + ["lesson"]


def test_a_model_that_keeps_the_graph_is_asked_for_patches_once_an_epoch(crew: Crew, server: ModelServer) -> None:
    crew.agent_file(json.dumps({"mind": {"openai-compatible": {"url": server.url, "model": "played"}}, "toolset": "coder",
                                "max_tokens": 20_000, "graph": "model"}))  # fmt: skip
    (crew.root / "knowledge/boats.md").write_text(
        "".join(f"Boat {number} has oars and a mast.\n" for number in range(200))
    )
    done = iter(range(24))
    asked: list[int] = []

    def play(request: Request) -> None:
        if "tools" in request.body:
            number = next(done, None)
            look = ("read_file", {"path": "knowledge/boats.md", "start_line": 1 + (number or 0)})
            request.answer("", [("finish_task", {"result": "Boats."})] if number is None else [look])
            return
        prompt = request.user
        numbers = [int(one) for one in re.findall(r'^{"episode": (\d+), "below"', prompt, re.MULTILINE)]
        asked.append(len(numbers))
        below = re.findall(r'^{"episode": \d+, "below": (\d+)', prompt, re.MULTILINE)
        notes = [{"role": "assistant", "content": "I tried, and it FAILED AGAIN."}]
        nodes = [{"tmp_id": "tmp1", "kind": "evidence", "thought": notes}]
        patches = [
            {"episode": one, "add_nodes": nodes, "add_edges": [{"src": above, "dst": "tmp1"}]}
            for one, above in zip(numbers[1:], below[1:], strict=True)
        ]
        request.answer(json.dumps({"episodes": patches, "fold_ops": []}))

    server.think = play
    crew.drop(TASK)
    until_idle(crew.start())
    lines = lines_of(crew.root / "tasks/done/t")
    causes = [line["cause"] for line in lines if "reserved" in line]
    epochs = sum("opening" in line for line in lines)
    assert epochs > 2
    assert causes.count("patch") == epochs - 1
    assert min(one for one in asked if one) > 4
    assert "FAILED AGAIN" in (crew.root / "tasks/done/t/graph.json").read_text()


def test_an_epochs_end_keeps_the_task_the_open_step_and_the_last_four_turns(crew: Crew, server: ModelServer) -> None:
    coder(crew, server, max_tokens=20_000)
    work(crew, server, repository(crew.root.parent / "app"), 40, None)
    lines = lines_of(crew.root / "tasks/done/t")
    epochs = [line for line in lines if "opening" in line]
    assert [one["cause"] for one in epochs] == ["start"] + ["full"] * (len(epochs) - 1)
    assert len(epochs) > 2
    answered = 0
    for line in lines:
        if "opening" in line:
            text = line["opening"][1]["text"]
            assert TASK.strip() in text
            assert all(said(number) in text for number in range(max(0, answered - 4), answered))
            assert count(json.dumps(line["opening"])) <= 10_000
        answered += line.get("role") == "assistant"
    for body in server.requests:
        assert sum(map(count, parts(body))) <= 20_000
