"""Recurring tasks: `every:` in the files of tasks/schedule/, and adding a task at each time (README.md, *Work that
comes again*).

A task's id contains its time, and a task is added only if its id is free. Then the time is recorded. If a process is
killed in between, the task is not added twice.
"""

from __future__ import annotations

from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import DamagedRecord, Lock, crash_point, create, load_dataclass, make_folder, save_dataclass, set_aside
from hivemind.logger import logger
from hivemind.names import MAX_LENGTH, slug
from hivemind.tasks.drop import read_regular
from hivemind.tasks.form import ParsedTask, read_text
from hivemind.tasks.ids import is_task_name
from hivemind.tasks.inbox import Inbox, compose
from hivemind.tasks.recurrence import Every
from hivemind.tasks.settings import Settings

if TYPE_CHECKING:
    from pydantic import AwareDatetime

_KIND, _VERSION = "schedule", 1
_AT_ONCE = 100  # tasks of a file with `missed: all` that are added at once
_LONGEST_SET_BACK = timedelta(days=1)  # of a clock: a later noted time is an error of the clock then
_log = logger(__name__)


@frozen
class ScheduledTask:
    """A file of tasks/schedule/. `next` is None after the last time, `last` is the time of the last added task.

    `problem` is the reason for which no task is added.
    """

    name: str
    every: str = ""
    next: datetime | None = None
    last: datetime | None = None
    problem: str | None = None


@frozen
class _FileState:
    """The state of a file of the schedule: when it was written, and the last time for which a task was added."""

    every: str
    since: AwareDatetime
    last: AwareDatetime | None = None


@frozen
class _ScheduleState:
    """The record of the schedule: the state of each file by its name, and the logged problems."""

    files: dict[str, _FileState]
    problems: dict[str, str] = field(default_factory=dict)


class Schedule:
    def __init__(self, settings: Settings, zone: str, inbox: Inbox) -> None:
        self._layout, self._zone, self._inbox = settings.layout, zone, inbox
        self._max_bytes = settings.reader.max_bytes

    def look(self, now: datetime) -> list[ScheduledTask]:
        """Return the tasks of the schedule, sorted by file name. No file is written."""
        try:
            file_states = self._load_state().files
        except UserError as problem:
            return [ScheduledTask(self._layout.schedule_record.name, problem=str(problem))]
        scheduled_tasks = []
        for path in self._files():
            try:
                _, state, due, next_time = self._plan(path, file_states.get(path.name), now)
                scheduled_tasks.append(ScheduledTask(path.name, state.every, due[0] if due else next_time, state.last))
            except UserError as problem:
                scheduled_tasks.append(ScheduledTask(path.name, problem=str(problem)))
        return scheduled_tasks

    def drop_due(self, now: datetime) -> tuple[list[str], datetime | None]:
        """Add the tasks that are due. Return their ids and when to call again (None: after a file has changed).

        Concurrent calls wait for each other. Raises OSError.
        """
        if not self._files():
            return [], None
        make_folder(self._layout.locks)
        with Lock(self._layout.locks / "schedule.lock"):
            try:
                before = self._load_state()
            except (DamagedRecord, Unreadable) as error:  # earlier tasks are also known by their ids
                _log.warning("%s; kept as %s", error, set_aside(self._layout.schedule_record).name)
                before = _ScheduleState({})
            folder = self._layout.schedule
            file_states = {name: state for name, state in before.files.items() if (folder / name).exists()}
            problems: dict[str, str] = {}
            task_ids, moments = [], []
            for path in self._files():
                try:
                    task, planned_state, times, next_time = self._plan(path, file_states.get(path.name), now)
                except UserError as problem:
                    problems[path.name] = str(problem)
                    if before.problems.get(path.name) != str(problem):
                        _log.warning("schedule: %s", problem)
                    continue
                for time in times:
                    task_ids += self._drop(path, task, time)
                    planned_state = replace(planned_state, last=time)
                if planned_state != file_states.get(path.name):
                    file_states[path.name] = planned_state
                    self._save_state(_ScheduleState(file_states, before.problems))
                crash_point("tasks.schedule.noted")
                moments += [now if len(times) == _AT_ONCE else next_time] if next_time is not None else []
            if problems != before.problems:
                self._save_state(_ScheduleState(file_states, problems))
        return task_ids, min(moments, default=None)

    def _plan(
        self, path: Path, state: _FileState | None, now: datetime
    ) -> tuple[ParsedTask, _FileState, list[datetime], datetime | None]:
        """Return a file's task, its state, the times that are due, and the next time (None: there is no further one).

        Of several missed times only the newest is due if `every:` is new, or with `missed: once`. Raises UserError.
        """
        try:
            with boundary("schedule's file", path):
                raw, file_stat = read_regular(str(path), path.name, self._max_bytes)
                task = read_text(raw, path.name)
                if task.form.every is None:
                    mend = "say when the task comes again, or move it to tasks/inbox/"
                    raise UserError("has no every:", location=path, remedy=mend)
                every, until, takes_newest = Every.parse(task.form.every), task.form.until, task.form.missed == "once"
                if state is None or state.every != task.form.every:
                    changed_at, takes_newest = datetime.fromtimestamp(file_stat.st_mtime, UTC), True
                    state = _FileState(task.form.every, min(changed_at, now).replace(microsecond=0))
                if state.last is not None and state.last > now + _LONGEST_SET_BACK:  # noted while the clock was wrong
                    state = replace(state, last=now.replace(microsecond=0))
                after, end = state.last or state.since, now if until is None else min(now, until)
                if takes_newest:
                    newest = every.newest_time(state.since, after, end, self._zone)
                    due = [] if newest is None else [newest]
                else:
                    times = islice(every.times_after(state.since, after, self._zone), _AT_ONCE)
                    due = [time for time in times if time <= end]
                following = next(every.times_after(state.since, max(now, state.last or now), self._zone), None)
                if following is not None and until is not None and following > until:
                    following = None
                return task, state, due, following
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror})", location=path) from None

    def _drop(self, path: Path, task: ParsedTask, time: datetime) -> list[str]:
        """Add the task of one time and return its id in a list, which is empty if the task was added before."""
        stamp = f"-{time:%Y%m%dt%H%M%Sz}"
        task_id = (task.form.id or slug(path.stem))[: MAX_LENGTH - len(stamp)].rstrip("-._") + stamp
        if self._inbox.has_id(task_id):
            return []
        schedule_keys = {"every", "until", "missed", "text"}
        fields = {} if task.front_matter is None else task.front_matter.values
        front_matter = {key: field for key, field in fields.items() if key not in schedule_keys}
        try:
            content = compose({**front_matter, "id": task_id}, task.text)
            create(self._layout.inbox / f"{task_id}.md", content)
        except FileExistsError:
            return []
        crash_point("tasks.schedule.dropped")
        return [task_id]

    # files and their states

    def _files(self) -> list[Path]:
        try:
            paths = sorted(self._layout.schedule.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [path for path in paths if is_task_name(path.name)]

    def _load_state(self) -> _ScheduleState:
        return load_dataclass(_ScheduleState, self._layout.schedule_record, _KIND, _VERSION) or _ScheduleState({})

    def _save_state(self, state: _ScheduleState) -> None:
        save_dataclass(self._layout.schedule_record, _KIND, _VERSION, state)
