"""A swarm that thinks with language models: a real server on loopback plays one, and misbehaves in every way."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.messages import Record, lines_of
from tests.minds.dialects import AnthropicRequest, GeminiRequest, OllamaRequest
from tests.minds.server import ModelServer, Request, model_server
from tests.program import cold

pytestmark = pytest.mark.usefixtures("language_models")

KEY = "sk-live-0123456789abcdef"


def play(request: Request) -> None:
    """A model that plans one step, thinks about it, and comes to an end; it goes by what it has said before."""
    said = json.dumps(request.messages)
    if "I plan." not in said:
        request.answer("I plan.", [("plan_steps", {"steps": [{"title": "Think about it"}]})])
    elif "I think." not in said:
        request.answer("I think.", [("add_card", {"kind": "note", "text": "thought about"}), ("finish_step", {})])
    else:
        request.answer("I end.", [("finish_task", {"result": "It is done."})])


def misbehave(request: Request) -> None:
    """One of the ways in which an answer goes wrong."""
    ways = [
        lambda: request.limited(0),
        lambda: request.troubled(),
        lambda: request.cut(),
        lambda: request.answer(None, [("finish_task", '{"result": "cut of')]),
        lambda: request.answer(None, [("finnish_task", {})]),
        lambda: request.answer("```json\n{\"calls\": [\n```"),
        lambda: request.answer(""),
        lambda: request.send(200, "<html>Bad gateway</html>", "text/html"),
        lambda: request.answer(None, [("note_step", {"text": str(at)}) for at in range(10)], finish="length"),
    ]  # fmt: skip
    ways[next(request.server.turns) % len(ways)]()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    asked, turns = itertools.count(1), itertools.count()

    def think(request: Request) -> None:
        last = json.dumps(request.messages[-1])
        told = "No tool was called" in last or "cut off" in last  # a third time would be too often
        misbehave(request) if next(asked) % 6 == 0 and not told else play(request)

    with model_server(think) as server:
        server.turns = turns
        yield server


def give_models(hive, server: ModelServer, names=("one", "two", "three", "four"), **more: Any) -> None:
    """Replace the hive's agents by some that think with the server's model."""
    for path in (hive.root / "agents").glob("*.yaml"):
        path.unlink()
    mind = {"openai-compatible": {"url": server.url, "model": "played", "key_env": "PLAYED_KEY", "max_output": 500}}
    for name in names:
        (hive.root / "agents" / f"{name}.yaml").write_text(
            json.dumps({"mind": mind, "prices": {"in": 1, "out": 2}, **more})
        )


def lines(hive) -> list[Record]:
    """All lines of all conversations, those of threads of mail among them."""
    paths = [*(hive.root / "tasks").glob("*/*/messages.jsonl"), *(hive.root / ".hive/agents").glob("*/threads/*.jsonl")]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def ends(told: list[Record]) -> dict[str, Record]:
    """By the id of each request the line that says what it came to, a message or another."""
    found = [(line.get("answered") or line.get("request"), line) for line in told if "reserved" not in line]
    ended = [(request, line) for request, line in found if request]
    assert len(dict(ended)) == len(ended)
    return dict(ended)


def tokens(line: Record) -> int:
    usage = line.get("usage", {})
    return usage.get("tokens_in", 0) + usage.get("tokens_out", 0)


PROVIDERS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "google": "GEMINI_API_KEY",
    "ollama": "OLLAMA_API_KEY",
}
SECRETS = {variable: f"Key-{provider}-0123456789abcdef" for provider, variable in PROVIDERS.items()}


@pytest.mark.slow
def test_four_agents_of_four_providers_finish_their_tasks_with_models_that_misbehave(hive, server):
    """Every request is counted and logged, whoever is asked; no key stands in any file afterwards."""
    give_models(hive, server, PROVIDERS)
    dialects = {"anthropic": AnthropicRequest, "openai": Request, "google": GeminiRequest, "ollama": OllamaRequest}
    for name, dialect in dialects.items():
        mind = {name: {"url": f"{server.root}{dialect.root}", "model": "played", "max_output": 500}}
        (hive.root / f"agents/{name}.yaml").write_text(json.dumps({"mind": mind, "prices": {"in": 1, "out": 2}}))
    for at, name in enumerate([*PROVIDERS, *[None] * 20]):
        mine = f"---\nassignee: {name}\n---\n" if name else ""
        hive.drop(f"t{at:02}.md", f"{mine}Think about thing {at}")
    hive.run("up", "--until-idle", **SECRETS)
    assert sorted(path.name for path in (hive.root / "tasks/done").iterdir() if path.is_dir()) == [
        f"t{at:02}" for at in range(24)
    ]
    done = Counter(event["task_id"] for event in hive.events() if event["kind"] == "task.done")
    assert set(done.values()) == {1}
    assert len(done) == 24
    told = lines(hive)
    requests = {line["request"]: line for line in told if "reserved" in line}
    exchanges = ends(told)
    assert set(requests) == set(exchanges)
    assert len(requests) == len(server.requests)
    reported = [line for line in exchanges.values() if "error" not in line]
    assert sum(map(tokens, reported)) == server.tokens_in + server.tokens_out
    assert {line["model"].partition(":")[0] for line in requests.values()} == set(PROVIDERS)
    assert {line["cause"] for line in requests.values()} == {"turn", "correction", "continuation"}
    assert server.keys == set(SECRETS.values())
    for path in filter(Path.is_file, hive.root.rglob("*")):
        whole = path.read_bytes()
        assert not any(secret.encode() in whole for secret in SECRETS.values()), path
    asked = len(server.requests)
    assert "all of them as they went" in hive.run("task", "replay", "t07")
    assert len(server.requests) == asked


def test_an_agent_that_is_killed_while_it_waits_for_an_answer_sends_the_same_again(hive, server):
    def think(request: Request) -> None:
        if len(server.requests) == 2:
            os.kill(hive.pid_of("one"), signal.SIGKILL)
        else:
            play(request)

    server.think = think
    give_models(hive, server, ["one"])
    hive.drop("t.md", "Think")
    hive.run("up", "--until-idle", PLAYED_KEY=KEY)
    assert hive.task("t") == "done"
    sent = [body["messages"] for body in server.requests]
    assert sent[1] == sent[2]
    assert all(after[: len(before)] == before for before, after in pairwise(sent))
    assert sum("reserved" in line for line in lines(hive)) == len(sent)


def test_a_provider_that_does_not_serve_parks_the_task_which_goes_on_when_it_does(hive, server):
    served = threading.Event()
    server.think = lambda request: play(request) if served.is_set() else request.error(402, "no credit left")
    give_models(hive, server, ["one"])
    hive.drop("t.md", "Think")
    swarm = hive.start("up", PLAYED_KEY=KEY)
    parked = hive.wait(lambda: json.loads(hive.run("status", "--json"))["parked"], "parking")
    assert "its mind is not available: the account's quota is used up" in parked[0]["why"]
    assert hive.task("t") == "active"
    served.set()
    hive.wait(lambda: hive.task("t") == "done", "the end of the task")
    assert "cost 0.0" in hive.result("t")
    swarm.terminate()
    swarm.wait(60)


def test_budgets_of_a_task_and_of_the_whole_hives_day_stop_before_they_are_passed(hive, server):
    server.think = play
    give_models(hive, server, budget={"task": {"tokens": 20_000}})
    settings = hive.root / "hive.yaml"
    settings.write_text(settings.read_text().replace("{day: {tokens: 50000000}}", "{day: {tokens: 45000}}"))
    for at in range(8):  # more than the budgets of two days allow
        hive.drop(f"t{at}.md", "1. Think\n2. Think again\n3. Think once more")
    began = datetime.now(UTC).date()
    hive.run("up", "--until-idle", status=3, PLAYED_KEY=KEY)
    days = (datetime.now(UTC).date() - began).days + 1  # a run over midnight has the budget of the new day, too
    assert 0 < server.tokens_in + server.tokens_out <= 45_000 * days
    for folder in (hive.root / "tasks").glob("*/t*/"):
        assert sum(tokens(line) for line in lines_of(folder)) <= 20_000
    parked = json.loads(hive.run("status", "--json"))["parked"]
    assert any("the hive's daily budget of 45000 tokens is used up" in one["why"] for one in parked)


def test_without_its_key_nothing_starts_and_one_line_says_why(hive, server):
    give_models(hive, server, ["one"])
    hive.run("up", "--until-idle", status=2, PLAYED_KEY="")
    assert "PLAYED_KEY is not set" in hive.errors
    assert "Traceback" not in hive.errors


@pytest.mark.parametrize(
    ("place", "code", "reason"),
    [
        ("sitecustomize.py", "import sys; sys.modules['pydantic_ai'] = None", "needs the extra 'models'"),
        ("pydantic_ai.py", "raise ImportError('built for another Python')", "built for another Python"),
    ],
)
def test_an_agent_whose_client_is_missing_or_broken_is_set_aside_and_the_others_work(
    hive, tmp_path: Path, place: str, code: str, reason: str
):
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / place).write_text(code)
    (hive.root / "agents/writer.yaml").write_text("mind: anthropic:MODEL\n")
    hive.drop("t.md", "What has a keel?")
    hive.starts = cold
    output = hive.run("up", "--until-idle", status=None, PYTHONPATH=str(tmp_path / "path"), ANTHROPIC_API_KEY=KEY)
    assert hive.task("t") == "done"
    assert reason in output + hive.errors
    assert "Traceback" not in hive.errors


def test_a_fork_server_that_dies_at_each_start_ends_the_swarm_with_a_reason(hive, tmp_path: Path):
    (tmp_path / "path").mkdir()
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    (tmp_path / "path/pydantic_ai.py").write_text(kill)
    (hive.root / "agents/writer.yaml").write_text("mind: anthropic:MODEL\n")
    hive.starts = cold
    hive.run("up", "--until-idle", status=2, PYTHONPATH=str(tmp_path / "path"), ANTHROPIC_API_KEY=KEY)
    assert "has ended 5 times before it was ready" in hive.errors
