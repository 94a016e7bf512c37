"""Tasks: files that are dropped into a folder, claimed by one agent each, and end as folders that tell the story."""

from __future__ import annotations

from hivemind.tasks.drops import RESERVED
from hivemind.tasks.duration import parse_duration
from hivemind.tasks.outcome import why_failed
from hivemind.tasks.recovery import Orphan
from hivemind.tasks.taking import Taken
from hivemind.tasks.task import Parked, Task, TaskMoved, TaskProblem, TaskState, TaskStep, TaskSummary
from hivemind.tasks.tasks import Tasks

__all__ = [
    "RESERVED",
    "Orphan",
    "Parked",
    "Taken",
    "Task",
    "TaskMoved",
    "TaskProblem",
    "TaskState",
    "TaskStep",
    "TaskSummary",
    "Tasks",
    "parse_duration",
    "why_failed",
]
