"""One embedding process for all hives of a user: started by the first who needs it, gone a minute after its last use.

It is an interpreter of a session of its own, so it inherits no lock, no socket and no terminal of whoever started it.
Messages are bytes over a Unix socket (`multiprocessing.connection`; nothing is ever unpickled): it greets with its version,
name and dimension; `{"texts": […], "parts": null, "kept" or "asked"}` is answered text by text with "=", the packed vector
and those of its parts, or with "!" and what is wrong.
Who gets no answer searches by words and asks again later; the process may be killed at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

from hivemind.boundary import Unreadable, boundary
from hivemind.embedding.embedder import (
    Embedder,
    EmbedderUnavailable,
    FineEmbedder,
    Meaning,
    embed_finely,
    embed_packed,
    unpack,
)
from hivemind.embedding.local import open_kind
from hivemind.fs import Lock, make_socket_folder, socket_places
from hivemind.fs.locks import is_here
from hivemind.masking import secret_names

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

VERSION = 3
IDLE_S = 60.0
_SILENT_S = 60.0  # without an answer: dozens of others may each have a batch before ours
_START_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_MOST_BYTES = 1 << 26
_ASKED = 64, 1 << 20  # texts of one request, and their characters
_BATCH = 16, 1 << 14  # of one turn: half a second, the longest that a question waits behind a library
_FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}  # a thread for each client must not mean a heap for each
_NICE = 5  # agents that wait for a disk or a person go first
_LOOK_S = 1.0


def users_folder() -> str:
    """Where the lock, the socket and the log of this installation's process lie: the same for all hives of a user."""
    installation = f"{sys.executable} {os.path.dirname(os.path.abspath(__file__))}"
    return os.path.dirname(socket_places(installation, "embedder")[-1])


def lock_of(folder: str, kind: str) -> Lock:
    """The lock that the one process of a kind holds for as long as it lives."""
    return Lock(os.path.join(folder, f"{kind}.lock"))


def listen(folder: str, kind: str) -> socket.socket:
    """A listening socket, put in the place of what a killed process left. Requires the lock. Raises OSError."""
    path = os.path.join(folder, f"{kind}.socket")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listening.bind(path)
    listening.listen(128)
    return listening


def connect(folder: str, kind: str, silent_s: float) -> Connection:
    """A connection to the process that serves. Raises OSError if nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as plain:
        limit = struct.pack("ll", int(silent_s), int(silent_s % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # what takes longer raises BlockingIOError
            plain.setsockopt(socket.SOL_SOCKET, option, limit)
        plain.connect(os.path.join(folder, f"{kind}.socket"))
        return _connection(plain)


def _connection(plain: socket.socket) -> Connection:
    from multiprocessing.connection import Connection  # late: most commands embed nothing

    return Connection(plain.detach())


def _told(raw: bytes) -> dict[str, Any]:
    """The object of a message. Raises Unreadable."""
    with boundary("message of an embedding process"):
        found = json.loads(raw)
        if not isinstance(found, dict):
            raise TypeError("no object")
        return found


def _parts(texts: Sequence[str], most: int, characters: int) -> Iterator[Sequence[str]]:
    """The texts in order, `most` at once at most, and fewer where they are long."""
    start = size = 0
    for at, text in enumerate(texts):
        if at > start and (at - start == most or size + len(text) > characters):
            yield texts[start:at]
            start, size = at, 0
        size += len(text)
    if texts:
        yield texts[start:]


class SharedEmbedder:
    """The embedder of kind `kind` that one process serves for all who name the same folder.

    The first call starts the process. A process that does not answer for `silent_s` seconds hangs: it is killed. After any
    failure EmbedderUnavailable is raised, without trying, for a second, then two, up to a minute, until it works again.
    Safe for threads and forks; `name` and `dimension` are known without the process.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        kind: str,
        name: str,
        dimension: int,
        *,
        silent_s: float = _SILENT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.dimension = dimension
        self._folder, self._kind = os.fspath(folder), kind
        self._silent_s, self._clock = silent_s, clock
        self._connection: Connection | None = None
        self._guard = threading.Lock()
        self._asked: tuple[list[str], list[Meaning]] = ([], [])
        self._pause_s, self._not_before = 0.0, -float("inf")
        self._pid = os.getpid()

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """One row for each text. Raises EmbedderUnavailable."""
        return [unpack(one.vector) for one in self._together(texts, None)]

    def embed_finely(self, texts: list[str], *, asked: bool = False) -> Sequence[Meaning]:
        """The meaning of each text with its parts. Raises EmbedderUnavailable."""
        if not asked:
            return self._together(texts, "kept")
        if texts != self._asked[0]:  # documents and graphs are asked the same, one after the other
            self._asked = [*texts], self._together(texts, "asked")
        return self._asked[1]

    def _together(self, texts: Sequence[str], parts: str | None) -> list[Meaning]:
        if self._pid != os.getpid():  # a connection is one process's: a fork makes its own
            self._pid, self._guard = os.getpid(), threading.Lock()
            self._leave()
        with self._guard:
            return [one for some in _parts(texts, *_ASKED) for one in self._embed(some, parts)]

    def _embed(self, texts: Sequence[str], parts: str | None) -> list[Meaning]:
        if self._clock() < self._not_before:
            raise EmbedderUnavailable(f"{self.name}: its process failed a moment ago")
        try:
            try:
                found = self._ask(texts, parts)
            except (ConnectionError, EOFError):  # it ended, as it does when it has nothing to do, or was killed
                self._leave()
                found = self._ask(texts, parts)
        except BlockingIOError:
            _kill(self._folder, self._kind)
            raise self._failed(f"said nothing for {self._silent_s:g} s") from None
        except EmbedderUnavailable as error:
            raise self._failed(error.what) from None
        except (OSError, EOFError, Unreadable) as error:
            raise self._failed(f"failed ({error})") from None
        self._pause_s, self._not_before = 0.0, -float("inf")
        return found

    def _failed(self, what: str) -> EmbedderUnavailable:
        self._leave()
        self._pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause_s))
        self._not_before = self._clock() + self._pause_s
        return EmbedderUnavailable(f"{self.name}: its process {what}")

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, texts: Sequence[str], parts: str | None) -> list[Meaning]:
        connection, end = self._connected(), 1 + 4 * self.dimension
        found: list[Meaning] = []
        connection.send_bytes(json.dumps({"texts": texts, "parts": parts}).encode())
        while len(found) < len(texts):
            told = connection.recv_bytes(_MOST_BYTES)
            if told[:1] == b"!":
                raise EmbedderUnavailable(f"said: {told[1:].decode(errors='replace')}")
            if told[:1] != b"=" or len(told) < end:
                raise Unreadable("gave what is no vector")
            found.append(Meaning(told[1:end], told[end:]))
        return found

    def _connected(self) -> Connection:
        if self._connection is None:
            try:
                connection = connect(self._folder, self._kind, self._silent_s)
            except OSError:
                _start(self._folder, self._kind)
                connection = connect(self._folder, self._kind, self._silent_s)
            hello = _told(connection.recv_bytes(_MOST_BYTES))
            if hello != {"version": VERSION, "name": self.name, "dimension": self.dimension}:
                connection.send_bytes(b'{"end": true}')
                raise EmbedderUnavailable(f"is another embedder's, {hello.get('name')!r}; it was told to end")
            self._connection = connection
        return self._connection


def _start(folder: str, kind: str) -> None:
    """Have a process listen, this one or another's; it loads its model after that. Raises EmbedderUnavailable."""
    program = f"import sys; from {__name__} import main; sys.exit(main(*sys.argv[1:]))"
    try:
        make_socket_folder(folder, private=True)
        status = subprocess.run(
            [sys.executable, "-c", program, folder, kind],
            check=False,
            timeout=_START_S,
            env={name: value for name, value in os.environ.items() if name not in secret_names()} | _FEW_ARENAS,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbedderUnavailable(f"does not start ({error})") from None
    if status != 0:
        raise EmbedderUnavailable(f"does not start: see {os.path.join(folder, kind)}.log")


def _kill(folder: str, kind: str) -> None:
    """End the process that holds the lock, without asking it."""
    holder = lock_of(folder, kind).holder() or {}
    pid = holder.get("pid")
    if isinstance(pid, int) and is_here(holder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Server:
    """Serves an embedder on a listening socket, whose path it watches. `clock` gives monotonic seconds."""

    def __init__(
        self,
        embedder: Embedder,
        listening: socket.socket,
        *,
        clock: Callable[[], float] = time.monotonic,
        idle_s: float = IDLE_S,
    ) -> None:
        self._embedder, self._listening = embedder, listening
        self._path = listening.getsockname()
        self._inode = os.stat(self._path).st_ino
        self._clock, self._idle_s, self._used = clock, idle_s, clock()
        self._ended = False
        self._turns = ThreadPoolExecutor(1)  # first come, first served: one batch of each client in turn
        listening.settimeout(_LOOK_S)

    def serve(self) -> None:
        """Returns once nobody needs it any more."""
        while not self.is_over():
            with contextlib.suppress(OSError):
                plain, _ = self._listening.accept()
                threading.Thread(target=self._talk, args=(plain,), daemon=True).start()

    def is_over(self) -> bool:
        """Whether it is time to end: told to, unused for a minute, or its socket was taken away."""
        if self._ended or self._clock() - self._used > self._idle_s:
            return True
        try:
            return os.stat(self._path).st_ino != self._inode
        except OSError:
            return True

    def _talk(self, plain: socket.socket) -> None:
        """Answer one client, until it leaves or talks nonsense."""
        plain.settimeout(None)
        with _connection(plain) as client, contextlib.suppress(OSError, EOFError, Unreadable):
            hello = {"version": VERSION, "name": self._embedder.name, "dimension": self._embedder.dimension}
            client.send_bytes(json.dumps(hello).encode())
            while not self._ended:
                order = _told(client.recv_bytes(_MOST_BYTES))
                texts = order.get("texts")
                if order.get("end") is True:
                    self._ended = True
                elif isinstance(texts, list) and all(isinstance(text, str) for text in texts):
                    self._answer(client, texts, order.get("parts"))
                else:
                    return

    def _answer(self, client: Connection, texts: Sequence[str], parts: object) -> None:
        for batch in _parts(texts, *_BATCH):
            self._used = self._clock()
            try:
                found = self._turns.submit(self._embed, batch, parts).result()
            except EmbedderUnavailable as error:
                client.send_bytes(b"!" + str(error).encode("utf-8", "replace"))
                return
            for one in found:
                client.send_bytes(b"=" + one.vector + one.parts)

    def _embed(self, texts: Sequence[str], parts: object) -> list[Meaning]:
        if parts in ("kept", "asked") and isinstance(self._embedder, FineEmbedder):
            return embed_finely(self._embedder, texts, asked=parts == "asked")
        return [Meaning(vector) for vector in embed_packed(self._embedder, texts)]


def main(folder: str, kind: str) -> int:
    """Serve in a child that is nobody's, unless another process does. Returns once there is a socket to connect to."""
    up, up_end = os.pipe()
    if os.fork() == 0:
        os.close(up)
        _be(folder, kind, up_end)
    os.close(up_end)
    return 0 if os.read(up, 1) else 1


def _be(folder: str, kind: str, up: int) -> NoReturn:
    status = 1
    try:
        os.chdir("/")
        lock, end = lock_of(folder, kind), time.monotonic() + _START_S / 2
        while not lock.acquire(wait=False, what=f"embedding ({kind})"):
            with contextlib.suppress(OSError):
                connect(folder, kind, 1.0).close()
                os.write(up, b"+")
                os._exit(0)
            if time.monotonic() > end:
                os._exit(1)
            time.sleep(0.05)  # it is about to listen, or to end
        log = os.open(os.path.join(folder, f"{kind}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.nice(_NICE)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        server = Server(open_kind(kind), listen(folder, kind))
        os.write(up, b"+")
        os.close(up)
        server.serve()
        os.unlink(os.path.join(folder, f"{kind}.socket"))
        status = 0
    except Exception:  # the boundary of a process: what happened stands in its log
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
