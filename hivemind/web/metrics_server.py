"""The process `metrics` of a swarm: answers `/metrics`, `/healthz` and `/readyz` over HTTP (`hivemind up --metrics PORT`).

It needs only the base packages. On any address but this machine's own, a request must bring the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import Lock
from hivemind.fs.sockets import wait_for_input
from hivemind.layout import METRICS, Layout
from hivemind.presence.identity import check_hive_exists
from hivemind.presence.parts import Parts
from hivemind.presence.service import run_service
from hivemind.presence.status import StatusFile
from hivemind.web.metrics import MONITOR_PATHS, Monitor
from hivemind.web.site import Site

_REQUEST_S = 10.0
_LOOPBACK = "127.0.0.1"


@frozen
class MetricsAddress:
    """The address of the metrics process. `host` is an IP address."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> MetricsAddress:
        """Parse `PORT` (on this machine only) or `HOST:PORT`. Raises UserError."""
        host, _, port = text.rpartition(":")
        try:
            address = ipaddress.ip_address(host.strip("[]") or _LOOPBACK)
        except ValueError:
            raise UserError(
                f"{host!r} is not an IP address", location="--metrics", remedy="write PORT or IP:PORT"
            ) from None
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise UserError(f"{port!r} is not a port", location="--metrics", remedy="write PORT or IP:PORT")
        return cls(str(address), int(port))

    @property
    def needs_token(self) -> bool:
        return not ipaddress.ip_address(self.host).is_loopback

    def listen(self) -> socket.socket:
        """Return a socket that listens. Raises UserError if the address cannot be used."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            raise UserError(
                f"cannot listen ({os.strerror(error.errno or 0)})",
                location=f"--metrics {self.host}:{self.port}",
                remedy="another swarm or program may listen there (hivemind status): choose another address",
            ) from None


def token_path(layout: Layout) -> Path:
    """Return the path of the file with the token that a request from another machine must send as `Authorization:
    Bearer TOKEN`."""
    return layout.state / "metrics.token"


def run_metrics(hive: Parts, lifeline: int, address: MetricsAddress) -> int:
    """Answer requests at `address` until SIGTERM, or until the other end of the pipe `lifeline` is closed. Return the
    exit status.

    Raises UserError if another program has taken the address meanwhile.
    """

    def serve(lock: Lock, status: StatusFile, ends: Sequence[int]) -> None:
        site = Site(hive.layout.root)
        server = _Server(address, site, _token(hive.layout) if address.needs_token else None)
        thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        thread.start()
        status.update(state="idle")
        try:
            while not wait_for_input(ends, hive.config.hang_after / 3):
                check_hive_exists(lock, hive.layout)
                status.beat()
        finally:
            server.shutdown()
            thread.join()
            site.close()

    return run_service(hive, METRICS, lifeline, serve)


def _token(layout: Layout) -> str:
    """Return the secret token. The first call creates it and its file."""
    path = token_path(layout)
    if not path.exists():
        fs.write(path, f"{secrets.token_urlsafe(32)}\n", mode=0o600)
    with boundary("token", path):
        return path.read_text("ascii").strip()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: MetricsAddress, site: Site, token: str | None) -> None:
        super().__init__((address.host, address.port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.token = address.listen(), token
        self.site, self.monitor = site, Monitor(site)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "hivemind", ""
    timeout = _REQUEST_S

    def do_GET(self) -> None:
        wanted = f"Bearer {self.server.token}"
        if self.server.token is not None and not hmac.compare_digest(self.headers.get("Authorization", ""), wanted):
            self._respond(
                401, "text/plain", "Authorization: Bearer TOKEN is missing; the token is in .hive/metrics.token\n"
            )
            return
        path = self.path.partition("?")[0]
        if path in MONITOR_PATHS:
            self.server.site.watch.invalidate()  # a scrape is rarer than the watch's own pauses
            self._respond(*self.server.monitor.answer(path))
        else:
            self._respond(404, "text/plain", f"{', '.join(MONITOR_PATHS)} are served here\n")

    def _respond(self, status: int, media_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as http.server names it
        """Write no log, because a monitoring system sends a request every few seconds."""
