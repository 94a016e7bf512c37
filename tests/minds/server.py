"""A server on loopback that plays a model, in each provider's own protocol: it answers by rule, and misbehaves by order.

`orders` are the next answers, in order; when they are used up, `think` decides. It counts the tokens that it charges for.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.minds.dialects import request_of
from tests.minds.request import Request

__all__ = ["Behaviour", "ModelServer", "Request", "model_server"]

Behaviour = Callable[[Request], None]


class ModelServer:
    """`think` answers what no ordered behaviour takes; `requests` keeps the bodies."""

    def __init__(self, think: Behaviour | None = None) -> None:
        self.think = think or (lambda request: request.answer("well"))
        self.forget()
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
                server.serve(request_of(self.path)(self, server, body))

            def log_message(self, *arguments: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Web)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def forget(self) -> None:
        """Reset: no orders, no requests."""
        self.orders: deque[Behaviour] = deque()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.keys: set[str] = set()
        self.tokens_in = self.tokens_out = 0
        self.down = False

    @property
    def root(self) -> str:
        """Its address, to which Anthropic's and Google's clients add the rest of the way themselves."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        """Its address for who speaks OpenAI's protocol."""
        return f"{self.root}/v1"

    def serve(self, request: Request) -> None:
        with self._mutex:
            self.requests.append(request.body)
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
            self.keys.add(request.key)
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
        """Hold all answers until the server is closed or resumed."""
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
