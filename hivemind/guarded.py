"""Programs that end, with all that they start, with whoever started them."""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from hivemind import guard

_END_S = 5.0
"""So long is waited for what a program leaves behind: who is stuck in a file system that is gone can't be killed before."""
_NEEDED = ("LD_LIBRARY_PATH",)  # by some builds of Python, to start at all
_FOLDER = os.O_DIRECTORY | os.O_PATH
_ENDING = b"\0"
_starting = threading.Lock()
_host: int | None = None  # the socket of it


def bare_environment() -> dict[str, str]:
    """What a Python needs that is to know nothing of ours."""
    return {name: os.environ[name] for name in _NEEDED if name in os.environ}


def start_host() -> None:
    """Start a host of guards (`hivemind.guard`) for this process and those that are forked from it; it ends with the last.

    Where nobody has, the first program starts it.
    """
    global _host
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(theirs.fileno())], cwd="/", env=bare_environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True,
        )  # fmt: skip
    process.returncode = 0  # nobody waits for it
    _host = mine.detach()


def _tell_host(descriptors: Sequence[int]) -> None:
    """Have a guard made; a host that is gone is replaced. Raises OSError."""
    with _starting:
        if _host is not None:
            with contextlib.suppress(ConnectionError):
                _send(_host, descriptors)
                return
            os.close(_host)
        start_host()
        assert _host is not None
        _send(_host, descriptors)


def _send(host: int, descriptors: Sequence[int]) -> None:
    with socket.socket(fileno=os.dup(host)) as orders:
        socket.send_fds(orders, [_ENDING], descriptors)


class GuardedCommand:
    """A running program; leaving the block ends it with all that it started: SIGTERM, a second of grace, SIGKILL.

    A guard (`hivemind.guard`) does the same at once when this process dies, by kill -9 too.
    """

    def __init__(
        self,
        program: Sequence[str],
        *,
        folder: Path | None,
        environment: Mapping[str, str] | None = None,
        cpu_s: int | None = None,
        memory_bytes: int | None = None,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        """`environment` is ours where there is none. The program reads nothing without `stdin`; without `stdout` it prints into
        a pipe, of which `output` is the end, and without `stderr` into the same. Raises OSError."""
        words = [os.fsencode(word) for word in program]
        given = os.environ if environment is None else environment
        order = (words, {os.fsencode(name): os.fsencode(value) for name, value in given.items()}, cpu_s, memory_bytes)
        self.returncode: int | None = None
        self.was_lost = False
        """Whether its guard was killed, so that nobody knows how it would have ended."""
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            place = os.open(folder or ".", _FOLDER)
            theirs.callback(os.close, place)
            stdin = stdin or theirs.enter_context(open(os.devnull, "rb"))
            if stdout is None:
                end, start = os.pipe()
                self.output = ours.enter_context(open(end, "rb"))
                stdout = theirs.enter_context(open(start, "wb"))
            self._line, line = map(ours.enter_context, socket.socketpair())
            theirs.enter_context(line)
            _tell_host([line.fileno(), place, *(one.fileno() for one in (stdin, stdout, stderr or stdout))])
            self._ours = ours.pop_all()
        told = marshal.dumps(order)
        with contextlib.suppress(ConnectionError):  # it has been killed already
            self._line.sendall(len(told).to_bytes(8, "big") + told)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """How the program ended, below zero by a signal, once nothing of it is left; None if it has not after that time."""
        if self.returncode is None:
            self._line.settimeout(timeout_s)
            told = b""
            try:
                told = self._line.recv(guard.STATUS_BYTES)
            except (TimeoutError, BlockingIOError):
                return None
            except ConnectionError:  # it was killed before it had read what it was told
                pass
            self.was_lost = not told
            self.returncode = int.from_bytes(told, "little", signed=True) if told else -signal.SIGKILL
        return self.returncode

    def terminate(self) -> None:
        """Ask it to end: SIGTERM, and a second later SIGKILL for all that it started."""
        with contextlib.suppress(ConnectionError):
            self._line.sendall(_ENDING)

    def __enter__(self) -> GuardedCommand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._ours:
            if self.wait(0) is None:
                self.terminate()
            if self.wait(2 * guard.GRACE_S) is None:
                self._line.shutdown(socket.SHUT_WR)  # the host ends it, or both of them are stuck
            self.wait(_END_S)
