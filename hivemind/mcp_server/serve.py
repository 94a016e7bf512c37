"""The life of an MCP server: a member joins the hive, serves clients, and leaves."""

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

from hivemind.agent.stop_request import END_WITHIN_S
from hivemind.errors import HivemindError, UserError
from hivemind.json_rpc import client_pipes
from hivemind.layout import Layout
from hivemind.mcp_server.greeting import Greeting, greet
from hivemind.presence.identity import HiveGone, holder_pid
from hivemind.private import keep_keys_private

if TYPE_CHECKING:
    from mcp.server import Server

    from hivemind.mcp_server.member import Member

_log = logging.getLogger(__name__)
_BEAT_S = 1.0
_T = TypeVar("_T")


def serve_stdio(layout: Layout, name: str, profile: str = "core") -> None:
    """Serve one client on standard input and output until the client leaves, or until SIGTERM or SIGINT.

    Raises UserError if the SDK is not installed or the agent does not exist, LockBusy if the agent runs already.
    """
    _check_installed()
    keep_keys_private()
    with client_pipes() as (input_fd, output_fd):
        greeting = Greeting()
        # no greeting for a client that will be refused
        if layout.agent_config(name).exists() and holder_pid(layout, name) is None:
            greeting = greet(input_fd, output_fd, name, layout.root, lambda: _tools(layout, name, profile))
        asyncio.run(_serve_until_signal(_stdio(layout, name, profile, input_fd, output_fd, greeting)))


def _tools(layout: Layout, name: str, profile: str) -> list[dict[str, Any]]:
    """Return the tools that the agent may use, in the form of `tools/list`."""
    from hivemind.hive import Hive
    from hivemind.tools import allowed_tools

    config = Hive.look(layout.root).agent_files.get(name)
    return [tool.mcp_entry() for tool in allowed_tools(config, profile).values()]


def serve_http(
    layout: Layout, name: str, profile: str, port: int, on_ready: Callable[[str, str], None] | None = None
) -> None:
    """Serve clients on this machine that have the token, until SIGTERM or SIGINT.

    `on_ready` gets the address and the token's file. Raises as `serve_stdio` does, and UserError if the port is in use.
    """
    _check_installed()
    keep_keys_private()
    asyncio.run(_serve_until_signal(_http(layout, name, profile, port, on_ready)))


def _check_installed() -> None:
    if importlib.util.find_spec("mcp") is None:
        raise UserError("the MCP SDK is not installed", remedy="pip install 'hivemind-swarm[mcp]'")


async def _serve_until_signal(serving: Coroutine[Any, Any, None]) -> None:
    """Await `serving`, and cancel it at SIGTERM or SIGINT. If it does not end in time, exit."""
    task = asyncio.ensure_future(serving)
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not task.cancelling():
            watchdog = threading.Timer(END_WITHIN_S, _exit_now)
            watchdog.daemon = True
            watchdog.start()
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _exit_now() -> None:
    """Exit at once, because a call is blocked: another process holds the journal, or the disk does not respond.

    An exit is as safe as a kill, which would follow anyway.
    """
    sys.stderr.write(f"hivemind: could not end in order within {END_WITHIN_S:g} s of the signal: exited at once\n")
    os._exit(1)


async def _stdio(layout: Layout, name: str, profile: str, input_fd: int, output_fd: int, greeting: Greeting) -> None:
    from hivemind.mcp_server.stdio import serve_pipe

    async with open_member(layout, name, profile) as (_, server):
        await serve_pipe(server, input_fd, output_fd, greeting)


async def _http(
    layout: Layout, name: str, profile: str, port: int, on_ready: Callable[[str, str], None] | None
) -> None:
    from hivemind.mcp_server.http import listen

    async with open_member(layout, name, profile) as (member, server):
        await listen(server, member, port, on_ready)


@asynccontextmanager
async def open_member(layout: Layout, name: str, profile: str = "core") -> AsyncIterator[tuple[Member, Server[Any]]]:
    """Open a member (an agent with an MCP client as its mind) and its server for the duration of the block. `profile` names its
    set of tools. Only one thread accesses the hive."""
    from hivemind.hive import Hive
    from hivemind.mcp_server.member import Member
    from hivemind.mcp_server.server import build_server

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "member") as thread:

        async def run(function: Callable[[], _T]) -> _T:
            return await loop.run_in_executor(thread, function)

        member = await run(lambda: Member(Hive.open(layout.root), name, profile))
        try:
            async with asyncio.TaskGroup() as tasks:
                heartbeat = tasks.create_task(_beat(member, run))
                try:
                    yield member, build_server(member, run)
                finally:
                    heartbeat.cancel()
        except BaseExceptionGroup as group:  # the first failure has cancelled the others
            raise group.exceptions[0] from None
        finally:
            member.stop()
            await asyncio.shield(run(member.close))


async def _beat(member: Member, run: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> None:
    """Record a heartbeat every second. Raises HiveGone; logs other errors, such as a full disk, and tries again."""
    while True:
        await asyncio.sleep(_BEAT_S)
        try:
            await run(member.beat)
        except HiveGone:
            raise
        except (HivemindError, OSError) as error:
            _log.warning("could not record a heartbeat: %s", error)
