"""Looking at tasks: one by its id, all that lie in a state, why a waiting one waits."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from hivemind.errors import UserError
from hivemind.layout import HUMAN, Layout
from hivemind.tasks.dependencies import Verdict
from hivemind.tasks.drops import id_of, ignored_why, is_task_name, read_regular
from hivemind.tasks.entry import Entry
from hivemind.tasks.folder import read_task, task_of
from hivemind.tasks.form import TextReader
from hivemind.tasks.outcome import why_failed
from hivemind.tasks.queue import Queue
from hivemind.tasks.record import TaskRecord
from hivemind.tasks.task import Ignored, Task, TaskState, TaskSummary

__all__ = ["Listing"]


class Listing:
    """The tasks of one hive, read only. What cannot be read as a task is listed with its problem."""

    def __init__(
        self,
        layout: Layout,
        queue: Queue,
        reader: TextReader,
        *,
        agents: Callable[[], Mapping[str, str | None]],
        roots: Collection[Path],
    ) -> None:
        self._layout = layout
        self._queue = queue
        self._agents = agents
        self._reader = reader
        self._roots = roots

    def get(self, task_id: str) -> Task:
        """The task with that id, wherever it lies. Raises UserError if there is none, TaskProblem if it is no task."""
        for state in (TaskState.ACTIVE, TaskState.DONE, TaskState.FAILED):
            try:
                return self._read(self._layout.tasks / state / task_id, state)
            except (FileNotFoundError, NotADirectoryError):
                continue
        return self._read_waiting(self.waiting(task_id)[0])

    def waiting(self, task_id: str) -> tuple[Entry, Verdict]:
        """A task in the inbox. Raises UserError if it is not there."""
        verdicts, unsettled = self._verdicts()
        for entry, verdict in verdicts:
            if entry.id == task_id:
                return entry, verdict
        if any(id_of(name, (self._layout.inbox / name).is_dir()) == task_id for name in unsettled):
            raise UserError("has just come or is being written", where=task_id, mend="look again in a moment")
        raise UserError("there is no such task", where=task_id, mend="see: hivemind task list")

    def _verdicts(self) -> tuple[list[tuple[Entry, Verdict]], tuple[str, ...]]:
        """Those of the queue; none where there is no inbox: a copy of a hive may lack empty folders."""
        return self._queue.verdicts() if self._layout.inbox.is_dir() else ([], ())

    def why(self, entry: Entry, verdict: Verdict) -> str | None:
        """Why a task in the inbox is not claimed, in words; None if it can be."""
        if entry.problem or verdict.kind == "fails":
            return f"it fails when it is claimed: {entry.problem or verdict.why}"
        if verdict.kind == "waits":
            return verdict.why
        agents = self._agents()
        if entry.assignee and entry.assignee not in agents:
            return f"it is for {entry.assignee!r}, and the hive has no such agent"
        if entry.role and entry.role not in ([agents[entry.assignee]] if entry.assignee else agents.values()):
            return f"it is for the role {entry.role!r}, which {entry.assignee or 'no agent'} does not have"
        return None

    def list(self, state: TaskState) -> Iterator[TaskSummary]:
        """What lies in one state: waiting tasks as they will be claimed, half-written ones last; the others by time."""
        if state is TaskState.INBOX:
            return self._list_waiting()
        folder = self._layout.tasks / state
        names = (name for name in _listed(folder) if not name.startswith("."))
        found = (self._summary(folder / name, state, lambda path: self._read(path, state)) for name in names)
        return iter(sorted(filter(None, found), key=lambda one: (one.since, one.id)))

    def _list_waiting(self) -> Iterator[TaskSummary]:
        verdicts, unsettled = self._verdicts()
        for entry, verdict in verdicts:
            summary = self._summary(
                self._layout.inbox / entry.name,
                TaskState.INBOX,
                lambda _, entry=entry: self._read_waiting(entry),  # type: ignore[misc]
                self.why(entry, verdict),
            )
            if summary is not None:
                yield summary
        for name in sorted(unsettled):
            path = self._layout.inbox / name
            if path.exists():
                since = datetime.fromtimestamp(path.lstat().st_ctime, UTC)
                task_id = id_of(name, path.is_dir())
                why = "it is being written"
                yield TaskSummary(task_id, name, TaskState.INBOX, path, HUMAN, since, waiting=why)

    def ignored(self) -> builtins.list[Ignored]:
        """What lies in the inbox and is not taken for a task, by name; reads no file."""
        found = ((name, ignored_why(name)) for name in sorted(_listed(self._layout.inbox)))
        return [Ignored(name, why) for name, why in found if why is not None]

    def counts(self) -> dict[TaskState, int]:
        """How many tasks there are in each state; reads no file."""
        found = {TaskState.INBOX: sum(map(is_task_name, _listed(self._layout.inbox)))}
        for state in (TaskState.ACTIVE, TaskState.DONE, TaskState.FAILED):
            found[state] = sum(not name.startswith(".") for name in _listed(self._layout.tasks / state))
        return found

    def _read(self, folder: Path, state: TaskState) -> Task:
        return read_task(folder, state, self._reader, self._layout.root, self._roots)

    def _read_waiting(self, entry: Entry) -> Task:
        path = self._layout.inbox / entry.name
        if entry.folder:
            return self._read(path, TaskState.INBOX)
        raw, found = read_regular(os.fspath(path), entry.name, self._reader.max_bytes)
        return task_of(self._reader.read(raw, entry.name, found), path, TaskState.INBOX, TaskRecord(), entry.id)

    def _summary(
        self, path: Path, state: TaskState, read: Callable[[Path], Task], waiting: str | None = None
    ) -> TaskSummary | None:
        """One line of a listing; None if the task has moved on meanwhile."""
        try:
            since = datetime.fromtimestamp(os.lstat(path).st_ctime, UTC)
        except FileNotFoundError:
            return None
        error = why_failed(path) if state is TaskState.FAILED else None
        try:
            task = read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UserError as problem:
            name = id_of(path.name, path.is_dir()) if state is TaskState.INBOX else path.name
            told = str(problem)
            return TaskSummary(name, path.name, state, path, HUMAN, since, waiting=waiting, problem=told, error=error)
        return TaskSummary(
            id=task.id,
            title=task.title,
            state=state,
            path=path,
            maker=task.maker,
            since=since,
            parent=task.parent,
            priority=task.priority,
            project=task.project,
            assignee=task.assignee,
            role=task.role,
            owner=task.owner,
            waiting=waiting,
            parked=task.parked,
            error=error,
        )


def _listed(folder: Path) -> builtins.list[str]:
    """The names in a folder; none where there is no such folder."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
