"""MCP over HTTP on the loopback interface, for clients that send the token from a private file in the hive."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST, JSONRPCError

from hivemind.errors import UserError
from hivemind.fs import create
from hivemind.loopback import (
    LOOPBACK,
    App,
    Message,
    Receive,
    Send,
    listen_on,
    read_body,
    replay_body,
    respond,
    server_settings,
)
from hivemind.mcp_server.member import Member
from hivemind.mcp_server.wire import LIMIT_BYTES, InvalidMessage, read_message

_TOKEN_FILE = "mcp.token"  # noqa: S105 - the file's name
_MIN_TOKEN_CHARS = 32
_UNAUTHORIZED = InvalidMessage(
    INVALID_REQUEST, "send Authorization: Bearer TOKEN, with the token from mcp.token"
).answer
_MAX_SESSIONS = 100


async def listen(
    server: Server[Any], member: Member, port: int, on_ready: Callable[[str, str], None] | None = None
) -> None:
    """Serve on 127.0.0.1 at `port` (0: any free port) until cancelled. `on_ready` gets the address and the token's file once
    clients can connect. Raises UserError if the port is in use."""
    path, token = load_token(member.folder)
    member.requests = 0
    with listen_on(port) as listener_socket:
        port = listener_socket.getsockname()[1]
        hosts = [f"{LOOPBACK}:{port}", f"localhost:{port}"]
        # A web page of another site must not reach this server through a browser: foreign Host or Origin gets 421 or 403.
        security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{name}" for name in hosts])
        mcp_app = server.streamable_http_app(transport_security=security, host=LOOPBACK, max_sessions=_MAX_SESSIONS)
        app = _TokenCheck(mcp_app, token, member)
        if on_ready is not None:
            on_ready(f"http://{hosts[0]}/mcp", os.fspath(path))
        await _serve(_HttpServer(server_settings(app, lifespan=True)), listener_socket)


def load_token(folder: Path) -> tuple[Path, str]:
    """Return the token's file and the token. Create the token if missing; clients keep it in their configuration.

    Raises UserError if other users may read the file, or if it does not contain a token.
    """
    path = folder / _TOKEN_FILE
    try:
        create(path, secrets.token_urlsafe(32) + "\n", mode=0o600)
    except FileExistsError:
        pass
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, encoding="utf-8", errors="replace") as stream:
        file_stat = os.fstat(file)
        if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_uid != os.geteuid() or file_stat.st_mode & 0o077:
            raise UserError(
                "other users may read or change it", location=path, remedy=f"rm {path}: a new one is created"
            )
        token = stream.read(1024).strip()
    if len(token) < _MIN_TOKEN_CHARS:
        raise UserError("does not contain a token", location=path, remedy=f"rm {path}: a new one is created")
    return path, token


async def _serve(listener: _HttpServer, listener_socket: socket.socket) -> None:
    """Serve until cancelled. Running requests then have a second to end."""
    serving = asyncio.ensure_future(listener.serve(sockets=[listener_socket]))
    try:
        await asyncio.shield(serving)
    finally:
        listener.should_exit = True
        await serving


class _TokenCheck:
    """Forwards requests that have the token and a valid message. Other requests get an error in JSON: 401 without the token,
    before their body is read; 413 or 400 for an invalid message, before the SDK opens a session."""

    def __init__(self, app: App, token: str, member: Member) -> None:
        self._app, self._member = app, member
        self._expected_header = f"Bearer {token}".encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._is_allowed(scope):
            await _refuse(send, 401, _UNAUTHORIZED, [(b"www-authenticate", b'Bearer realm="hivemind"')])
        else:
            self._member.requests += 1
            try:
                await self._forward(scope, receive, send)
            finally:
                self._member.requests -= 1

    async def _forward(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif (body := await read_body(receive, LIMIT_BYTES)) is not None:
            try:
                read_message(body)
            except InvalidMessage as error:
                await _refuse(send, 413 if len(body) > LIMIT_BYTES else 400, error.answer)
            else:
                await self._app(scope, replay_body(body, receive), send)

    def _is_allowed(self, scope: Message) -> bool:
        credentials = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(credentials) == 1 and hmac.compare_digest(credentials[0], self._expected_header)


async def _refuse(send: Send, status: int, error: JSONRPCError, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    body = error.model_dump_json(by_alias=True, exclude_unset=True).encode()
    await respond(send, status, body, [(b"content-type", b"application/json"), *headers])


class _HttpServer(uvicorn.Server):
    """A uvicorn server that handles no signals. Its caller handles them, and cancels the task that serves."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
