"""Turns of an agent that thinks with a language model: a real server on loopback plays it."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("openai")

from hivemind import Hive
from tests.agent.conftest import Crew, until_idle
from tests.minds.server import Request, model_server


@pytest.fixture
def server():
    with model_server() as server:
        yield server


@pytest.fixture
def modelled(crew: Crew, server) -> Crew:
    mind = {"openai-compatible": {"url": server.url, "model": "played", "max_output": 500}}
    crew.agent_file(json.dumps({"mind": mind}))
    return crew


def end(request: Request) -> None:
    """Notes every step, finishes it, and then the task."""
    if not request.tools:
        request.answer('{"nodes": []}')
        return
    wanted = json.loads(json.loads(request.user.split("\n")[0])["content"])["next"]["primary"]["tool"]
    done = ("finish_task", {"result": "Done."}) if wanted == "finish_task" else ("finish_step", {})
    request.answer("so", [done])


def test_a_context_that_is_too_long_is_asked_again_with_a_smaller_one(modelled, server):
    """The longest that the model takes is less than half of what the agent would send."""
    sent = []

    def think(request: Request) -> None:
        sent.append(len(request.user))
        if request.tools and len(request.user) > 6_000:
            request.too_long()
        else:
            end(request)

    server.think = think
    (modelled.root / "knowledge/long.md").write_text(
        "\n\n".join(f"Thing {at} is a thing to think about." for at in range(900))
    )
    modelled.drop("---\nsteps: [{title: Think about thing 7}]\n---\n" + "Think about thing 8. " * 700)
    agent = modelled.start()
    until_idle(agent)
    assert (modelled.root / "tasks/done/t/result.md").exists()
    assert max(sent) > 6_000
    assert min(sent) < 6_000


@pytest.mark.parametrize("ways", [["troubled"] * 5, ["wrong_key"]], ids=["trouble", "a wrong key"])
def test_a_provider_that_does_not_answer_parks_the_task_and_nothing_is_lost(modelled, server, monkeypatch, ways):
    modelled.drop("---\nsteps: [{title: Think}]\n---\nThink.\n")
    agent = modelled.start()
    monkeypatch.setattr(type(agent.mind.patience), "_pause", lambda *_: 0.0)
    server.orders += [lambda request, way=way: getattr(request, way)() for way in ways]
    server.think = end
    until_idle(agent)
    parked = Hive.open(modelled.root).tasks.get("t").parked
    assert "its mind is not available" in parked.reason
    assert len(server.requests) == len(ways)
    [work] = agent.scheduler.works()
    agent.scheduler.holding.unpark(work)  # as if its time had come
    until_idle(agent)
    assert (modelled.root / "tasks/done/t/result.md").exists()
