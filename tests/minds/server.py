"""An OpenAI-compatible server on loopback that plays a model: it answers by rule, and misbehaves by order.

`Play` gives the next answers, in order; when they are used up, `think` decides. It counts the tokens that it charges for.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Request"], None]


class Request:
    """One request, and the ways to answer it."""

    def __init__(self, web: BaseHTTPRequestHandler, server: ModelServer, body: dict[str, Any]) -> None:
        self.web, self.server, self.body = web, server, body
        self.headers = web.headers

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def user(self) -> str:
        """The first message of the user: the context."""
        return next(_text(one) for one in self.messages if one["role"] == "user")

    @property
    def tokens_in(self) -> int:
        return len(json.dumps(self.body)) // 4

    def send(self, status: int, body: str | bytes, kind: str = "application/json", **headers: str) -> None:
        whole = body.encode() if isinstance(body, str) else body
        self.web.send_response(status)
        self.web.send_header("Content-Type", kind)
        self.web.send_header("Content-Length", str(len(whole)))
        for name, value in headers.items():
            self.web.send_header(name.replace("_", "-"), value)
        self.web.end_headers()
        self.web.wfile.write(whole)

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
    ) -> None:
        """A completion; arguments that are a string are sent as they stand."""
        self.send(200, self.completion(text, calls, finish, tokens_out, usage))

    def completion(self, text, calls, finish=None, tokens_out=None, usage=True) -> str:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call-{at}",
                    "type": "function",
                    "function": {"name": tool, "arguments": given if isinstance(given, str) else json.dumps(given)},
                }
                for at, (tool, given) in enumerate(calls)
            ]
        out = tokens_out if tokens_out is not None else max(1, len(json.dumps(message)) // 4)
        finish = finish or ("tool_calls" if calls else "stop")
        whole: dict[str, Any] = {
            "id": "x", "object": "chat.completion", "created": int(time.time()), "model": self.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        }  # fmt: skip
        if usage:
            whole["usage"] = {
                "prompt_tokens": self.tokens_in, "completion_tokens": out, "total_tokens": self.tokens_in + out
            }  # fmt: skip
            self.server.charge(self.tokens_in, out)
        return json.dumps(whole)

    def cut(self, after: int = 60) -> None:
        """Break the connection in the middle of an answer."""
        whole = self.completion("this will be cut", None, usage=False).encode()
        self.web.send_response(200)
        self.web.send_header("Content-Type", "application/json")
        self.web.send_header("Content-Length", str(len(whole)))
        self.web.end_headers()
        self.web.wfile.write(whole[:after])
        self.web.wfile.flush()
        self.web.close_connection = True


class ModelServer:
    """`think` answers what no ordered behaviour takes; `requests` keeps the bodies."""

    def __init__(self, think: Behaviour | None = None) -> None:
        self.think = think or (lambda request: request.answer("well"))
        self.orders: deque[Behaviour] = deque()
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.tokens_in = self.tokens_out = 0
        self.down = False
        self.silence = threading.Event()
        self._mutex = threading.Lock()
        server = self

        class Web(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30
            disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length))
                server.serve(Request(self, server, body))

            def log_message(self, *arguments: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Web)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def serve(self, request: Request) -> None:
        with self._mutex:
            self.requests.append(request.body)
            self.keys.add(request.headers.get("Authorization", ""))
            behave = self.orders.popleft() if self.orders else self.think
        if self.down:
            request.error(503, "down for repairs")
            return
        try:
            behave(request)
        except (BrokenPipeError, ConnectionResetError):
            pass  # who asked has gone

    def charge(self, tokens_in: int, tokens_out: int) -> None:
        with self._mutex:
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out

    def keep_silent(self, request: Request) -> None:
        """Answer nothing, until the server is closed or told to go on."""
        self.silence.wait(20)
        request.web.close_connection = True

    def close(self) -> None:
        self.silence.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def model_server(think: Behaviour | None = None):
    server = ModelServer(think)
    try:
        yield server
    finally:
        server.close()


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
