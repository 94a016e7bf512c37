"""A server on loopback that plays the models of coding agents, each in its provider's streaming protocol.

`script` answers each request with a text or a call of a tool that the program offers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Asked", "Call", "Played", "played"]


@dataclass(frozen=True)
class Call:
    """A call of a tool with a name that ends with `tool`."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One request: the names of its tools, the texts of the conversation in order, and the results of calls among them."""

    tools: tuple[str, ...]
    said: tuple[str, ...]
    results: tuple[str, ...]
    body: dict[str, Any]

    @property
    def turn(self) -> int:
        """Return the number of results of calls."""
        return len(self.results)


Answer = str | Call
Script = Callable[[Asked], Answer]


class Played:
    """The server; `requests` are its requests so far, `root` its address."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Asked] = []
        self._mutex = threading.Lock()
        played = self

        class Web(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._say(b'{"object": "list", "data": [], "models": []}', "application/json")

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = json.loads(raw or b"{}")
                for place, speak in _PROTOCOLS:
                    if place in self.path:
                        events = speak(played, body, self.path)
                        kind = "text/event-stream" if isinstance(events, list) else "application/json"
                        text = "".join(events) if isinstance(events, list) else json.dumps(events)
                        self._say(text.encode(), kind)
                        return
                self._say(b"{}", "application/json")

            def _say(self, raw: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Web)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def answer(self, asked: Asked) -> tuple[str, str, dict[str, Any]]:
        """(text, full name of the tool or "", its arguments)."""
        with self._mutex:
            self.requests.append(asked)
            reply = self.script(asked)
        if isinstance(reply, str):
            return reply, "", {}
        name = next((tool for tool in asked.tools if tool == reply.tool or tool.endswith(f"_{reply.tool}")), "")
        return (f"No tool {reply.tool} among {asked.tools}.", "", {}) if not name else ("", name, reply.arguments)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def _sse(event: str | None, data: Any) -> str:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            _text(bit.get("text", bit.get("content", ""))) if isinstance(bit, dict) else str(bit) for bit in content
        )
    return json.dumps(content)


def _responses(played: Played, body: dict[str, Any], _: str) -> list[str]:
    """OpenAI's responses."""
    items = body.get("input", [])
    items = [{"type": "message", "role": "user", "content": items}] if isinstance(items, str) else items
    texts = [_text(item.get("content", "")) for item in items if item.get("type", "message") == "message"]
    results = [_text(item["output"]) for item in items if str(item.get("type", "")).endswith("_call_output")]
    spaces: dict[str, tuple[str | None, str]] = {}
    for spec in body.get("tools", []):
        if spec.get("type") == "namespace":
            for inner in spec.get("tools", []):
                spaces[f"{spec['name']}_{inner['name']}"] = (spec["name"], inner["name"])
        elif "name" in spec:
            spaces[spec["name"]] = (None, spec["name"])
    text, tool, arguments = played.answer(Asked(tuple(spaces), tuple(texts), tuple(results), body))
    turn = len(played.requests)
    if tool:
        space, name = spaces[tool]
        item: dict[str, Any] = {
            "type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}", "name": name,
            "arguments": json.dumps(arguments), "status": "completed",
        }  # fmt: skip
        if space is not None:
            item["namespace"] = space
    else:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed", "content": content}
    usage = {
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 110,
    }  # fmt: skip
    response = {"id": f"resp_{turn}", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [
        _sse(
            "response.created",
            {"type": "response.created", "response": {**response, "output": [], "status": "in_progress"}},
        ),
        _sse("response.output_item.added", {"type": "response.output_item.added", "output_index": 0, "item": item}),
        _sse("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}),
        _sse("response.completed", {"type": "response.completed", "response": response}),
    ]


def _messages(played: Played, body: dict[str, Any], path: str) -> list[str] | dict[str, Any]:
    """Anthropic's messages."""
    if "count_tokens" in path:
        return {"input_tokens": 100}
    texts, results = [], []
    for message in body["messages"]:
        content = message["content"]
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if part["type"] == "text":
                texts.append(part["text"])
            elif part["type"] == "tool_result":
                results.append(_text(part.get("content", "")))
    tools = tuple(tool["name"] for tool in body.get("tools", []))
    text, tool, arguments = played.answer(Asked(tools, tuple(texts), tuple(results), body))
    turn = len(played.requests)
    usage = {"input_tokens": 60, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 0, "output_tokens": 10}
    block = (
        {"type": "tool_use", "id": f"toolu_{turn}", "name": tool, "input": arguments}
        if tool
        else {"type": "text", "text": text}
    )
    reply = {
        "id": f"msg_{turn}", "type": "message", "role": "assistant", "model": body["model"], "content": [block],
        "stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    if not body.get("stream"):
        return reply
    empty = {**block, "input": {}} if tool else {"type": "text", "text": ""}
    delta = (
        {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        if tool
        else {"type": "text_delta", "text": text}
    )
    events = [
        {
            "type": "message_start",
            "message": {**reply, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reply["stop_reason"], "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]
    return [_sse(str(event["type"]), event) for event in events]


def _gemini(played: Played, body: dict[str, Any], path: str) -> list[str] | dict[str, Any]:
    """Google's generateContent."""
    if "countTokens" in path:
        return {"totalTokens": 100}
    texts, results = [], []
    for content in body.get("contents", []):
        for part in content.get("parts", []):
            if "text" in part:
                texts.append(part["text"])
            elif "functionResponse" in part:
                results.append(json.dumps(part["functionResponse"]["response"], ensure_ascii=False))
    tools = tuple(tool["name"] for group in body.get("tools", []) for tool in group.get("functionDeclarations", []))
    text, tool, arguments = played.answer(Asked(tools, tuple(texts), tuple(results), body))
    part = {"functionCall": {"name": tool, "args": arguments}} if tool else {"text": text}
    reply = {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": 100, "cachedContentTokenCount": 40, "candidatesTokenCount": 10, "totalTokenCount": 110,
        },
    }  # fmt: skip
    return [_sse(None, reply)] if "stream" in path else reply


def _chat(played: Played, body: dict[str, Any], _: str) -> list[str] | dict[str, Any]:
    """OpenAI's chat completions."""
    texts = [
        _text(msg.get("content") or "") for msg in body["messages"] if msg["role"] in ("user", "system", "assistant")
    ]
    results = [_text(msg["content"]) for msg in body["messages"] if msg["role"] == "tool"]
    tools = tuple(tool["function"]["name"] for tool in body.get("tools", []))
    text, tool, arguments = played.answer(Asked(tools, tuple(texts), tuple(results), body))
    turn = len(played.requests)
    call = {
        "index": 0,
        "id": f"call_{turn}",
        "type": "function",
        "function": {"name": tool, "arguments": json.dumps(arguments)},
    }
    message: dict[str, Any] = (
        {"role": "assistant", "content": None, "tool_calls": [call]} if tool else {"role": "assistant", "content": text}
    )
    end = "tool_calls" if tool else "stop"
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "total_tokens": 110,
        "prompt_tokens_details": {"cached_tokens": 40},
    }
    frame = {"id": f"chat_{turn}", "created": 1, "model": body["model"]}
    if not body.get("stream"):
        return {
            **frame,
            "object": "chat.completion",
            "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": end}],
        }
    chunk = {**frame, "object": "chat.completion.chunk"}
    return [
        _sse(None, {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}),
        _sse(None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}], "usage": usage}),
        _sse(None, "[DONE]"),
    ]


_PROTOCOLS = (
    ("/responses", _responses),
    ("/messages", _messages),
    ("/chat/completions", _chat),
    (":", _gemini),
)  # fmt: skip


@contextmanager
def played(script: Script):
    server = Played(script)
    try:
        yield server
    finally:
        server.close()
