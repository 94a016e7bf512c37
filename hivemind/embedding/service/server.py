"""The embedding process: one thread, one model, any number of clients.

It holds `<kind>.lock` for as long as it lives, so there is one per folder. It ends when nobody has been connected for a
minute, when nobody has asked for ten, when its socket is taken away, or when a client tells it to.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.embedding.embedder import Embedder, EmbedderUnavailable
from hivemind.embedding.packed import embed_packed
from hivemind.embedding.service.frames import VERSION, Incoming, frame
from hivemind.embedding.service.queue import FairQueue, Request

__all__ = ["Server"]

ALONE_S = 60.0
IDLE_S = 600.0
_BATCH, _CHARACTERS = 16, 16_384  # texts, and what they come to: half a second, the longest that nobody is heard
_LOOK_S = 5.0
_CHUNK = 1 << 18


@dataclass(slots=True)
class _Client:
    number: int
    connection: socket.socket
    incoming: Incoming = field(default_factory=Incoming)
    outgoing: bytearray = field(default_factory=bytearray)


class Server:
    """Serves an embedder on a listening socket, whose path it watches. `clock` gives monotonic seconds."""

    def __init__(
        self,
        embedder: Embedder,
        listening: socket.socket,
        *,
        clock: Callable[[], float] = time.monotonic,
        alone_s: float = ALONE_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._embedder = embedder
        self._listening = listening
        self._path = listening.getsockname()
        self._inode = os.stat(self._path).st_ino
        self._clock, self._alone_s, self._idle_s = clock, alone_s, idle_s
        self._numbers = count(1)
        self._clients: dict[int, _Client] = {}
        self._queue = FairQueue()
        self._ended = False
        self._alone_since = self._idle_since = clock()
        self._selector = selectors.DefaultSelector()
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Returns once nobody needs it any more."""
        try:
            while not self.is_over():
                self.step(_LOOK_S)
        finally:
            self.close()

    def close(self) -> None:
        """Leave all clients; the listening socket is its owner's."""
        for client in list(self._clients.values()):
            self._leave(client)
        self._selector.close()

    def is_over(self) -> bool:
        """Whether it is time to end."""
        now = self._clock()
        if self._clients:
            self._alone_since = now
        alone, idle = now - self._alone_since, now - self._idle_since
        return self._ended or alone > self._alone_s or idle > self._idle_s or self._is_cut_off()

    def _is_cut_off(self) -> bool:
        try:
            return os.stat(self._path).st_ino != self._inode
        except OSError:
            return True

    def step(self, timeout: float) -> None:
        """Hear who has something to say, then embed one batch. Waits at most `timeout` seconds for something to do."""
        for key, events in self._selector.select(0 if self._queue else timeout):
            if key.data is None:
                self._accept()
            elif events & selectors.EVENT_WRITE:
                self._send(key.data)
            else:
                self._hear(key.data)
        if self._queue:
            self._embed()
            self._idle_since = self._clock()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = self._listening.accept()
            connection.setblocking(False)
            client = _Client(next(self._numbers), connection)
            self._clients[client.number] = client
            self._selector.register(connection, selectors.EVENT_READ, client)
            hello = {"version": VERSION, "name": self._embedder.name, "dimension": self._embedder.dimension}
            self._say(client, hello)

    def _hear(self, client: _Client) -> None:
        try:
            data = client.connection.recv(_CHUNK)
            if not data:
                self._leave(client)
                return
            client.incoming.take(data)
            while (found := client.incoming.next()) is not None:
                self._obey(client, found[0])
        except BlockingIOError:
            return
        except (OSError, Unreadable):  # who talks nonsense is not talked to
            self._leave(client)

    def _obey(self, client: _Client, order: dict[str, Any]) -> None:
        """Raises Unreadable for what is no order."""
        if order.get("end") is True:
            self._ended = True
            return
        number, texts = order.get("number"), order.get("texts")
        if not isinstance(number, int) or not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            raise Unreadable("is no order")
        self._queue.add(Request(client.number, number, texts))

    def _embed(self) -> None:
        batch = self._queue.take(_BATCH, _CHARACTERS)
        places: dict[int, int] = {}
        texts = []
        for request in batch:
            place = places.setdefault(request.client, len(request.rows))
            texts.append(request.texts[place])
            places[request.client] += 1
        try:
            rows = embed_packed(self._embedder, texts)
        except EmbedderUnavailable as error:
            for number in {request.client for request in batch}:
                self._refuse(number, str(error))
            return
        for request, row in zip(batch, rows, strict=True):
            request.rows.append(row)
        for number in self._queue.clients:
            if number in self._clients:
                self._tell(number)

    def _tell(self, number: int) -> None:
        """Give a client that waits its rows, or a word that its turn comes."""
        request, client = self._queue.of(number), self._clients[number]
        if request.is_answered:
            self._queue.drop(number)
            self._say(client, {"number": request.number, "rows": len(request.rows)}, b"".join(request.rows))
        elif not client.outgoing:
            self._say(client, {"number": request.number, "waiting": True})

    def _refuse(self, number: int, why: str) -> None:
        request = self._queue.of(number)
        self._queue.drop(number)
        self._say(self._clients[number], {"number": request.number, "error": why})

    def _say(self, client: _Client, fields: dict[str, Any], body: bytes = b"") -> None:
        client.outgoing += frame(fields, body)
        self._send(client)

    def _send(self, client: _Client) -> None:
        try:
            while client.outgoing:
                del client.outgoing[: client.connection.send(client.outgoing)]
        except BlockingIOError:
            self._selector.modify(client.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
            return
        except OSError:
            self._leave(client)
            return
        self._selector.modify(client.connection, selectors.EVENT_READ, client)

    def _leave(self, client: _Client) -> None:
        if self._clients.pop(client.number, None) is not None:
            self._queue.drop(client.number)
            self._selector.unregister(client.connection)
            client.connection.close()
