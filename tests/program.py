"""The command line in processes that are forked from a warm one (`tests.warm`), which has everything imported: each has a
session, an exit status and signals, and none needs the half second of imports."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.waiting import until

__all__ = ["REPOSITORY", "Program", "Python", "Start", "Warm", "cold", "run", "warm"]

REPOSITORY = Path(__file__).parents[1]


class Warm:
    """The warm process, and its reports about the commands that it forked. With `preload`, a library, the
    commands have that too."""

    def __init__(self, preload: str | None = None) -> None:
        # without the settings of the test that happens to start it
        environment = {name: text for name, text in os.environ.items() if not name.startswith("HIVEMIND_")}
        environment |= {"PYTHONPATH": str(REPOSITORY), "HIVEMIND_EMBEDDER": "none", "TMPDIR": tempfile.gettempdir()}
        environment["OPENBLAS_NUM_THREADS"] = "1"  # a fork has no threads
        environment |= {} if preload is None else {"LD_PRELOAD": preload}
        self.preload = preload
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY,
            env=environment, start_new_session=True,
        )  # fmt: skip
        self._statuses: dict[int, int] = {}
        self._pending = b""
        self._lock = threading.Lock()

    def start(self, request: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            while True:
                for line in self._heard(wait=True):
                    if "status" not in line:
                        return int(line["pid"])

    def status(self, pid: int) -> int | None:
        """Return the status of a command; None while it runs."""
        with self._lock:
            if pid not in self._statuses:
                self._heard(wait=False)
            return self._statuses.get(pid)

    def _heard(self, wait: bool) -> list[dict[str, Any]]:
        """Read its new output. Without select(), which knows no descriptor above 1,023."""
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), wait)
        try:
            got = os.read(self._process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return []
        if not got:
            raise RuntimeError("the warm process has ended")
        *lines, self._pending = (self._pending + got).split(b"\n")
        heard = [json.loads(line) for line in lines]
        for line in heard:
            if "status" in line:
                self._statuses[line["pid"]] = line["status"]
            else:
                self._statuses.pop(line["pid"], None)  # a reused number of a process that ended long ago
        return heard

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@cache
def warm() -> Warm:
    """Return this test process's warm process; `tests/conftest.py` ends it."""
    return Warm()


Start = Callable[..., subprocess.Popen[Any]]


class Program(subprocess.Popen[Any]):
    """`hivemind WORDS` as a forked Popen with a new session; of Popen's arguments it takes those about streams,
    the folder and the environment."""

    module = "hivemind"

    def _execute_child(self, args: Any, _1: Any, _2: Any, _3: Any, _4: Any, cwd: Any, env: Any, *more: Any) -> None:
        ends = more[3:9]  # of the pipes to standard input, from standard output and from standard error
        paths = [
            f"/proc/{os.getpid()}/fd/{number if at == -1 else at}"
            for number, at in enumerate((ends[0], ends[3], ends[5]))
        ]
        request = {"module": self.module, "words": [os.fspath(word) for word in args], "folder": os.fspath(cwd or os.getcwd()),
                   "environment": dict(os.environ if env is None else env)}  # fmt: skip
        self.pid = warm().start({**request, **dict(zip(("in", "out", "err"), paths, strict=True))})
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            self.returncode = warm().status(self.pid)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        try:
            life = os.pidfd_open(self.pid)
        except ProcessLookupError:  # it ended
            pass
        else:
            poller = select.poll()
            poller.register(life, select.POLLIN)
            waited = poller.poll(None if timeout is None else max(timeout, 0) * 1000)
            os.close(life)
            if not waited:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
        until(lambda: self.poll() is not None, pause_s=0.001)  # its parent tells of it right away
        assert self.returncode is not None
        return self.returncode


class Python(Program):
    """`python WORDS` (the first is `-c` or a file) in a fork of the process that has hivemind imported."""

    module = "python"


def cold(words: Sequence[str | os.PathLike[str]], *, before: Sequence[str] = (), **more: Any) -> subprocess.Popen[Any]:
    """Start the command in a fresh interpreter, maybe run by another program."""
    return subprocess.Popen([*before, sys.executable, "-m", "hivemind", *words], **more)


def run(
    words: Sequence[str | os.PathLike[str]], *, start: Start = Program, check: bool = False, **more: Any
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` for what `start` starts."""
    stdin, limit_s = more.pop("input", None), more.pop("timeout", None)
    if more.pop("capture_output", False):
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if stdin is not None:
        more["stdin"] = subprocess.PIPE
    with start(words, **more) as process:
        try:
            out, errors = process.communicate(stdin, limit_s)
        except BaseException:
            process.kill()
            raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, out, errors)
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)
