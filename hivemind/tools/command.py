"""The tool that runs a program: what a person's task says, or what the agent's file allows."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.coordination import Receipt
from hivemind.taskrun.report import printed
from hivemind.taskrun.task_run import PlannedStep
from hivemind.tools.commands import clean_environment
from hivemind.tools.commands import run_command as run_program
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

__all__ = ["COMMAND_TOOLS"]


class RunCommand(Arguments):
    step: str | None = None
    command: list[str] | None = None


@tool
def run_command(session: Session, arguments: RunCommand) -> dict[str, Any]:
    """Run the command that a step of the task gives, or a program that you are allowed, as a list of words. Its output is
    kept with the task, and its receipt with the step."""
    step = session.step(arguments.step)
    command = _allowed(session, step, arguments.command)
    work = session.work
    known = work.begin_command(step)
    output = work.output_path(step)
    if known is not None:
        return _checked(_known_answer(step, known, output, work.task.path))
    limits = session.config.limits
    with session.pulse.busy(limits.wall_s + 10), ExitStack() as opened:
        artifacts, files = (
            opened.enter_context(_folder(work.task.path, place)) for place in (output.parent, work.task.files)
        )
        try:
            result = run_program(
                command,
                folder=files,
                output=artifacts / output.name,
                limits=limits,
                environment=clean_environment(os.environ, _told(session, step)),
                lifeline=session.lifeline,
                stopping=session.stopping,
                timeout_s=step.todo.timeout,
                sandbox=session.config.sandbox,
            )
        except OSError as error:
            error.filename = os.fspath(output)
            raise
    if result.stopped is not None and session.leaving():
        # told to end: the step stays open, and is run again when the task goes on
        raise ToolProblem(f"the command was stopped: {result.stopped}")
    shown = command if isinstance(command, str) else shlex.join(command)
    status = 124 if result.stopped else result.exit_status
    receipt = {"kind": "CMD", "text": shown, "exit_status": status, "output_digest": result.digest}
    session.hive.steps.capture(step.id, receipt, **session.shown(step))
    fs.reached("command.captured")
    answer = {
        "step": step.id,
        "command": shown,
        "exit_status": status,
        "output": result.output,
        "output_tail": result.output[-400:],
        "output_path": os.path.relpath(output, work.task.path),
        "output_digest": result.digest,
        "seconds": round(result.seconds, 3),
    }
    return _checked(answer, f": {result.stopped}" if result.stopped else "")


@contextmanager
def _folder(task: Path, place: Path) -> Iterator[Path]:
    """A folder of the task's by a name that leads there whatever is put in its place. Raises ToolProblem if it is none."""
    try:
        folder = fs.folder_below(task, place.relative_to(task).parts, make=True)
    except OSError as error:
        raise ToolProblem(f"cannot be made a folder for a command ({error.strerror})", where=place) from None
    try:
        yield Path(f"/proc/self/fd/{folder}") if os.path.isdir("/proc/self/fd") else place
    finally:
        os.close(folder)


def _checked(answer: dict[str, Any], why: str = "") -> dict[str, Any]:
    """The answer of a command that ended well. Raises CommandFailed for another."""
    if answer["exit_status"] != 0:
        raise CommandFailed(f"ended with status {answer['exit_status']}{why}", answer)
    return answer


def _known_answer(step: PlannedStep, receipt: Receipt, output: Path, folder: Path) -> dict[str, Any]:
    """The answer of a command whose receipt is in the journal, and whose process ended before it could be given."""
    shown = printed(output, receipt.output_digest)
    return {
        "step": step.id,
        "command": receipt.text,
        "exit_status": receipt.exit_status,
        "output": shown,
        "output_tail": shown[-400:],
        "output_path": os.path.relpath(output, folder),
        "output_digest": receipt.output_digest,
        "seconds": 0.0,
    }


class CommandFailed(ToolProblem):
    """The command ended with another status than 0; `result` is what the tool would have answered."""

    def __init__(self, what: str, result: dict[str, Any]) -> None:
        super().__init__(what, where=result["command"])
        self.result = result


def _allowed(session: Session, step: PlannedStep, asked: list[str] | None) -> str | list[str]:
    """What may be run: a step's own command as a person wrote it; anything else only by the agent's list of programs."""
    written: str | list[str] | None = step.todo.argument if step.todo.kind == "run" else None
    if written is not None and asked is None and session.work.trusts_its_commands(step):
        return written
    command = asked if asked is not None else written
    if command is None:
        raise ToolProblem(f"step {step.id} has no command")
    with boundary("command", repr(command)):
        words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words or words[0] not in session.config.commands:
        listed = ", ".join(session.config.commands) or "none"
        raise ToolProblem(
            f"the program {words[0] if words else ''!r} is not among those that {session.agent} may run ({listed})",
            mend=f"a person can add it under commands: in agents/{session.agent}.yaml",
        )
    return words


def _told(session: Session, step: PlannedStep) -> dict[str, str]:
    return {
        **session.config.env,
        "HIVEMIND_HIVE": str(session.hive.layout.root),
        "HIVEMIND_AGENT": session.agent,
        "HIVEMIND_TASK": session.work.task.id,
        "HIVEMIND_STEP": step.id,
    }


COMMAND_TOOLS = (run_command,)
