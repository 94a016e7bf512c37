"""The values of tasks: a task, its steps, and its summary in a listing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.outcome import Outcome
from hivemind.schema import BeforeValidator, Field
from hivemind.tasks.step import Proof, Strict, TaskStep, Texts, name_check

FILES = "files"
"""The folder in a task's folder that has its attachments. Agents and commands work in it."""


class TaskState(StrEnum):
    """The state of a task is the folder that contains it."""

    INBOX = "inbox"
    ACTIVE = "active"
    DONE = "done"
    FAILED = "failed"


class TaskProblem(UserError):
    """A problem for which a task cannot be worked on. `location` has the file, and line and field if they are known."""


class TaskMoved(UserError):
    """The caller's claim is over: a person, `cancel` or `reclaim` moved the folder while the agent worked on it.

    `kept` is the path of the late result in `attempts/` of the task's current folder. It is None if no result was kept.
    """

    def __init__(self, message: str, *, location: object, late_result: Path | None = None) -> None:
        mend = f"the late result is in {late_result}" if late_result else None
        super().__init__(message, location=location, remedy=mend)
        self.kept = late_result


class TaskReview(Strict):
    """The review of a result by an agent of the role `by`. After `rounds` without an approval, a person is asked."""

    by: Annotated[str, BeforeValidator(name_check("role"))]
    criteria: Texts = Field(min_length=1)
    rounds: int = Field(3, ge=1, le=20)


@frozen
class ParkedTask:
    """The reason for which an active task waits. `until` is set if it waits only for a time."""

    reason: str
    until: datetime | None
    since: datetime


@frozen
class AddedText:
    """An addition to a task by a person or by its parent's agent. `at` is in ISO 8601.

    `key` identifies an addition that may be repeated after a crash.
    """

    by: str
    at: str
    text: str
    key: str | None = None


@frozen
class Ignored:
    """A name in the inbox, or in active/, that is not a task, and the reason why it is ignored."""

    name: str
    why: str


class TaskBudget(Strict):
    """The limits of a task, within a budget that it shares with its parents."""

    tokens: int | None = Field(None, ge=0)
    money: float | None = Field(None, ge=0, allow_inf_nan=False)


@frozen
class Task:
    """A task with its text. `path` is its folder; in the inbox it is the dropped file or folder.

    `priority` is 0 to 99, lower is more urgent (critical 1, high 2, medium 3, low 4). `maker` is `human` or an agent. `claim`
    is the key of the claim, `claimed` its time; writes under an older key are refused. `said` has later additions, `kept`
    values of the runtime. `parent` is the task that this one is a part of. With `fresh`, its worktrees begin without ignored
    files. `candidates` are the agents that do the work in parallel, or their number. `traceparent` names the task's trace span;
    it is None before the first claim.
    """

    id: str
    title: str
    text: str
    path: Path
    state: TaskState
    maker: str
    parent: str | None = None
    project: str | None = None
    priority: int = 3
    assignee: str | None = None
    role: str | None = None
    candidates: int | tuple[str, ...] = 0
    dependencies: tuple[str, ...] = ()
    deadline: datetime | None = None
    steps: tuple[TaskStep, ...] = ()
    proof: Proof = "off"
    view: str | None = None
    max_tokens: int | None = None
    fresh: bool = False
    review: TaskReview | None = None
    finish: Literal["explicit", "implicit"] = "explicit"
    budget: TaskBudget = TaskBudget.model_construct()
    notify: tuple[Outcome, ...] | None = None
    attachments: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    owner: str | None = None
    claim: str | None = None
    claimed: str | None = None
    parked: ParkedTask | None = None
    said: tuple[AddedText, ...] = ()
    traceparent: str | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def full_text(self) -> str:
        """The text, followed by later additions."""
        added = [f"Added by {addition.by} at {addition.at}:\n{addition.text.strip()}\n" for addition in self.said]
        return "\n".join([self.text, *added])

    @property
    def subtasks(self) -> tuple[str, ...]:
        """The ids of the subtasks that were made in this attempt, oldest first."""
        return tuple(task_id for ids in self.kept.get("subtasks", {}).values() for task_id in ids)

    @property
    def unanswered(self) -> str | None:
        """How many questions of a task that is done have no answer, in words. None: all have one."""
        return self.kept.get("unanswered") if self.state is TaskState.DONE else None

    @property
    def files(self) -> Path:
        """The folder in which agents and commands work, next to the program's records."""
        return self.path / FILES


BEING_WRITTEN = "it is being written"
"""The reason for which a half-written file in the inbox waits (README.md, *Half-written*)."""


@frozen
class TaskSummary:
    """A task in a listing. `waiting` is the reason for which a task in the inbox is not claimed, or None.

    * `problem`: a problem with the task's file; `error`: the reason of its failure.
    * `owner`: the agent that has or had the claim; `since`: the time at which the task reached its state.
    * `hive`: the linked hive that did the task; `undone_by`: the task that has undone what this one landed.
    * `unanswered`: for a done task, a note on how many of its questions have no answer, or None.
    """

    id: str
    title: str
    state: TaskState
    path: Path
    maker: str
    since: datetime
    parent: str | None = None
    priority: int = 3
    project: str | None = None
    assignee: str | None = None
    role: str | None = None
    owner: str | None = None
    waiting: str | None = None
    parked: ParkedTask | None = None
    problem: str | None = None
    error: str | None = None
    hive: str | None = None
    undone_by: str | None = None
    deadline: datetime | None = None
    unanswered: str | None = None
