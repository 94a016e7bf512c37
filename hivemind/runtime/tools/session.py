"""What a tool works with: the identity that the runtime set, the hive, and what is in focus."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hivemind.config import AgentConfig
from hivemind.errors import UserError
from hivemind.mail import Message
from hivemind.runtime.focus import Focus
from hivemind.runtime.parts import Parts
from hivemind.runtime.pulse import Pulse
from hivemind.runtime.work import PlannedStep, Work

__all__ = ["Session"]


@dataclass(frozen=True, slots=True)
class Session:
    """One agent using tools on one focus. No argument of a tool can change who it is."""

    hive: Parts
    agent: str
    config: AgentConfig
    focus: Focus
    pulse: Pulse
    lifeline: int | None
    stopping: Callable[[], bool]

    @property
    def work(self) -> Work:
        """The task in focus. Raises UserError if a message is."""
        if self.focus.work is None:
            raise UserError("this needs a task in focus, and a message is")
        return self.focus.work

    def shown(self, step: PlannedStep) -> dict[str, Any]:
        """What a change of a step has to show: who makes it, and the generation of the lease that it holds."""
        return self.work.shown(step.id)

    def leaving(self) -> bool:
        """True if this process has been told to end, or its parent is gone."""
        gone = self.lifeline is not None and bool(select.select([self.lifeline], [], [], 0)[0])
        return gone or self.stopping()

    @property
    def message(self) -> Message:
        """The message in focus. Raises UserError if a task is."""
        if self.focus.message is None:
            raise UserError("this needs a message in focus, and a task is")
        return self.focus.message

    def step(self, step_id: str | None) -> PlannedStep:
        """The step named, or the one in focus. Raises UserError if it is not a step of this task."""
        wanted = step_id or (self.focus.step.id if self.focus.step else None)
        for step in self.work.steps():
            if step.id == wanted:
                return step
        raise UserError(f"{wanted!r} is no step of task {self.work.task.id}")
