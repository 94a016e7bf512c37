"""What one turn of the cycle is about: a message, or a task at one of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hivemind.mail import Message
from hivemind.taskrun.task_run import PlannedStep, TaskRun

__all__ = ["Focus"]


@dataclass(frozen=True, slots=True)
class Focus:
    """The target of a turn. One of `work` and `message` is set (neither: at rest); `step` is the work's first open step, if any.

    `tool` is what comes next by rule (spec 3, *Capsule*): `plan_steps`, `finish_step`, `finish_task`, or `reply_mail`.
    `blocked` is a step that stands in the way of the end; `heard` says that a task waited for this very message,
    `stranger` that nobody here has its sender's address.
    """

    tool: str
    work: TaskRun | None = None
    message: Message | None = None
    step: PlannedStep | None = None
    blocked: PlannedStep | None = None
    heard: bool = False
    stranger: bool = False

    @property
    def kind(self) -> str:
        if self.work is not None:
            return "task"
        return "nothing" if self.message is None else "message"

    @property
    def id(self) -> str:
        if self.work is not None:
            return self.work.task.id
        return "" if self.message is None else self.message.id

    @property
    def target(self) -> dict[str, str]:
        return {"kind": self.kind, "id": self.id}

    def next_call(self) -> dict[str, Any]:
        """The call that would do it, for the capsule."""
        if self.work is None:
            return {"tool": self.tool, "arguments": {"id": self.id}}
        if self.step is not None:
            return {"tool": self.tool, "arguments": {"step": self.step.id}}
        return {"tool": self.tool, "arguments": {"task": self.id}}
