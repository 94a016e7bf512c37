"""A task that rests until others are over (`wait_for`), and whether what a parked task waits for has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from hivemind.boundary import checked
from hivemind.layout import HUMAN
from hivemind.mail import Message
from hivemind.presence.parts import Parts
from hivemind.taskrun.step_waits import StepWaits
from hivemind.tasks import Task

__all__ = ["TaskWait", "has_come", "is_over"]


@dataclass(frozen=True, slots=True)
class TaskWait:
    """What a task waits for; kept in its record under `wait_for`. `until` is when it waits no longer (ISO 8601), `said`
    how much had been added to its text when it began, `letter` the Message-ID of a letter that ends the wait early."""

    tasks: tuple[str, ...]
    mode: Literal["any", "all"]
    until: str | None
    said: int
    letter: str | None = None

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None) -> TaskWait | None:
        """The wait whose fields were kept. Raises Unreadable for anything else."""
        return None if kept is None else checked(cls, kept, "task's wait")

    @property
    def reason(self) -> str:
        """Why the task is parked meanwhile."""
        return f"waits for {'one' if self.mode == 'any' else 'all'} of its tasks: {', '.join(self.tasks)}"

    def ends(self, is_over: Callable[[str], bool]) -> bool:
        """Whether enough of the tasks are over."""
        return (all if self.mode == "all" else any)(map(is_over, self.tasks))

    def hears(self, message: Message, task_id: str) -> TaskWait | None:
        """The wait, ended by a letter: a person's, or a question about a task that it waits for. None: it goes on."""
        by_person = message.sender == HUMAN and message.task in (task_id, *self.tasks)
        asks = message.expects_reply and message.task in self.tasks
        return replace(self, letter=message.id) if (by_person or asks) and self.letter is None else None


def is_over(hive: Parts, parent: Task, task_id: str) -> bool:
    """Whether a task is done or failed; one that was made of a part of `parent` also if a person has deleted it."""
    return hive.tasks.outcome(task_id) is not None or (task_id in parent.subtasks and not hive.tasks.is_open(task_id))


def has_come(hive: Parts, task: Task, reason: str) -> bool:
    """Whether the other tasks have come to their end, or the letter has come, that a task waits for which was parked for
    this reason. Told by what lies on the disk, so that its agent and those who look at it judge alike."""
    wait = TaskWait.of(task.kept.get("wait_for"))
    if wait is not None and wait.reason == reason:
        return wait.letter is not None or wait.ends(lambda one: is_over(hive, task, one))
    awaited = StepWaits(task.kept.get("waits"), lambda _: None).awaited_task(reason)
    return awaited is not None and hive.tasks.outcome(awaited[0]) != awaited[1]
