"""One request to the server that plays a model, and the ways to answer it, in OpenAI's protocol."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from tests.minds.server import ModelServer


class Request:
    """One request, and the ways to answer it. What follows `# in its own words` differs from provider to provider."""

    root: ClassVar[str] = "/v1"
    """The path below the server's address for this protocol's clients."""

    thoughts: ClassVar[str] = "reasoning_content"
    """The key of a message's thoughts."""

    def __init__(self, web: BaseHTTPRequestHandler, server: ModelServer, body: dict[str, Any]) -> None:
        self.web, self.server, self.body = web, server, body
        self.headers = web.headers

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def user(self) -> str:
        """The first message of the user: the task."""
        return next(_text(msg) for msg in self.messages if msg["role"] == "user")

    @property
    def system(self) -> str:
        return next(_text(msg) for msg in self.messages if msg["role"] == "system")

    @property
    def conversation(self) -> list[tuple[Any, ...]]:
        """The conversation after the system message: (user | assistant, text), (call, tool, arguments), (result, id, text)."""
        rows: list[tuple[Any, ...]] = []
        for msg in self.messages:
            if msg["role"] == "tool":
                rows.append(("result", msg["tool_call_id"], _text(msg)))
            elif msg["role"] != "system":
                rows += [(msg["role"], text)] if (text := _text(msg)) else []
                calls = [call["function"] for call in msg.get("tool_calls", ())]
                rows += [("call", call["name"], json.loads(call["arguments"])) for call in calls]
        return rows

    @property
    def thinking(self) -> list[str]:
        """The thinking that came back with the answers that were sent along."""
        return [msg[self.thoughts] for msg in self.messages if self.thoughts in msg]

    @property
    def key(self) -> str:
        """The key in the request."""
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools", ())]

    @property
    def bound(self) -> int:
        """The most tokens of the answer."""
        return self.body.get("max_tokens") or self.body["max_completion_tokens"]

    @property
    def tokens_in(self) -> int:
        return len(json.dumps(self.body)) // 4

    def send(self, status: int, body: str | bytes, kind: str = "application/json", **headers: str) -> None:
        content = body.encode() if isinstance(body, str) else body
        self.web.send_response(status)
        self.web.send_header("Content-Type", kind)
        self.web.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.web.send_header(name.replace("_", "-"), value)
        self.web.end_headers()
        self.web.wfile.write(content)

    def error(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        self.send(status, json.dumps({"error": {"message": message, "code": code, "type": "error"}}), **headers)

    def answer(
        self,
        text: str | None = None,
        calls: list[tuple[str, Any]] | None = None,
        *,
        finish: str | None = None,
        tokens_out: int | None = None,
        usage: bool = True,
        cached: int = 0,
        thinking: str | None = None,
    ) -> None:
        """A completion; arguments that are a string are sent as they stand. `cached` of the tokens in came from a cache,
        `thinking` is what the model thought before, signed where the provider signs it."""
        self.send(200, self.completion(text, calls, finish, tokens_out, usage, cached, thinking))

    def completion(self, text, calls, finish=None, tokens_out=None, usage=True, cached=0, thinking=None) -> str:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thinking:
            message[self.thoughts] = thinking
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call-{at}",
                    "type": "function",
                    "function": {"name": tool, "arguments": args if isinstance(args, str) else json.dumps(args)},
                }
                for at, (tool, args) in enumerate(calls)
            ]
        out = tokens_out if tokens_out is not None else max(1, len(json.dumps(message)) // 4)
        finish = finish or ("tool_calls" if calls else "stop")
        reply: dict[str, Any] = {
            "id": "x", "object": "chat.completion", "created": int(time.time()), "model": self.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        }  # fmt: skip
        if usage:
            reply["usage"] = {
                "prompt_tokens": self.tokens_in, "completion_tokens": out, "total_tokens": self.tokens_in + out,
                "prompt_tokens_details": {"cached_tokens": cached},
            }  # fmt: skip
            self.server.charge(self.tokens_in, out)
        return json.dumps(reply)

    def cut(self, after: int = 60) -> None:
        """Break the connection in the middle of an answer."""
        content = self.completion("this will be cut", None, usage=False).encode()
        self.web.send_response(200)
        self.web.send_header("Content-Type", "application/json")
        self.web.send_header("Content-Length", str(len(content)))
        self.web.end_headers()
        self.web.wfile.write(content[:after])
        self.web.wfile.flush()
        self.web.close_connection = True

    # in its own words

    def limited(self, after_s: int | None = None) -> None:
        """Asked too often; with the seconds to wait, or without."""
        fields = {} if after_s is None else {"Retry_After": str(after_s)}
        self.error(429, "Rate limit reached for requests", "rate_limit_exceeded", **fields)

    def troubled(self) -> None:
        self.error(500, "The server had an error while processing your request. Sorry about that!", "server_error")

    def wrong_key(self) -> None:
        self.error(401, f"Incorrect API key provided: {self.key}.", "invalid_api_key")

    def too_long(self) -> None:
        self.error(
            400,
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
            "context_length_exceeded",
        )

    def bound_too_high(self) -> None:
        """More tokens of answer are asked for than the model can give: no shorter context helps."""
        self.error(
            400,
            "max_tokens is too large: 4096. This model supports at most 2048 completion tokens, whereas you provided 4096.",
        )

    def refuse(self) -> None:
        """The model's own no."""
        reply = json.loads(self.completion(None, None))
        reply["choices"][0]["message"]["refusal"] = "I can't help with that."
        self.send(200, json.dumps(reply))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
