"""A socket that only this machine can reach, and a plain answer on it: for the page and for MCP over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from hivemind.errors import UserError

LOOPBACK = "127.0.0.1"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
"""An application as ASGI has it, what it hears and says."""


async def respond(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """A whole answer."""
    about = [(b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})


def listen_on(port: int, backlog: int) -> socket.socket:
    """A socket that listens on 127.0.0.1 at `port` (0: any that is free). Raises UserError if it is in use."""
    # Said to be TCP, or asyncio leaves Nagle's algorithm on, and each answer waits 40 ms for the client's acknowledgement.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((LOOPBACK, port))
    except OSError as error:
        bound.close()
        mend = "--port 0 takes any that is free"
        raise UserError(f"can't listen ({error.strerror})", where=f"{LOOPBACK}:{port}", mend=mend) from None
    bound.listen(backlog)  # from now on who knocks is heard, if a little later
    return bound
