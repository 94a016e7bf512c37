"""MCP: how long a call takes, median and p99, in memory, over stdio and over HTTP, beside the SDK's own empty call.

Run as `python -m benchmarks.mcp [--quick]`. The floor is a server of the SDK with one tool that does nothing, in memory, in
the same run. mcp_agent_mail cannot be run here without its network: its figures stand in the notes, as they were measured
and published (send to seen 155-303 ms median, 700-840 ms p99, on a loaded machine; 13 and 2,240 ms in its Rust version).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server

from benchmarks.table import Row, show
from hivemind import Hive
from hivemind.mcp_server.serve import joined
from hivemind.runtime.recruit import add_agent

__all__ = ["run"]

_CALLS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("check_mailbox", {}),
    ("resume", {}),
    ("send_mail", {"to": ["codex"], "subject": "x", "body": "x"}),
)
_RIVAL = "mcp_agent_mail: 155 ms median, 700 p99 (send to seen)"


def run(quick: bool) -> list[Row]:
    """The latency of calls, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "hive")
        hive = Hive.init(root)
        for name in ("claude", "codex"):
            add_agent(hive, name, mind="mcp")
        return asyncio.run(_measure(root, 40 if quick else 400))


async def _measure(root: Path, times: int) -> list[Row]:
    floor = await _floor(times)
    rows = [Row("an empty call of the SDK, in memory, median", floor[0], "ms")]
    async with joined(lambda: Hive.open(root), "claude") as (_, server), Client(server) as client:
        rows += await _all(client, "in memory", floor[0], times)
    words = ["-m", "hivemind", "--hive", str(root), "mcp", "--agent", "claude"]
    environment = {**os.environ}
    async with Client(StdioServerParameters(command=sys.executable, args=words, env=environment)) as client:
        rows += await _all(client, "stdio", floor[0], times)
    process = subprocess.Popen(
        [sys.executable, *words, "--http", "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        token = (root / ".hive/agents/claude/mcp.token").read_text().strip()
        http = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"})
        async with http, Client(streamable_http_client(address, http_client=http)) as client:
            rows += await _all(client, "HTTP", floor[0], times)
    finally:
        process.terminate()
        process.communicate()
    return rows


async def _floor(times: int) -> tuple[float, float]:
    async def call(_: Any, __: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text="{}")])

    async def listed(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="nothing", input_schema={"type": "object"})])

    async with Client(Server("empty", on_call_tool=call, on_list_tools=listed)) as client:
        return await _latency(client, "nothing", {}, times)


async def _all(client: Client, way: str, floor: float, times: int) -> list[Row]:
    rows = []
    for tool, arguments in _CALLS:
        median, p99 = await _latency(client, tool, arguments, times)
        note = _RIVAL if tool == "send_mail" else ""
        rows.append(Row(f"{tool}, {way}, median", median, "ms", "an empty call of the SDK", floor, note=note))
        rows.append(Row(f"{tool}, {way}, p99", p99, "ms"))
    return rows


async def _latency(client: Client, tool: str, arguments: Mapping[str, Any], times: int) -> tuple[float, float]:
    for _ in range(5):
        await client.call_tool(tool, dict(arguments))
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        await client.call_tool(tool, dict(arguments))
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken), sorted(taken)[int(len(taken) * 0.99)]


if __name__ == "__main__":
    show("Calls over MCP", run("--quick" in sys.argv))
