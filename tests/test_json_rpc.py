"""JSON-RPC in lines: whatever the other side sends, each line has its own message, and a bad one harms no other."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.json_rpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    BadLine,
    JsonRpc,
    JsonRpcError,
    Notification,
    Request,
    Response,
)


def pair(max_line_bytes: int = 200) -> tuple[JsonRpc, list[bytes]]:
    sent: list[bytes] = []
    return JsonRpc(sent.append, max_line_bytes=max_line_bytes), sent


def test_two_ends_ask_and_answer_each_other():
    client, sent = pair()
    server, answers = pair()
    number = client.request("add", {"a": 1})
    client.notify("note", {"b": "é\n"})
    asked, note = [message for line in sent for message in server.feed(line)]
    assert asked == Request(number, "add", {"a": 1})
    assert note == Notification("note", {"b": "é\n"})
    assert isinstance(asked, Request)
    server.respond(asked, 2)
    assert [*client.feed(answers[0])] == [Response(number, "add", 2)]
    assert isinstance(next(client.feed(answers[0])), BadLine), "it was answered already"


def test_an_error_comes_with_its_code_and_data():
    client, sent = pair()
    server, answers = pair()
    client.request("nothing", {})
    [asked] = server.feed(sent[0])
    assert isinstance(asked, Request)
    server.refuse(asked, JsonRpcError(METHOD_NOT_FOUND, "there is no such method", {"known": []}))
    [response] = client.feed(answers[0])
    assert isinstance(response, Response)
    assert response.error is not None
    assert (response.error.code, str(response.error), response.error.data) == (
        METHOD_NOT_FOUND, "there is no such method", {"known": []},
    )  # fmt: skip


@given(st.lists(st.integers(1, 12), max_size=40))
def test_a_line_is_the_same_however_it_is_cut(cuts: list[int]):
    end, _ = pair()
    data = b"".join(json.dumps({"method": f"m{number}"}).encode() + b"\r\n" for number in range(3)) + b'{"method": "cut'
    messages = []
    for cut in [*cuts, len(data)]:
        messages += end.feed(data[:cut])
        data = data[cut:]
    assert messages == [Notification(f"m{number}", {}) for number in range(3)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"Loading model ...", "JSONDecodeError"),
        (b"{" * 100_000, "cannot be read"),
        (b"\xff\xfe", "JSONDecodeError"),
        (b'{"method": "m", "params": {"a": NaN}}', "NaN"),
        (b'{"method": "m", "params": {"a": ' + b"[" * 65 + b"]" * 65 + b"}}", "nested more than 64 deep"),
        (b"7", "no JSON object"),
        (b'{"id": true, "method": "m"}', "id is neither"),
        (b'{"id": {}, "result": 1}', "id is neither"),
        (b'{"id": 99, "result": 1}', "answers no request"),
        (b'{"id": null, "error": {"code": -32700}}', "answers no request"),
        (b"{}", "answers no request"),
    ],
)
def test_a_line_that_is_no_message_is_named_and_the_next_one_is_read(line: bytes, reason: str):
    end, _ = pair(1 << 20)
    bad, good = end.feed(line + b'\n\n{"method": "m", "params": [1]}\n')
    assert isinstance(bad, BadLine)
    assert reason in bad.reason
    assert good == Notification("m", {})


def test_half_a_character_becomes_a_question_mark():
    end, _ = pair()
    assert [*end.feed(b'{"method": "m", "params": {"a": "\\ud83d!"}}\n')] == [Notification("m", {"a": "?!"})]


def test_an_error_that_is_no_error_object_has_its_text():
    end, _ = pair()
    end.request("m", {})
    [response] = end.feed(b'{"id": 1, "error": "out of order"}\n')
    assert isinstance(response, Response)
    assert response.error is not None
    assert (response.error.code, response.error.message) == (INTERNAL_ERROR, "out of order")


def test_a_line_that_is_too_long_is_said_at_once_and_skipped_to_its_end():
    end, _ = pair(100)
    [bad] = end.feed(b"x" * 101)
    assert isinstance(bad, BadLine)
    assert bad.is_too_long
    assert [*end.feed(b"x" * 1000)] == []
    assert [*end.feed(b'x\n{"method": "m"}\n')] == [Notification("m", {})]
    too_long, good = end.feed(b"x" * 101 + b'\n{"method": "m"}\n')
    assert isinstance(too_long, BadLine)
    assert too_long.is_too_long
    assert good == Notification("m", {})
