"""MCP: the time of a call over stdio and HTTP, and the server's share, compared with the SDK's own empty call.

Run as `python -m benchmarks.mcp [--quick]`. All servers run at once as processes and are called in turn, some
calls each, by the official SDK's client: a loaded machine loads all of them. A mailbox has twenty messages. Where
HIVEMIND_RIVAL_MAIL names the Python of an environment with `mcp-agent-mail` in it (a separate virtual environment:
its requirements conflict with these), its server is measured in the same run, over HTTP, which is what it speaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from benchmarks.processes import children, processor_s
from benchmarks.table import Row, show
from hivemind import Hive
from hivemind.mcp_server.member import Member
from hivemind.swarm.agent_files import add_agent

__all__ = ["run"]

_RIVAL = "HIVEMIND_RIVAL_MAIL"
_AT_ONCE = 20
_LYING = 20
_START_S = 120.0
_LETTER = {"to": ["codex"], "subject": "The keel", "body": "It is on."}


@dataclass(slots=True)
class _Call:
    """One call of one server, and what was measured of it: seconds by the clock, and of the server's processor."""

    name: str
    client: Client
    server: int
    tool: str
    arguments: Mapping[str, Any]
    baseline: str = ""
    took: list[float] = field(default_factory=list)
    computed: float = 0.0

    @property
    def median_ms(self) -> float:
        return statistics.median(self.took) * 1000

    @property
    def p99_ms(self) -> float:
        return sorted(self.took)[int(len(self.took) * 0.99)] * 1000

    @property
    def computed_ms(self) -> float:
        return self.computed / len(self.took) * 1000


def run(quick: bool) -> list[Row]:
    """The latency of calls and the processor time of their servers, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        rows = list(_alone(_hive(Path(folder, "alone"), "relaxed"), 20 if quick else 400))
        return rows + asyncio.run(_measure(Path(folder), _AT_ONCE if quick else 400))


def _alone(root: Path, times: int) -> Iterator[Row]:
    """Measure a call without the SDK: median processor time of the thread that handles it."""
    member = Member(Hive.open(root), "claude")
    for tool, arguments in (
        ("resume", {}),
        ("send_mail", _LETTER),
        ("check_mailbox", {}),
        ("check_mailbox", {"limit": 1}),
    ):
        took = []
        for _ in range(times):
            start = time.thread_time()
            member.call(tool, arguments)
            took.append((time.thread_time() - start) * 1000)
        limit_note = ", one message listed" if arguments == {"limit": 1} else ""
        yield Row(f"{tool}{limit_note}, the member alone: processor time", statistics.median(took), "ms")
    member.close()


async def _measure(folder: Path, times: int) -> list[Row]:
    async with contextlib.AsyncExitStack() as servers:
        calls = []
        for way in ("stdio", "HTTP"):
            calls += await servers.enter_async_context(_hivemind_calls(folder, way))
        if os.environ.get(_RIVAL):
            calls += await servers.enter_async_context(_rival(folder))
        for number in range(times // _AT_ONCE + 1):  # the first round only warms them
            for call in calls:
                await _use(call)
                if number == 0:
                    call.took.clear()
                    call.computed = 0.0
        return list(_rows({call.name: call for call in calls}))


async def _use(call: _Call) -> None:
    before = processor_s([call.server])
    for _ in range(_AT_ONCE):
        start = time.perf_counter()
        answer = await call.client.call_tool(call.tool, dict(call.arguments))
        call.took.append(time.perf_counter() - start)
        assert not answer.is_error, answer
    call.computed += processor_s([call.server]) - before


def _rows(calls: Mapping[str, _Call]) -> Iterator[Row]:
    for name, call in calls.items():
        baseline = calls.get(call.baseline)
        ms = (baseline.median_ms, baseline.computed_ms) if baseline is not None else (None, None)
        yield Row(f"{name}: median", call.median_ms, "ms", call.baseline, ms[0])
        yield Row(f"{name}: p99", call.p99_ms, "ms")
        yield Row(f"{name}: the server's processor time", call.computed_ms, "ms", call.baseline, ms[1])


# servers


@contextlib.asynccontextmanager
async def _hivemind_calls(folder: Path, way: str) -> AsyncIterator[list[_Call]]:
    """The SDK's empty server, and a member's in a hive of each durability, over one way."""
    floor = f"the SDK's empty call, {way}"
    async with contextlib.AsyncExitStack() as open_:
        client, pid = await open_.enter_async_context(_served(["-m", "benchmarks.mcp_empty"], way, None))
        calls = [_Call(floor, client, pid, "nothing", {})]
        for durability in ("relaxed", "full"):
            root = _hive(folder / f"{durability}-{way}", durability)
            words = ["-m", "hivemind", "--hive", str(root), "mcp", "--agent", "claude"]
            client, pid = await open_.enter_async_context(_served(words, way, root))
            if durability == "relaxed":
                calls.append(_Call(f"check_mailbox, {way}", client, pid, "check_mailbox", {}, floor))
                calls.append(_Call(f"resume, {way}", client, pid, "resume", {}, floor))
            calls.append(_Call(f"send_mail, {durability}, {way}", client, pid, "send_mail", _LETTER, floor))
        yield calls


def _hive(root: Path, durability: str) -> Path:
    hive = Hive.init(root)
    settings = root / "hive.yaml"
    settings.write_text(settings.read_text().replace("durability: full", f"durability: {durability}"))
    for name in ("claude", "codex"):
        add_agent(hive, name, mind="mcp")
    for number in range(_LYING):
        hive.mail.send("codex", "claude", f"Message {number}", "It is on.")
    return root


@contextlib.asynccontextmanager
async def _served(words: list[str], way: str, root: Path | None) -> AsyncIterator[tuple[Client, int]]:
    """Start a server process; yield a client of it and the process's id."""
    environment = {**os.environ}
    if way == "stdio":
        more = ["stdio"] if root is None else []
        parameters = StdioServerParameters(command=sys.executable, args=[*words, *more], env=environment)
        before = set(children(os.getpid()))
        async with Client(parameters) as client:
            [pid] = set(children(os.getpid())) - before
            yield client, pid
        return
    more = ["http"] if root is None else ["--http", "--port", "0"]
    server = subprocess.Popen([sys.executable, *words, *more], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        token = "" if root is None else (root / ".hive/agents/claude/mcp.token").read_text().strip()
        async with _over_http(address, token) as client:
            yield client, server.pid
    finally:
        server.terminate()
        server.communicate(timeout=_START_S)


@contextlib.asynccontextmanager
async def _over_http(address: str, token: str, mode: Any = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    http: Any = httpx.AsyncClient(headers=headers, timeout=_START_S)
    async with http, Client(streamable_http_client(address, http_client=http), mode=mode) as client:
        yield client


# the rival


@contextlib.asynccontextmanager
async def _rival(folder: Path) -> AsyncIterator[list[_Call]]:
    """Serve mcp_agent_mail with its defaults, in a fresh folder; without a model, which it would ask over the network."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = folder / "rival"
    place.mkdir()
    environment = {
        **os.environ, "PYTHONPATH": "", "HOME": str(place), "STORAGE_ROOT": str(place / "mail"), "LLM_ENABLED": "false",
        "DATABASE_URL": f"sqlite+aiosqlite:///{place}/storage.sqlite3", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # fmt: skip
    command = [os.environ[_RIVAL], "-c", "from mcp_agent_mail.cli import app; app()", "serve-http", "--port", str(port)]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, cwd=place, env=environment, **quiet)
    try:
        await _listens(port, server)
        async with _over_http(f"http://127.0.0.1:{port}/mcp/", "", "legacy") as client:
            yield await _rivals_calls(client, server.pid, str(place))
    finally:
        server.terminate()
        server.wait(_START_S)


async def _listens(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"mcp_agent_mail does not listen at {port}")


async def _rivals_calls(client: Client, pid: int, project: str) -> list[_Call]:
    await client.call_tool("ensure_project", {"human_key": project})
    for name in ("BlueLake", "GreenCastle"):
        about = {"project_key": project, "program": "bench", "model": "none", "name": name}
        await client.call_tool("register_agent", about)
    letter = {
        "project_key": project, "sender_name": "BlueLake", "to": ["GreenCastle"], "subject": "The keel",
        "body_md": "It is on.",
    }  # fmt: skip
    back = {**letter, "sender_name": "GreenCastle", "to": ["BlueLake"]}
    for _ in range(_LYING):
        answer = await client.call_tool("send_message", back)
        assert not answer.is_error, answer
    inbox = {"project_key": project, "agent_name": "BlueLake", "limit": _LYING}
    baselines = ("check_mailbox, HTTP", "send_mail, full, HTTP")
    return [
        _Call("mcp_agent_mail, fetch_inbox, HTTP", client, pid, "fetch_inbox", inbox, baselines[0]),
        _Call("mcp_agent_mail, send_message, HTTP", client, pid, "send_message", letter, baselines[1]),
    ]


if __name__ == "__main__":
    show("Calls over MCP", run("--quick" in sys.argv))
