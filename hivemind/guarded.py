"""Programs that end with whoever started them: each has a process group of its own, and a guard that outlives kill -9."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Guarded"]

_GRACE_S = 1.0
# Waits for the word "go", so that the program can't run before the guard below watches over it.
_START = 'read go || exit 125; {before}exec "$@"{after}'
# Lives as long as the pipe from its maker does; an end of that without a word ends the program's whole group.
_GUARD = 'read ended || kill -s KILL -- "-$1"'


class Guarded:
    """A running program, `process`; leaving the block ends its whole group: SIGTERM, a second of grace, SIGKILL.

    `before` are words of the shell that are obeyed first, with `values` as `$1`, `$2`, …; it shifts them away itself. Without
    `reads` the program's standard input is empty, else what is written to `process.stdin`. Raises OSError.
    """

    def __init__(
        self,
        program: Sequence[str],
        *,
        folder: Path | None,
        environment: Mapping[str, str] | None = None,
        before: str = "",
        values: Sequence[str] = (),
        reads: bool = False,
        **streams: Any,
    ) -> None:
        script = _START.format(before=before, after="" if reads else " </dev/null")
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            ["sh", "-c", script, "sh", *values, *program],
            stdin=subprocess.PIPE, cwd=folder, env=None if environment is None else dict(environment),
            start_new_session=True, **streams,
        )  # fmt: skip
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", str(self.process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        _say(self.process, b"go\n", close=not reads)

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except (ProcessLookupError, PermissionError):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE_S)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        _say(self._guard, b"ended\n", close=True)
        self._guard.wait()


def _say(process: subprocess.Popen[bytes], word: bytes, *, close: bool) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already
        process.stdin.write(word)
        process.stdin.flush()
    if close:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
