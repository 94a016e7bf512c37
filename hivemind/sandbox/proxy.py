"""The HTTP proxy through which a program in a box reaches the network: tunnels (CONNECT) and plain requests to listed hosts.

It is a thread of the agent's process and listens on a Unix socket that is bound into the box. A name is resolved here, once, and
the connection goes to the address that was checked. The proxy composes each plain request again and sends only one over a
connection, so the program cannot hide another request in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import threading

from hivemind.boundary import Unreadable, boundary
from hivemind.frozen import frozen
from hivemind.sandbox.hosts import Hosts, as_address, is_public, split_authority

_MAX_CONNECTIONS = 128  # further ones wait
_MAX_REFUSALS = 100
_HEAD_BYTES, _CHUNK_BYTES = 1 << 16, 1 << 16
_HEAD_S, _CONNECT_S = 30.0, 30.0
_REQUEST = re.compile(r"(?:(CONNECT) |(?!CONNECT)([A-Z]+) http://)([^\s/?#@]+)([/?]\S*)? HTTP/1\.[01]", re.ASCII)
_HEADER = re.compile(r"([\w!#$%&'*+.^`|~-]+):([^\r\n\0]*)", re.ASCII)
_LENGTH = re.compile("[0-9]{1,15}", re.ASCII)
_OWN_HEADERS = {"host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length"}
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Refusal(Exception):
    """A request that is answered with an error. `is_recorded` says that the program asked for a host that it may not reach."""

    def __init__(self, status: str, reason: str, *, is_recorded: bool = False) -> None:
        super().__init__(reason)
        self.status, self.is_recorded = status, is_recorded


@frozen
class _Request:
    method: str
    host: str
    port: int
    path: str
    headers: tuple[str, ...]
    body_length: int = 0

    @classmethod
    def parse(cls, head: bytes) -> _Request:
        """Read the head of a request. Raises ValueError for anything that two readers could understand differently."""
        line, *header_lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        match = _REQUEST.fullmatch(line)
        headers = [header for header_line in header_lines if (header := _HEADER.fullmatch(header_line))]
        if match is None or len(headers) < len(header_lines):
            raise ValueError(line)
        is_tunnel, method, authority, path = match.groups(default="")
        host, port = split_authority(authority)
        fields = [(header[1].lower(), header[2].strip()) for header in headers]
        lengths = {value for name, value in fields if name == "content-length"} or {"0"}
        is_chunked = not is_tunnel and any(name == "transfer-encoding" for name, _ in fields)
        if "*" in host or (is_tunnel and (port is None or path)) or len(lengths) > 1 or is_chunked:
            raise ValueError(line)
        [length] = lengths
        if not _LENGTH.fullmatch(length):
            raise ValueError(length)
        forwarded = (f"{name}: {value}" for name, value in fields if name not in _OWN_HEADERS and name[:6] != "proxy-")
        path = path if path.startswith("/") else f"/{path}"
        return cls(is_tunnel or method, host, port or 80, path, tuple(forwarded), int(length))

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def head(self) -> bytes:
        """Return the head of a plain request in the form for the host."""
        host = self.authority.removesuffix(":80")
        length = (f"Content-Length: {self.body_length}",) if self.body_length or self.method in ("POST", "PUT") else ()
        lines = [f"{self.method} {self.path} HTTP/1.1", f"Host: {host}", *self.headers, *length, "Connection: close"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Proxy:
    """A proxy on the Unix socket `path`, for the `hosts`. It ends with this process, or by `close`."""

    def __init__(self, path: str, hosts: Hosts) -> None:
        """Start the proxy. Raises OSError."""
        self.path, self._hosts = path, hosts
        self._refusals: dict[str, bool] = {}  # true: already reported
        self._loop = asyncio.new_event_loop()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of a process that was killed
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(path)
            self._listener.listen(socket.SOMAXCONN)
        except OSError:
            self._listener.close()
            raise
        self._listener.setblocking(False)
        self._serving = self._loop.create_task(self._serve())
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def refusals(self) -> list[str]:
        """Return what was refused since the last call, each host once."""
        lines = [line for line, is_reported in [*self._refusals.items()] if not is_reported]
        self._refusals.update(dict.fromkeys(lines, True))
        return lines

    def close(self) -> None:
        """End all connections."""
        self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _run(self) -> None:
        with self._listener, contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)
        self._loop.close()  # does not wait for a name that is being resolved

    async def _serve(self) -> None:
        slots, tasks = asyncio.Semaphore(_MAX_CONNECTIONS), set[asyncio.Task[None]]()
        try:
            while True:
                await slots.acquire()
                try:
                    client = await self._accept()
                except OSError:  # too many open files
                    slots.release()
                    await asyncio.sleep(0.1)
                    continue
                task = self._loop.create_task(self._handle(client))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(lambda _: slots.release())
        finally:
            await asyncio.sleep(0)  # a task that is cancelled before its first step would not close its client
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # closes their sockets

    async def _accept(self) -> socket.socket:
        """Return the next client. (`sock_accept` of the loop loses a client if it is cancelled as the client comes.)"""
        while True:
            with contextlib.suppress(BlockingIOError):
                client, _ = self._listener.accept()
                client.setblocking(False)
                return client
            is_readable: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_reader(self._listener, _wake, is_readable)
            try:
                await is_readable
            finally:
                self._loop.remove_reader(self._listener)

    async def _handle(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=client, limit=_HEAD_BYTES)
        try:
            try:
                async with asyncio.timeout(_HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                try:
                    with boundary("request"):
                        request = _Request.parse(head)
                except Unreadable:
                    raise _Refusal("400 Bad Request", "the request is ambiguous, or its body has no length") from None
                await self._forward(request, reader, writer)
            except _Refusal as refusal:
                if refusal.is_recorded and len(self._refusals) < _MAX_REFUSALS:
                    self._refusals.setdefault(str(refusal), False)
                text = f"hivemind: {refusal}\n"
                fields = f"Content-Type: text/plain\r\nContent-Length: {len(text.encode())}\r\nConnection: close"
                writer.write(f"HTTP/1.1 {refusal.status}\r\n{fields}\r\n\r\n{text}".encode())
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # one of the two has gone
        finally:
            writer.close()

    async def _forward(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_tunnel = request.method == "CONNECT"
        server_reader, server_writer = await self._connect(request)
        try:
            if is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            request_length = None if is_tunnel else request.body_length
            await asyncio.gather(_copy(reader, server_writer, request_length), _copy(server_reader, writer))
        finally:
            server_writer.close()

    async def _connect(self, request: _Request) -> _Streams:
        """Connect to the host of a request and return the streams. Forward the head if the request is a plain one (not a tunnel).

        Raises _Refusal.
        """
        if not self._hosts.allow(request.host, request.port):
            raise _Refusal(
                "403 Forbidden", f"{request.authority} is not under network: in the agent's file", is_recorded=True
            )
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await self._connect_directly(request)
                if request.method != "CONNECT":
                    writer.write(request.head())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            raise _Refusal("502 Bad Gateway", f"{request.authority} cannot be reached: {reason}") from None
        return reader, writer

    async def _connect_directly(self, request: _Request) -> _Streams:
        """Connect to the host at one of its addresses that is public or listed, and return the streams. Raises OSError,
        _Refusal.
        """
        results = await self._loop.getaddrinfo(request.host, request.port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(result[4][0]) for result in results))
        pairs = [(text, address) for text in addresses if (address := as_address(text)) is not None]
        allowed = [text for text, ip in pairs if is_public(ip) or self._hosts.allow(str(ip), request.port)]
        if not allowed:
            private = f"{request.host} is {addresses[0]}, which is on this machine or a local network"
            reason = f"{private}, and {addresses[0]}:{request.port} is not under network: in the agent's file"
            raise _Refusal("403 Forbidden", reason, is_recorded=True)
        for text in allowed[:-1]:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(text, request.port)
        return await asyncio.open_connection(allowed[-1], request.port)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int | None = None) -> None:
    """Copy `length` bytes. Without `length`, copy everything and then close the writer's sending side."""
    remaining = length
    while remaining != 0 and (data := await reader.read(min(remaining or _CHUNK_BYTES, _CHUNK_BYTES))):
        writer.write(data)
        await writer.drain()
        remaining = None if remaining is None else remaining - len(data)
    if length is None and writer.can_write_eof():
        writer.write_eof()
