"""Running a command: own process group, limits, output to a file, an environment without secrets, dead with its agent."""

from __future__ import annotations

import codecs
import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Literal

from hivemind.config import LimitsConfig
from hivemind.errors import UserError
from hivemind.fs import fsync_folder, open_own
from hivemind.fs.sockets import readable
from hivemind.guarded import Guarded
from hivemind.masking import Masker, is_secret_name
from hivemind.tools.sandbox import sandboxed

__all__ = ["CommandResult", "clean_environment", "run_command"]

_KEPT = re.compile(r"PATH|HOME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|USER|LOGNAME|SHELL|VIRTUAL_ENV|PYTHON\w*")
_SEARCHED = frozenset({"PATH", "PYTHONPATH"})
_GIT = {"safe.bareRepository": "explicit", "core.fsmonitor": "false", "core.hooksPath": os.devnull, "gc.auto": "0"}
_NO_REPOSITORY = {
    "GIT_CONFIG_COUNT": str(len(_GIT)),
    **{f"GIT_CONFIG_KEY_{at}": key for at, key in enumerate(_GIT)},
    **{f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(_GIT.values())},
}
_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. `exit_status` is None if it was not left to end: `stopped` says why. `digest` is the SHA-256 of what
    was kept of its output."""

    exit_status: int | None
    digest: str
    seconds: float
    stopped: str | None = None
    cut: bool = False
    was_lost: bool = False
    """Whether its guard was killed while it ran: it was interrupted, by nobody who meant it."""


def clean_environment(
    environ: Mapping[str, str], extra: Mapping[str, str], *, in_project: bool = False
) -> dict[str, str]:
    """What a command gets of the environment: paths and language, nothing named like a secret, and `extra`.

    It starts in a folder that agents write into: no program or repository is taken from there without being named, and no
    module of Python's, unless it is a project of a person's (`in_project`), whose programs import their own.
    """
    kept = {key: value for key, value in environ.items() if _KEPT.fullmatch(key) and not is_secret_name(key)}
    for name in _SEARCHED & kept.keys():
        kept[name] = os.pathsep.join(filter(os.path.isabs, kept[name].split(os.pathsep)))
    modules = {} if in_project else {"PYTHONSAFEPATH": "1"}
    return {**kept, "TERM": "dumb", **modules, **_NO_REPOSITORY, **extra}


def run_command(
    command: str | Sequence[str],
    *,
    folder: Path,
    output: Path,
    limits: LimitsConfig,
    environment: Mapping[str, str],
    lifeline: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
    timeout_s: float | None = None,
    sandbox: Literal["none", "bwrap"] = "none",
    start: Path | None = None,
    roots: Mapping[Path, bool | None] = MappingProxyType({}),
    durable: bool = False,
) -> CommandResult:
    """Run a command (a text: by `sh -c`; a list: as it stands) in `start`, by default `folder`, its output going to the file
    `output`, which is on the disk before this returns if `durable`. A sandbox shows it `folder` and the `roots`, see `sandboxed`.

    Ends early, and its whole process group with it, when a limit is reached, when `lifeline` closes or `stopping()` turns
    true (looked at when a signal arrives). Raises OSError if the output can't be written, UserError if there can be no
    sandbox of that kind.
    """
    argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
    if sandbox == "bwrap":
        argv = sandboxed(argv, folder, start, roots)
    limit_s = min(limits.wall_s, timeout_s or limits.wall_s)
    with open(_opened(output), "wb") as file:
        guarded = Guarded(
            argv, folder=folder if start is None or sandbox == "bwrap" else start, environment=environment,
            cpu_s=math.ceil(limits.cpu_s), memory_bytes=limits.memory_mb * 1024**2,
        )  # fmt: skip
        started = time.monotonic()
        with guarded as process:
            reading = _Reading(process, file, limits.output_bytes, lifeline, stopping)
            stopped = reading.until_end(started + limit_s)
        if durable:  # a receipt names what was printed
            file.flush()
            os.fsync(file.fileno())
            fsync_folder(output.parent)
    return CommandResult(
        exit_status=None if stopped else process.returncode,
        digest=reading.digest.hexdigest(),
        seconds=time.monotonic() - started,
        stopped=stopped,
        cut=reading.cut,
        was_lost=process.was_lost,
    )


def _opened(output: Path) -> int:
    try:
        return open_own(output, _OUTPUT)
    except UserError as error:
        raise UserError(error.what, where=f"{output.name} of the task's artifacts", mend="take it away") from None


class _Reading:
    """Copies what a process prints into a file, up to a limit."""

    def __init__(
        self,
        process: Guarded,
        file: BinaryIO,
        limit: int,
        lifeline: int | None,
        stopping: Callable[[], bool],
    ) -> None:
        self._process = process
        self._file = file
        self._left = limit
        self._lifeline = lifeline
        self._stopping = stopping
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._masker = Masker()
        self.digest = hashlib.sha256()
        self.cut = False

    def until_end(self, deadline: float) -> str | None:
        """Read until the process and its pipe have ended (None), or give the reason why that was not waited for."""
        try:
            return self._until_end(deadline)
        finally:
            self._take(b"", last=True)
            self._keep(self._masker.close())

    def _until_end(self, deadline: float) -> str | None:
        pipe = self._process.output.fileno()
        watched = [pipe] if self._lifeline is None else [pipe, self._lifeline]
        while True:
            if self._stopping():
                return "the agent was told to end"
            left = deadline - time.monotonic()
            if left <= 0:
                return "its time was up"
            # A quarter of a second bounds how late an end without output (a child keeps the pipe open) is noticed.
            ready = readable(watched, min(left, 0.25))
            if self._lifeline in ready:
                return "the agent's parent is gone"
            if pipe in ready:
                data = os.read(pipe, 65_536)
                if not data:  # the pipe is closed: wait for the process itself
                    ended = self._process.wait(max(0.0, deadline - time.monotonic())) is not None
                    return None if ended else "its time was up"
                self._take(data)
            elif self._process.wait(0) is not None:
                return None

    def _take(self, data: bytes, *, last: bool = False) -> None:
        self._keep(self._masker.feed(self._decoder.decode(data, last)))

    def _keep(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        kept = data[: self._left]
        self.cut = self.cut or len(kept) < len(data)
        self._left -= len(kept)
        self._file.write(kept)
        self.digest.update(kept)
