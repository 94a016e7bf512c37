"""Each provider is asked for real, in its own protocol, by one plan: a server on loopback plays the model."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytest.importorskip("google.genai")

from hivemind.minds import ContextTooLong, MindError, MindUnavailable, Prices, open_mind
from hivemind.minds.language.errors import Refused
from tests.minds.asking import CONTEXT, TOOL, note
from tests.minds.dialects import AnthropicRequest, GeminiRequest, OllamaRequest
from tests.minds.request import Request


@dataclass(frozen=True)
class Provider:
    """How a provider is named, where its key and its address stand in the environment, and how it is spoken to."""

    name: str
    key: str
    base: str
    dialect: type[Request]

    def __str__(self) -> str:
        return self.name


PROVIDERS = [
    Provider("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", AnthropicRequest),
    Provider("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", Request),
    Provider("google", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", GeminiRequest),
    Provider("ollama", "OLLAMA_API_KEY", "OLLAMA_BASE_URL", OllamaRequest),
]
SECRET = "key-of-%s-4711"


@pytest.fixture(params=PROVIDERS, ids=str)
def provider(request, server, monkeypatch):
    told: Provider = request.param
    monkeypatch.setenv(told.key, SECRET % told.name)
    monkeypatch.setenv(told.base, f"{server.root}{told.dialect.root}")
    return told


@pytest.fixture
def mind_of(provider, clock, meter):
    opened = []

    def make(**more):
        told = {provider.name: {"model": "played", **more}} if more else f"{provider.name}:played"
        opened.append(open_mind(told, patience=clock.patience(), meter=meter, prices=Prices(2, 10)))
        return opened[-1]

    yield make
    for mind in opened:
        mind.close()


@pytest.fixture
def mind(mind_of):
    return mind_of()


def test_a_provider_is_told_and_answers_in_its_own_protocol(server, provider, mind):
    seen = []
    server.orders.append(lambda request: (seen.append(request), note(request)))
    (action,) = mind.think(CONTEXT, [TOOL]).actions
    assert (action.tool, dict(action.arguments)) == ("note", {"text": "seen"})
    (request,) = seen
    assert type(request) is provider.dialect
    assert "Be brief." in request.system
    assert [json.loads(line)["id"] for line in request.user.split("\n")] == ["capsule", "task:t", "message:m"]
    assert request.tools == ["note"]
    assert request.bound == 4096
    assert server.keys == {SECRET % provider.name}


def test_a_provider_is_asked_where_the_agents_file_says(server, provider, mind_of, monkeypatch):
    monkeypatch.setenv(provider.base, "http://127.0.0.1:1")
    assert mind_of(url=f"{server.root}{provider.dialect.root}").think(CONTEXT, [TOOL]).actions


def test_a_call_that_cannot_be_used_goes_back_with_the_reason(server, mind):
    seen = []
    server.orders.append(lambda request: request.answer("so", [("teleport", {"to": "Mars"})]))
    server.orders.append(lambda request: (seen.append(request.told), note(request)))
    assert mind.think(CONTEXT, [TOOL]).actions[0].tool == "note"
    assert "there is no tool 'teleport'; tools: note" in seen[0]


def test_ten_calls_at_once_keep_their_order(server, mind):
    server.think = lambda request: request.answer(None, [("note", {"text": str(at)}) for at in range(10)])
    assert [one.arguments["text"] for one in mind.think(CONTEXT, [TOOL]).actions] == [str(at) for at in range(10)]


def test_what_a_provider_reports_is_counted_and_priced(server, mind, meter):
    usage = mind.think(CONTEXT, [TOOL]).usage
    assert (usage.tokens_in, usage.tokens_out) == (server.tokens_in, server.tokens_out)
    assert usage.money == pytest.approx((2 * server.tokens_in + 10 * server.tokens_out) / 1e6)
    assert usage.unpriced == 0
    assert meter.exchanges[0].usage == usage


def test_a_limit_of_requests_is_waited_for_as_long_as_the_provider_says(server, mind, clock):
    server.orders.append(lambda request: request.limited(7))
    assert mind.think(CONTEXT, [TOOL]).actions
    assert clock.slept == [7.5]


def test_a_limit_of_requests_that_says_nothing_is_met_with_growing_pauses(server, mind, clock):
    server.orders += [lambda request: request.limited()] * 3
    assert mind.think(CONTEXT, [TOOL]).actions
    assert clock.slept == [1.0, 2.0, 4.0]


def test_trouble_of_a_provider_is_asked_through_by_the_mind_alone(server, mind, clock):
    server.orders += [lambda request: request.troubled(), lambda request: request.error(500, "oops")]
    assert mind.think(CONTEXT, [TOOL]).actions
    assert len(clock.slept) == 2
    assert len(server.requests) == 3  # the client libraries' own tries again are off


def test_a_wrong_key_is_said_once_and_without_the_key(server, provider, mind):
    server.think = lambda request: request.wrong_key()
    with pytest.raises(MindUnavailable, match="does not accept the key") as caught:
        mind.think(CONTEXT, [TOOL])
    assert len(server.requests) == 1
    assert SECRET % provider.name not in str(caught.value)


@pytest.mark.parametrize("say", [lambda request: request.too_long(), lambda request: request.send(413, "", "text/plain")],
                         ids=["in its own words", "without words"])  # fmt: skip
def test_a_context_that_is_too_long_is_told_apart(server, mind, say):
    server.think = say
    with pytest.raises(ContextTooLong):
        mind.think(CONTEXT, [TOOL])
    assert len(server.requests) == 1


def test_a_bound_that_is_too_high_is_no_context_that_is_too_long(server, mind):
    server.think = lambda request: request.bound_too_high()
    with pytest.raises(MindError) as caught:
        mind.think(CONTEXT, [TOOL])
    assert not isinstance(caught.value, ContextTooLong | MindUnavailable)


def test_a_refusal_is_the_last_word_and_is_charged_for(server, mind, meter):
    server.think = lambda request: request.refuse()
    with pytest.raises(Refused):
        mind.think(CONTEXT, [TOOL])
    (told,) = meter.exchanges
    assert len(server.requests) == 1
    assert (told.usage.tokens_in, told.usage.tokens_out) == (server.tokens_in, server.tokens_out)


def test_an_answer_that_ends_at_its_bound_goes_back_and_its_calls_are_not_made(server, mind_of):
    server.orders.append(lambda request: request.answer("so", [("note", {"text": "half"})], finish="length"))
    seen = []
    server.think = lambda request: (seen.append(request), note(request))
    assert dict(mind_of(max_output=100).think(CONTEXT, [TOOL]).actions[0].arguments) == {"text": "seen"}
    assert "cut off after 100 tokens" in seen[0].told
    assert seen[0].bound == 100


def test_a_connection_that_is_cut_in_the_middle_is_asked_again_and_the_loss_is_told(server, mind, meter):
    server.orders.append(Request.cut)
    assert mind.think(CONTEXT, [TOOL]).actions
    assert [exchange.lost for exchange in meter.exchanges] == [True, False]


def test_silence_ends_when_its_time_is_up(server, mind_of, meter):
    server.think = server.keep_silent
    with pytest.raises(MindUnavailable, match="no answer in time"):
        mind_of(timeout_s=0.1).think(CONTEXT, [TOOL])
    assert all(exchange.lost for exchange in meter.exchanges)


def test_a_completion_by_a_schema_is_what_the_schema_says(server, mind):
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    server.think = lambda request: request.answer('{"n": 7}')
    assert json.loads(mind.complete("count", schema)) == {"n": 7}


ONLY = """
import os, sys
from hivemind.minds import open_mind
import pydantic_ai.direct
url, names = sys.argv[1], sys.argv[2:]
for name in names:
    if os.fork() == 0:
        mind = open_mind({name: {"model": "played", "url": url + {"openai": "/v1"}.get(name, "")}})
        mind.complete("hello")
        print(name, *(one for one in ("openai", "anthropic", "google.genai") if one in sys.modules), flush=True)
        os._exit(0)
for name in names:
    os.wait()
"""


def test_only_the_library_of_the_provider_that_is_named_is_imported(server, monkeypatch):
    for provider in PROVIDERS:
        monkeypatch.setenv(provider.key, "k")
    server.think = lambda request: request.answer("well")
    names = ["anthropic", "openai", "google"]  # Ollama is asked with OpenAI's library
    told = subprocess.run(
        [sys.executable, "-c", ONLY, server.root, *names], capture_output=True, text=True, check=True, timeout=200
    ).stdout
    assert sorted(told.splitlines()) == ["anthropic anthropic", "google google.genai", "openai openai"]
