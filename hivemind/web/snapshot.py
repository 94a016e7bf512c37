"""A snapshot of the hive's state, shared by all pages and `hivemind top`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.hive import Hive
from hivemind.layout import LANDING
from hivemind.mail import Message
from hivemind.swarm.overview import AgentOverview, Overview, overview
from hivemind.taskrun.waits import awaits_tasks, find_question
from hivemind.tasks import TaskState, TaskSummary
from hivemind.tasks.folder import why_failed

Kind = Literal["question", "letter", "parked", "landing", "failed", "agent", "disk"]
_FAILURE_AGE = timedelta(days=1)  # a task that failed longer ago is not listed
_MAX_FAILURES = 20


@frozen
class Need:
    """A matter that waits for a person. `about` is the id of the task, agent or letter that it concerns.

    `letter` is the question to answer, None if there is none. `title` is the task's title.
    """

    kind: Kind
    about: str
    message: str
    since: datetime | None = None
    letter: Message | None = None
    title: str = ""

    @property
    def is_review(self) -> bool:
        """True if a person must approve or reject a result. The answer `approved` approves the result."""
        return self.letter is not None and self.letter.subject.startswith("Review: ")

    @property
    def is_permission(self) -> bool:
        """True if a coding agent asks for permission. The answers are `once`, `always` and `deny`."""
        return self.letter is not None and self.letter.subject.startswith("Permission: ")


@frozen
class Snapshot:
    """The hive at one moment: the data of `hivemind status`, the open tasks, and what waits for a person."""

    taken_at: datetime
    overview: Overview
    open_tasks: tuple[TaskSummary, ...]
    needs: tuple[Need, ...]

    @property
    def agents(self) -> tuple[AgentOverview, ...]:
        return self.overview.agents


def take_snapshot(hive: Hive) -> Snapshot:
    """Read the hive's present state into a snapshot."""
    active = hive.tasks.list(TaskState.ACTIVE)
    hive_overview = overview(hive, active)
    tasks = (*active, *hive.tasks.list(TaskState.INBOX))
    return Snapshot(datetime.now(UTC), hive_overview, tasks, tuple(needs_of(hive, hive_overview, active)))


def needs_of(hive: Hive, hive_overview: Overview, active: Iterable[TaskSummary]) -> Iterator[Need]:
    """Yield what waits for a person: from the overview (disk, agents, letters), from active tasks, and tasks that
    failed in the last day."""
    if hive_overview.disk_full:
        yield Need("disk", "disk", "The disk is full and all work has stopped. It resumes when there is free space.")
    for task in active:
        if task.parked is not None:
            question = find_question(hive, task.parked.reason)
            if question is None and task.parked.until is None:
                if awaits_tasks(hive.tasks.get(task.id), task.parked.reason):
                    continue  # what it waits for may need you, and is named then
                kind: Kind = "landing" if task.owner == LANDING else "parked"
                yield Need(kind, task.id, task.parked.reason, task.parked.since, title=task.title)
            elif (
                question is not None and "R" not in question.flags
            ):  # an answered question resumes when its agent looks
                yield Need("question", task.id, question.subject, question.date, question, task.title)
        elif task.problem:
            yield Need("parked", task.id, task.problem, task.since, title=task.title)
    for agent in hive_overview.agents:
        if agent.problem:
            yield Need("agent", agent.name, agent.problem)
    for letter_id, subject in hive_overview.needs_you:
        yield Need("letter", letter_id, subject)
    yield from _recent_failures(hive)


def _recent_failures(hive: Hive) -> Iterator[Need]:
    """Yield the tasks that failed within the last day, newest first."""
    failures, moment = [], datetime.now(UTC)
    if hive.layout.failed.is_dir():
        for folder in hive.layout.failed.iterdir():
            if folder.name.startswith("."):
                continue
            with boundary("time"):
                since = datetime.fromtimestamp(folder.lstat().st_ctime, UTC)
            if moment - since < _FAILURE_AGE:
                failures.append((since, folder))
    for since, folder in sorted(failures, reverse=True)[:_MAX_FAILURES]:
        reason = why_failed(folder) or "No reason is recorded."
        if not reason.startswith("Cancelled by "):
            title = ""
            with suppress(UserError, OSError):  # a failed drop may not be a task
                title = hive.tasks.get(folder.name).title
            yield Need("failed", folder.name, reason, since, title=title)
