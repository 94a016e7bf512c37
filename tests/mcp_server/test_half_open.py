"""Connections that say nothing: bounded in number and in time, and one line in the log."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import subprocess
from functools import partial

import httpx
import pytest

from tests.mcp_server.conftest import LIMIT_S, greeting
from tests.program import cold


@pytest.fixture
def crowded(hive):
    """A server that may have few files open, and its address."""
    few = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (256, 256))
    process = cold(
        ("mcp", "--agent", "claude", "--http", "--port", "0"), env=hive.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=few,
    )  # fmt: skip
    address = process.stdout.readline().split()[0]
    yield process, address, (hive.root / ".hive/agents/claude/mcp.token").read_text().strip()
    process.kill()
    process.communicate(timeout=LIMIT_S)


@pytest.mark.slow
def test_half_open_requests_hold_up_nobody_and_are_closed(crowded):
    process, address, token = crowded
    host, port = re.match(r"http://([\d.]+):(\d+)", address).groups()
    with contextlib.ExitStack() as held:
        ones = [held.enter_context(socket.create_connection((host, int(port)), timeout=LIMIT_S)) for _ in range(400)]
        for one in ones[::2]:
            with contextlib.suppress(ConnectionError):  # one too many, closed already
                one.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        for one in ones:  # each is closed by the server, at once or after its ten seconds
            with contextlib.suppress(ConnectionError):
                assert one.recv(4096) == b""
    good = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    headers = {**good, "Content-Type": "application/json"}
    assert httpx.post(address, content=greeting(), headers=headers, timeout=LIMIT_S).status_code == 200
    process.terminate()
    _, said = process.communicate(timeout=LIMIT_S)
    lines = [line for line in said.splitlines() if "connection" in line]
    assert len(lines) == 1, said[-2000:]
    assert len(said) < 2000
