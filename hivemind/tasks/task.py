"""The values of the room: a task, its steps, and what a listing shows of it (spec 1, *Tasks*)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.outcome import Outcome

StepKind = Literal["run", "ask", "write", "mail", "wait"]
FILES = "files"
"""The folder in a task's own in which its attachments lie, and in which agents and commands work."""


class TaskState(StrEnum):
    """Where a task lies; a state is a folder and nothing else."""

    INBOX = "inbox"
    ACTIVE = "active"
    DONE = "done"
    FAILED = "failed"


class TaskProblem(UserError):
    """A task that cannot be worked on as it stands; names the file, and line and field where there are any."""


class TaskMoved(UserError):
    """The caller's claim is over: a person, `cancel` or `reclaim` moved the folder while the agent worked on it.

    `kept` is where the late result was put (below `attempts/` of the task's folder, wherever that lies now), or None
    if nothing was to be kept or the task is gone: whoever deletes a task withdraws it.
    """

    def __init__(self, message: str, *, location: object, late_result: Path | None = None) -> None:
        super().__init__(
            message, location=location, remedy=f"the late result is in {late_result}" if late_result else None
        )
        self.kept = late_result


@frozen
class TaskStep:
    """One step as the task's author wrote it.

    `argument` by kind: run: a text (for a shell) or a list of words (a program and its arguments) · ask: the question ·
    write: `{"path", "text"}`, text None for the answers so far · mail: `{"to": [..], "subject", "body"}` ·
    wait: exactly one of `{"seconds"}`, `{"until"}` (ISO 8601, UTC), `{"mail"}`, `{"task"}`, `{"human"}` · None: None.
    `timeout` is in seconds. `proof` None means the task's own.
    """

    title: str
    kind: StepKind | None = None
    argument: Any = None
    success_criteria: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    proof: Literal["off", "warn", "require"] | None = None
    once: bool = False
    timeout: float | None = None


@frozen
class TaskReview:
    """Who judges the result before the task ends (an agent of that role), by which criteria; after so many `rounds`
    without an approval a person is asked."""

    by: str
    criteria: tuple[str, ...]
    rounds: int = 3


@frozen
class ParkedTask:
    """Why an active task does not go on by itself; `until` is when to look again, if time alone decides that."""

    reason: str
    until: datetime | None
    since: datetime


@frozen
class AddedText:
    """What a person, or the agent of the task that it is a part of, added to a task; `at` is ISO 8601. `key` names it
    where it may be said again after a crash: then it is there once."""

    by: str
    at: str
    text: str
    key: str | None = None


@frozen
class Ignored:
    """A name in the inbox, or in active/, that is not taken for a task, and why."""

    name: str
    why: str


@frozen
class TaskBudget:
    """What a task alone may use up, of what it shares with the tasks that it is a part of."""

    tokens: int | None = None
    money: float | None = None


@frozen
class Task:
    """A task with its text. `path` is its folder (in the inbox: the file or folder that was dropped).

    `priority` is 0 to 99, lower is more urgent (critical 1, high 2, medium 3, low 4, as in spec 2). `maker` is `human`
    or an agent's name. `claim` names this claim: what an agent writes under a claim that is over is turned away. `said` is
    what was added since it was made, `kept` what the runtime keeps with it, `parent` the task that it is a part of.
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
    dependencies: tuple[str, ...] = ()
    deadline: datetime | None = None
    steps: tuple[TaskStep, ...] = ()
    proof: Literal["off", "warn", "require"] = "off"
    view: str | None = None
    max_tokens: int | None = None
    review: TaskReview | None = None
    finish: Literal["explicit", "implicit"] = "explicit"
    budget: TaskBudget = TaskBudget()
    notify: tuple[Outcome, ...] | None = None
    attachments: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    owner: str | None = None
    claim: str | None = None
    parked: ParkedTask | None = None
    said: tuple[AddedText, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def full_text(self) -> str:
        """The text, and what people have added since it was claimed."""
        added = [f"Added by {addition.by} at {addition.at}:\n{addition.text.strip()}\n" for addition in self.said]
        return "\n".join([self.text, *added])

    @property
    def subtasks(self) -> tuple[str, ...]:
        """The tasks that were made of parts of it in this attempt, oldest first."""
        return tuple(task_id for ids in self.kept.get("subtasks", {}).values() for task_id in ids)

    @property
    def files(self) -> Path:
        """The folder in which agents and commands work on it, beside the program's own records."""
        return self.path / FILES


BEING_WRITTEN = "it is being written"
"""What a file in the inbox waits for that has not settled yet (README.md, *Half-written*)."""


@frozen
class TaskSummary:
    """What a listing shows. `waiting` says in words why a task in the inbox is not claimed (None: it can be);
    `problem` what is wrong with its file, `error` why it failed (by its error.md), `owner` who works or worked on it,
    `since` when it came to where it lies, `hive` which linked hive did it."""

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
