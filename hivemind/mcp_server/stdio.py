"""Standard input and output as the protocol's lines. A read that waits can be given up, so that a signal ends the server."""

from __future__ import annotations

import os
import select
from collections.abc import AsyncIterator
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from hivemind.mcp_server.greeting import Greeting
from hivemind.mcp_server.wire import LIMIT_BYTES, NoMessage, read_message

_CHUNK = 1 << 16
_AT_ONCE = 4096
"""So much a pipe takes without blocking, once it is said to take anything (PIPE_BUF)."""
_LAST_WORDS_S = 2.0
"""So long a client that has closed its end may take to read the answers that it is still owed."""


async def talk(server: Server[Any], given: int, taken: int, greeting: Greeting) -> None:
    """Serve one client on the two descriptors until its input ends, or until nobody reads its output any more.

    What it said when it was greeted the server hears as well; what was answered then is not answered again.
    """
    incoming_writer, incoming_reader = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing_writer, outgoing_reader = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_listen, MessageLines(given, greeting.heard), incoming_writer, outgoing_writer.clone())
        tasks.start_soon(_speak, Out(taken), outgoing_reader, greeting.answered, tasks.cancel_scope)
        await server.run(incoming_reader, outgoing_writer, server.create_initialization_options())
        tasks.cancel_scope.deadline = anyio.current_time() + _LAST_WORDS_S


async def _listen(
    lines: MessageLines,
    heard: MemoryObjectSendStream[SessionMessage | Exception],
    said: MemoryObjectSendStream[SessionMessage],
) -> None:
    """Each line is a message for the server, or is answered here with what is wrong with it."""
    async with heard, said:
        async for line in lines:
            try:
                message = read_message(line)
            except NoMessage as error:
                await said.send(SessionMessage(error.answer))
            else:
                await heard.send(SessionMessage(message))


async def _speak(
    out: Out,
    says: MemoryObjectReceiveStream[SessionMessage],
    answered: set[str | int],
    serving: anyio.CancelScope,
) -> None:
    try:
        async with says:
            async for session_message in says:
                if isinstance(session_message.message, JSONRPCResponse) and session_message.message.id in answered:
                    answered.remove(session_message.message.id)
                    continue
                await out.write(session_message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
    except (BrokenPipeError, ConnectionResetError):  # the client has gone, though its input is still open
        serving.cancel()


class MessageLines:
    """The lines of a descriptor, to its end, without blank ones; `heard` was read from it before.

    What comes after the last line's end is no line: whoever wrote it died over it. Of a line longer than LIMIT_BYTES only so
    much is kept that it can be seen to be longer.
    """

    def __init__(self, file: int, heard: bytes = b"") -> None:
        self._file, self._heard = file, heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: list[bytes] = []
        size = 0
        while data := self._heard or await self._read():
            self._heard = b""
            *line_ends, remainder = data.split(b"\n")
            for line_end in line_ends:
                line = b"".join((*parts, line_end)).strip() if size <= LIMIT_BYTES else b"".join(parts)
                parts, size = [], 0
                if line:
                    yield line
            if size <= LIMIT_BYTES:
                parts.append(remainder)
                size += len(remainder)

    async def _read(self) -> bytes:
        try:
            await anyio.wait_readable(self._file)
        except PermissionError:
            pass  # a file, or nothing (/dev/null): those are always ready
        return os.read(self._file, _CHUNK)


class Out:
    """Writes to a descriptor, and never waits in a write: a client that does not read holds up nothing but its answers."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._room = select.poll()
        self._room.register(file, select.POLLOUT)

    async def write(self, raw: bytes) -> None:
        """Write it all. Raises BrokenPipeError if the client has gone."""
        view = memoryview(raw)
        while view:
            if not self._room.poll(0):
                await anyio.wait_writable(self._file)
            view = view[os.write(self._file, view[:_AT_ONCE]) :]
