"""Programs that end, with everything that they start, when the process that started them ends."""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from hivemind import reaper

_END_S = 5.0
"""The longest wait for the end of a killed program: a process that hangs in a dead file system cannot be killed."""
_PYTHON_VARIABLES = ("LD_LIBRARY_PATH",)  # some builds of Python need it to start
_HOST = (  # a module is compiled once, a script at each start
    "import os, sys; sys.path.append(os.path.dirname(sys.argv[1])); import reaper; reaper.main(int(sys.argv[2]))"
)
_FOLDER = os.O_DIRECTORY | os.O_PATH
_ENDING = b"\0"
_starting = threading.Lock()
_host: int | None = None  # the socket of it


def bare_environment() -> dict[str, str]:
    """Return the environment for a Python process that must not see this process's variables."""
    return {name: os.environ[name] for name in _PYTHON_VARIABLES if name in os.environ}


def start_host() -> None:
    """Start the reaper host (`hivemind.reaper`), which runs programs for this process and its forks. It ends with the last of
    them.

    Without this call, the first program starts the host.
    """
    global _host
    own_end, host_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with host_end:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _HOST, reaper.__file__, str(host_end.fileno())],
            cwd="/", env=bare_environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(host_end.fileno(),), start_new_session=True,
        )  # fmt: skip
    process.returncode = 0  # no process waits for it
    _host = own_end.detach()


def _order(descriptors: Sequence[int]) -> None:
    """Send the host an order: to run a program with these descriptors. Replace the host if it is gone. Raises OSError."""
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
    orders = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, host)
    try:
        socket.send_fds(orders, [_ENDING], descriptors)
    finally:
        orders.detach()


class ReapedCommand:
    """A running program. At the end of the `with` block, the program and everything that it started are ended: SIGTERM,
    a second of grace, SIGKILL.

    When this process dies, even by kill -9, a reaper (`hivemind.reaper`) kills the program at once.
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
        before_start: Callable[[], object] | None = None,
    ) -> None:
        """Start the program in `folder` (default: this process's folder). Raises OSError.

        `cpu_s` and `memory_bytes` limit each of its processes. `environment` defaults to this process's environment, `stdin` to
        an empty input, `stdout` to a pipe that `output` reads, `stderr` to `stdout`. `before_start` is called once the reaper
        host has the order; if that fails, the command is not started.
        """
        words = [os.fsencode(word) for word in program]
        variables = os.environ if environment is None else environment
        order = (
            words,
            {os.fsencode(name): os.fsencode(value) for name, value in variables.items()},
            cpu_s,
            memory_bytes,
        )
        self.returncode: int | None = None
        self.was_lost = False
        """True if its reaper was killed, so the exit status is unknown."""
        with contextlib.ExitStack() as own_files, contextlib.ExitStack() as program_files:
            folder_file = os.open(folder or ".", _FOLDER)
            program_files.callback(os.close, folder_file)
            stdin = stdin or program_files.enter_context(open(os.devnull, "rb", buffering=0))
            if stdout is None:
                reader, writer = os.pipe()
                self.output = own_files.enter_context(open(reader, "rb"))
                stdout = program_files.enter_context(open(writer, "wb", buffering=0))
            self._line, line = map(own_files.enter_context, socket.socketpair())
            program_files.enter_context(line)
            _order([line.fileno(), folder_file, *(stream.fileno() for stream in (stdin, stdout, stderr or stdout))])
            if before_start is not None:
                before_start()
            self._files = own_files.pop_all()
        message = marshal.dumps(order)
        with contextlib.suppress(ConnectionError):  # the reaper was killed already
            self._line.sendall(len(message).to_bytes(8, "big") + message)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when all the program's processes have ended."""
        return self._line.fileno()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until all the program's processes have ended. Return the exit status, or minus the signal that ended the program.

        Return None if they have not ended after `timeout_s` seconds (None: wait without limit).
        """
        if self.returncode is None:
            self._line.settimeout(timeout_s)
            status = b""
            try:
                status = self._line.recv(reaper.STATUS_BYTES)
            except (TimeoutError, BlockingIOError):
                return None
            except ConnectionError:  # the reaper was killed before it had read the order
                pass
            self.was_lost = not status
            self.returncode = int.from_bytes(status, "little", signed=True) if status else -signal.SIGKILL
        return self.returncode

    def terminate(self) -> None:
        """Ask the program to end: SIGTERM, and a second later SIGKILL for everything that it started."""
        with contextlib.suppress(ConnectionError):
            self._line.sendall(_ENDING)

    def call_at_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` at the end of the `with` block, once the program has ended."""
        self._files.callback(callback)

    def __enter__(self) -> ReapedCommand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._files:
            if self.wait(0) is None:
                self.terminate()
            if self.wait(2 * reaper.GRACE_S) is None:
                self._line.shutdown(socket.SHUT_WR)  # the reaper kills everything, unless reaper and host hang
            self.wait(_END_S)
