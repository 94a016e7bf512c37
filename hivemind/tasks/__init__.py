"""Tasks: files that are dropped into a folder. One agent claims each; the task's folder shows how the work ended and why."""

from __future__ import annotations

from hivemind.tasks.folder import landing_state, read_outcome, why_failed
from hivemind.tasks.outbox import Notice, Telling
from hivemind.tasks.schedule import ScheduledTask
from hivemind.tasks.step import TaskStep
from hivemind.tasks.task import (
    BEING_WRITTEN,
    FILES,
    AddedText,
    ParkedTask,
    Task,
    TaskMoved,
    TaskProblem,
    TaskState,
    TaskSummary,
)
from hivemind.tasks.tasks import Tasks

__all__ = [
    "BEING_WRITTEN",
    "FILES",
    "AddedText",
    "Notice",
    "ParkedTask",
    "ScheduledTask",
    "Task",
    "TaskMoved",
    "TaskProblem",
    "TaskState",
    "TaskStep",
    "TaskSummary",
    "Tasks",
    "Telling",
    "landing_state",
    "read_outcome",
    "why_failed",
]
