"""The tool that runs a program from a person's task, or a program that the agent's file allows. The program runs in its own
process group, with limits and an environment without secrets. Its output goes to a file. It ends when its agent ends."""

from __future__ import annotations

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
from typing import Any, Literal

from pydantic import Field

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.config import LimitsConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import open_regular, sockets
from hivemind.fs.atomic import fsync_folder_later, fsync_names
from hivemind.layout import HUMAN
from hivemind.masking import is_secret_name
from hivemind.reaped_command import ReapedCommand
from hivemind.sandbox import sandbox_command
from hivemind.taskrun.bounded_output import BoundedOutput
from hivemind.taskrun.git import as_environment
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.report import output_excerpt
from hivemind.tasks import TaskMoved
from hivemind.tools.excerpt import ContinuationCall, result_limit, shortened_file
from hivemind.tools.path_access import readable
from hivemind.tools.tool import Arguments, Interrupted, ToolProblem, as_call, tool
from hivemind.tools.tool_context import ToolContext

_TIMEOUT_S = 120.0
_TAIL_CHARS = 400
_HEADER_CHARS = 200
_POLL_S = (
    0.25  # the longest time until a cancelled task is noticed, or an ended program whose child keeps the pipe open
)
_TIMED_OUT = 124  # the exit status of timeout(1)
_INHERITED = re.compile(r"PATH|HOME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|USER|LOGNAME|SHELL|VIRTUAL_ENV|PYTHON\w*")
_SEARCH_PATHS = frozenset({"PATH", "PYTHONPATH"})
_GIT = {"safe.bareRepository": "explicit", "core.fsmonitor": "false", "core.hooksPath": os.devnull, "gc.auto": "0"}
_NO_REPOSITORY = as_environment(_GIT)
_HAS_PROC = os.path.isdir("/proc/self/fd")
_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW


class RunCommand(Arguments):
    command: list[str] | str | None = Field(
        None, description="a program with its arguments; a string goes to a shell, if you are allowed one"
    )
    cwd: str | None = Field(
        None, description="a folder, below the default one (your worktree, or the task's folder) or a root"
    )
    timeout_s: float | None = Field(None, gt=0, description="default 120")
    step: str | None = None


def _result_text(result: Mapping[str, Any]) -> str:
    stop_note = f" (stopped: {result['stopped']})" if result.get("stopped") else ""
    head = f"exit {result['exit_status']} after {result['seconds']:.2f} s{stop_note}"
    return f"{head}\n{result['output'] or '(it printed nothing)'}"


def _continuation(path: str) -> ContinuationCall:
    return lambda first, last: as_call("read_file", path=path, start_line=first, end_line=last)


@tool(text=_result_text, continuation=lambda result: as_call("read_file", path=result["output_path"]))
def run_command(context: ToolContext, arguments: RunCommand) -> dict[str, Any]:
    """Run a program that you are allowed to run, or (without `command`) the command of the step in focus. Returns exit status
    and output, also after a failure. A file keeps the output (of a very long one, beginning and end), and the step keeps the
    receipt."""
    work = context.work
    step = context.step(arguments.step) if arguments.step or context.focus.step else None
    command, timeout_s, author = _permitted_command(context, step, arguments)
    command_line = command if isinstance(command, str) else shlex.join(command)
    own_step = step if step is not None and command_line == step.command else None
    if own_step is not None and (earlier_receipt := work.only_run(own_step)) is not None:
        number = own_step.step.command_receipts.index(earlier_receipt) + 1
        return _command_fields(
            context, own_step, number, command_line, earlier_receipt.exit_status, earlier_receipt.output_digest
        )
    number = _free_number(context) if step is None else len(step.step.command_receipts) + 1
    output = work.output_path(step, number)
    begin = partial(work.begin_command, own_step) if own_step is not None else None
    result = _run_in_task(context, step, command, author, arguments.cwd, output, timeout_s, begin)
    if result.stop_reason is not None and context.stopping():
        # The agent is stopping: the step stays open, and its command runs again when the task continues.
        raise ToolProblem(f"the command was stopped: {result.stop_reason}")
    if result.was_lost and result.stop_reason is None:
        work.count_crash()
        if own_step is not None:
            work.only_run(own_step)  # fails the task if it may run only once
        remedy = (
            f"check whether the command took effect; its output so far is in {os.path.relpath(output, work.task.path)}"
        )
        raise Interrupted("the command was interrupted: its reaper process was killed", remedy=remedy)
    status = _TIMED_OUT if result.stop_reason else result.exit_status
    if step is not None:
        receipt = {"kind": "CMD", "text": command_line, "exit_status": status, "output_digest": result.digest}
        context.hive.steps.capture(step.id, receipt, **context.step_authority(step))
        fs.crash_point("command.captured")
    fields = _command_fields(context, step, number, command_line, status, result.digest, round(result.seconds, 3))
    return fields | {"stopped": result.stop_reason} if result.stop_reason else fields


def _run_in_task(
    context: ToolContext, step: PlannedStep | None, command: str | list[str], author: str, cwd: str | None, output: Path,
    timeout_s: float | None, begin: Callable[[], object] | None,
) -> CommandResult:  # fmt: skip
    work, config = context.work, context.config
    start = _start_folder(context, cwd)
    is_first = not os.path.lexists(output.parent)
    if author != HUMAN:  # a person's command rests on the text and the claim alone, which are on the disk
        fs.flush_postponed()
    in_project = start is not None and not start.is_relative_to(work.task.files) and _may_run(context, command)
    with context.pulse.busy(config.limits.wall_s + 10), ExitStack() as stack:
        artifacts, files = (
            stack.enter_context(_pinned_folder(work.task.path, path)) for path in (output.parent, work.task.files)
        )
        try:
            result = run_program(
                command,
                folder=files,
                start=start,
                output=artifacts / output.name,
                limits=config.limits,
                environment=clean_environment(
                    os.environ, _task_environment(context, step, author), in_project=in_project
                ),
                stopping=lambda: context.stopping() or work.was_moved,
                timeout_s=timeout_s,
                sandbox="bwrap" if config.has_boxed_commands else "none",
                roots={**context.hive.config.sandbox_folders(context.hive.layout), **work.worktrees.sandbox_folders()},
                before_start=begin,
            )
            if work.was_moved:
                raise TaskMoved("the command was stopped: its task was taken away", location=work.task.id)
            if is_first:
                fsync_folder_later(work.task.path)
        except OSError as error:
            error.filename = os.fspath(output)
            raise
    return result


def _command_fields(
    context: ToolContext, step: PlannedStep | None, number: int, command_line: str, status: int | None, digest: str | None,
    seconds: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of a command's result: exit status, output (shortened if long), the output's path, and the receipt's id
    if there is a step."""
    output = context.work.output_path(step, number)
    path = os.path.relpath(output, context.work.task.path)
    limit = result_limit(context.config.max_tokens) - _HEADER_CHARS
    output_text = output_excerpt(output, digest, partial(shortened_file, limit_chars=limit, call=_continuation(path)))
    receipt = {} if step is None else {"step": step.id, "receipt": f"{step.id}#{number}"}
    return {
        "command": command_line, "exit_status": status, "seconds": seconds, "output_digest": digest, **receipt,
        "output": output_text, "output_tail": output_text[-_TAIL_CHARS:], "output_path": path,
    }  # fmt: skip


def _free_number(context: ToolContext) -> int:
    """Return the first unused number for the output of a command without a step."""
    return next(number for number in itertools.count(1) if not os.path.lexists(context.work.output_path(None, number)))


@contextmanager
def _pinned_folder(task: Path, path: Path) -> Iterator[Path]:
    """Open a folder of the task and yield a path that stays the same folder, even if something else takes its name. Raises
    ToolProblem if the folder cannot be opened."""
    try:
        folder = fs.folder_below(task, path.relative_to(task).parts, create=True)
    except OSError as error:
        raise ToolProblem(f"cannot be used as a command's folder ({error.strerror})", location=path) from None
    try:
        yield Path(f"/proc/self/fd/{folder}") if _HAS_PROC else path
    finally:
        os.close(folder)


def _start_folder(context: ToolContext, cwd: str | None) -> Path | None:
    """Return the folder in which a command starts: `cwd` or, by default, the task's first worktree. Return None for the task's
    own folder. Raises ToolProblem for a folder outside the task's folder, its worktrees and the roots."""
    worktrees = [worktree.path for worktree in context.enter()]
    if cwd is None:
        return next(iter(worktrees), None)
    path = readable(context, cwd).path
    allowed_folders = (context.work.task.files, *worktrees, *context.hive.config.read_roots(context.hive.layout))
    if not any(path.is_relative_to(folder) for folder in allowed_folders):
        raise ToolProblem("is neither in the task's folder nor in a root", location=cwd)
    if not path.is_dir():
        raise ToolProblem("is not a folder", location=cwd)
    return path


def _may_run(context: ToolContext, command: str | list[str]) -> bool:
    """Return True if the agent's file allows this program or a shell. It does no harm then if the program loads files that the
    agent has written: the agent may run the program anyway."""
    with boundary("command", repr(command)):
        words = shlex.split(command) if isinstance(command, str) else command
    return context.config.shell or (bool(words) and words[0] in context.config.commands)


def _permitted_command(
    context: ToolContext, step: PlannedStep | None, arguments: RunCommand
) -> tuple[str | list[str], float | None, str]:
    """Return the command to run, its time limit in seconds, and its author. The command of a person's step runs unchanged. Any
    other command must start with a program from the agent's `commands:`, unless the agent's file allows a shell."""
    command, timeout_s = arguments.command, arguments.timeout_s
    if step is not None and step.todo.kind == "run" and command in (None, step.command, step.todo.argument):
        command = step.todo.argument
        timeout_s = min((seconds for seconds in (timeout_s, step.todo.timeout) if seconds is not None), default=None)
        if step.is_from_person:
            return step.todo.argument, timeout_s, HUMAN
    if command is None:
        raise ToolProblem("there is no command: pass one, or use a step with a command")
    if "\0" in "".join(command):
        raise ToolProblem("a command must not contain a NUL", location=repr(command))
    timeout_s = timeout_s or _TIMEOUT_S
    if context.config.shell:
        return command, timeout_s, context.agent
    with boundary("command", repr(command)):
        words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words or words[0] not in context.config.commands:
        program_names = ", ".join(context.config.commands) or "none"
        raise ToolProblem(
            f"the program {words[0] if words else ''!r} is not one of the programs of {context.agent} ({program_names})",
            remedy=f"a person can add it under commands: in agents/{context.agent}.yaml",
        )
    return words, timeout_s, context.agent


def _task_environment(context: ToolContext, step: PlannedStep | None, author: str) -> dict[str, str]:
    return {
        **context.config.env,
        "HIVEMIND_HIVE": str(context.hive.layout.root),
        "HIVEMIND_AGENT": context.agent,
        "HIVEMIND_AUTHOR": author,
        "HIVEMIND_TASK": context.work.task.id,
        **({} if step is None else {"HIVEMIND_STEP": step.id}),
        **({} if context.traceparent is None else {"TRACEPARENT": context.traceparent}),
        **context.work.worktrees.identity,
    }


@frozen
class CommandResult:
    """The result of a command. If the command was stopped, `exit_status` is None and `stop_reason` says why. `digest` is the
    SHA-256 of the output file. If the output exceeds the limit, the file has its beginning, the number of omitted bytes, and
    its end."""

    exit_status: int | None
    digest: str
    seconds: float
    stop_reason: str | None = None
    was_lost: bool = False
    """True if the command's reaper was killed while the command ran."""


def clean_environment(
    environ: Mapping[str, str], extra: Mapping[str, str], *, in_project: bool = False
) -> dict[str, str]:
    """Return the environment of a command: the inherited variables that carry no secrets, and `extra`.

    Agents write into the folder where the command starts. So relative search paths are removed, git opens no bare repository in
    that folder, and Python imports no modules from it, except in a person's project (`in_project`).
    """
    inherited = {key: value for key, value in environ.items() if _INHERITED.fullmatch(key) and not is_secret_name(key)}
    for name in _SEARCH_PATHS & inherited.keys():
        inherited[name] = os.pathsep.join(filter(os.path.isabs, inherited[name].split(os.pathsep)))
    modules = {} if in_project else {"PYTHONSAFEPATH": "1"}
    return {**inherited, "TERM": "dumb", **modules, **_NO_REPOSITORY, **extra}


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
    before_start: Callable[[], object] | None = None,
) -> CommandResult:
    """Run a command (a string with `sh -c`, a list directly) in `start`, by default `folder`. Write its output to the file
    `output`, and sync that file in a durable hive. A sandbox shows `folder` and the `roots` (see `sandbox_command`).
    `before_start` is called just before the start; from then on the command must count as run.

    Stops the command and its whole process group when it reaches a limit or `stopping()` returns True (checked four times a
    second, and after each signal). Raises OSError if the output cannot be written, UserError if the sandbox is not available.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    if sandbox == "bwrap":
        argv = sandbox_command(argv, folder, start, roots)
    limit_s = min(limits.wall_s, timeout_s or limits.wall_s)
    with open(_open_output(output), "wb") as file:
        guarded = ReapedCommand(
            argv, folder=folder if start is None or sandbox == "bwrap" else start, environment=environment,
            cpu_s=math.ceil(limits.cpu_s), memory_bytes=limits.memory_mb * 1024**2, before_start=before_start,
        )  # fmt: skip
        start_time = time.monotonic()
        with guarded as process:
            bounded_output = BoundedOutput(file, limits.output_bytes, "limits.output_bytes")
            stop_reason = _OutputReader(process, bounded_output, stopping).until_end(limit_s)
        if fs.is_durable(os.path.realpath(output)):  # a receipt contains the output's digest
            file.flush()
            if file.tell():
                os.fsync(file.fileno())
            fsync_names(output.parent)
    return CommandResult(
        exit_status=None if stop_reason else process.returncode,
        digest=bounded_output.digest.hexdigest(),
        seconds=time.monotonic() - start_time,
        stop_reason=stop_reason,
        was_lost=process.was_lost,
    )


def _open_output(output: Path) -> int:
    try:
        return open_regular(output, _OUTPUT)
    except UserError as error:
        raise UserError(error.message, location=f"{output.name} of the task's artifacts", remedy="remove it") from None


class _OutputReader:
    """Copies the output of a process to a file."""

    def __init__(self, process: ReapedCommand, output: BoundedOutput, stopping: Callable[[], bool]) -> None:
        self._process, self._output, self._stopping = process, output, stopping

    def until_end(self, limit_s: float) -> str | None:
        """Read until the process and its pipe have ended, and return None. Return the reason if the process has to be stopped
        before, for example after `limit_s` seconds."""
        try:
            return self._until_end(limit_s)
        finally:
            self._output.close()

    def _until_end(self, limit_s: float) -> str | None:
        pipe, deadline = self._process.output.fileno(), time.monotonic() + limit_s
        while True:
            if self._stopping():
                return "the agent is stopping"
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return f"its time of {limit_s:g} s was up"
            ready = bool(sockets.wait_for_input([pipe], min(remaining_s, _POLL_S)))
            if ready and (data := os.read(pipe, 65_536)):
                self._output.feed(data)
            elif self._process.wait(min(remaining_s, _POLL_S) if ready else 0.0) is not None:
                return None  # if the pipe was closed first, `wait` has waited for the process


COMMAND_TOOLS = (run_command,)
