"""Shell lines of a root's settings (`setup:`, `check:`), run in a box, because they execute code that agents have written.

With bubblewrap the lines see only the system and the `readable` folders, and write only to the work folder and a HOME. They have
a network, beyond loopback, only with `network`. Without bubblewrap the lines run as the person. They never inherit a key: the
environment is PATH, the language, HOME and CI=1.
"""

from __future__ import annotations

import math
import os
import re
import select
import shlex
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal

from hivemind.boundary import Unreadable, boundary
from hivemind.config import LimitsConfig
from hivemind.frozen import frozen
from hivemind.fs import flush_postponed, sockets
from hivemind.reaped_command import ReapedCommand
from hivemind.sandbox import has_sandbox, sandbox_command
from hivemind.taskrun.bounded_output import BoundedOutput

_INHERITED = re.compile(r"LANG|LANGUAGE|LC_\w+|TZ")
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
_LOG_BYTES = 1 << 23
_CHUNK_BYTES, _MAX_CHUNKS = 1 << 16, 64
_MAX_PROCESSES, _MAX_FILE_BLOCKS = 4096, 1 << 23
"""In a box: processes and threads (the kernel excepts root), and blocks of 512 bytes of a file: 4 GiB."""
_FAILED, _MISSING, _MAX_LINES = 70, 90, 20
_SCRIPT = f"""
if [ "$1" ]; then
    ulimit -f {_MAX_FILE_BLOCKS}
    ulimit -u {_MAX_PROCESSES} 2> /dev/null || ulimit -p {_MAX_PROCESSES} 2> /dev/null || :
fi
shift
number=0
while [ $# -gt 0 ]; do
    printf '$ %s\\n' "$1"
    status=0
    sh -euc "$1" || status=$?
    if [ $status -eq 127 ] && [ "$2" ] && ! command -v -- "$2" > /dev/null; then exit $(({_MISSING} + number)); fi
    if [ $status -ne 0 ]; then printf '[exit status %s] %s\\n' "$status" "$1"; exit $(({_FAILED} + number)); fi
    [ $number -ge {_MAX_LINES - 1} ] || number=$((number + 1))
    shift 2
done
"""
"""Run each line, which its first word follows. The exit status says which line failed, and distinguishes that from a failure of
the box itself, which has other statuses."""


@frozen
class LinesResult:
    """The end of a run. The outcome `failed` means that a line failed, `failed_to_run` that a program or the box is missing,
    or that the run was killed from outside."""

    outcome: Literal["passed", "failed", "failed_to_run"]
    reason: str = ""
    line: str | None = None


def is_boxed(box: Literal["auto", "none"] = "auto") -> bool:
    """Return True if shell lines of a root run in a box: there is a sandbox, and `box` (the setting `check_box`) is `auto`."""
    return box == "auto" and has_sandbox()


def start_lines(
    lines: Sequence[str],
    folder: Path,
    home: Path,
    *,
    boxed: bool,
    network: bool,
    log: BinaryIO,
    readable: Iterable[Path] = (),
    limits: LimitsConfig | None = None,
    timeout_s: float | None = None,
) -> RunningLines:
    """Start shell lines in `folder`, one after the other until one fails, with their output in `log` (at most 8 MiB). They have
    `timeout_s` seconds, by default `wall_s` of the limits. Use `boxed` only where `is_boxed` is true.

    Raises UserError, OSError.
    """
    limits = limits or LimitsConfig()
    words = [word for line in lines for word in (line, _program(line))]
    argv = ["sh", "-uc", _SCRIPT, "sh", "boxed" if boxed else "", *words]
    if boxed:
        argv = sandbox_command(argv, folder, None, dict.fromkeys(readable, False), home=home, network=network)
    timeout_s = timeout_s or limits.wall_s
    flush_postponed()
    process = ReapedCommand(
        argv, folder=folder, environment=_environment(home), cpu_s=math.ceil(max(limits.cpu_s, timeout_s)),
        memory_bytes=limits.memory_mb << 20,
    )  # fmt: skip
    return RunningLines(process, lines, log, boxed, timeout_s)


def _program(line: str) -> str:
    """Return the installed program that a line runs: its first word after assignments. Return "" if the line cannot be split, or
    if the word is a relative path."""
    try:
        with boundary("command line", line):
            words = shlex.split(line)
    except Unreadable:
        return ""
    program = next((word for word in words if not _ASSIGNMENT.fullmatch(word)), "")
    return program if "/" not in program or os.path.isabs(program) else ""


def _environment(home: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
    path = os.pathsep.join(filter(os.path.isabs, os.get_exec_path()))
    return {**inherited, "PATH": path, "HOME": os.fspath(home), "TERM": "dumb", "CI": "1"}


class RunningLines:
    """Running shell lines, as a context manager. Leaving its block ends the lines with everything that they started.

    `poll` copies the output and must be called when `fileno` is readable, and at least once a second for the timeout.
    """

    def __init__(
        self, process: ReapedCommand, lines: Sequence[str], log: BinaryIO, boxed: bool, timeout_s: float
    ) -> None:
        self._process, self._lines, self._log, self._boxed = process, lines, log, boxed
        self._output = BoundedOutput(log, _LOG_BYTES, f"more than {_LOG_BYTES >> 20} MiB")
        self._timeout_s, self._deadline = timeout_s, time.monotonic() + timeout_s
        self._timed_out = False
        self._result: LinesResult | None = None
        self._files = ExitStack()
        self._files.enter_context(process)
        self._pipe: int | None = process.output.fileno()
        os.set_blocking(self._pipe, False)
        self._epoll = self._files.enter_context(select.epoll())
        for source in (self._pipe, process.fileno()):
            self._epoll.register(source, select.EPOLLIN)

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is output, or the lines have ended."""
        return self._epoll.fileno()

    def poll(self) -> LinesResult | None:
        """Copy some of the output, without waiting. Return the result if the lines have ended, else None. Raises OSError for a
        full disk."""
        if self._result is None:
            self._copy_output(_MAX_CHUNKS)
            if not self._timed_out and time.monotonic() >= self._deadline:
                self._timed_out = True
                self._process.terminate()
            status = self._process.wait(0)
            if status is not None:
                self._copy_output(None)
                self._output.close()
                self._result = self._result_of(status)
            self._log.flush()
        return self._result

    def wait(self) -> LinesResult:
        """Wait for the end of the lines, and return the result. Raises OSError for a full disk."""
        while (result := self.poll()) is None:
            sockets.wait_for_input([self], 0.5)
        return result

    def terminate(self) -> None:
        """Ask the lines to end; a second later they are killed."""
        self._process.terminate()

    def _copy_output(self, max_chunks: int | None) -> None:
        """Copy what the pipe has, at most this number of chunks (None: until its end)."""
        while self._pipe is not None and max_chunks != 0:
            try:
                data = os.read(self._pipe, _CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._epoll.unregister(self._pipe)
                self._pipe = None
                return
            self._output.feed(data)
            max_chunks = None if max_chunks is None else max_chunks - 1

    def _result_of(self, status: int) -> LinesResult:
        if self._process.was_lost:
            return LinesResult("failed_to_run", "its reaper process was killed")
        if self._timed_out:
            return LinesResult("failed", f"it did not end in {self._timeout_s:g} s")
        if status == 0:
            return LinesResult("passed")
        if status < 0:
            return LinesResult("failed_to_run", f"it was killed by signal {-status}")
        if _FAILED <= status < _FAILED + _MAX_LINES:
            line = self._lines[status - _FAILED]
            return LinesResult("failed", f"{line} failed", line)
        if _MISSING <= status < _MISSING + _MAX_LINES:
            line = self._lines[status - _MISSING]
            hint = ", or only outside the box (check_box: none shows it)" if self._boxed else ""
            return LinesResult("failed_to_run", f"{_program(line)} is not installed here{hint}", line)
        if status > 128 and self._boxed:  # only its own processes can signal it there
            return LinesResult("failed", f"it killed its own shell by signal {status - 128}")
        return LinesResult("failed_to_run", f"its box or shell did not start (exit status {status})")

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> RunningLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
