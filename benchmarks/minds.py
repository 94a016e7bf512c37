"""The cost of a turn without its model's own time: a server on loopback that answers at once, asked in three ways.

A bare HTTP client sends the very same body; the mind sends it through its client library, its checks and its meter; a
whole turn of an agent senses, thinks, acts and keeps its conversation, which grows by a turn a round. Wall-clock
milliseconds, medians; interleaved.
Run with: python -m benchmarks.minds [--quick]
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.table import Row, show
from hivemind import Hive
from hivemind.agent.agent import Agent
from hivemind.minds import ChatMessage, Mind, ToolCall
from hivemind.minds.language import LanguageMind, model_config
from hivemind.presence.identity import journal_start
from hivemind.testing.mind import example_turn
from tests.minds.server import ModelServer, Request, model_server

__all__ = ["run"]


def run(quick: bool = False) -> list[Row]:
    """The rows of this topic."""
    rounds = 3 if quick else 100
    with model_server(_note) as server, tempfile.TemporaryDirectory() as folder:
        agent = _agent(Path(folder) / "hive", server)
        client_mind = LanguageMind(model_config("openai-compatible", {"url": server.url, "model": "played"}))
        agent.cycle()  # everything imported, the connections open
        client_mind.complete("hello")
        bare, mind, turn = [], [], []
        for _ in range(rounds):
            turn.append(_ms(agent.cycle))
            body = _last_thought(server)
            bare.append(_ms(partial(_post, server, json.dumps(body))))
            mind.append(_ms(_asking(client_mind, body)))
        client_mind.close()
        agent.close()
    return [
        Row("bare HTTP client, the same request", median(bare), "ms"),
        Row("a mind's think: messages, client library, checks", median(mind), "ms", "bare client", median(bare)),
        Row("a whole turn: sense, think, act, tidy (relaxed)", median(turn), "ms", "bare client", median(bare)),
    ]


def _note(request: Request) -> None:
    """Answer at once, with one small thing to do."""
    if "response_format" in request.body:
        request.answer('{"add_nodes": []}')
    else:
        message_count = len(request.body["messages"])  # the same call again and again would have a person asked
        request.answer("so", [("note_step", {"text": f"seen after {message_count}"})])


def _agent(root: Path, server: ModelServer) -> Agent:
    hive = Hive.init(root)
    (root / "hive.yaml").write_text("durability: relaxed\nsettle_ms: 0\n")
    for path in (root / "agents").glob("*.yaml"):
        path.unlink()
    mind = {"openai-compatible": {"url": server.url, "model": "played"}}
    (root / "agents/one.yaml").write_text(json.dumps({"mind": mind, "max_turns": 1_000}))
    (root / "tasks/inbox/t.md").write_text("---\nsteps:\n  - Think\n---\nThink")
    hive = Hive.open(root)
    agent = Agent(hive, "one", journal_start(hive.journal, "one", os.getpid()))
    agent.scheduler.active_tasks.resume()
    return agent


def _asking(mind: Mind, body: Mapping[str, Any]) -> Callable[[], Any]:
    """Send the same request through a separate mind: with the messages and the tools that the agent sent."""
    turn = replace(example_turn(), messages=[_message(message) for message in body["messages"]])
    tools = [tool["function"] for tool in body["tools"]]
    return lambda: mind.think(turn, tools)


def _message(fields: Mapping[str, Any]) -> ChatMessage:
    calls = [
        ToolCall(call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"])
        for call in fields.get("tool_calls", ())
    ]
    return ChatMessage(fields["role"], fields["content"] or "", tuple(calls), call_id=fields.get("tool_call_id"))


def _last_thought(server: ModelServer) -> dict[str, Any]:
    return next(body for body in reversed(server.requests) if "tools" in body)


def _post(server: ModelServer, body: str) -> None:
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port)
    connection.request("POST", f"{place.path}/chat/completions", body, {"Content-Type": "application/json"})
    connection.getresponse().read()
    connection.close()


def _ms(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1_000


if __name__ == "__main__":
    show("Minds", run(quick="--quick" in sys.argv))
