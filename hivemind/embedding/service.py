"""One embedding process for all hives of a user, started at first use and ended a minute after its last use.

The process is a new interpreter in a new session: it inherits no lock, socket or terminal. Messages are bytes over a Unix
socket (`multiprocessing.connection`, without pickle). The server greets a client with its version, name and dimension.
A request is `{"texts": […], "parts": null, "kept" (stored texts) or "asked" (a query), "background": true or false}`. The
server answers each text with "=", its packed vector and the vectors of its parts, or ends the answer with "!" and an error
message. "." says that the answer will come. A client without an answer searches by words and asks later, so the process may
be killed at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.embedding.embedder import (
    Embedder,
    EmbedderUnavailable,
    FineEmbedder,
    TextVectors,
    embed_finely,
    embed_packed,
    unpack,
)
from hivemind.embedding.local import KINDS
from hivemind.fs import Lock, make_socket_folder, socket_paths
from hivemind.fs.locks import is_on_this_machine
from hivemind.masking import secret_names

if TYPE_CHECKING:
    import socket
    from concurrent.futures import Future
    from multiprocessing.connection import Connection

VERSION = 4
IDLE_S = 60.0
_SILENT_S = 60.0  # a client waits so long for a sign of life
_ALIVE_S = 10.0  # the server's sign of life to a client that waits, while it embeds the texts of others
_MAX_YIELD_S = 2.0  # background texts wait so long for questions: their agent is idle meanwhile
_START_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_MAX_BYTES = 1 << 28
_REQUEST_TEXTS = 64
_MAX_WORKERS = 4
_REMEMBERED = 1_024  # results: of texts for several questions, or for a client that was killed
_FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}  # one heap for the threads of all clients
_NICE = 5  # agents have priority
_CHECK_INTERVAL_S = 1.0


def users_folder() -> str:
    """Return the folder of this installation's lock, socket and log, which all hives of a user share."""
    installation = f"{sys.executable} {os.path.dirname(os.path.abspath(__file__))}"
    return socket_paths(installation, "embedder")[-1]


def lock_of(folder: str, kind: str) -> Lock:
    """Return the lock that the process for this kind of embedder holds while it runs."""
    return Lock(os.path.join(folder, f"{kind}.lock"))


def listen(folder: str, kind: str) -> socket.socket:
    """Return a listening socket; delete the socket that a killed process left. Raises OSError.

    Call `listen` only while holding `lock_of(folder, kind)`.
    """
    import socket

    path = os.path.join(folder, f"{kind}.socket")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listening.bind(path)
    listening.listen(128)
    return listening


def connect(folder: str, kind: str, silent_s: float) -> Connection:
    """Connect to the serving process. Raises OSError if no process listens.

    Each send or receive on the connection times out after `silent_s` seconds.
    """
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as plain:
        limit = struct.pack("ll", int(silent_s), int(silent_s % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # a timeout raises BlockingIOError
            plain.setsockopt(socket.SOL_SOCKET, option, limit)
        plain.connect(os.path.join(folder, f"{kind}.socket"))
        return _connection(plain)


def _connection(plain: socket.socket) -> Connection:
    from multiprocessing.connection import Connection  # late: most commands do not embed

    return Connection(plain.detach())


def _parse_object(raw: bytes) -> dict[str, Any]:
    """Parse a message into its JSON object. Raises Unreadable."""
    with boundary("message of an embedding process"):
        message = json.loads(raw)
        if not isinstance(message, dict):
            raise TypeError("not a JSON object")
        return message


class SharedEmbedder:
    """An embedder with its model in another process, which serves all clients that use `folder`.

    The first call starts the process. If the process does not answer within `silent_s` seconds, it is killed. After a
    failure, every call raises EmbedderUnavailable at once, for one second at first and up to a minute after further
    failures. Threads and forks may share an instance. `name` and `dimension` need no process. Texts of an embedder that
    `is_background` are embedded when no other texts wait.
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
        is_background: bool = False,
    ) -> None:
        self.name = name
        self.dimension = dimension
        self._folder, self._kind = os.fspath(folder), kind
        self._silent_s, self._clock, self._is_background = silent_s, clock, is_background
        self._connection: Connection | None = None
        self._guard = threading.Lock()
        self._pause_s, self._not_before = 0.0, -float("inf")
        self._pid = os.getpid()

    @cached_property
    def background(self) -> SharedEmbedder:
        """An embedder with the same vectors that embeds only when no other texts wait."""
        return SharedEmbedder(
            self._folder, self._kind, self.name, self.dimension, silent_s=self._silent_s, is_background=True
        )

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        return [unpack(vectors.vector) for vectors in self._embed_all(texts, None)]

    def embed_finely(self, texts: list[str], *, is_query: bool = False) -> Sequence[TextVectors]:
        return self._embed_all(texts, "asked" if is_query else "kept")

    def _embed_all(self, texts: Sequence[str], parts: str | None) -> list[TextVectors]:
        if self._pid != os.getpid():  # a forked process needs its own connection
            self._pid, self._guard = os.getpid(), threading.Lock()
            self._disconnect()
        with self._guard:
            starts = range(0, len(texts), _REQUEST_TEXTS)
            return [vectors for at in starts for vectors in self._embed(texts[at : at + _REQUEST_TEXTS], parts)]

    def _embed(self, texts: Sequence[str], parts: str | None) -> list[TextVectors]:
        if self._clock() < self._not_before:
            raise EmbedderUnavailable(f"{self.name}: the embedding process failed a moment ago")
        try:
            try:
                vectors = self._ask(texts, parts)
            except (ConnectionError, EOFError):  # the process was idle and ended, or was killed
                self._disconnect()
                vectors = self._ask(texts, parts)
        except BlockingIOError:
            _kill(self._folder, self._kind)
            raise self._note_failure(f"did not answer for {self._silent_s:g} s") from None
        except EmbedderUnavailable as error:
            raise self._note_failure(error.message) from None
        except (OSError, EOFError, Unreadable) as error:
            raise self._note_failure(f"failed ({error})") from None
        self._pause_s, self._not_before = 0.0, -float("inf")
        return vectors

    def _note_failure(self, reason: str) -> EmbedderUnavailable:
        self._disconnect()
        self._pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause_s))
        self._not_before = self._clock() + self._pause_s
        return EmbedderUnavailable(f"{self.name}: the embedding process {reason}")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, texts: Sequence[str], parts: str | None) -> list[TextVectors]:
        connection, vector_end = self._connected(), 1 + 4 * self.dimension
        vectors: list[TextVectors] = []
        request = {"texts": texts, "parts": parts, "background": self._is_background}
        connection.send_bytes(json.dumps(request).encode())
        while len(vectors) < len(texts):
            reply = connection.recv_bytes(_MAX_BYTES)
            if reply == b".":
                continue
            if reply[:1] == b"!":
                raise EmbedderUnavailable(f"reported: {reply[1:].decode(errors='replace')}")
            if reply[:1] != b"=" or len(reply) < vector_end:
                raise Unreadable("sent an invalid vector")
            vectors.append(TextVectors(reply[1:vector_end], reply[vector_end:]))
        return vectors

    def _connected(self) -> Connection:
        if self._connection is None:
            try:
                connection = connect(self._folder, self._kind, self._silent_s)
            except OSError:
                _start(self._folder, self._kind)
                connection = connect(self._folder, self._kind, self._silent_s)
            hello = _parse_object(connection.recv_bytes(_MAX_BYTES))
            if hello != {"version": VERSION, "name": self.name, "dimension": self.dimension}:
                connection.send_bytes(b'{"end": true}')
                raise EmbedderUnavailable(f"serves {hello.get('name')!r} and was asked to end")
            self._connection = connection
        return self._connection


def _start(folder: str, kind: str) -> None:
    """Start an embedding process, or wait until that of another client listens. Raises EmbedderUnavailable."""
    import subprocess  # late: a status asks no embedder

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
    """Kill the embedding process, which holds `lock_of(folder, kind)`."""
    holder = lock_of(folder, kind).holder() or {}
    pid = holder.get("pid")
    if isinstance(pid, int) and is_on_this_machine(holder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


_Job = tuple[int, int, int, str, object, "Future[TextVectors]"]
"""A text in the queue: its urgency, its request's number, its place in the request, text, parts, result."""
_QUERY, _AWAITED, _BACKGROUND = 0, 1, 2  # urgencies


class Server:
    """A server that embeds the texts of clients on a listening socket, until `is_over`. `clock` returns seconds.

    The texts of all clients form one queue: first queries, then texts that an answer needs (request by request), then
    background texts. A worker for each processor takes one text at a time. A text that several clients want is embedded
    once.
    """

    def __init__(
        self, embedder: Embedder, listening: socket.socket, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._embedder, self._listening = embedder, listening
        self._path = listening.getsockname()
        self._inode = os.stat(self._path).st_ino
        self._clock, self._used = clock, clock()
        self._is_ended = False
        from queue import PriorityQueue  # only the server needs it, and futures

        self._guard, self._queue = threading.Lock(), PriorityQueue[_Job]()
        self._results: dict[tuple[bytes, object], Future[TextVectors]] = {}  # by the text's digest and parts
        self._request_numbers, self._embedded_count = itertools.count(), 0
        for _ in range(min(_MAX_WORKERS, os.cpu_count() or 1)):
            threading.Thread(target=self._work, daemon=True).start()
        listening.settimeout(_CHECK_INTERVAL_S)

    def serve(self) -> None:
        """Accept clients, and serve each in its own thread, until `is_over`."""
        while not self.is_over():
            with contextlib.suppress(OSError):
                plain, _ = self._listening.accept()
                threading.Thread(target=self._serve_client, args=(plain,), daemon=True).start()

    def is_over(self) -> bool:
        """Return True if a client asked the server to end, no client used it for a minute, or another file replaced its
        socket."""
        if self._is_ended or self._clock() - self._used > IDLE_S:
            return True
        try:
            return os.stat(self._path).st_ino != self._inode
        except OSError:
            return True

    def _serve_client(self, client_socket: socket.socket) -> None:
        """Answer the client at the other end of the socket until it disconnects or sends an invalid message."""
        client_socket.settimeout(None)
        with _connection(client_socket) as client, contextlib.suppress(OSError, EOFError, Unreadable):
            hello = {"version": VERSION, "name": self._embedder.name, "dimension": self._embedder.dimension}
            client.send_bytes(json.dumps(hello).encode())
            while not self._is_ended:
                request = _parse_object(client.recv_bytes(_MAX_BYTES))
                texts = request.get("texts")
                if request.get("end") is True:
                    self._is_ended = True
                elif isinstance(texts, list) and all(isinstance(text, str) for text in texts):
                    self._answer(client, texts, request.get("parts"), is_background=request.get("background") is True)
                else:
                    return

    def _answer(self, client: Connection, texts: Sequence[str], parts: object, *, is_background: bool) -> None:
        from concurrent.futures import wait

        urgency = _BACKGROUND if is_background else _QUERY if parts == "asked" else _AWAITED
        number = next(self._request_numbers)
        results = [self._result_of(text, parts) for text in texts]
        jobs = [(number, at, texts[at], parts, result) for at, result in enumerate(results)]
        for job in jobs:
            self._queue.put((urgency, *job))
        if is_background and wait(results, _MAX_YIELD_S).not_done:
            for job in jobs:
                self._queue.put((_AWAITED, *job))
        for result in results:
            try:
                vectors = self._wait_for(client, result)
            except EmbedderUnavailable as error:
                client.send_bytes(b"!" + str(error).encode("utf-8", "replace"))
                return
            self._used = self._clock()
            client.send_bytes(b"=" + vectors.vector + vectors.parts)

    def _result_of(self, text: str, parts: object) -> Future[TextVectors]:
        """Return the text's future result. Requests for the same text and parts share one result."""
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(), parts
        with self._guard:
            result = self._results.pop(key, None)
            if result is None or (result.done() and result.exception()):
                from concurrent.futures import Future

                result = Future()
            self._results[key] = result
            if len(self._results) > _REMEMBERED:
                del self._results[next(iter(self._results))]
        return result

    def _wait_for(self, client: Connection, result: Future[TextVectors]) -> TextVectors:
        """Wait for a result. While the workers embed, send the client signs that the answer will come. Raises
        EmbedderUnavailable."""
        while True:
            embedded_before = self._embedded_count
            try:
                return result.result(_ALIVE_S)
            except TimeoutError:
                if self._embedded_count != embedded_before:
                    client.send_bytes(b".")

    def _work(self) -> None:
        while True:
            *_, text, parts, result = self._queue.get()
            with self._guard:
                if result.running() or result.done():  # a more urgent request wanted it, too
                    continue
                result.set_running_or_notify_cancel()
            try:
                [vectors] = self._embed([text], parts)
                result.set_result(vectors)
            except EmbedderUnavailable as error:
                result.set_exception(error)
            self._embedded_count += 1

    def _embed(self, texts: Sequence[str], parts: object) -> list[TextVectors]:
        if parts is not None and isinstance(self._embedder, FineEmbedder):
            return embed_finely(self._embedder, texts, is_query=parts == "asked")
        return [TextVectors(vector) for vector in embed_packed(self._embedder, texts)]


def main(folder: str, kind: str) -> int:
    """Fork a process that serves, unless another one serves already. Return 0 when a process listens, 1 after a failure."""
    up, up_end = os.pipe()
    if os.fork():
        os.close(up_end)
        return 0 if os.read(up, 1) else 1
    os.chdir("/")
    lock, end = lock_of(folder, kind), time.monotonic() + _START_S / 2
    while not lock.acquire(wait=False, what=f"embedding ({kind})"):
        with contextlib.suppress(OSError):
            connect(folder, kind, 1.0).close()
            os.write(up_end, b"+")
            return 0
        if time.monotonic() > end:
            return 1
        time.sleep(0.05)  # the lock's holder is about to listen or to end
    log = os.open(os.path.join(folder, f"{kind}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.nice(_NICE)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = Server(KINDS[kind](), listen(folder, kind))
    os.write(up_end, b"+")
    server.serve()
    os.unlink(os.path.join(folder, f"{kind}.socket"))
    os._exit(0)  # its threads do not end
