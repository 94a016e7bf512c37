"""Programs that end, with all that they start, with whoever started them."""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from hivemind import guard

__all__ = ["Guarded", "bare_environment"]

_END_S = 5.0
"""So long is waited for what a program leaves behind: who is stuck in a file system that is gone can't be killed before."""
_NEEDED = ("LD_LIBRARY_PATH",)  # by some builds of Python, to start at all


def bare_environment() -> dict[str, str]:
    """What a Python needs that is to know nothing of ours."""
    return {name: os.environ[name] for name in _NEEDED if name in os.environ}


class Guarded:
    """A running program; leaving the block ends it with all that it started: SIGTERM, a second of grace, SIGKILL.

    `process` is its guard (`hivemind.guard`), which has the program's streams and ends with the program's exit status, once
    nothing of it is left. It does the same at once when this process dies, by kill -9 too.
    """

    def __init__(
        self,
        program: Sequence[str],
        *,
        folder: Path | None,
        environment: Mapping[str, str] | None = None,
        cpu_s: int | None = None,
        memory_bytes: int | None = None,
        **streams: Any,
    ) -> None:
        """`environment` is ours where there is none; `streams` are those of subprocess.Popen. Raises OSError."""
        words = [os.fsencode(word) for word in program]
        given = os.environ if environment is None else environment
        order = (words, {os.fsencode(name): os.fsencode(value) for name, value in given.items()}, cpu_s, memory_bytes)
        self._line, theirs = socket.socketpair()
        try:
            with theirs:
                self.process: subprocess.Popen[bytes] = subprocess.Popen(
                    [sys.executable, "-I", "-S", guard.__file__, str(theirs.fileno())],
                    cwd=folder, env=bare_environment(),
                    pass_fds=(theirs.fileno(),), start_new_session=True, **streams,
                )  # fmt: skip
            told = marshal.dumps(order)
            with contextlib.suppress(ConnectionError):  # it has been killed already
                self._line.sendall(len(told).to_bytes(8, "big") + told)
        except BaseException:
            self._line.close()
            raise

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(2 * guard.GRACE_S + _END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()  # the inner guard goes on alone
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._await_both()

    def _await_both(self) -> None:
        """Until both guards have ended: where one was killed, the other may still be at it."""
        self._line.settimeout(_END_S)
        with contextlib.suppress(ConnectionError, TimeoutError):
            self._line.recv(1)
        self._line.close()
