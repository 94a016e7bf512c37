"""What one turn of the cycle is about: a message, or a task at one of its steps."""

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
from hivemind.taskrun.review import read_request
from hivemind.taskrun.task_run import TaskRun


@frozen
class Focus:
    """The target of a turn. One of `work` and `message` is set (neither: at rest); `step` is the work's first open step, if any.

    `tool` is what comes next by rule (spec 3, *Capsule*): `plan_steps`, `finish_step`, `finish_task`, or `reply_mail`.
    `blocked` is a step that stands in the way of the end; `heard` says that a task waited for this very message,
    `stranger` that nobody here has its sender's address; `files` are what the message brought.
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
        """The task's text with all that people added to it, or the message's body."""
        if self.work is not None:
            return mask(self.work.task.full_text or self.work.task.title)
        return "" if self.message is None else mask(self.message.body)

    @property
    def attachments(self) -> Sequence[Path]:
        """The files that a person put beside the task, or the letter."""
        return self.files if self.work is None else self.work.task.attachments

    @property
    def todo(self) -> dict[str, Any]:
        """The step in focus as a mind sees it; {} if there is none."""
        return {} if self.step is None else self.step.shown()

    @property
    def asks_review(self) -> bool:
        """True for a request to check sources that can be read; one that can't is mail like any other."""
        with suppress(UserError):
            return self.message is not None and read_request(self.message.body) is not None
        return False

    @property
    def target(self) -> dict[str, str]:
        return {"kind": self.kind, "id": self.id}


def focus_on(work: TaskRun, *, reads: bool = False) -> Focus:
    """Choose what comes next in a task.

    A task without steps is planned, unless its mind reads. Otherwise the first open step is next; without an open step
    the task is finished. If a step is blocked then, `blocked` is set: the agent cannot go on by itself.
    """
    steps = work.steps()
    if not steps or (not reads and all(step.is_implicit for step in steps)):
        return Focus("plan_steps", work=work)
    step = next((step for step in steps if step.step.status == "open"), None)
    if step is not None:
        return Focus("finish_step", work=work, step=step)
    blocked = next((step for step in steps if step.step.status == "blocked"), None)
    return Focus("finish_task", work=work, blocked=blocked)
