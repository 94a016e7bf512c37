"""A swarm that thinks with language models: a real server on loopback plays one, and misbehaves in every way."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("openai")

from tests.minds.server import ModelServer, Request, model_server

KEY = "sk-live-0123456789abcdef"


def play(request: Request) -> None:
    """A model that does what the capsule says, and answers the memory's questions with nothing new."""
    if "response_format" in request.body:
        request.answer('{"nodes": []}')
        return
    entries = {entry["id"]: entry for entry in map(json.loads, request.user.split("\n"))}
    capsule = json.loads(entries["capsule"]["content"])
    request.answer("as the capsule says", list(calls(capsule)))


def calls(capsule: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    wanted = capsule["next"]["primary"]["tool"]
    step = capsule["where"].get("step_focus")
    if wanted == "plan_steps":
        yield "plan_steps", {"steps": [{"title": "Think about it"}]}
    elif wanted == "finish_task":
        yield "finish_task", {"result": "It is done."}
    elif step is not None:
        yield "add_card", {"kind": "note", "text": "thought about"}
        yield "finish_step", {}
    else:
        yield "finish_task", {"result": "It is done."}


def misbehave(request: Request) -> None:
    """One of the ways in which an answer goes wrong."""
    ways = [
        lambda: request.error(429, "slow down", Retry_After="0"),
        lambda: request.error(500, "oops"),
        lambda: request.cut(),
        lambda: request.answer(None, [("finish_task", '{"result": "cut of')]),
        lambda: request.answer(None, [("finnish_task", {})]),
        lambda: request.answer("```json\n{\"actions\": [\n```"),
        lambda: request.answer(""),
        lambda: request.send(200, "<html>Bad gateway</html>", "text/html"),
        lambda: request.answer(None, [("note_step", {"text": str(at)}) for at in range(10)], finish="length"),
    ]  # fmt: skip
    ways[next(request.server.turns) % len(ways)]()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    chance, turns = random.Random(7), itertools.count()

    def think(request: Request) -> None:
        misbehave(request) if chance.random() < 0.15 else play(request)

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


def records(hive, kind: str) -> list[dict[str, Any]]:
    logs = [*(hive.root / "tasks").glob("*/*/log.jsonl"), *(hive.root / ".hive/agents").glob("*/log.jsonl")]
    lines = [json.loads(line) for path in logs for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def test_four_agents_finish_fifty_tasks_with_a_model_that_misbehaves(hive, server):
    give_models(hive, server)
    for at in range(50):
        hive.drop(f"t{at:02}.md", f"Think about thing {at}")
    hive.run("up", "--until-idle", PLAYED_KEY=KEY)
    assert sorted(path.name for path in (hive.root / "tasks/done").iterdir() if path.is_dir()) == [
        f"t{at:02}" for at in range(50)
    ]
    ends = Counter(event["task_id"] for event in hive.events() if event["kind"] == "task.done")
    assert set(ends.values()) == {1}
    assert len(ends) == 50
    exchanges = records(hive, "exchange")
    reported = [one for one in exchanges if not one.get("estimated")]
    assert sum(one["tokens_in"] for one in reported) == server.tokens_in
    assert sum(one["tokens_out"] for one in reported) == server.tokens_out
    assert len({one["id"] for one in exchanges}) == len(exchanges) == len(server.requests)
    assert {one["id"] for one in exchanges} == {one["id"] for one in records(hive, "asking")}
    cycles = [one for one in records(hive, "cycle") if one.get("metered")]
    assert sum(one["tokens"] for one in cycles) == sum(one["tokens"] for one in exchanges)
    assert server.keys == {KEY}
    for path in hive.root.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_a_provider_that_is_down_parks_the_task_which_goes_on_when_it_is_back(hive, server):
    server.think, server.down = play, True
    give_models(hive, server, ["one"])
    hive.drop("t.md", "Think")
    swarm = hive.start("up", PLAYED_KEY=KEY)
    parked = hive.wait(lambda: json.loads(hive.run("status", "--json"))["parked"], "parking")
    assert "its mind is not available: the provider has trouble" in parked[0]["why"]
    assert hive.task("t") == "active"
    server.down = False
    hive.wait(lambda: hive.task("t") == "done", "the end of the task")
    assert "cost 0.0" in hive.result("t")
    swarm.terminate()
    swarm.wait(20)


def test_budgets_of_a_task_and_of_the_whole_hives_day_stop_before_they_are_passed(hive, server):
    server.think = play
    give_models(hive, server, budget={"task": {"tokens": 20_000}})
    with (hive.root / "hive.yaml").open("a") as settings:
        settings.write("budget: {day: {tokens: 45000}}\n")
    for at in range(6):
        hive.drop(f"t{at}.md", "1. Think\n2. Think again\n3. Think once more")
    hive.run("up", "--until-idle", status=3, PLAYED_KEY=KEY)
    assert 0 < server.tokens_in + server.tokens_out <= 45_000
    for path in (hive.root / "tasks").glob("*/t*/log.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert sum(line["tokens"] for line in lines if line["kind"] == "exchange") <= 20_000
    parked = json.loads(hive.run("status", "--json"))["parked"]
    assert any("the hive's daily budget of 45000 tokens is used up" in one["why"] for one in parked)


def test_a_context_that_is_too_long_is_asked_again_with_a_smaller_one(hive, server):
    def think(request: Request) -> None:
        if "response_format" not in request.body and len(request.user) > 6_000:
            request.error(400, "maximum context length is 2000 tokens", "context_length_exceeded")
        else:
            play(request)

    server.think = think
    give_models(hive, server, ["one"])
    (hive.root / "knowledge/long.md").write_text(
        "\n\n".join(f"Thing {at} is a thing to think about." for at in range(900))
    )
    hive.drop("t.md", "1. Think about thing 7\n2. Think about thing 8")
    hive.run("up", "--until-idle", PLAYED_KEY=KEY)
    assert hive.task("t") == "done"


def test_without_its_key_nothing_starts_and_one_line_says_why(hive, server):
    give_models(hive, server, ["one"])
    hive.run("up", "--until-idle", status=2, PLAYED_KEY="")
    assert "PLAYED_KEY is not set" in hive.errors
    assert "Traceback" not in hive.errors


def test_a_task_that_a_model_did_is_run_again_without_it(hive, server):
    give_models(hive, server)
    hive.drop("t.md", "1. Think\n2. Think again")
    hive.run("up", "--until-idle", PLAYED_KEY=KEY)
    asked = len(server.requests)
    assert "all of them as they went" in hive.run("task", "replay", "t")
    assert len(server.requests) == asked
    log = hive.root / "tasks/done/t/log.jsonl"
    log.write_text(log.read_text().replace('"status":"done"', '"status":"over"'))  # as if the tool had said so
    found = json.loads(hive.run("task", "replay", "t", "--json", status=1))
    assert {one["where"] for turn in found["turns"] for one in turn["differences"]} == {"2 finish_step"}
