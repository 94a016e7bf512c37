"""The tool that runs a program: what a person's task says, or what the agent's file allows. The program has its own process
group, limits and an environment without secrets; its output goes to a file, and it is dead with its agent."""

from __future__ import annotations

import codecs
import hashlib
import itertools
import math
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal

from pydantic import Field

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.config import LimitsConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import fsync_folder, open_own, sockets
from hivemind.guarded import GuardedCommand
from hivemind.layout import HUMAN
from hivemind.masking import Masker, is_secret_name
from hivemind.sandbox import sandboxed
from hivemind.taskrun.git import as_environment
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.report import printed
from hivemind.tasks import TaskMoved
from hivemind.tools.excerpt import Call, result_limit, shortened_file
from hivemind.tools.path_access import readable
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, Interrupted, ToolProblem, as_call, tool

__all__ = ["COMMAND_TOOLS", "CommandResult", "clean_environment", "run_program"]

_TIMEOUT_S = 120.0
_TAIL_CHARS = 400
_HEADER_CHARS = 200
_LOOK_S = 0.25  # bounds how late is noticed that a task was cancelled, and an end whose pipe a child keeps open
_TIMED_OUT = 124  # as timeout(1) says it
_KEPT = re.compile(r"PATH|HOME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|USER|LOGNAME|SHELL|VIRTUAL_ENV|PYTHON\w*")
_SEARCHED = frozenset({"PATH", "PYTHONPATH"})
_GIT = {"safe.bareRepository": "explicit", "core.fsmonitor": "false", "core.hooksPath": os.devnull, "gc.auto": "0"}
_NO_REPOSITORY = as_environment(_GIT)
_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW


class RunCommand(Arguments):
    command: list[str] | str | None = Field(
        None, description="a program with its arguments; a text is given to a shell only if you are allowed one"
    )
    cwd: str | None = Field(
        None, description="a folder, below the default one (your worktree, or the task's folder) or a root"
    )
    timeout_s: float | None = Field(None, gt=0, description="default 120")
    step: str | None = None


def _ended(result: Mapping[str, Any]) -> str:
    stopped = f" (stopped: {result['stopped']})" if result.get("stopped") else ""
    head = f"exit {result['exit_status']} after {result['seconds']:.2f} s{stopped}"
    return f"{head}\n{result['output'] or '(it printed nothing)'}"


def _read_on(path: str) -> Call:
    return lambda first, last: as_call("read_file", path=path, start_line=first, end_line=last)


@tool(text=_ended, rest=lambda result: as_call("read_file", path=result["output_path"]))
def run_command(session: Session, arguments: RunCommand) -> dict[str, Any]:
    """Run a program that you are allowed, or (without `command`) what the step in focus says. One that fails is a result:
    its exit status and what it printed. All its output is kept in a file, its receipt with the step."""
    work = session.work
    step = session.step(arguments.step) if arguments.step or session.focus.step else None
    command, timeout_s, author = _allowed(session, step, arguments)
    told = command if isinstance(command, str) else shlex.join(command)
    if step is not None and told == step.command and (known := work.begin_command(step)) is not None:
        number = step.step.command_receipts.index(known) + 1
        return _answer(session, step, number, told, known.exit_status, known.output_digest)
    number = _free(session) if step is None else len(step.step.command_receipts) + 1
    output = work.output_path(step, number)
    result = _run(session, step, command, author, arguments.cwd, output, timeout_s)
    if result.stopped is not None and session.stopping():
        # told to end: the step stays open, and is run again when the task goes on
        raise ToolProblem(f"the command was stopped: {result.stopped}")
    if result.was_lost and result.stopped is None:
        work.crashed()
        mend = f"look whether it took effect; what it had printed is in {os.path.relpath(output, work.task.path)}"
        raise Interrupted("the command was interrupted: the process that guards it was killed", remedy=mend)
    status = _TIMED_OUT if result.stopped else result.exit_status
    if step is not None:
        receipt = {"kind": "CMD", "text": told, "exit_status": status, "output_digest": result.digest}
        session.hive.steps.capture(step.id, receipt, **session.shown(step))
        fs.reached("command.captured")
    answer = _answer(session, step, number, told, status, result.digest, round(result.seconds, 3))
    return answer | {"stopped": result.stopped} if result.stopped else answer


def _run(
    session: Session, step: PlannedStep | None, command: str | list[str], author: str, cwd: str | None, output: Path,
    timeout_s: float | None,
) -> CommandResult:  # fmt: skip
    work, config, durable = session.work, session.config, session.hive.config.durable
    start = _start(session, cwd)
    in_project = start is not None and not start.is_relative_to(work.task.files) and _could_run(session, command)
    with session.pulse.busy(config.limits.wall_s + 10), ExitStack() as opened:
        artifacts, files = (
            opened.enter_context(_held(work.task.path, one)) for one in (output.parent, work.task.files)
        )
        try:
            result = run_program(
                command,
                folder=files,
                start=start,
                output=artifacts / output.name,
                limits=config.limits,
                environment=clean_environment(os.environ, _told(session, step, author), in_project=in_project),
                stopping=lambda: session.stopping() or work.taken_away,
                timeout_s=timeout_s,
                sandbox=config.sandbox,
                roots={**session.hive.config.bound(session.hive.layout), **work.worktrees.bound()},
                durable=durable,
            )
            if work.taken_away:
                raise TaskMoved("the command was stopped: its task was taken away", location=work.task.id)
            if durable:
                fs.fsync_folder(work.task.path)
        except OSError as error:
            error.filename = os.fspath(output)
            raise
    return result


def _answer(
    session: Session, step: PlannedStep | None, number: int, told: str, status: int | None, digest: str | None,
    seconds: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """How a command ended and what it printed, an excerpt of it if it is long, and where all of it is; with a step its receipt's
    id."""
    output = session.work.output_path(step, number)
    path = os.path.relpath(output, session.work.task.path)
    limit = result_limit(session.config.max_tokens) - _HEADER_CHARS
    shown = printed(output, digest, partial(shortened_file, limit_chars=limit, call=_read_on(path)))
    receipt = {} if step is None else {"step": step.id, "receipt": f"{step.id}#{number}"}
    return {
        "command": told, "exit_status": status, "seconds": seconds, "output_digest": digest, **receipt, "output": shown,
        "output_tail": shown[-_TAIL_CHARS:], "output_path": path,
    }  # fmt: skip


def _free(session: Session) -> int:
    """The number of the next command that belongs to no step."""
    return next(one for one in itertools.count(1) if not os.path.lexists(session.work.output_path(None, one)))


@contextmanager
def _held(task: Path, place: Path) -> Iterator[Path]:
    """A folder of the task's by a name that leads there whatever is put in its place. Raises ToolProblem if it is none."""
    try:
        folder = fs.folder_below(task, place.relative_to(task).parts, make=True)
    except OSError as error:
        raise ToolProblem(f"cannot be made a folder for a command ({error.strerror})", location=place) from None
    try:
        yield Path(f"/proc/self/fd/{folder}") if os.path.isdir("/proc/self/fd") else place
    finally:
        os.close(folder)


def _start(session: Session, cwd: str | None) -> Path | None:
    """Where a command starts, if not in the task's folder: in its worktree, by default, in it, or below a root. Raises
    ToolProblem for any other place."""
    trees = [one.path for one in session.trees]
    if cwd is None:
        return next(iter(trees), None)
    path = readable(session, cwd).path
    allowed = (session.work.task.files, *trees, *session.hive.config.read_roots(session.hive.layout))
    if not any(path.is_relative_to(one) for one in allowed):
        raise ToolProblem("is neither in the task's folder nor below a root", location=cwd)
    if not path.is_dir():
        raise ToolProblem("is no folder", location=cwd)
    return path


def _could_run(session: Session, command: str | list[str]) -> bool:
    """Whether the agent may run that program of its own accord: then what it writes where the program starts gains it nothing."""
    with boundary("command", repr(command)):
        words = shlex.split(command) if isinstance(command, str) else command
    return session.config.shell or (bool(words) and words[0] in session.config.commands)


def _allowed(
    session: Session, step: PlannedStep | None, arguments: RunCommand
) -> tuple[str | list[str], float | None, str]:
    """What may be run, for how long, and who wrote it: a step's own command as a person wrote it; anything else by the
    agent's list of programs, or by a shell where its file says so."""
    asked, timeout_s = arguments.command, arguments.timeout_s
    if step is not None and step.todo.kind == "run" and asked is None:
        asked = step.todo.argument
        timeout_s = min((one for one in (timeout_s, step.todo.timeout) if one is not None), default=None)
        if session.work.trusts_its_commands(step):
            return step.todo.argument, timeout_s, HUMAN
    if asked is None:
        raise ToolProblem("no command is given, and there is no step in focus that has one")
    if "\0" in "".join(asked):
        raise ToolProblem("a command has no NUL in it", location=repr(asked))
    timeout_s = timeout_s or _TIMEOUT_S
    if session.config.shell:
        return asked, timeout_s, session.agent
    with boundary("command", repr(asked)):
        words = shlex.split(asked) if isinstance(asked, str) else list(asked)
    if not words or words[0] not in session.config.commands:
        listed = ", ".join(session.config.commands) or "none"
        raise ToolProblem(
            f"the program {words[0] if words else ''!r} is not among those that {session.agent} may run ({listed})",
            remedy=f"a person can add it under commands: in agents/{session.agent}.yaml",
        )
    return words, timeout_s, session.agent


def _told(session: Session, step: PlannedStep | None, author: str) -> dict[str, str]:
    return {
        **session.config.env,
        "HIVEMIND_HIVE": str(session.hive.layout.root),
        "HIVEMIND_AGENT": session.agent,
        "HIVEMIND_AUTHOR": author,
        "HIVEMIND_TASK": session.work.task.id,
        **({} if step is None else {"HIVEMIND_STEP": step.id}),
        **session.work.worktrees.identity,
    }


@frozen
class CommandResult:
    """How a command ended. `exit_status` is None if it was not left to end: `stopped` says why. `digest` is the SHA-256 of what
    was kept of its output: where that was too long its beginning and its end, a line between them says how much is missing."""

    exit_status: int | None
    digest: str
    seconds: float
    stopped: str | None = None
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


def run_program(
    command: str | Sequence[str],
    *,
    folder: Path,
    output: Path,
    limits: LimitsConfig,
    environment: Mapping[str, str],
    stopping: Callable[[], bool] = lambda: False,
    timeout_s: float | None = None,
    sandbox: Literal["none", "bwrap"] = "none",
    start: Path | None = None,
    roots: Mapping[Path, bool | None] = MappingProxyType({}),
    durable: bool = False,
) -> CommandResult:
    """Run a command (a text: by `sh -c`; a list: as it stands) in `start`, by default `folder`, its output going to the file
    `output`, which is on the disk before this returns if `durable`. A sandbox shows it `folder` and the `roots`, see `sandboxed`.

    Ends early, and its whole process group with it, when a limit is reached, or `stopping()` turns true
    (looked at four times a second, and when a signal arrives). Raises OSError if the output can't be written, UserError if
    there can be no sandbox of that kind.
    """
    argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
    if sandbox == "bwrap":
        argv = sandboxed(argv, folder, start, roots)
    limit_s = min(limits.wall_s, timeout_s or limits.wall_s)
    with open(_opened(output), "wb") as file:
        guarded = GuardedCommand(
            argv, folder=folder if start is None or sandbox == "bwrap" else start, environment=environment,
            cpu_s=math.ceil(limits.cpu_s), memory_bytes=limits.memory_mb * 1024**2,
        )  # fmt: skip
        started = time.monotonic()
        with guarded as process:
            reading = _Reading(process, file, limits.output_bytes, stopping)
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
        was_lost=process.was_lost,
    )


def _opened(output: Path) -> int:
    try:
        return open_own(output, _OUTPUT)
    except UserError as error:
        raise UserError(
            error.message, location=f"{output.name} of the task's artifacts", remedy="take it away"
        ) from None


class _Reading:
    """Copies what a process prints into a file. Of what is longer than the limit it keeps the first half of so many bytes, and
    the last: an error stands at the end."""

    def __init__(self, process: GuardedCommand, file: BinaryIO, limit: int, stopping: Callable[[], bool]) -> None:
        self._process = process
        self._file = file
        self._left, self._most, self._missing = limit - limit // 2, limit // 2, 0
        self._tail = bytearray()
        self._stopping = stopping
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._masker = Masker()
        self.digest = hashlib.sha256()

    def until_end(self, deadline: float) -> str | None:
        """Read until the process and its pipe have ended (None), or give the reason why that was not waited for."""
        try:
            return self._until_end(deadline)
        finally:
            self._take(b"", last=True)
            self._keep(self._masker.close())
            if self._missing:
                self._write(f"\n[{self._missing:,} bytes are left out here: limits.output_bytes]\n".encode())
            self._write(self._tail)

    def _until_end(self, deadline: float) -> str | None:
        pipe = self._process.output.fileno()
        while True:
            if self._stopping():
                return "the agent was told to end"
            left = deadline - time.monotonic()
            if left <= 0:
                return "its time was up"
            ready = bool(sockets.readable([pipe], min(left, _LOOK_S)))
            if ready and (data := os.read(pipe, 65_536)):
                self._take(data)
            elif self._process.wait(min(left, _LOOK_S) if ready else 0.0) is not None:
                return None  # where the pipe is closed, the process itself was waited for

    def _take(self, data: bytes, *, last: bool = False) -> None:
        self._keep(self._masker.feed(self._decoder.decode(data, last)))

    def _keep(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        head, rest = data[: self._left], data[self._left :]
        self._left -= len(head)
        self._write(head)
        self._tail += rest
        if (over := len(self._tail) - self._most) > 0:
            self._missing += over
            del self._tail[:over]

    def _write(self, data: bytes | bytearray) -> None:
        self._file.write(data)
        self.digest.update(data)


COMMAND_TOOLS = (run_command,)
