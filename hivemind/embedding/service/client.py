"""`SharedEmbedder`: an embedder in another process, started when it is first needed and done without when it fails."""

from __future__ import annotations

import os
import socket
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.embedding.embedder import EmbedderUnavailable
from hivemind.embedding.packed import unpack
from hivemind.embedding.service.frames import VERSION, Incoming, frame, receive
from hivemind.embedding.service.places import connect
from hivemind.embedding.service.starting import kill, start

__all__ = ["SharedEmbedder"]

SILENT_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_TEXTS, _CHARACTERS = 64, 1 << 20  # of one request


class SharedEmbedder:
    """The embedder of kind `kind` that one process serves for all who name the same folder.

    The first call starts the process. A process that says nothing for `silent_s` seconds, not even that our turn will
    come, hangs: it is killed. After any failure EmbedderUnavailable is raised, without trying, for a second, then two, up
    to a minute, until it works again. Safe for threads and forks; `name` and `dimension` are known without the process.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        kind: str,
        name: str,
        dimension: int,
        *,
        silent_s: float = SILENT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.dimension = dimension
        self._folder, self._kind = os.fspath(folder), kind
        self._silent_s, self._clock = silent_s, clock
        self._connection: socket.socket | None = None
        self._guard = threading.Lock()
        self._pause_s, self._not_before = 0.0, -float("inf")
        self._pid = os.getpid()
        self._incoming = Incoming()
        self._number = 0

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """One row for each text. Raises EmbedderUnavailable."""
        self._after_fork()
        with self._guard:
            return [row for part in _parts(texts) for row in self._embed(part)]

    def close(self) -> None:
        """Leave the process; the next call comes back."""
        self._after_fork()
        with self._guard:
            self._leave()

    def __del__(self) -> None:
        self._leave()

    def _after_fork(self) -> None:
        """A connection is one process's: a fork makes its own."""
        if self._pid != os.getpid():
            self._pid, self._guard = os.getpid(), threading.Lock()
            self._leave()

    def _embed(self, texts: list[str]) -> list[array[float]]:
        if self._clock() < self._not_before:
            raise EmbedderUnavailable(f"{self.name}: its process failed a moment ago")
        try:
            found = self._ask(texts)
        except EmbedderUnavailable:
            self._failed()
            raise
        except TimeoutError:
            kill(self._folder, self._kind)
            self._failed()
            raise EmbedderUnavailable(f"{self.name}: its process said nothing for {self._silent_s:g} s") from None
        except (OSError, Unreadable) as error:
            self._failed()
            raise EmbedderUnavailable(f"{self.name}: its process failed ({error})") from None
        self._pause_s, self._not_before = 0.0, -float("inf")
        return found

    def _failed(self) -> None:
        self._leave()
        self._pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause_s))
        self._not_before = self._clock() + self._pause_s

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, texts: list[str]) -> list[array[float]]:
        """The rows for texts. A connection that was closed while we did not look is made anew, once."""
        fresh = self._connection is None
        try:
            return self._ask_once(texts)
        except (ConnectionError, BrokenPipeError):
            self._leave()
            if fresh:
                raise
        return self._ask_once(texts)

    def _ask_once(self, texts: list[str]) -> list[array[float]]:
        connection = self._connected()
        self._number += 1
        connection.sendall(frame({"number": self._number, "texts": texts}))
        while True:
            fields, body = receive(connection, self._incoming)
            if fields.get("number") != self._number or fields.get("waiting"):
                continue
            if "error" in fields:
                raise EmbedderUnavailable(str(fields["error"]))
            return self._rows(fields, body, len(texts))

    def _rows(self, fields: dict[str, Any], body: bytes, count: int) -> list[array[float]]:
        width = 4 * self.dimension
        if fields.get("rows") != count or len(body) != count * width:
            raise Unreadable("another number of rows than texts")
        return [unpack(body[at : at + width]) for at in range(0, len(body), width)]

    def _connected(self) -> socket.socket:
        if self._connection is None:
            try:
                connection = connect(self._folder, self._kind, self._silent_s)
            except OSError:
                start(self._folder, self._kind)
                connection = connect(self._folder, self._kind, self._silent_s)
            self._incoming = Incoming()
            self._connection = connection
            self._greet(connection)
        return self._connection

    def _greet(self, connection: socket.socket) -> None:
        """Raises EmbedderUnavailable if another program, or another model, serves there: it is told to end."""
        hello, _ = receive(connection, self._incoming)
        if (hello.get("version"), hello.get("name"), hello.get("dimension")) != (VERSION, self.name, self.dimension):
            connection.sendall(frame({"end": True}))
            raise EmbedderUnavailable(f"another embedder serves there: {hello.get('name')!r}; it was told to end")


def _parts(texts: list[str]) -> list[list[str]]:
    """Texts in requests of a size that a socket takes well."""
    parts: list[list[str]] = []
    size = 0
    for text in texts:
        if not parts or len(parts[-1]) == _TEXTS or size + len(text) > _CHARACTERS:
            parts.append([])
            size = 0
        parts[-1].append(text)
        size += len(text)
    return parts
