"""Real server processes, and the official SDK's client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

import hivemind
from hivemind.layout import Layout
from hivemind.mcp_server.serve import open_member as in_this_process
from hivemind.swarm.agent_files import add_agent

pytest.importorskip("mcp")

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests import program
from tests.waiting import until

LIMIT_S = 60


class Joined:
    """A client that is an agent of the hive, with decoded answers."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, tool: str, **arguments) -> dict:
        """The answer of a tool that must not refuse."""
        result = await self.client.call_tool(tool, arguments)
        reply = json.loads(result.content[0].text)
        assert not result.is_error, reply
        assert reply == result.structured_content
        return reply

    async def refused(self, tool: str, **arguments) -> dict:
        """The typed error of a tool that must refuse."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result
        return json.loads(result.content[0].text)

    async def read(self, uri: str):
        text = (await self.client.read_resource(uri)).contents[0].text
        return json.loads(text) if text.startswith(("{", "[")) else text


class Hive:
    """A hive with two members that come from outside, claude and codex."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.extra: dict[str, str] = {}
        hive = hivemind.Hive.init(root)
        for name in ("claude", "codex"):
            add_agent(hive, name, mind="mcp")

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HIVEMIND_HIVE": str(self.root), **self.extra}

    def run(self, *words: str, status: int = 0) -> str:
        done = program.run(
            words, capture_output=True, text=True, timeout=LIMIT_S, env=self.environment, stdin=subprocess.DEVNULL
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def start(self, *words: str, text: bool = True, **streams) -> subprocess.Popen:
        return program.Program(words, env=self.environment, text=text, **streams)

    def until(self, holds: Callable[[], object]) -> None:
        """Look until it holds; fails once that has taken too long."""
        until(holds, limit_s=LIMIT_S)

    def events(self) -> list[dict]:
        paths = sorted((self.root / ".hive/journal").glob("*.jsonl"))
        lines = [line for path in paths for line in path.read_text().splitlines()[1:]]
        rows = [json.loads(line) for line in lines]
        return [event for row in rows for event in (row if isinstance(row, list) else [row])]

    def lives(self, name: str) -> list[str]:
        return [
            event["kind"].removeprefix("agent.")
            for event in self.events()
            if event["kind"] in ("agent.started", "agent.exited") and event["agent_id"] == name
        ]

    @asynccontextmanager
    async def member(self, name: str, profile: str = "core"):
        """A client of a server in this process: for what does not depend on there being two."""
        async with in_this_process(Layout.at(self.root), name, profile) as (_, server), Client(server) as client:
            yield Joined(client)

    @asynccontextmanager
    async def joined(self, name: str, *more: str):
        words = ["-m", "hivemind", "mcp", "--agent", name, *more]
        server = StdioServerParameters(command=sys.executable, args=words, env=self.environment)
        async with Client(server) as client:
            yield Joined(client)

    @asynccontextmanager
    async def over_http(self, name: str):
        """A client of a server that listens on loopback."""
        server = self.start("mcp", "--agent", name, "--http", "--port", "0", stdout=subprocess.PIPE)
        try:
            address = (await asyncio.to_thread(server.stdout.readline)).split()[0]
            token = (self.root / f".hive/agents/{name}/mcp.token").read_text().strip()
            http = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"})
            async with http, Client(streamable_http_client(address, http_client=http)) as client:
                yield Joined(client)
        finally:
            server.terminate()
            server.communicate(timeout=LIMIT_S)


@pytest.fixture
def hive(tmp_path):
    return Hive(tmp_path / "hive")


def greeting(id_: int = 1) -> str:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": "initialize", "params": hello}) + "\n"


@pytest.fixture
def served(hive):
    """A server that has joined the hive: it was greeted, and has answered a ping."""
    process = hive.start(
        "mcp", "--agent", "claude", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        process.stdin.write(greeting() + json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "hivemind"
        assert json.loads(process.stdout.readline()) == {"jsonrpc": "2.0", "id": 2, "result": {}}
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


@pytest.fixture
def listening(hive):
    process = hive.start("mcp", "--agent", "claude", "--http", "--port", "0", stdout=subprocess.PIPE)
    try:
        address = process.stdout.readline().split()[0]
        yield process, address, hive.root / ".hive/agents/claude/mcp.token"
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))
