"""`hivemind web`: serves the page on this machine until it is interrupted."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from hivemind.errors import UserError
from hivemind.web.app import build

__all__ = ["serve"]

_LOOPBACK = "127.0.0.1"


def serve(root: Path, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the hive at `port` (0: any that is free) until Ctrl-C or SIGTERM; `on_ready` gets the link with its token.

    Raises UserError for a port that is in use.
    """
    token = secrets.token_urlsafe(32)
    # Said to be TCP, or asyncio leaves Nagle's algorithm on, and each answer waits 40 ms for the client's acknowledgement.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((_LOOPBACK, port))
        except OSError as error:
            mend = "--port 0 takes any that is free"
            raise UserError(f"can't listen ({error.strerror})", where=f"{_LOOPBACK}:{port}", mend=mend) from None
        bound.listen(64)
        port = bound.getsockname()[1]
        app, close = build(root, token, port)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, timeout_graceful_shutdown=1, lifespan="off", server_header=False
        )
        on_ready(f"http://{_LOOPBACK}:{port}/?token={token}")
        try:
            asyncio.run(uvicorn.Server(config).serve(sockets=[bound]))
        finally:
            close()
