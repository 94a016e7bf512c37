"""A client is answered before the SDK and the rooms are there, and with what they would answer."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

import hivemind
from hivemind.layout import Layout
from hivemind.mcp_server.greeting import Greeting, greet
from hivemind.mcp_server.serve import open_member
from hivemind.mcp_server.stdio import serve_pipe
from hivemind.tools import allowed_tools
from tests.mcp_server.conftest import LIMIT_S, greeting, run

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def asked(version: str, *more: dict) -> bytes:
    hello = json.loads(greeting())
    hello["params"]["protocolVersion"] = version
    told = (hello, {"jsonrpc": "2.0", "method": "notifications/initialized"}, *more)
    return b"".join(json.dumps(one).encode() + b"\n" for one in told)


def of_a_pipe(words: bytes = b"") -> tuple[int, int]:
    reading, writing = os.pipe()
    os.write(writing, words)
    return reading, writing


def all_of(reading: int, writing: int) -> list[dict]:
    os.close(writing)
    with open(reading, "rb") as file:
        return [json.loads(line) for line in file]


def greeted(hive, words: bytes) -> tuple[list[dict], Greeting]:
    """What a client is answered at once."""
    given, theirs = of_a_pipe(words)
    answers, ours = of_a_pipe()
    tools = allowed_tools(hivemind.Hive.look(hive.root).agent_files.get("claude"), "core").values()
    found = greet(given, ours, "claude", hive.root, lambda: [one.mcp_entry() for one in tools])
    os.close(given)
    os.close(theirs)
    return all_of(answers, ours), found


def test_the_first_answers_are_those_that_the_sdk_gives(hive):
    async def scenario():
        async with open_member(Layout.at(hive.root), "claude") as (_, server):
            for version in VERSIONS:
                given, theirs = of_a_pipe(asked(version, LIST))
                answers, ours = of_a_pipe()
                os.close(theirs)
                await serve_pipe(server, given, ours, Greeting())
                os.close(given)
                told, found = greeted(hive, asked(version, LIST))
                assert told == all_of(answers, ours)
                assert found.answered_ids == {1, 2}

    run(scenario)


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"no json\n",
        b"[" * 30_000 + b"\n",
        asked("1999-01-01"),
        asked("2025-06-18").replace(b'"id": 1', b'"id": null'),
        asked("2025-06-18").replace(b'"capabilities": {}', b'"capabilities": {"roots": 1}'),
        json.dumps(LIST).encode() + b"\n",
    ],
)
def test_what_is_no_handshake_is_left_to_the_server(hive, words):
    told, found = greeted(hive, words)
    assert (told, found.received, found.answered_ids) == ([], words, set())


def test_each_request_has_one_answer_and_torn_ones_go_on_where_they_were_torn(hive):
    process = hive.start("mcp", "--agent", "claude", text=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdin.write(asked("2025-06-18", LIST) + b'{"jsonrpc":"2.0","id":3,')
        process.stdin.flush()
        assert [json.loads(process.stdout.readline())["id"] for _ in range(2)] == [1, 2]
        process.stdin.write(b'"method":"ping"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"jsonrpc": "2.0", "id": 3, "result": {}}
        out, _ = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, out) == (0, b"")
    finally:
        process.kill()
        process.wait(LIMIT_S)
