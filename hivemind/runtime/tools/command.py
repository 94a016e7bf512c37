"""The tool that runs a program: what a person's task says, or what the agent's file allows."""

from __future__ import annotations

import os
import shlex
from typing import Any

from hivemind import fs
from hivemind.runtime.commands import clean_environment
from hivemind.runtime.commands import run_command as run_program
from hivemind.runtime.tools.session import Session
from hivemind.runtime.tools.tool import Arguments, ToolProblem, tool
from hivemind.runtime.work import PlannedStep

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
    work.begin_command(step)
    output = work.output_path(step)
    try:
        os.close(fs.folder_inside(output.parent, work.task.path, make=True))
    except OSError as error:
        raise ToolProblem(f"is no folder for a command's output ({error.strerror})", where=output.parent) from None
    limits = session.config.limits
    with session.pulse.busy(limits.wall_s + 10):
        result = run_program(
            command,
            folder=work.task.path,
            output=output,
            limits=limits,
            environment=clean_environment(os.environ, _told(session, step)),
            lifeline=session.lifeline,
            stopping=session.stopping,
            timeout_s=step.todo.timeout,
            sandbox=session.config.sandbox,
        )
    if result.stopped is not None and session.leaving():
        # told to end: the step stays open, and is run again when the task goes on
        raise ToolProblem(f"the command was stopped: {result.stopped}")
    shown = command if isinstance(command, str) else shlex.join(command)
    status = 124 if result.stopped else result.exit_status
    receipt = {"kind": "CMD", "text": shown, "exit_status": status, "output_digest": result.digest}
    session.hive.steps.capture(step.id, receipt, **session.shown(step))
    work.command_ended(step)
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
    if status != 0:
        why = f": {result.stopped}" if result.stopped else ""
        raise CommandFailed(f"ended with status {status}{why}", answer)
    return answer


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
