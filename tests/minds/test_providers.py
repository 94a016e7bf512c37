"""Each provider is asked for real, in its own protocol, by one plan: a server on loopback plays the model."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from hivemind.masking import keep_secret
from hivemind.minds import ChatMessage, ContextTooLong, MindError, MindUnavailable, Prices, Thought, ToolCall, open_mind
from hivemind.minds.language.answer import AnswerRefused
from hivemind.minds.pictures import describe_picture
from tests.minds.asking import OPENING, TOOL, exchanged, note, turn
from tests.minds.dialects import AnthropicRequest, GeminiRequest, OllamaRequest
from tests.minds.request import Request

pytestmark = pytest.mark.usefixtures("language_models")


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


def without_marks(body):
    """A request without the marks that say up to where it is to be cached."""
    if isinstance(body, dict):
        return {key: without_marks(value) for key, value in body.items() if key != "cache_control"}
    return [without_marks(one) for one in body] if isinstance(body, list) else body


@pytest.fixture(params=PROVIDERS, ids=str)
def provider(request, server, monkeypatch):
    told: Provider = request.param
    monkeypatch.setenv(told.key, SECRET % told.name)
    monkeypatch.setenv(told.base, f"{server.root}{told.dialect.root}")
    return told


@pytest.fixture
def mind_of(provider, clock, meter, tmp_path):
    opened = []

    def make(**more):
        told = {provider.name: {"model": "played"} | more} if more else f"{provider.name}:played"
        mind = open_mind(told, root=tmp_path, patience=clock.patience())
        mind.meter, mind.prices = meter, Prices(2, 10)
        opened.append(mind)
        return mind

    yield make
    for mind in opened:
        mind.close()


@pytest.fixture
def mind(mind_of):
    return mind_of()


def test_a_provider_is_told_and_answers_in_its_own_protocol(server, provider, mind):
    seen = []
    server.orders.append(lambda request: (seen.append(request), note(request)))
    (action,) = mind.think(turn(), [TOOL]).actions
    assert (action.tool, dict(action.arguments)) == ("note", {"text": "seen"})
    (request,) = seen
    assert type(request) is provider.dialect
    assert "Be brief." in request.system
    assert request.conversation == [("user", OPENING[1].text)]
    assert request.tools == ["note"]
    assert request.bound == (16_000 if provider.name == "ollama" else 32_000)
    assert server.keys == {SECRET % provider.name}


def test_a_provider_is_asked_where_the_agents_file_says(server, provider, mind_of, monkeypatch):
    monkeypatch.setenv(provider.base, "http://127.0.0.1:1")
    assert mind_of(url=f"{server.root}{provider.dialect.root}").think(turn(), [TOOL]).actions


def test_a_conversation_is_told_in_the_providers_own_protocol(server, mind):
    calls = (ToolCall("note", {"text": "é"}, "call_1"), ToolCall("note", {"text": "b"}, "call_2"))
    seen = []
    server.think = lambda request: (seen.append(request), note(request))
    mind.think(turn(
        ChatMessage("assistant", "Two notes.", calls),
        ChatMessage("tool", "noted", call_id="call_1", ok=True),
        ChatMessage("tool", "failed: full", call_id="call_2", ok=False),
        ChatMessage("user", "A letter came.", news={"letter": "m1"}),
        ChatMessage("assistant", "Well."),
        ChatMessage("user", "No tool was called."),
    ), [TOOL])  # fmt: skip
    assert seen[0].conversation == [
        ("user", OPENING[1].text),
        ("assistant", "Two notes."), ("call", "note", {"text": "é"}), ("call", "note", {"text": "b"}),
        ("result", "call_1", "noted"), ("result", "call_2", "failed: full"),
        ("user", "A letter came."), ("assistant", "Well."), ("user", "No tool was called."),
    ]  # fmt: skip


PICTURE = b"\x89PNG\r\n\x1a\n" + b"a picture" * 9


def test_a_picture_is_sent_in_the_providers_own_protocol_as_long_as_it_is_what_it_was(server, mind_of, meter, tmp_path):
    mind = mind_of(pictures=True)
    path = tmp_path / "boat.dat"
    path.write_bytes(PICTURE)
    part = describe_picture(tmp_path, path)
    seen = []
    server.think = lambda request: (seen.append(json.dumps(request.body)), note(request))
    for content in (PICTURE, b"another", PICTURE):
        path.write_bytes(content)
        mind.think(turn(ChatMessage("user", "Look.", parts=(part,))), [TOOL])
    sent = base64.b64encode(PICTURE).decode()
    assert [sent in body or sent.translate({43: "-", 47: "_"}) in body for body in seen] == [True, False, True]
    assert ["image/png" in body for body in seen] == [True, False, True]
    assert "the picture boat.dat has changed" in seen[1]
    assert seen[0] == seen[2]
    assert [asked.pictures for asked in meter.asked] == [1, 1, 1]


def test_models_of_the_large_providers_take_pictures_and_others_where_their_config_says_so(provider, mind_of):
    assert mind_of().takes_pictures is (provider.name != "ollama")
    assert mind_of(pictures=True).takes_pictures
    assert not mind_of(pictures=False).takes_pictures


def test_each_request_begins_with_the_one_before_it_exactly(server, mind):
    seen = []
    notes = [("note", {"text": "a"}), ("note", {"text": "b"})]
    answers = [("so", notes), (None, notes[:1]), ("", None), ("Well.", None)]
    server.orders += [lambda request, answer=answer: request.answer(*answer, thinking="hm") for answer in answers]
    server.think = lambda request: (seen.append(request), note(request))
    said: list[ChatMessage] = []
    for text, calls in answers:
        thought = mind.think(turn(*said), [TOOL])
        said += exchanged(thought, *["noted"] * len(calls or ()))
        said += [] if text else [ChatMessage("user", "A file changed.", news={})]
    mind.think(turn(*said, ChatMessage("user", "Go on.")), [TOOL])
    bodies = [without_marks(body) for body in server.requests]
    assert len(bodies) == 5
    for before, after in itertools.pairwise(bodies):
        name = "contents" if "contents" in before else "messages"
        one, other = before.pop(name), [*after[name]]
        assert other[: len(one)] == one
        assert before == {key: value for key, value in after.items() if key != name}


def test_what_a_model_thought_goes_back_to_the_model_that_thought_it_and_to_no_other(server, mind, mind_of):
    server.orders.append(lambda request: request.answer("so", [("note", {"text": "a"})], thinking="I see a heron."))
    thought = mind.think(turn(), [TOOL])
    kept = json.loads(json.dumps(thought.provider))
    said = exchanged(replace(thought, provider=kept), "noted")
    seen = []
    server.think = lambda request: (seen.append(request), note(request))
    mind.think(turn(*said), [TOOL])
    mind_of(model="other").think(turn(*said), [TOOL])
    assert [request.thinking for request in seen] == [["I see a heron."], []]
    assert seen[0].conversation == seen[1].conversation
    assert "heron" not in json.dumps(seen[1].body)


def test_a_kept_answer_goes_back_with_the_ids_that_its_results_name(server, mind):
    """The server numbers its calls from 0 in every answer; in a conversation each has an id of its own."""
    server.orders.append(lambda request: request.answer(None, [("note", {"text": "a"})], thinking="hm"))
    thought = mind.think(turn(), [TOOL])
    renamed = replace(thought, actions=(replace(thought.actions[0], id="call_9_0"),))
    mind.think(turn(*exchanged(renamed, "noted")), [TOOL])
    assert json.dumps(server.requests[-1]).count('"call_9_0"') == 2


def test_thinking_with_a_secret_in_it_is_not_kept(server, mind, monkeypatch):
    monkeypatch.setenv("HERON_TOKEN", "heron-secret-0815")
    keep_secret("HERON_TOKEN")
    server.think = lambda request: request.answer("so", [("note", {"text": "a"})], thinking="It is heron-secret-0815.")
    assert mind.think(turn(), [TOOL]).provider is None


def test_a_tool_that_the_model_made_up_goes_back_under_a_name_that_providers_accept(server, mind):
    call = ToolCall("functions.note é", {"text": "a"}, "call_1")
    mind.think(turn(*exchanged(Thought("", (call,)), "failed: no such tool", ok=False)), [TOOL])
    assert "functions_note__" in json.dumps(server.requests[0])
    assert "functions.note" not in json.dumps(server.requests[0])


def test_what_is_asked_again_is_read_from_the_providers_cache(server, provider, mind):
    mind.think(turn(), [TOOL])
    (body,) = server.requests
    if provider.name == "anthropic":
        assert [where["cache_control"]["type"] for where in (body["system"][-1], body["tools"][-1], body)] == [
            "ephemeral"
        ] * 3
    else:
        assert without_marks(body) == body
        assert ("prompt_cache_key" in body) == (provider.name == "openai")


def test_cached_tokens_are_counted_and_priced_at_their_own_rate(server, mind, meter):
    server.think = lambda request: request.answer(None, [("note", {"text": "a"})], cached=40)
    usage = mind.think(turn(), [TOOL]).usage
    assert (usage.tokens_in, usage.tokens_out, usage.cached) == (server.tokens_in, server.tokens_out, 40)
    assert usage.money == pytest.approx((2 * (server.tokens_in - 40) + 0.2 * 40 + 10 * server.tokens_out) / 1e6)
    assert meter.exchanges[0].usage == usage


@pytest.mark.parametrize("provider", [one for one in PROVIDERS if one.name == "anthropic"], indirect=True)
def test_tokens_written_to_the_providers_cache_cost_a_quarter_more(server, mind):
    server.think = lambda request: request.send(
        200, request.completion(None, [("note", {"text": "a"})], cached=20, written=40)
    )
    usage = mind.think(turn(), [TOOL]).usage
    assert (usage.tokens_in, usage.cached, usage.written) == (server.tokens_in, 20, 40)
    each = 2 * (server.tokens_in - 60) + 0.2 * 20 + 2.5 * 40 + 10 * server.tokens_out
    assert usage.money == pytest.approx(each / 1e6)


def test_settings_of_the_model_are_passed_on(server, provider, mind_of):
    mind_of(temperature=0.25, top_p=0.5).think(turn(), [TOOL])
    (body,) = server.requests
    told = body.get("generationConfig", body)
    assert (told["temperature"], told.get("top_p", told.get("topP"))) == (0.25, 0.5)


def test_ten_calls_at_once_keep_their_order(server, mind):
    server.think = lambda request: request.answer(None, [("note", {"text": str(at)}) for at in range(10)])
    assert [one.arguments["text"] for one in mind.think(turn(), [TOOL]).actions] == [str(at) for at in range(10)]


def test_what_a_provider_reports_is_counted_and_priced(server, mind, meter):
    usage = mind.think(turn(), [TOOL]).usage
    assert (usage.tokens_in, usage.tokens_out) == (server.tokens_in, server.tokens_out)
    assert usage.money == pytest.approx((2 * server.tokens_in + 10 * server.tokens_out) / 1e6)
    assert usage.unpriced == 0
    assert meter.exchanges[0].usage == usage


def test_a_limit_of_requests_is_waited_for_as_long_as_the_provider_says(server, mind, clock):
    server.orders.append(lambda request: request.limited(7))
    assert mind.think(turn(), [TOOL]).actions
    assert clock.slept == [7.5]


def test_a_limit_of_requests_that_says_nothing_is_met_with_growing_pauses(server, mind, clock):
    server.orders += [lambda request: request.limited()] * 3
    assert mind.think(turn(), [TOOL]).actions
    assert clock.slept == [1.0, 2.0, 4.0]


def test_trouble_of_a_provider_is_asked_through_by_the_mind_alone(server, mind, clock):
    server.orders += [lambda request: request.troubled(), lambda request: request.error(500, "oops")]
    assert mind.think(turn(), [TOOL]).actions
    assert len(clock.slept) == 2
    assert len(server.requests) == 3  # the client libraries' own tries again are off


def test_a_wrong_key_is_said_once_and_without_the_key(server, provider, mind):
    server.think = lambda request: request.wrong_key()
    with pytest.raises(MindUnavailable, match="does not accept the key") as caught:
        mind.think(turn(), [TOOL])
    assert len(server.requests) == 1
    assert SECRET % provider.name not in str(caught.value)


@pytest.mark.parametrize("say", [lambda request: request.too_long(), lambda request: request.send(413, "", "text/plain")],
                         ids=["in its own words", "without words"])  # fmt: skip
def test_a_context_that_is_too_long_is_told_apart(server, mind, say):
    server.think = say
    with pytest.raises(ContextTooLong):
        mind.think(turn(), [TOOL])
    assert len(server.requests) == 1


def test_a_bound_that_is_too_high_is_no_context_that_is_too_long(server, mind):
    server.think = lambda request: request.bound_too_high()
    with pytest.raises(MindError) as caught:
        mind.think(turn(), [TOOL])
    assert not isinstance(caught.value, ContextTooLong | MindUnavailable)


def test_a_model_that_allows_shorter_answers_only_is_asked_for_those_from_then_on(server, provider, mind, meter):
    if provider.dialect is OllamaRequest:
        pytest.skip("it says no number")
    server.think = lambda request: request.answer("so") if request.bound <= 2048 else request.bound_too_high()
    assert [mind.think(turn(), [TOOL]).text for _ in range(2)] == ["so", "so"]
    assert [one.max_output for one in meter.asked][-2:] == [2048, 2048]
    assert len(server.requests) == 3


def test_a_refusal_is_the_last_word_and_is_charged_for(server, mind, meter):
    server.think = lambda request: request.refuse()
    with pytest.raises(AnswerRefused):
        mind.think(turn(), [TOOL])
    (told,) = meter.exchanges
    assert len(server.requests) == 1
    assert (told.usage.tokens_in, told.usage.tokens_out) == (server.tokens_in, server.tokens_out)


def test_an_answer_that_ends_at_its_bound_says_so_and_its_calls_are_not_made(server, mind_of):
    server.think = lambda request: request.answer("so", [("note", {"text": "half"})], finish="length")
    thought = mind_of(max_output=100).think(turn(), [TOOL])
    assert (thought.text, thought.actions, thought.cut) == ("so", (), True)
    assert thought.usage.tokens == server.tokens_in + server.tokens_out
    assert len(server.requests) == 1


def test_a_connection_that_is_cut_in_the_middle_is_asked_again_and_the_loss_is_told(server, mind, meter):
    server.orders.append(Request.cut)
    assert mind.think(turn(), [TOOL]).actions
    assert [exchange.lost for exchange in meter.exchanges] == [True, False]


def test_silence_ends_when_its_time_is_up(server, mind_of, meter):
    server.think = server.keep_silent
    with pytest.raises(MindUnavailable, match="no answer in time"):
        mind_of(timeout_s=0.1).think(turn(), [TOOL])
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
        libraries = [library for library in ("openai", "anthropic", "google.genai") if library in sys.modules]
        os.write(1, (" ".join([name, *libraries]) + "\\n").encode())  # one write: the three write at the same time
        os._exit(0)
for name in names:
    os.wait()
"""


def test_only_the_library_of_the_provider_that_is_named_is_imported(server, monkeypatch):
    for provider in PROVIDERS:
        monkeypatch.setenv(provider.key, "k")
    server.think = lambda request: request.answer("well")
    names = ["anthropic", "openai", "google"]  # Ollama is asked with OpenAI's library
    output = subprocess.run(
        [sys.executable, "-c", ONLY, server.root, *names], capture_output=True, text=True, check=True, timeout=200
    ).stdout
    assert sorted(output.splitlines()) == ["anthropic anthropic", "google google.genai", "openai openai"]
