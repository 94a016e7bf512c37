"""The floor of `benchmarks.mcp`: a server of the SDK with one empty tool; its argument is stdio or http."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server

__all__ = ["empty"]


def empty() -> Server[Any]:
    """Return a server with one tool that answers `{}`."""

    async def call(_: Any, __: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text="{}")])

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="nothing", input_schema={"type": "object"})])

    return Server("empty", on_call_tool=call, on_list_tools=list_tools)


async def _over_stdio() -> None:
    server = empty()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _over_http() -> None:
    # asyncio turns Nagle's algorithm off only for a declared TCP socket; hivemind's own server does the same.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(8)
        print(f"http://127.0.0.1:{bound.getsockname()[1]}/mcp", flush=True)
        settings = uvicorn.Config(empty().streamable_http_app(), log_level="warning", access_log=False)
        uvicorn.Server(settings).run(sockets=[bound])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        _over_http()
    else:
        asyncio.run(_over_stdio())
