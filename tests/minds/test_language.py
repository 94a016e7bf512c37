from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hivemind.masking import MASK, mask
from hivemind.minds import ChatMessage, ContextTooLong, MindError, MindUnavailable, Prices, Usage, open_mind
from hivemind.minds.language import ModelConfig
from hivemind.minds.language.answer import AnswerRefused
from hivemind.reasoning.node import EpisodePatches
from tests.minds.asking import OPENING, TOOL, exchanged, note, turn
from tests.minds.server import Request, model_server

pytestmark = pytest.mark.usefixtures("language_models")

KEY = "sk-test-4711"


@pytest.fixture
def mind_of(server, clock, meter, monkeypatch):
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)
    opened = []

    def make(**more):
        prices = more.pop("prices", None)
        told = {"url": server.url, "model": "played", "key_env": "TEST_MODEL_KEY", **more}
        mind = open_mind({"openai-compatible": told}, patience=clock.patience())
        mind.meter, mind.prices = meter, prices
        opened.append(mind)
        return mind

    yield make
    for mind in opened:
        mind.close()


@pytest.fixture
def mind(mind_of):
    return mind_of()


def test_a_turn_becomes_messages_and_the_answers_calls_become_actions(server, mind):
    server.think = lambda request: request.answer("so", [("note", {"text": "a"}), ("note", {"text": "b", "times": 2})])
    thought = mind.think(turn(), [TOOL])
    assert [(one.tool, dict(one.arguments)) for one in thought.actions] == [
        ("note", {"text": "a"}),
        ("note", {"text": "b", "times": 2}),
    ]
    assert thought.text == "so"
    (body,) = server.requests
    assert body["messages"] == [{"role": one.role, "content": one.text} for one in OPENING]
    assert body["tools"][0]["function"]["name"] == "note"
    assert body["max_tokens"] == 16_000
    assert server.keys == {KEY}


def test_the_key_is_masked_whatever_its_variable_is_called(server, mind_of, monkeypatch):
    key = "PlainLooking-4711"
    monkeypatch.setenv("MODEL_LOGIN", key)
    assert mask(key) == key
    mind_of(key_env="MODEL_LOGIN")
    assert mask(f"my key is {key}") == f"my key is {MASK}"


def test_what_is_reported_is_counted_and_priced(server, mind_of, meter):
    server.think = note
    thought = mind_of(prices=Prices(2, 10)).think(turn(), [TOOL])
    assert (thought.usage.tokens_in, thought.usage.tokens_out) == (server.tokens_in, server.tokens_out)
    assert thought.usage.money == pytest.approx((2 * server.tokens_in + 10 * server.tokens_out) / 1e6)
    assert thought.usage.unpriced == 0
    (exchange,) = meter.exchanges
    assert exchange.usage == thought.usage
    assert len(meter.asked[0].sha256) == 64


def test_a_published_price_is_that_of_the_usage_with_what_a_cache_had_or_was_given(monkeypatch):
    from hivemind.minds.language.connection import published_prices

    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    prices = published_prices(ModelConfig(provider="anthropic", model="claude-sonnet-4-5"))
    plain, read, written = (Usage(1_000, 100), Usage(1_000, 100, cached=900), Usage(1_000, 100, written=900))
    assert 0 < prices.price_of(read) < prices.price_of(plain) < prices.price_of(written)
    assert published_prices(ModelConfig(provider="anthropic", model="no-such-model")) is None


def test_a_price_that_nobody_knows_is_said_to_be_unknown(server, mind):
    server.think = note
    usage = mind.think(turn(), [TOOL]).usage
    assert usage.unpriced == usage.tokens > 0
    assert usage.money == 0


def test_a_long_wait_is_left_to_the_agent_with_its_length(server, mind, clock):
    server.orders.append(lambda request: request.error(429, "slow down", Retry_After="3600"))
    with pytest.raises(MindUnavailable, match="asked too often") as caught:
        mind.think(turn(), [TOOL])
    assert caught.value.after_s == 3600
    assert clock.slept == []


@pytest.mark.parametrize("statuses", [(500, 503), (408, 425)], ids=["its own", "of a proxy before it"])
def test_trouble_of_the_server_is_asked_through(server, mind, clock, statuses):
    server.orders += [lambda request, status=status: request.error(status, "oops") for status in statuses]
    server.think = note
    assert mind.think(turn(), [TOOL]).actions
    assert len(clock.slept) == 2


def test_trouble_that_goes_on_ends_as_unavailable(server, mind, clock, meter):
    server.down = True
    with pytest.raises(MindUnavailable, match=r"trouble: .*down for repairs"):
        mind.think(turn(), [TOOL])
    assert len(server.requests) == len(meter.exchanges) == 5
    assert not any(exchange.lost for exchange in meter.exchanges)


def test_a_server_that_is_not_there_costs_nothing_and_is_unavailable(mind_of, meter):
    with pytest.raises(MindUnavailable, match="no connection"):
        mind_of(url="http://127.0.0.1:1/v1").think(turn(), [TOOL])
    assert not any(exchange.lost for exchange in meter.exchanges)


@pytest.mark.parametrize("arguments", ['{"text": "cut o', "[1, 2]", "nonsense"], ids=["truncated", "a list", "no JSON"])
def test_arguments_that_cannot_be_read_are_kept_as_they_came_and_go_back_readable(server, mind, arguments):
    server.orders.append(lambda request: request.answer("so", [("note", arguments)], thinking="hm"))
    thought = mind.think(turn(), [TOOL])
    (action,) = thought.actions
    assert (action.tool, dict(action.arguments), action.raw) == ("note", {}, arguments)
    mind.think(turn(*exchanged(thought, "failed: its arguments are no JSON object", ok=False)), [TOOL])
    (sent,) = server.requests[1]["messages"][2]["tool_calls"]
    assert json.loads(sent["function"]["arguments"]) == {"unreadable": arguments}


@pytest.mark.parametrize(
    ("arguments", "read"),
    [("", {}), ('{"texte": "x"}', {"texte": "x"}), (json.dumps('{"text": "x"}'), {"text": "x"}), ('{"text": 3}', {"text": 3})],
    ids=["none", "unknown key", "JSON in a string", "wrong type"],
)  # fmt: skip
def test_arguments_that_can_be_read_are_left_to_the_tool(server, mind, arguments, read):
    server.think = lambda request: request.answer(None, [("note", arguments)])
    (action,) = mind.think(turn(), [TOOL]).actions
    assert (dict(action.arguments), action.raw) == (read, None)
    assert len(server.requests) == 1


DEEP = "[" * 50_000 + "]" * 50_000
HALF = chr(0xD800)


@pytest.mark.parametrize(
    "answer",
    [
        (DEEP, None),
        (HALF, None),
        (None, [("note", f'{{"text": {DEEP}}}')]),
        (None, [("note", '{"text": ' + "[" * 100 + "]" * 100 + "}")]),
        (None, [("note", r'{"text": "\ud800"}')]),
        (None, [("note", f'{{"text": "{HALF}"}}')]),
        (None, [("note", f'{{"text": "x", "times": {"9" * 5000}}}')]),
        (None, [(f"note{HALF}", {})]),
    ],
    ids=[
        "deep",
        "half",
        "deep in a call",
        "too deep for a tool",
        "half in a call",
        "half as it stands",
        "digits",
        "name",
    ],
)
def test_json_that_no_log_can_hold_gets_into_no_thought(server, mind, meter, answer):
    server.think = lambda request: request.answer(*answer)
    thought = mind.think(turn(), [TOOL])
    for one in (*meter.exchanges[0].answer.values(), thought.text, *(action.as_record() for action in thought.actions)):
        json.dumps(one, ensure_ascii=False, allow_nan=False).encode()
    assert all(action.raw is not None or action.tool == "note?" for action in thought.actions)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_json_does_not_have_gets_into_no_action(server, mind, number):
    given = f'{{"text": "x", "times": {number}}}'
    server.think = lambda request: request.answer(None, [("note", given)])
    (action,) = mind.think(turn(), [TOOL]).actions
    assert (dict(action.arguments), action.raw) == ({}, given)


def test_an_error_in_half_characters_can_be_told(server, mind):
    server.think = lambda request: request.error(400, f"bad {HALF}")
    with pytest.raises(MindError) as found:
        mind.think(turn(), [TOOL])
    str(found.value).encode()


def test_a_tool_that_there_is_not_is_left_to_the_runtime(server, mind):
    server.think = lambda request: request.answer(None, [("teleport", {})])
    assert [action.tool for action in mind.think(turn(), [TOOL]).actions] == ["teleport"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"text": "t", "calls": [{"tool": "note", "arguments": {"text": "seen"}}]}',
        'Sure!\n```json\n{"calls": [{"tool": "note", "arguments": {"text": "seen"}}]}\n```\nDone.',
        'I [will] do: {"tool": "note", "arguments": {"text": "seen"}} now',
        '```\n[{"tool": "note", "arguments": {"text": "seen"}}]',
    ],
    ids=["plain", "fenced", "among words", "open fence"],
)
def test_calls_that_are_written_down_instead_of_made_are_understood(server, mind, text):
    server.think = lambda request: request.answer(text)
    (action,) = mind.think(turn(), [TOOL]).actions
    assert (action.tool, dict(action.arguments)) == ("note", {"text": "seen"})
    assert len(server.requests) == 1


def test_a_call_that_was_written_down_beside_thinking_goes_back_as_a_call(server, mind):
    text = '{"tool": "note", "arguments": {"text": "seen"}}'
    server.orders.append(lambda request: request.answer(text, thinking="hm"))
    thought = mind.think(turn(), [TOOL])
    named = replace(thought, actions=(replace(thought.actions[0], id="call_3_0"),))
    mind.think(turn(*exchanged(named, "noted")), [TOOL])
    _, _, said, answered = server.requests[1]["messages"]
    assert [one["id"] for one in said["tool_calls"]] == [answered["tool_call_id"]] == ["call_3_0"]


@pytest.mark.parametrize(
    "text",
    [
        "Just words, and a {brace}.",
        '{"calls": [{"tool": "note", "arguments": {"text": "do not"}}, {"tool": "no',
        '{"calls": []}',
        '{"name": "app", "tool": {"ruff": {}}}',
        "",
    ],
    ids=["words", "half an order", "no calls", "JSON of something else", "nothing"],
)
def test_a_text_without_a_whole_call_is_only_a_text(server, mind, text):
    server.think = lambda request: request.answer(text)
    thought = mind.think(turn(), [TOOL])
    assert (thought.text, thought.actions, thought.cut) == (text, (), False)
    assert len(server.requests) == 1


def test_an_answer_that_ends_at_its_bound_keeps_its_text_and_drops_its_calls(server, mind_of):
    server.think = lambda request: request.answer("so", [("note", {"text": "half"})], finish="length", thinking="hm")
    thought = mind_of(max_output=100).think(turn(), [TOOL])
    assert (thought.text, thought.actions, thought.cut, thought.provider) == ("so", (), True, None)
    assert server.requests[0]["max_tokens"] == 100


@pytest.mark.parametrize("cause", ["turn", "correction", "continuation", "mail", "fold", "patch"])
def test_each_request_names_its_cause(server, mind, meter, cause):
    if cause in ("fold", "patch"):
        server.think = lambda request: request.answer('{"episodes": []}')
        mind.complete("sum up", EpisodePatches.model_json_schema() if cause == "patch" else None)
    else:
        asked = turn(ChatMessage("assistant", "Well."), ChatMessage("user", "Go on.", news={"cause": cause}))
        if cause == "turn":
            asked = turn()
        elif cause == "mail":
            asked = replace(turn(), focus=replace(asked.focus, kind="message"))
        mind.think(asked, [TOOL])
    assert [one.cause for one in meter.asked] == [cause]


def test_what_is_counted_of_a_request_begins_with_what_was_counted_before(server, mind, meter):
    thought = mind.think(turn(), [TOOL])
    mind.think(turn(*exchanged(thought, "noted")), [TOOL])
    first, second = (one.parts for one in meter.asked)
    assert second[: len(first) - 1] == first[:-1]
    assert second[-1] == first[-1]  # the tools
    assert any("noted" in part for part in second)


@pytest.mark.parametrize("told", [{"effort": "high"}, {"thinking": "high"}])
def test_effort_and_thinking_are_two_names_of_one_setting(monkeypatch, server, told):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    mind = open_mind({"openai": {"model": "gpt-5", "url": server.url, "seed": 7, **told}})
    try:
        mind.think(turn(), [TOOL])
    finally:
        mind.close()
    assert [(body["reasoning_effort"], body["seed"]) for body in server.requests] == [("high", 7)]


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (1000 in the messages, "
        "4000 in the completion).",
        "the request exceeds the available context size",
        "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000",
        "'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request "
        "has 1000 input tokens",
    ],
)
def test_other_servers_words_for_a_context_that_is_too_long_are_known(server, mind, said):
    server.think = lambda request: request.error(400, said)
    with pytest.raises(ContextTooLong):
        mind.think(turn(), [TOOL])


@pytest.mark.parametrize("usage", [True, False], ids=["reported", "not reported"])
def test_a_refusal_is_charged_for(server, mind, meter, usage):
    server.think = lambda request: request.answer("No.", finish="content_filter", usage=usage)
    with pytest.raises(AnswerRefused):
        mind.think(turn(), [TOOL])
    (told,) = meter.exchanges
    assert told.lost
    assert (told.usage.tokens_in, told.usage.tokens_out) == (server.tokens_in, server.tokens_out)


def test_a_report_that_can_be_none_is_one_that_is_missing(server, mind, meter):
    def answer(request: Request) -> None:
        whole = json.loads(request.completion(None, [("note", {"text": "seen"})]))
        whole["usage"]["prompt_tokens"] = 2**60
        request.send(200, json.dumps(whole))

    server.think = answer
    assert mind.think(turn(), [TOOL]).actions
    assert meter.exchanges[0].usage.tokens_in == 0  # so that it is estimated


PAGE = "<!doctype html><html><body><h1>Maintenance</h1></body></html>"


def test_a_page_of_a_proxy_is_no_answer(server, mind):
    server.think = lambda request: request.send(502, PAGE, "text/html")
    with pytest.raises(MindUnavailable):
        mind.think(turn(), [TOOL])


CHOOSES_NONE = '{"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}'


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (PAGE, "JSON"), ("", "JSON"), ('{"id": "x", "choi', "Unterminated"), ("[]", "expected JSON data"),
        ('{"error": {"message": "overloaded"}}', "missing or wrong in it: id, choices"),
        (CHOOSES_NONE, "its list of choices is empty"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_of_a_model_is_not_asked_for_again_at_once(server, mind, meter, body, why):
    """It was asked for five times, and five times the whole prompt was counted."""
    server.think = lambda request: request.send(200, body)
    with pytest.raises(MindUnavailable, match=rf"not an answer of a model: .*{why}.*; check that url: and model:"):
        mind.think(turn(), [TOOL])
    assert len(server.requests) == 1
    assert meter.exchanges[0].lost


def test_a_redirect_is_not_followed(server, mind):
    with model_server(note) as elsewhere:
        server.think = lambda request: request.send(307, "", Location=f"{elsewhere.url}/chat/completions")
        with pytest.raises(MindUnavailable, match="redirect"):
            mind.think(turn(), [TOOL])
        assert elsewhere.requests == []


@pytest.mark.parametrize("status", [401, 403, 404, 402])
def test_what_only_a_person_can_mend_is_not_asked_again(server, mind, status):
    server.think = lambda request: request.error(status, f"no: {KEY}")
    with pytest.raises(MindUnavailable) as caught:
        mind.think(turn(), [TOOL])
    assert len(server.requests) == 1
    assert KEY not in str(caught.value)


def test_a_request_that_is_not_understood_is_an_error_of_the_mind(server, mind):
    server.think = lambda request: request.error(422, "unknown field")
    with pytest.raises(MindError, match="does not understand") as caught:
        mind.think(turn(), [TOOL])
    assert not isinstance(caught.value, MindUnavailable)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.mark.parametrize("bad", ["", "none", '{"n": "x"}', '{"n": 1', "```json\n[]\n```"])
def test_a_completion_by_a_schema_is_asked_for_until_it_fits(server, mind, bad):
    server.orders.append(lambda request: request.answer(bad))
    server.think = lambda request: request.answer('```json\n{"n": 7}\n```')
    assert json.loads(mind.complete("count", SCHEMA)) == {"n": 7}
    assert server.requests[0]["response_format"]["type"] == "json_schema"
    assert len(server.requests) == 2


def test_a_completion_that_never_fits_is_an_error_of_the_mind_and_every_try_is_counted(server, mind, meter):
    server.think = lambda request: request.answer("")
    with pytest.raises(MindError, match="no answer of openai-compatible:played could be used: the answer was empty"):
        mind.complete("sum up")
    assert len(server.requests) == len(meter.exchanges) == 4
    assert sum(one.usage.tokens_out for one in meter.exchanges) == server.tokens_out


def test_a_completion_that_was_cut_off_is_asked_for_again(server, mind):
    server.orders.append(lambda request: request.answer("half of", finish="length"))
    server.think = lambda request: request.answer("whole")
    assert mind.complete("sum up") == "whole"
    assert "cut off after 16000 tokens" in server.requests[1]["messages"][-1]["content"]


def test_a_server_without_json_by_schema_is_asked_in_words(server, mind):
    def answer(request: Request) -> None:
        if "response_format" in request.body:
            request.error(400, "response_format is not supported")
        else:
            request.answer('{"n": 1}')

    server.think = answer
    assert json.loads(mind.complete("count", SCHEMA)) == {"n": 1}
    assert json.loads(mind.complete("count", SCHEMA)) == {"n": 1}
    assert len(server.requests) == 3


def test_a_plain_completion_is_the_text_as_it_stands(server, mind):
    server.think = lambda request: request.answer("A summary.")
    assert mind.complete("sum up") == "A summary."


def test_a_model_that_can_call_no_tools_is_told_of_them_in_words_and_reads_results_as_texts(server, mind_of):
    text = '{"text": "t", "calls": [{"tool": "note", "arguments": {"text": "x"}}]}'
    server.think = lambda request: request.answer(text)
    mind = mind_of(tools="prompted")
    thought = mind.think(turn(), [TOOL])
    assert [(one.tool, dict(one.arguments)) for one in thought.actions] == [("note", {"text": "x"})]
    named = replace(thought, actions=(replace(thought.actions[0], id="call_3_0"),))
    mind.think(turn(*exchanged(named, "noted")), [TOOL])
    first, second = server.requests
    assert "tools" not in first
    assert "tool_calls" not in json.dumps(second)
    assert "Write a note." in first["messages"][0]["content"]
    assert second["messages"][:2] == first["messages"]
    assert [one["content"] for one in second["messages"][2:]] == [text, "Result of note: noted"]


def test_what_the_meter_raises_stops_a_request_before_it_is_sent(server, mind_of):
    def full(asked):
        raise RuntimeError("the budget is used up")

    mind = mind_of()
    mind.meter = full
    with pytest.raises(RuntimeError, match="budget"):
        mind.think(turn(), [TOOL])
    assert server.requests == []
