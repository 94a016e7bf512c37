"""From its first moment to its last: a member joins the hive, serves a client, and leaves in order (spec 7, *MCP*)."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from hivemind.errors import UserError
from hivemind.mcp_server.member import Member
from hivemind.private import keep_keys_private
from hivemind.runtime.parts import Parts

if TYPE_CHECKING:
    from mcp.server import Server

__all__ = ["joined", "serve_http", "serve_stdio"]

_BEAT_S = 1.0
_T = TypeVar("_T")
OpenHive = Callable[[], Parts]


def serve_stdio(open_hive: OpenHive, name: str, profile: str = "core") -> None:
    """Serve one client on standard input and output until its end, SIGTERM or SIGINT.

    Raises UserError if the SDK is not installed or if there is no such agent, HeldLock if it runs already.
    """
    _check_installed()
    keep_keys_private()
    asyncio.run(_until_told(_stdio(open_hive, name, profile)))


def serve_http(
    open_hive: OpenHive, name: str, profile: str, port: int, on_ready: Callable[[str, str], None] | None = None
) -> None:
    """Serve clients on loopback that show the token, until SIGTERM or SIGINT. Raises as above, and for a port in use.

    `on_ready` is told the address and the file that the token is in.
    """
    _check_installed()
    keep_keys_private()
    asyncio.run(_until_told(_http(open_hive, name, profile, port, on_ready)))


def _check_installed() -> None:
    if importlib.util.find_spec("mcp") is None:
        raise UserError("the MCP SDK is not installed", mend="pip install 'hivemind[mcp]'")


async def _until_told(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until it ends by itself or a signal says so; then it ends in order."""
    task = asyncio.ensure_future(serving)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _stdio(open_hive: OpenHive, name: str, profile: str) -> None:
    from hivemind.mcp_server.stdio import own_streams, talk

    with own_streams() as (given, taken):
        async with joined(open_hive, name, profile) as (_, server):
            await talk(server, given, taken)


async def _http(
    open_hive: OpenHive, name: str, profile: str, port: int, on_ready: Callable[[str, str], None] | None
) -> None:
    from hivemind.mcp_server.http import listen

    async with joined(open_hive, name, profile) as (member, server):
        await listen(server, member.folder, port, on_ready)


@asynccontextmanager
async def joined(open_hive: OpenHive, name: str, profile: str = "core") -> AsyncIterator[tuple[Member, Server[Any]]]:
    """A member and its server, for as long as the block lasts. All that touches the hive happens on one thread."""
    from hivemind.mcp_server.server import build_server

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "member") as thread:

        async def run(do: Callable[[], _T]) -> _T:
            return await loop.run_in_executor(thread, do)

        member = await run(lambda: Member(open_hive(), name, profile))
        beating = asyncio.create_task(_beat(member, run))
        try:
            yield member, build_server(member, run)
        finally:
            beating.cancel()
            member.stop()
            await asyncio.shield(run(member.close))


async def _beat(member: Member, run: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> None:
    while True:
        await asyncio.sleep(_BEAT_S)
        await run(member.beat)
