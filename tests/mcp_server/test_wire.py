"""What is no message, said to the real server through a raw pipe and over HTTP: answered, and the server lives on."""

from __future__ import annotations

import json
import subprocess

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp_types import JSONRPCError

from hivemind.fs.sockets import wait_for_input
from hivemind.mcp_server.wire import LIMIT_BYTES, InvalidMessage, read_message
from tests.mcp_server.conftest import LIMIT_S, greeting

PARSE, INVALID = -32700, -32600
PING = b'{"jsonrpc":"2.0","id":9,"method":"ping"}'
WRONG = {
    "no json at all": (b"no json", PARSE, None),
    "no UTF-8": (b"\xff\xfe", PARSE, None),
    "half a character": (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":"\xc3"}}', PARSE, None),
    "half a surrogate": (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":"\\ud800"}}', PARSE, None),
    "no number": (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":NaN}}', PARSE, None),
    "brackets without end": (b"[" * 100_000, PARSE, None),
    "900 levels": (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":' + b'{"a":' * 900 + b"1" + b"}" * 901, PARSE, None),
    "a batch": (b"[" + PING + b"]", INVALID, None),
    "a number": (b"3", INVALID, None),
    "another version": (b'{"jsonrpc":"1.0","id":9,"method":"ping"}', INVALID, 9),
    "no method": (b'{"jsonrpc":"2.0","id":"x"}', INVALID, "x"),
    "params as a list": (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":[1]}', INVALID, 9),
    "null for an id": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID, None),
    "half a number for an id": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID, None),
    "too long": (b'{"jsonrpc":"2.0","id":9,"method":"ping","x":"' + b"x" * LIMIT_BYTES + b'"}', INVALID, None),
}  # fmt: skip


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(b"\x00")
@example(b'{"jsonrpc":"2.0","id":true,"method":"ping"}')
def test_whatever_comes_is_a_message_or_an_error_with_a_code(raw):
    try:
        told = read_message(raw)
    except InvalidMessage as wrong:
        told = wrong.answer
    assert told.jsonrpc == "2.0"
    if isinstance(told, JSONRPCError) and told.id is None:
        assert told.error.code in (PARSE, INVALID)


def test_a_server_on_a_pipe_answers_what_is_no_message_and_lives_on(hive):
    process = hive.start("mcp", "--agent", "claude", text=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        told = [ask(process, raw) for raw, _, _ in WRONG.values()]  # before the handshake as well as after it
        assert ask(process, greeting().encode())["result"]["serverInfo"]["name"] == "hivemind"
        again = [ask(process, raw) for raw, _, _ in WRONG.values()]
        for answers in (told, again):
            for what, answer, (_, code, id_) in zip(WRONG, answers, WRONG.values(), strict=True):
                assert (answer["error"]["code"], answer["id"]) == (code, id_), what
        process.stdin.write(b"\n\r\n")  # blank lines are nothing
        assert ask(process, PING + b"\r") == {"jsonrpc": "2.0", "id": 9, "result": {}}
        process.stdin.write(PING)  # torn: whoever wrote it died over it
        out, _ = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, out) == (0, b"")
    finally:
        process.kill()
        process.wait(LIMIT_S)


def ask(process: subprocess.Popen, line: bytes) -> dict:
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    answer = b""
    while not answer.endswith(b"\n"):
        assert wait_for_input([process.stdout], LIMIT_S), "no answer"
        piece = process.stdout.read1()
        assert piece, "the server has ended"
        answer += piece
    return json.loads(answer)


def test_over_http_what_is_no_message_is_refused_in_json_and_opens_no_session(listening):
    process, address, path = listening
    headers = {
        "Authorization": f"Bearer {path.read_text().strip()}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    with httpx.Client(headers=headers, timeout=LIMIT_S) as client:
        for version in ({}, {"MCP-Protocol-Version": "2026-07-28"}):
            for what, (raw, code, id_) in WRONG.items():
                answer = client.post(address, content=raw, headers=version)
                assert answer.status_code == (413 if what == "too long" else 400), what
                told = answer.json()
                assert (told["error"]["code"], told["id"]) == (code, id_), what
                assert "mcp-session-id" not in answer.headers
        endless = client.post(address, content=(b"x" * 65_536 for _ in range(1000)))
        assert (endless.status_code, endless.json()["error"]["code"]) == (413, INVALID)
        assert client.post(address, content=greeting()).status_code == 200
    assert process.poll() is None


def test_it_ends_when_nobody_reads_its_answers_any_more(hive, served):
    served.stdout.close()
    with pytest.raises(BrokenPipeError):  # its end is seen by who goes on writing
        hive.until(lambda: served.stdin.write(greeting(2)) and served.stdin.flush())
    assert served.wait(LIMIT_S) == 0
    assert hive.lives("claude") == ["started", "exited"]


def test_a_client_that_does_not_read_keeps_it_neither_from_its_leases_nor_from_a_signal(hive, served):
    listed = json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}) + "\n"
    for _ in range(30):  # answers of 10 KB each: more than a pipe holds
        served.stdin.write(listed)
    served.stdin.flush()
    beat = hive.root / ".hive/agents/claude/heartbeat"
    before = beat.stat().st_mtime_ns if beat.exists() else 0
    hive.until(lambda: beat.exists() and beat.stat().st_mtime_ns > before)
    served.terminate()
    assert served.wait(LIMIT_S) == 0
    assert hive.lives("claude") == ["started", "exited"]
