"""From its first moment to its last: a member joins the hive, serves a client, and leaves in order (spec 7, *MCP*)."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from hivemind.errors import HivemindError, UserError
from hivemind.layout import Layout
from hivemind.mcp_server.greeting import Greeting, greet, own_streams
from hivemind.presence.identity import HiveGone, holder_pid
from hivemind.private import keep_keys_private
from hivemind.swarm.nursery import END_WITHIN_S

if TYPE_CHECKING:
    from mcp.server import Server

    from hivemind.mcp_server.member import Member

_log = logging.getLogger(__name__)
_BEAT_S = 1.0
_T = TypeVar("_T")


def serve_stdio(layout: Layout, name: str, profile: str = "core") -> None:
    """Serve one client on standard input and output until its end, SIGTERM or SIGINT.

    Raises UserError if the SDK is not installed or if there is no such agent, HeldLock if it runs already.
    """
    _check_installed()
    keep_keys_private()
    with own_streams() as (input_fd, output_fd):
        greeting = Greeting()
        if layout.agent_config(name).exists() and holder_pid(layout, name) is None:  # who is refused is not greeted
            greeting = greet(input_fd, output_fd, name, layout.root, lambda: _tools(layout, name, profile))
        asyncio.run(_until_told(_stdio(layout, name, profile, input_fd, output_fd, greeting)))


def _tools(layout: Layout, name: str, profile: str) -> list[dict[str, Any]]:
    """The tools that the agent may use, as `tools/list` answers."""
    from hivemind.hive import Hive
    from hivemind.tools import allowed_tools

    config = Hive.look(layout.root).agent_files.get(name)
    return [tool.mcp_entry() for tool in allowed_tools(config, profile).values()]


def serve_http(
    layout: Layout, name: str, profile: str, port: int, on_ready: Callable[[str, str], None] | None = None
) -> None:
    """Serve clients on loopback that show the token, until SIGTERM or SIGINT. Raises as above, and for a port in use.

    `on_ready` is told the address and the file that the token is in.
    """
    _check_installed()
    keep_keys_private()
    asyncio.run(_until_told(_http(layout, name, profile, port, on_ready)))


def _check_installed() -> None:
    if importlib.util.find_spec("mcp") is None:
        raise UserError("the MCP SDK is not installed", remedy="pip install 'hivemind-swarm[mcp]'")


async def _until_told(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until it ends by itself or a signal says so; then it ends in order."""
    task = asyncio.ensure_future(serving)
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not task.cancelling():
            watchdog = threading.Timer(END_WITHIN_S, _end_at_once)
            watchdog.daemon = True
            watchdog.start()
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _end_at_once() -> None:
    """What a call waits for does not come (another process holds the journal, a disk does not answer): nothing is lost by
    ending like one that was killed, and who stays for ever is killed in the end."""
    sys.stderr.write(f"hivemind: told to end, and not able to within {END_WITHIN_S:g} s: ended at once\n")
    os._exit(1)


async def _stdio(layout: Layout, name: str, profile: str, given: int, taken: int, greeting: Greeting) -> None:
    from hivemind.mcp_server.stdio import talk

    async with joined(layout, name, profile) as (_, server):
        await talk(server, given, taken, greeting)


async def _http(
    layout: Layout, name: str, profile: str, port: int, on_ready: Callable[[str, str], None] | None
) -> None:
    from hivemind.mcp_server.http import listen

    async with joined(layout, name, profile) as (member, server):
        await listen(server, member, port, on_ready)


@asynccontextmanager
async def joined(layout: Layout, name: str, profile: str = "core") -> AsyncIterator[tuple[Member, Server[Any]]]:
    """A member and its server, for as long as the block lasts. All that touches the hive happens on one thread."""
    from hivemind.hive import Hive
    from hivemind.mcp_server.member import Member
    from hivemind.mcp_server.news import News
    from hivemind.mcp_server.server import build_server

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "member") as thread:

        async def run(do: Callable[[], _T]) -> _T:
            return await loop.run_in_executor(thread, do)

        member, news = await run(lambda: Member(Hive.open(layout.root), name, profile)), News()
        try:
            async with asyncio.TaskGroup() as tasks:
                background_tasks = [tasks.create_task(_beat(member, run)), tasks.create_task(news.follow(member))]
                try:
                    yield member, build_server(member, run, news)
                finally:
                    for task in background_tasks:
                        task.cancel()
        except BaseExceptionGroup as group:  # the first that went wrong has ended the others
            raise group.exceptions[0] from None
        finally:
            member.stop()
            await asyncio.shield(run(member.close))


async def _beat(member: Member, run: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> None:
    """Once a second. Raises HiveGone; what else is wrong may be over by the next time (no room on the disk)."""
    while True:
        await asyncio.sleep(_BEAT_S)
        try:
            await run(member.beat)
        except HiveGone:
            raise
        except (HivemindError, OSError) as error:
            _log.warning("no sign of life: %s", error)
