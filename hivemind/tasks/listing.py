"""Reading tasks: one task by its id, all tasks of a state, and the reason for which a task waits. No file is changed."""

from __future__ import annotations

import builtins
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs import is_timestamp_reliable, open_watcher
from hivemind.fs.paths import names_in
from hivemind.layout import ANY, HUMAN, LANDING, archived_folders
from hivemind.names import check_name, is_name
from hivemind.outcome import Outcome
from hivemind.tasks.attempts import ATTEMPTS
from hivemind.tasks.dependencies import READY, Dependencies, DependencyStatus
from hivemind.tasks.drop import Drop, DropReader, read_regular
from hivemind.tasks.folder import (
    ended_at,
    ended_folder,
    folder_of,
    is_being_claimed,
    is_open,
    read_task,
    revert_of,
    task_of,
    unfinished_claims,
    why_failed,
)
from hivemind.tasks.form import ParsedTask
from hivemind.tasks.ids import ENDINGS, id_of, ignored_why, is_task_name
from hivemind.tasks.queue import QueuedDrop
from hivemind.tasks.record import TaskRecord, open_log
from hivemind.tasks.settings import Settings
from hivemind.tasks.task import BEING_WRITTEN, Ignored, Task, TaskState, TaskSummary

_NET_S = 1.0  # `wait` looks this often without a reported change
_MOTION_S, _LOOK_S = 2.0, 0.01
_CLAIMED = "is just being claimed"
_Seen = TypeVar("_Seen")


class TaskInMotion(UserError):
    """A task is being written or claimed, or is moved at this moment."""


class Listing:
    """Lists and reads the tasks of one hive. A task that cannot be read is listed with its problem."""

    def __init__(
        self, settings: Settings, reader: DropReader, read_queue: Callable[[], Mapping[str, QueuedDrop]]
    ) -> None:
        """List the tasks of the hive with these `settings`. `read_queue` returns the drops that other processes have read."""
        self._settings = settings
        self._read_queue = read_queue
        self.layout = settings.layout
        self._inbox_path = os.fspath(settings.layout.inbox)
        self._reader = reader
        self._cached_counts: dict[TaskState, tuple[int, int]] = {}

    # one task

    def get(self, task_id: str) -> Task:
        """Return the task with that id, in any state. Raises UserError if there is none, TaskProblem if it is
        unreadable.

        A task that is being written or claimed is waited for, up to two seconds.
        """
        task_id = check_name(task_id, "task id")
        return self._at_rest(lambda: self._look_for(task_id))

    def _at_rest(self, look: Callable[[], _Seen]) -> _Seen:
        """Call `look` until it raises no TaskInMotion, and return its result. After two seconds, raise that error."""
        until = time.monotonic() + _MOTION_S
        while True:
            try:
                return look()
            except TaskInMotion:
                if time.monotonic() >= until:
                    raise
            time.sleep(_LOOK_S)

    def _look_for(self, task_id: str) -> Task:
        for state in (TaskState.ACTIVE, TaskState.DONE, TaskState.FAILED):
            try:
                return self._read(self.layout.tasks / state / task_id, state)
            except (FileNotFoundError, NotADirectoryError):
                continue
        if (place := ended_folder(self.layout, task_id)) is not None:
            return self._read(place, TaskState(place.parent.name))
        try:
            drop, queued, _ = self._find(task_id)
            path = self.layout.inbox / drop.name
            if queued.folder:
                return self._read(path, TaskState.INBOX)
        except FileNotFoundError:
            raise TaskInMotion("is being moved", location=task_id) from None
        except UserError:
            if folder_of(self.layout, task_id) is None:
                raise
            raise TaskInMotion("is being moved", location=task_id) from None
        return task_of(self._parse_drop(drop), path, TaskState.INBOX, TaskRecord(), queued.id)

    def unreadable_summary(self, task_id: str) -> TaskSummary | None:
        """Return the summary of a task for which `get` raises TaskProblem, or None if it has been moved."""
        task_id = check_name(task_id, "task id")
        if (place := folder_of(self.layout, task_id)) is not None:
            with suppress(FileNotFoundError):
                return self._ended_or_active(place, TaskState(place.parent.name), place.lstat())
        return next((summary for summary in self._waiting_summaries() if summary.id == task_id), None)

    def is_known(self, task_id: str) -> bool:
        """Check that a task with the id exists, in any state, so a dependency or a step may wait for it."""
        name = task_id.strip().lower()
        return is_name(name) and (is_open(self.layout, name) or bool(self._dependencies(self._drops()).state_of(name)))

    def is_open(self, task_id: str) -> bool:
        """Check that a task which was claimed before is unfinished: in active/, being claimed, or back in the inbox. Costs a few
        stats.

        Raises UserError for a bad id.
        """
        return is_open(self.layout, check_name(task_id, "task id"))

    def outcome(self, task_id: str) -> Outcome | None:
        """Return `done` or `failed`, or None if the task is not over. Costs a few stats. Raises UserError for a bad id."""
        place = ended_folder(self.layout, check_name(task_id, "task id"))
        if place is None or not place.is_dir():
            return None
        return "done" if place.parent.name == TaskState.DONE else "failed"

    def read_log(self, task_id: str, attempt: int | None = None) -> Iterator[dict[str, Any]]:
        """Return the records of a task's log, or of the log of the earlier attempt number `attempt`, oldest first. Raises
        UserError.
        """
        folder = self.get(task_id).path
        if not folder.is_dir():  # a file in the inbox
            return iter(())
        return open_log(folder if attempt is None else folder / ATTEMPTS / str(attempt)).records()

    def kept_values(self, task_id: str) -> Mapping[str, Any]:
        """Return the values that the runtime keeps with a task, in any state.

        Raises UserError if the task does not exist, or if another program has changed its record.
        """
        return self._settings.records.load(self.get(task_id).path, task_id).kept

    def waiting_for(self, task_id: str) -> str | None:
        """Return why a task in the inbox cannot be claimed, or None if it can. Raises UserError if the inbox has no such task."""
        return self.find_waiting(check_name(task_id, "task id"))[1]

    def find_waiting(self, task_id: str) -> tuple[QueuedDrop, str | None]:
        """Return a task in the inbox, and why it cannot be claimed (None: it can). Raises UserError if the inbox has no such
        task.
        """
        _, queued, verdict = self._at_rest(lambda: self._find(task_id))
        return queued, self._obstacle(queued, verdict)

    def _find(self, task_id: str) -> tuple[Drop, QueuedDrop, DependencyStatus]:
        for ending in ENDINGS:  # most files are named after their id
            drop = self._reader.drop(f"{self._inbox_path}/{task_id}{ending}")
            queued = None if drop is None else drop.queued
            if drop is not None and queued is not None and queued.id == task_id and not queued.dependencies:
                return drop, queued, READY
        drops = self._drops()
        for drop in drops:
            if drop.queued is not None and drop.queued.id == task_id:
                return drop, drop.queued, self._dependencies(drops).verdict(drop.queued)
        if drop := next((drop for drop in drops if drop.queued is None and drop.id == task_id), None):
            problem = TaskInMotion if drop.waits == BEING_WRITTEN else UserError
            raise problem(drop.waits, location=task_id, remedy="look again in a moment")
        if is_being_claimed(self.layout, task_id):
            mend = "look again in a moment; if its agent has ended, hivemind doctor says what to do"
            raise TaskInMotion(_CLAIMED, location=task_id, remedy=mend)
        for name in names_in(self.layout.schedule):
            if id_of(name, False) == task_id:
                path, remedy = self.layout.relative(self.layout.schedule / name), "delete the file to end it"
                raise UserError("is a schedule: its tasks have a time in their ids", location=path, remedy=remedy)
        raise UserError("there is no such task", location=task_id, remedy="see: hivemind task list")

    def wait(self, task_id: str, timeout: float | None = None, *, watch: str = "auto") -> Task:
        """Wait until a task is done or failed, and return it; its `path` is the folder with the result.

        `timeout` is in seconds; None waits without limit. `watch` is the way to watch files: `auto`, `inotify` or `poll`. The
        time in which the task waits for a person counts, too. Raises UserError if the task does not exist, or if it is not over
        in time.
        """
        if self.outcome(task_id) is None:
            self._wait(task_id, timeout, watch)
        return self.get(task_id)

    def _wait(self, task_id: str, timeout: float | None, watch: str) -> None:
        until = math.inf if timeout is None else time.monotonic() + timeout
        folder_changed = threading.Event()
        with open_watcher(watch, [self.layout.done, self.layout.failed], [], lambda _: folder_changed.set()):
            has_changed = False
            while self.outcome(task_id) is None:
                if not has_changed:
                    with suppress(TaskInMotion):
                        self.get(task_id)  # raises if it was deleted
                remaining = until - time.monotonic()
                if remaining <= 0:
                    mend = "hivemind task list says why"
                    raise UserError(f"is not over after {timeout:g} s", location=task_id, remedy=mend)
                has_changed = folder_changed.wait(min(_NET_S, remaining))
                folder_changed.clear()

    def _read(self, folder: Path, state: TaskState) -> Task:
        return read_task(folder, state, self._settings.reader, self.layout.root, self._settings.roots)

    def _parse_drop(self, drop: Drop) -> ParsedTask:
        raw, file_stat = drop.head, drop.file_stat
        if len(raw) < file_stat.st_size or not stat.S_ISREG(file_stat.st_mode):
            path = f"{self._inbox_path}/{drop.name}"
            raw, file_stat = read_regular(path, drop.name, self._settings.reader.max_bytes)
        return self._settings.reader.read(raw, drop.name, file_stat)

    # many tasks

    def list(self, state: TaskState | str | None = None, *, limit: int | None = None) -> builtins.list[TaskSummary]:
        """Return the tasks of a state, or of all states: waiting tasks in the order of claiming, others oldest first.

        Half-written drops come last. `limit` bounds each state: the first waiting tasks, the newest others. Tasks beyond it are
        not read.
        """
        places = TaskState if state is None else (TaskState(state),)
        tasks: builtins.list[TaskSummary] = []
        for place in places:
            if place is TaskState.INBOX:
                tasks += chain(self._waiting_summaries(limit), self._being_claimed())
            else:
                tasks += self._list_folder(self.layout.tasks / place, place, limit)
        claimed_ids = {task.id for task in tasks if task.state is not TaskState.INBOX}
        return [task for task in tasks if task.waiting != f"it {_CLAIMED}" or task.id not in claimed_ids]

    def list_waiting(self) -> builtins.list[TaskSummary]:
        """Return the waiting tasks in the order of claiming, with their names as titles. No text is read."""
        return [*self._waiting_summaries(texts=False)]

    def list_archived(self, state: TaskState | str | None = None) -> builtins.list[TaskSummary]:
        """Return the archived tasks (done, failed or, if `state` is None, both) in the order in which they ended. Reads the whole
        archive.
        """
        places = [place for place in archived_folders(self.layout) if state in (None, place.name)]
        summaries = chain.from_iterable(self._list_folder(place, TaskState(place.name)) for place in reversed(places))
        return sorted(summaries, key=lambda summary: (summary.since, summary.id))

    def _list_folder(self, folder: Path, state: TaskState, limit: int | None = None) -> Iterator[TaskSummary]:
        dir_entries = []
        names = names_in(folder)
        may_be_undone = state is TaskState.DONE and any(".revert" in name for name in names)
        for name in names:
            with suppress(FileNotFoundError):
                file_stat = os.lstat(folder / name)
                if not name.startswith(".") and (stat.S_ISDIR(file_stat.st_mode) or os.path.isdir(folder / name)):
                    dir_entries.append((file_stat, name))
        dir_entries.sort(key=lambda dir_entry: (dir_entry[0].st_ctime, dir_entry[1]))
        latest = dir_entries if limit is None else dir_entries[max(0, len(dir_entries) - limit) :]
        for file_stat, name in latest:
            if (summary := self._ended_or_active(folder / name, state, file_stat)) is not None:
                yield replace(summary, undone_by=revert_of(folder / name)) if may_be_undone else summary

    def _waiting_summaries(self, limit: int | None = None, *, texts: bool = True) -> Iterator[TaskSummary]:
        drops = self._drops()
        dependencies = self._dependencies(drops)
        drops.sort(key=lambda drop: (drop.queued is None, drop.queued.order if drop.queued else (), drop.name))
        for drop in drops[:limit]:
            queued = drop.queued
            obstacle = drop.waits if queued is None else self._obstacle(queued, dependencies.verdict(queued))
            summary = self._waiting(drop.id, drop.name, drop.file_stat, obstacle)
            if queued is None:
                yield summary
            elif not texts:
                yield replace(summary, assignee=queued.assignee, role=queued.role)
            elif (complete_summary := self._complete(summary, drop)) is not None:
                yield complete_summary

    def _being_claimed(self) -> Iterator[TaskSummary]:
        for drop, claimed_path in {drop: path for path, drop in unfinished_claims(self.layout)}.items():
            with suppress(FileNotFoundError):
                task_id = id_of(drop, not drop.endswith(ENDINGS[1:]))
                yield self._waiting(task_id, drop, claimed_path.lstat(), f"it {_CLAIMED}")

    def _waiting(self, task_id: str, name: str, file_stat: os.stat_result, obstacle: str | None) -> TaskSummary:
        path, since = Path(f"{self._inbox_path}/{name}"), datetime.fromtimestamp(file_stat.st_ctime, UTC)
        return TaskSummary(task_id, name, TaskState.INBOX, path, HUMAN, since, waiting=obstacle)

    def _ended_or_active(self, path: Path, state: TaskState, file_stat: os.stat_result) -> TaskSummary | None:
        since = datetime.fromtimestamp(file_stat.st_ctime, UTC)
        error = why_failed(path) if state is TaskState.FAILED else None
        return self._complete(TaskSummary(path.name, path.name, state, path, HUMAN, since, error=error))

    def _complete(self, summary: TaskSummary, drop: Drop | None = None) -> TaskSummary | None:
        """Add to a summary what the task's text and record say, or the problem with them. Return None if the task was moved."""
        path, state, since = summary.path, summary.state, summary.since
        try:
            if (
                drop is not None and drop.queued is not None and not drop.queued.folder
            ):  # most drops: only their file is read
                task = task_of(self._parse_drop(drop), path, state, TaskRecord(), summary.id)
            else:
                task = self._read(path, state)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UserError as problem:
            return replace(summary, problem=str(problem))
        with suppress(Unreadable, FileNotFoundError), boundary("time"):
            if state is TaskState.ACTIVE and task.claimed is not None:
                since = task.parked.since if task.parked else datetime.fromisoformat(task.claimed).astimezone(UTC)
            elif state is not TaskState.INBOX:
                since = datetime.fromtimestamp(ended_at(path), UTC)
        return replace(
            summary, id=task.id, title=task.title, maker=task.maker, since=since, parent=task.parent, priority=task.priority,
            project=task.project, assignee=task.assignee, role=task.role, owner=task.owner, parked=task.parked,
            hive=task.kept.get("hive"), deadline=task.deadline, unanswered=task.unanswered,
        )  # fmt: skip

    def _drops(self) -> builtins.list[Drop]:
        """Return the drops of the inbox. Return [] if its folder is missing, as in a copy that leaves out empty folders."""
        return list(self._reader.drops(self._read_queue())) if self.layout.inbox.is_dir() else []

    def _dependencies(self, drops: builtins.list[Drop]) -> Dependencies:
        queued_drops = [drop.queued for drop in drops if drop.queued is not None]
        return Dependencies(self._settings, self._reader, queued_drops, explains=True)

    def _obstacle(self, queued: QueuedDrop, verdict: DependencyStatus) -> str | None:
        if queued.problem or verdict.kind == "fails":
            return f"it fails when it is claimed: {queued.problem or verdict.reason}"
        if verdict.kind == "waits":
            return verdict.reason
        if queued.target_hive is not None and queued.target_hive not in self._settings.local_hives():
            whom = "any linked hive" if queued.target_hive == ANY else f"the hive {queued.target_hive!r}"
            return f"it is for {whom}, and goes there once that hive can be reached"
        if queued.assignee == LANDING:
            return "it is for the lander, which works when the swarm is up"
        agents = self._settings.agents() if queued.assignee or queued.role else {}
        if queued.assignee and queued.assignee not in agents:
            return f"it is for {queued.assignee!r}, which is not an agent of this hive"
        if queued.role and queued.role not in ([agents[queued.assignee]] if queued.assignee else agents.values()):
            missing_agents = f"{queued.assignee} does not have" if queued.assignee else "no agent has"
            return f"it is for the role {queued.role!r}, which {missing_agents}"
        return None

    # names only

    def ignored(self) -> builtins.list[Ignored]:
        """Return the names in the inbox and in active/ that are not tasks, with reasons. Reads no file."""
        names = [(name, ignored_why(name)) for name in sorted(names_in(self.layout.inbox))]
        stray = [name for name in sorted(names_in(self.layout.active)) if not (self.layout.active / name).is_dir()]
        names += [(f"active/{name}", "it is not a folder") for name in stray if is_task_name(name)]
        return [Ignored(name, reason) for name, reason in names if reason is not None]

    def counts(self) -> dict[str, int]:
        """Count the tasks in each state. A folder is listed again only after a change."""
        return {state: self._count(state, self.layout.tasks / state) for state in TaskState}

    def _count(self, state: TaskState, folder: Path) -> int:
        try:
            changed_ns = os.stat(folder).st_mtime_ns
            if self._cached_counts.get(state, (0, 0))[0] == changed_ns:
                return self._cached_counts[state][1]
            with os.scandir(folder) as dir_entries:
                if state is TaskState.INBOX:
                    count = sum(is_task_name(dir_entry.name) for dir_entry in dir_entries)
                else:
                    count = sum(not dir_entry.name.startswith(".") and dir_entry.is_dir() for dir_entry in dir_entries)
        except FileNotFoundError:
            return 0
        if is_timestamp_reliable(changed_ns):  # otherwise a later change could have the same time
            self._cached_counts[state] = (changed_ns, count)
        return count
