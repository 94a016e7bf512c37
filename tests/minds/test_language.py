from __future__ import annotations

import json

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("openai")

from hivemind.masking import MASK, mask
from hivemind.minds import ContextTooLong, MindError, MindUnavailable, Prices, open_mind
from hivemind.minds.language.errors import Refused
from tests.minds.asking import CONTEXT, TOOL, note
from tests.minds.server import Request, model_server

KEY = "sk-test-4711"


@pytest.fixture
def mind_of(server, clock, meter, monkeypatch):
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)
    opened = []

    def make(**more):
        prices = more.pop("prices", None)
        told = {"url": server.url, "model": "played", "key_env": "TEST_MODEL_KEY", **more}
        mind = open_mind({"openai-compatible": told}, patience=clock.patience(), meter=meter, prices=prices)
        opened.append(mind)
        return mind

    yield make
    for mind in opened:
        mind.close()


@pytest.fixture
def mind(mind_of):
    return mind_of()


def test_a_context_becomes_messages_and_the_answers_calls_become_actions(server, mind):
    server.think = lambda request: request.answer("so", [("note", {"text": "a"}), ("note", {"text": "b", "times": 2})])
    thought = mind.think(turn(), [TOOL])
    assert [(one.tool, dict(one.arguments)) for one in thought.actions] == [
        ("note", {"text": "a"}),
        ("note", {"text": "b", "times": 2}),
    ]
    assert thought.text == "so"
    (body,) = server.requests
    system, user = body["messages"]
    assert system["role"] == "system"
    assert "Be brief." in system["content"]
    assert "Be brief." not in user["content"]
    lines = [json.loads(line) for line in user["content"].split("\n")]
    assert [line["id"] for line in lines] == ["capsule", "task:t", "message:m"]
    assert [line.get("data", False) for line in lines] == [False, False, True]
    assert body["tools"][0]["function"]["name"] == "note"
    assert body["max_tokens"] == 4096
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
    assert exchange.asked is meter.asked[0]
    assert len(exchange.asked.sha256) == 64


def test_a_price_that_nobody_knows_is_said_to_be_unknown(server, mind):
    server.think = note
    usage = mind.think(turn(), [TOOL]).usage
    assert usage.unpriced == usage.tokens > 0
    assert usage.money == 0


def test_a_limit_of_requests_is_waited_for_as_long_as_it_says(server, mind, clock):
    server.orders.append(lambda request: request.error(429, "slow down", Retry_After="7"))
    server.think = note
    assert mind.think(turn(), [TOOL]).actions
    assert clock.slept == [7.5]


def test_a_limit_of_requests_that_says_nothing_is_met_with_growing_pauses(server, mind, clock):
    server.orders += [lambda request: request.error(429, "slow down")] * 3
    server.think = note
    assert mind.think(turn(), [TOOL]).actions
    assert clock.slept == [1.0, 2.0, 4.0]


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


def test_a_connection_that_is_cut_in_the_middle_is_asked_again_and_the_loss_is_told(server, mind, meter):
    server.orders.append(Request.cut)
    server.think = note
    assert mind.think(turn(), [TOOL]).actions
    assert [exchange.lost for exchange in meter.exchanges] == [True, False]


def test_a_server_that_is_not_there_costs_nothing_and_is_unavailable(mind_of, meter):
    with pytest.raises(MindUnavailable, match="no connection"):
        mind_of(url="http://127.0.0.1:1/v1").think(turn(), [TOOL])
    assert not any(exchange.lost for exchange in meter.exchanges)


def test_silence_ends_when_its_time_is_up(server, mind_of, meter):
    server.think = server.keep_silent
    with pytest.raises(MindUnavailable, match="no answer in time"):
        mind_of(timeout_s=0.2).think(turn(), [TOOL])
    assert all(exchange.lost for exchange in meter.exchanges)


@pytest.mark.parametrize(
    "arguments",
    ['{"text": "cut o', "", '{"texte": "x"}', '{"text": 3}', "[1, 2]", "nonsense"],
    ids=["truncated", "none", "unknown key", "wrong type", "a list", "no JSON"],
)
def test_bad_arguments_go_back_with_the_reason(server, mind, arguments):
    server.orders.append(lambda request: request.answer(None, [("note", arguments)]))
    server.think = note
    assert dict(mind.think(turn(), [TOOL]).actions[0].arguments) == {"text": "seen"}
    told = server.requests[1]["messages"]
    assert [one["role"] for one in told] == ["system", "user", "assistant", "tool"]
    assert "note" in told[-1]["content"]


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
def test_json_that_no_log_can_hold_goes_back_like_any_other_fault(server, mind, meter, answer):
    server.orders.append(lambda request: request.answer(*answer))
    server.think = note
    assert dict(mind.think(turn(), [TOOL]).actions[0].arguments) == {"text": "seen"}
    assert len(server.requests) == 2
    for one in meter.exchanges:
        json.dumps(one.answer, ensure_ascii=False).encode()


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_json_does_not_have_gets_into_no_action(server, mind, number):
    server.think = lambda request: request.answer(None, [("note", f'{{"text": "x", "times": {number}}}')])
    with pytest.raises(MindError, match="none that JSON has"):
        mind.think(turn(), [TOOL])


def test_an_error_in_half_characters_can_be_told(server, mind):
    server.think = lambda request: request.error(400, f"bad {HALF}")
    with pytest.raises(MindError) as found:
        mind.think(turn(), [TOOL])
    str(found.value).encode()


def test_a_wrong_tool_goes_back_three_times_and_then_the_runtime_refuses_it(server, mind):
    server.think = lambda request: request.answer(None, [("teleport", {})])
    thought = mind.think(turn(), [TOOL])
    assert [action.tool for action in thought.actions] == ["teleport"]
    assert len(server.requests) == 4
    assert "no tool 'teleport'; tools: note" in server.requests[1]["messages"][-1]["content"]


def test_the_usage_of_all_tries_adds_up(server, mind):
    server.orders += [lambda request: request.answer(None, [("teleport", {})])] * 2
    server.think = note
    usage = mind.think(turn(), [TOOL]).usage
    assert (usage.tokens_in, usage.tokens_out) == (server.tokens_in, server.tokens_out)


@pytest.mark.parametrize(
    "text",
    [
        '{"text": "t", "actions": [{"tool": "note", "arguments": {"text": "seen"}}]}',
        'Sure!\n```json\n{"actions": [{"tool": "note", "arguments": {"text": "seen"}}]}\n```\nDone.',
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


def test_half_an_order_is_no_order(server, mind):
    cut = '{"actions": [{"tool": "note", "arguments": {"text": "do not"}}, {"tool": "no'
    server.orders.append(lambda request: request.answer(cut))
    server.think = note
    assert dict(mind.think(turn(), [TOOL]).actions[0].arguments) == {"text": "seen"}
    assert "cut off" in server.requests[1]["messages"][-1]["content"]


def test_an_answer_that_ends_at_its_bound_goes_back(server, mind_of):
    server.orders.append(lambda request: request.answer(None, [("note", {"text": "half"})], finish="length"))
    server.think = note
    assert dict(mind_of(max_output=100).think(turn(), [TOOL]).actions[0].arguments) == {"text": "seen"}
    assert "cut off after 100 tokens" in server.requests[1]["messages"][-1]["content"]


def test_ten_calls_at_once_keep_their_order(server, mind):
    server.think = lambda request: request.answer(None, [("note", {"text": str(at)}) for at in range(10)])
    assert [one.arguments["text"] for one in mind.think(turn(), [TOOL]).actions] == [str(at) for at in range(10)]


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


def test_a_refusal_is_the_minds_last_word(server, mind):
    server.think = lambda request: request.answer("I can't help with that.", finish="content_filter")
    with pytest.raises(Refused):
        mind.think(turn(), [TOOL])
    assert len(server.requests) == 1


@pytest.mark.parametrize("usage", [True, False], ids=["reported", "not reported"])
def test_a_refusal_is_charged_for(server, mind, meter, usage):
    server.think = lambda request: request.answer("No.", finish="content_filter", usage=usage)
    with pytest.raises(Refused):
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


def test_empty_answers_end_as_an_error_of_the_mind(server, mind):
    server.think = lambda request: request.answer("")
    with pytest.raises(MindError, match="no answer of openai-compatible:played could be used: the answer was empty"):
        mind.think(turn(), [TOOL])
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [200, 502], ids=["as an answer", "as an error"])
def test_a_page_of_a_proxy_is_no_answer(server, mind, status):
    page = "<!doctype html><html><body><h1>Maintenance</h1></body></html>"
    server.think = lambda request: request.send(status, page, "text/html")
    with pytest.raises(MindUnavailable):
        mind.think(turn(), [TOOL])


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


def test_a_model_that_can_call_no_tools_is_told_of_them_in_words(server, mind_of):
    server.think = lambda request: request.answer(
        '{"text": "t", "actions": [{"tool": "note", "arguments": {"text": "x"}}]}'
    )
    thought = mind_of(tools="prompted").think(turn(), [TOOL])
    assert thought.actions[0].tool == "note"
    (body,) = server.requests
    assert "tools" not in body
    assert "Write a note." in body["messages"][0]["content"]


def test_what_the_meter_raises_stops_a_request_before_it_is_sent(server, mind_of):
    class Full:
        def before(self, asked) -> None:
            raise RuntimeError("the budget is used up")

    mind = mind_of()
    mind.meter = Full()
    with pytest.raises(RuntimeError, match="budget"):
        mind.think(turn(), [TOOL])
    assert server.requests == []
