"""`hivemind web`: serves the page on this machine until it is interrupted."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from hivemind.loopback import LOOPBACK, listen_on
from hivemind.web.app import build

__all__ = ["serve"]


class _Server(uvicorn.Server):
    """One that says when it is up: from then on, and no earlier, a Ctrl-C ends it in order."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


def serve(root: Path, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the hive at `port` (0: any that is free) until Ctrl-C or SIGTERM; `on_ready` gets the link with its token.

    Raises UserError for a port that is in use.
    """
    token = secrets.token_urlsafe(32)
    with listen_on(port, 64) as bound:
        port = bound.getsockname()[1]
        app, close = build(root, token, port)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, timeout_graceful_shutdown=1, lifespan="off", server_header=False
        )
        link = f"http://{LOOPBACK}:{port}/?token={token}"
        try:
            asyncio.run(_Server(config, lambda: on_ready(link)).serve(sockets=[bound]))
        finally:
            close()
