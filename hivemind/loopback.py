"""An HTTP server that only this machine can reach, for the page and for MCP over HTTP.

Clients may be silent, slow or too verbose. The server bounds connections, request heads and bodies, so its applications get only
complete requests of bounded size.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hivemind.errors import UserError

LOOPBACK = "127.0.0.1"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
"""An ASGI application."""

_MAX_CONNECTIONS = 500
_BACKLOG = 32  # the queue of connections that are not accepted yet
_HEAD_S = 10.0
_log = logging.getLogger(__name__)


def listen_on(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1 at `port` (0: any free port). Raises UserError if the port is in use."""
    # With the protocol given, asyncio disables Nagle's algorithm, which would delay each answer by 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        remedy = "--port 0 takes any free port"
        raise UserError(f"cannot listen ({error.strerror})", location=f"{LOOPBACK}:{port}", remedy=remedy) from None
    listener.listen(_BACKLOG)  # connections are queued from now on
    return listener


def server_settings(app: App, *, lifespan: bool) -> uvicorn.Config:
    """Return the settings of a server for `app` that bounds the number of its connections and their time.

    `lifespan` says whether the server sends the app ASGI's events of its start and end.
    """
    return uvicorn.Config(
        app, http=_Connection, ws="none", backlog=_BACKLOG, log_level="error", access_log=False, server_header=False,
        timeout_graceful_shutdown=1, lifespan="on" if lifespan else "off",
    )  # fmt: skip


class _Connection(H11Protocol):
    """One connection. Anybody can open a connection without a token, so it is closed after ten seconds without a complete request
    head. If there are too many connections, the connection with the longest wait for its head is closed at once.
    """

    _headless: ClassVar[
        dict[asyncio.Transport, asyncio.TimerHandle]
    ] = {}  # connections without a request head, oldest first
    _has_warned = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > _max_connections():
            oldest = next(iter(self._headless))
            self._headless.pop(oldest).cancel()
            oldest.abort()
            if not _Connection._has_warned:
                _Connection._has_warned = True
                _log.warning("too many connections: the oldest silent ones are closed (logged once)")

    def data_received(self, data: bytes) -> None:
        if self.transport not in self._headless:
            self._await_head()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._headless[self.transport] = self.loop.call_later(_HEAD_S, self.transport.abort)

    def _end_wait(self) -> None:
        if (timer := self._headless.pop(self.transport, None)) is not None:
            timer.cancel()


def _max_connections() -> int:
    """Return a number of connections that leaves descriptors for other files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MAX_CONNECTIONS, soft // 2)


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """Read the body of a request, at most until it is longer than `limit` bytes. The announced length is ignored. Return None if
    the client disconnected.
    """
    body = bytearray()
    while len(body) <= limit:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return bytes(body)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` function that first replays the body that was read, and then continues with `receive`."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return unread.pop() if unread else await receive()

    return replay


async def respond(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    all_headers = [(b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})
