"""Turns of an agent that thinks with a language model: a real server on loopback plays it."""

from __future__ import annotations

import json
from itertools import count
from threading import Event

import pytest

from hivemind import Hive
from tests.agent.conftest import Crew, until_idle
from tests.messages import lines_of
from tests.minds.dialects import AnthropicRequest, GeminiRequest
from tests.minds.server import Request, model_server

pytestmark = pytest.mark.usefixtures("language_models")


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
    """Finishes the step, and then the task."""
    done = any(one[:2] == ("call", "finish_step") for one in request.conversation)
    request.answer("so", [("finish_task", {"result": "Done."}) if done else ("finish_step", {})])


def test_a_conversation_that_is_too_long_for_the_model_is_begun_anew_shorter(modelled, server):
    sent = []

    def think(request: Request) -> None:
        sent.append(len(request.user))
        if len(request.user) > 6_000:
            request.too_long()
        else:
            end(request)

    server.think = think
    modelled.drop("---\nsteps: [{title: Think about thing 7}]\n---\n" + "Think about thing 8. " * 700)
    until_idle(modelled.start())
    assert (modelled.root / "tasks/done/t/result.md").exists()
    assert sent[0] > 6_000
    epochs = [line["cause"] for line in lines_of(modelled.root / "tasks/done/t") if "opening" in line]
    assert epochs == ["start"] + ["too long"] * sum(length > 6_000 for length in sent)


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
    [work] = agent.scheduler.active_tasks.runs
    agent.scheduler.active_tasks.unpark(work)  # as if its time had come
    until_idle(agent)
    assert (modelled.root / "tasks/done/t/result.md").exists()


def test_a_request_whose_task_is_cancelled_is_ended_and_counted(modelled, server):
    """It was waited for, for an answer that nobody could use."""
    answered = Event()

    def cancel(request: Request) -> None:
        Hive.open(modelled.root).tasks.cancel("t")
        server.keep_silent(request)
        answered.set()

    server.orders.append(cancel)
    modelled.drop("---\nsteps: [{title: Think}]\n---\nThink.\n")
    agent = modelled.start()
    agent.cycle()
    assert not answered.is_set()
    assert agent.metered_mind.total.tokens
    assert not agent.cycle()


def test_a_request_of_an_agent_that_is_told_to_end_is_ended_and_counted_as_it_was_sent(modelled, server):
    """It was waited for until the agent was killed, and counted with the longest answer."""
    given_up = Event()

    def be_silent(request: Request) -> None:
        server.keep_silent(request)
        given_up.set()

    server.think = be_silent
    modelled.drop("---\nsteps: [{title: Think}]\n---\nThink.\n")
    agent = modelled.start()
    agent.stop()
    agent.cycle()
    assert not given_up.is_set()
    assert agent.metered_mind.total.tokens


@pytest.mark.parametrize("provider", ["anthropic", "openai", "google", "openai-compatible"])
def test_a_task_ends_whatever_a_provider_does_in_its_protocol(crew: Crew, server, monkeypatch, provider: str) -> None:
    """Too long on the first turn and on the tenth, too often, trouble, a cut stream, half a JSON, a refusal."""
    dialect = {"anthropic": AnthropicRequest, "google": GeminiRequest}.get(provider, Request)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk-played-0123456789abcdef")
    mind = {provider: {"url": f"{server.root}{dialect.root}", "model": "played", "max_output": 500}}
    crew.agent_file(json.dumps({"mind": mind, "toolset": "coder"}))
    turns = count()

    def think(request: Request) -> None:
        number = next(turns)
        ways = {0: "too_long", 3: "troubled", 5: "cut", 7: "refuse", 10: "too_long"}
        if number in ways:
            getattr(request, ways[number])()
        elif number == 4:
            request.limited(0)
        elif number == 8:
            request.answer("half", [("read_file", '{"path": "no')])
        else:
            request.answer(
                f"Turn {number}", [("read_file", {"path": f"none-{number}"})] if number < 14 else [("finish_task", {})]
            )

    server.think = think
    crew.drop("Do it.\n" + "It is a thing to do. " * 500)
    agent = crew.start()
    monkeypatch.setattr(type(agent.mind.patience), "_pause", lambda *_: 0.0)
    until_idle(agent)
    assert (crew.root / "tasks/done/t/result.md").exists()
    lines = lines_of(crew.root / "tasks/done/t")
    assert [line["cause"] for line in lines if "opening" in line] == ["start", "too long", "too long"]
    assert len([line for line in lines if "reserved" in line]) == len(server.requests)
