"""The focus of one turn: a message, or a task at one of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.mail import Message
from hivemind.masking import mask
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.quote_check import read_request
from hivemind.taskrun.task_run import TaskRun


@frozen
class Focus:
    """The focus of a turn: the task `work`, or a `message`, or neither (the agent is idle). `step` is the task's first open step.

    `tool` is the call that a mind by rule makes next: `plan_steps`, `run_command`, `finish_step`, `finish_task` or `reply_mail`.
    `blocked` is a step that prevents the end of the task. `heard` is True if a task waited for the message, `stranger` if the
    hive does not know its sender. `files` are its attachments.
    """

    tool: str
    work: TaskRun | None = None
    message: Message | None = None
    step: PlannedStep | None = None
    blocked: PlannedStep | None = None
    heard: bool = False
    stranger: bool = False
    files: tuple[Path, ...] = ()

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
    def title(self) -> str:
        """The task's title, or the message's subject."""
        if self.work is not None:
            return mask(self.work.task.title)
        return "" if self.message is None else mask(self.message.subject)

    @property
    def text(self) -> str:
        """The task's text with its additions, or the message's body."""
        if self.work is not None:
            return mask(self.work.task.full_text or self.work.task.title)
        return "" if self.message is None else mask(self.message.body)

    @property
    def attachments(self) -> Sequence[Path]:
        """The files attached to the task or the letter."""
        return self.files if self.work is None else self.work.task.attachments

    @property
    def todo(self) -> dict[str, Any]:
        """The step in focus as a mind sees it; {} without a step."""
        return {} if self.step is None else self.step.mind_fields()

    @property
    def asks_review(self) -> bool:
        """True for a request to check sources that can be read. An unreadable request is treated as other mail."""
        with suppress(UserError):
            return self.message is not None and read_request(self.message.body) is not None
        return False

    @property
    def subject(self) -> dict[str, str]:
        return {"kind": self.kind, "id": self.id}


def focus_on(work: TaskRun, *, reads: bool = False) -> Focus:
    """Return the focus of the next turn on a task. `reads` says that the mind reads conversations.

    A task without steps is planned first; for a mind by rule, so is a task with only the implicit step. Otherwise the focus is on
    the first step that is not done. If that step is blocked, the focus is the end of the task, and `blocked` has the step.
    """
    steps = work.steps()
    if not steps or (not reads and all(step.is_implicit for step in steps)):
        return Focus("plan_steps", work=work)
    step = next((step for step in steps if step.step.status != "done"), None)
    if step is not None and step.step.status == "open":
        return Focus("run_command" if step.awaits_run else "finish_step", work=work, step=step)
    return Focus("finish_task", work=work, blocked=step)
