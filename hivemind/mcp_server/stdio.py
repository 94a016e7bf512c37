"""MCP over standard input and output. A waiting read can be cancelled, so a signal can end the server."""

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
from hivemind.mcp_server.wire import LIMIT_BYTES, InvalidMessage, read_message

_CHUNK = 1 << 16
_MAX_WRITE = 4096
"""The number of bytes that a writable pipe accepts without blocking (PIPE_BUF)."""
_DRAIN_TIMEOUT_S = 2.0
"""The time that a client has to read outstanding answers after it closed its output."""


async def serve_pipe(server: Server[Any], input_fd: int, output_fd: int, greeting: Greeting) -> None:
    """Serve one client on two descriptors until the input ends or the output is closed.

    The server also gets the messages of the greeting. Requests that the greeting has answered are not answered again.
    """
    incoming_writer, incoming_reader = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing_writer, outgoing_reader = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            _read_messages, MessageLines(input_fd, greeting.received), incoming_writer, outgoing_writer.clone()
        )
        tasks.start_soon(_write_messages, Out(output_fd), outgoing_reader, greeting.answered_ids, tasks.cancel_scope)
        await server.run(incoming_reader, outgoing_writer, server.create_initialization_options())
        tasks.cancel_scope.deadline = anyio.current_time() + _DRAIN_TIMEOUT_S


async def _read_messages(
    lines: MessageLines,
    incoming_writer: MemoryObjectSendStream[SessionMessage | Exception],
    outgoing_writer: MemoryObjectSendStream[SessionMessage],
) -> None:
    """Pass each line to the server as a message. Answer an invalid line with an error."""
    async with incoming_writer, outgoing_writer:
        async for line in lines:
            try:
                message = read_message(line)
            except InvalidMessage as error:
                await outgoing_writer.send(SessionMessage(error.answer))
            else:
                await incoming_writer.send(SessionMessage(message))


async def _write_messages(
    output: Out,
    outgoing_reader: MemoryObjectReceiveStream[SessionMessage],
    answered_ids: set[str | int],
    cancel_scope: anyio.CancelScope,
) -> None:
    try:
        async with outgoing_reader:
            async for session_message in outgoing_reader:
                if isinstance(session_message.message, JSONRPCResponse) and session_message.message.id in answered_ids:
                    answered_ids.remove(session_message.message.id)
                    continue
                await output.write(
                    session_message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                )
    except (BrokenPipeError, ConnectionResetError):  # the client has left, though the input is still open
        cancel_scope.cancel()


class MessageLines:
    """An iterator over the lines of a descriptor, without blank lines. `initial` contains bytes that were read before.

    An unfinished last line is dropped, because its writer died. A line longer than LIMIT_BYTES is cut above that limit, so the
    reader can refuse it.
    """

    def __init__(self, file: int, initial: bytes = b"") -> None:
        self._file, self._initial = file, initial

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: list[bytes] = []
        size = 0
        while data := self._initial or await self._read():
            self._initial = b""
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
            pass  # a regular file or /dev/null, which are always ready
        return os.read(self._file, _CHUNK)


class Out:
    """Writes to a descriptor without blocking, so a client that does not read delays only its own answers."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._room = select.poll()
        self._room.register(file, select.POLLOUT)

    async def write(self, raw: bytes) -> None:
        """Write all bytes. Raises BrokenPipeError if the client has left."""
        view = memoryview(raw)
        while view:
            if not self._room.poll(0):
                await anyio.wait_writable(self._file)
            view = view[os.write(self._file, view[:_MAX_WRITE]) :]
