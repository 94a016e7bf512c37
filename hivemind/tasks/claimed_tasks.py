"""Work on claimed tasks: their logs and records, and how they leave active/ (README.md, *The end*).

All files are written in active/, result.md or error.md last. One rename then moves the folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.fs import crash_point, make_folder, ring, write
from hivemind.fs.atomic import fsync_folder_later
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, LANDING
from hivemind.masking import mask, strip_controls
from hivemind.names import check_name
from hivemind.outcome import OUTCOME_FILES, Outcome
from hivemind.tasks.claims import Claims
from hivemind.tasks.folder import ATTEMPTS, LOG, folder_of, free_name, hold, move_task, open_log, remove_ends
from hivemind.tasks.listing import Listing
from hivemind.tasks.logs import TaskLogs
from hivemind.tasks.record import RECORD, Claim, HandOverTarget, RecordTampered, TaskRecord, load_sound
from hivemind.tasks.settings import Settings
from hivemind.tasks.task import AddedText, ParkedTask, Task, TaskMoved, TaskProblem, TaskState

_SHORT = timedelta(seconds=60)  # a shorter wait is not reported


class ClaimedTasks:
    """The operations on a hive's claimed tasks. Each that takes a Task raises TaskMoved if the task's claim is over."""

    def __init__(self, settings: Settings, listing: Listing, claims: Claims, logs: TaskLogs) -> None:
        self._layout = settings.layout
        self._listing = listing
        self._claims = claims
        self._records = settings.records
        self._clock, self._outbox = settings.clock, settings.outbox
        self._logs = logs

    def close(self, task: Task, outcome: Outcome, text: str) -> tuple[Path, TaskRecord]:
        """Write result.md or error.md and move the task to done/ or failed/. Return the new folder and the record."""
        name, place = OUTCOME_FILES[outcome], self._layout.tasks / outcome
        end = strip_controls(mask(text)).encode()
        try:
            with self._claimed_record(task) as record:
                if record.parked is not None:
                    self._save(task, record, parked=None)
                self._records.announce_end(task.id, end)
                self._logs.seal(task)
                self._outbox.put(outcome, task.id, record, task.notify)
                remove_ends(task.path, but=name)
                write(task.path / name, end, sync_name=False)
                fsync_folder_later(task.path)  # with the log's name and the graph's
                crash_point("tasks.close.written")
                target = move_task(self._layout, task.path, place, record=record)
                crash_point("tasks.close.moved")
                self._forget(task.id)
                return target, record
        except TaskMoved as moved:
            late_result = self._keep_late_result(task, name, end)
            raise TaskMoved(moved.message, location=task.id, late_result=late_result) from None

    def release(self, task: Task) -> Path:
        """Move the task back to the inbox, with its log, for the next agent to continue. Return the new folder."""
        with self._claimed_record(task) as record:
            remove_ends(task.path)
            inode = os.stat(task.path).st_ino  # nobody has to wait until it is whole
            self._save(task, record, parked=None, inode=inode)
            crash_point("tasks.release.ready")
            self._forget(task.id)
            return self._claims.drops.put_back(task.path)

    def hand_over(self, task: Task, *, to: str | None = None, role: str | None = None, reason: str = "") -> None:
        """Record that the task is handed over to an agent or a role. `release` then moves it to the inbox.

        If the agent dies between the two calls, its next start moves the task (`Tasks.mine`). Raises UserError for an
        invalid name, or unless exactly one of `to` and `role` is set.
        """
        if (to is None) == (role is None):
            raise UserError("name either an agent or a role to hand the task over to", location=task.id)
        to, role = (None if target is None else check_name(target, "name") for target in (to, role))
        with self._claimed_record(task) as record:
            assert record.claim is not None
            handed = HandOverTarget(record.claim.agent, to, role, mask(reason), record.claim.claimed)
            self._save(task, record, handed=handed)
            crash_point("tasks.hand_over.written")

    def park(self, task: Task, reason: str, until: datetime | None = None) -> ParkedTask:
        """Record why the task waits, and until when. The agent keeps its claim."""
        reason = mask(reason)
        parked = ParkedTask(reason, until, self._clock())
        with self._claimed_record(task) as record:
            if record.parked is None or (record.parked.reason, record.parked.until) != (reason, until):
                lasts = until is None or until - parked.since > _SHORT
                if lasts and "wait_for" not in record.kept:  # it does not wait for its subtasks or its review
                    self._outbox.put("parked", task.id, record, task.notify, reason)
                self._save(task, record, parked=parked)
        return parked

    def unpark(self, task: Task) -> None:
        with self._claimed_record(task) as record:
            if record.parked is not None:
                self._save(task, record, parked=None)

    def keep(self, task: Task, name: str, value: Any, *, unpark: bool = False) -> None:
        """Store the runtime's JSON value under `name` in the task's record (`Task.kept`). None removes the name."""
        with self._claimed_record(task) as record:
            values = {key: kept_value for key, kept_value in record.kept.items() if key != name}
            if value is not None:
                values[name] = value
            self._save(task, record, kept=values, parked=None if unpark else record.parked)

    def rewrite(
        self, task: Task, change: Callable[[TaskRecord], TaskRecord], event: str = "task.recorded", **payload: object
    ) -> TaskRecord:
        """Replace the task's record by what `change` returns for it, and write an event. Return the new record."""
        with self._claimed_record(task) as record:
            new_record = change(record)
            agent = None if new_record.claim is None else new_record.claim.agent
            self._records.save(task.path, new_record, event, agent_id=agent, **payload)
            return new_record

    def pass_on(
        self, task: Task, agent: str, change: Callable[[TaskRecord], TaskRecord], event: str, **payload: object
    ) -> None:
        """Give the claim to a process of the runtime. `change` is made in the same record."""
        claim = Claim(os.urandom(8).hex(), agent, 0, self._clock().isoformat(timespec="milliseconds"))
        self.rewrite(task, lambda record: replace(change(record), claim=claim), event, **payload)
        self._forget(task.id)

    def added_texts(self, task: Task) -> tuple[AddedText, ...]:
        with self._claimed_record(task) as record:
            return record.said

    def _save(self, task: Task, record: TaskRecord, **changes: Any) -> None:
        self._records.save(task.path, replace(record, **changes), agent_id=task.owner)

    def say(self, task_id: str, text: str, *, by: str = HUMAN, key: str | None = None) -> Path:
        """Add `text` to a task that is claimed or that an agent made, and wake the agent that works on it. Return the
        task's folder.

        A second text with the same `key` is ignored. Raises UserError for an unclaimed drop of a person (edit its file
        instead), for a task that is over (retry it) and for an unknown id.
        """
        task_id = check_name(task_id, "task id")
        if not text.strip():
            raise UserError("the text to add is empty", location=task_id)
        active, inbox = self._layout.active / task_id, self._layout.inbox / task_id
        for folder in (active, inbox, active):  # active/ again: it may have been claimed meanwhile
            try:
                self.add_text(folder, text, check_name(by, "agent name"), key)
            except (FileNotFoundError, NotADirectoryError, TaskProblem):
                if (folder / RECORD).exists():
                    raise
                continue
            return folder
        state = self._listing.get(task_id).state
        if state is TaskState.INBOX:
            raise UserError("is not claimed yet", location=task_id, remedy="edit its file instead")
        raise UserError("is over", location=task_id, remedy="change its task.md, then: hivemind task retry")

    def add_text(self, folder: Path, text: str, by: str, key: str | None = None, *, reopens: bool = False) -> None:
        """Add a text to the record in a task's folder, which moves to the inbox if the text `reopens` the task."""
        with hold(folder, wait=True):
            record = self._records.load(folder, folder.name)
            if key is not None and any(addition.key == key for addition in record.said):
                return
            addition = AddedText(by, self._clock().isoformat(timespec="milliseconds"), mask(text), key)
            record = replace(record, said=(*record.said, addition))
            if reopens:  # with the inode, nobody has to wait until it is whole
                record = replace(record, inode=os.stat(folder).st_ino)
            self._records.save(folder, record, "task.said", by=by)
        if record.claim is not None:
            ring(self._layout.doorbells, record.claim.agent)

    def log(self, task: Task, *records: Mapping[str, Any], durable: bool = False) -> None:
        """Append records to the task's messages.jsonl in one write. With `durable`, they survive a power cut after the
        return.

        Raises UserError after an incomplete write, which is undone.
        """
        with self._claimed_record(task):
            self._logs.append(task, *records, durable=durable)

    def log_late(self, task_id: str, *records: Mapping[str, Any]) -> None:
        """Append the last records of an agent whose task the lander has or had. A task that was claimed again is left alone."""
        while (folder := folder_of(self._layout, task_id)) is not None:
            with suppress(FileNotFoundError), hold(folder, wait=True):
                record = load_sound(folder)
                if record is not None and record.claim is not None and record.claim.agent == LANDING:
                    open_log(folder).append(*records, separate_lines=True)
                return

    def fail_active(self, path: Path, reason: str) -> Path:
        """Move an active task to failed/, even while an agent works on it. Later writes of that agent are refused."""
        with hold(path, wait=True):
            remove_ends(path)
            write(path / OUTCOME_FILES["failed"], strip_controls(mask(reason)))
            crash_point("tasks.cancel.written")
            return move_task(self._layout, path, self._layout.failed)

    @contextmanager
    def _claimed_record(self, task: Task) -> Iterator[TaskRecord]:
        """Hold the task's folder and yield its record. Raises TaskMoved if the claim is over or the folder was moved.

        If another program has changed the task's record or log, the task fails.
        """
        try:
            with hold(task.path, wait=True):
                record = self._check_record(task)
                if record.claim is None or record.claim.key != task.claim:
                    owner = "nobody" if record.claim is None else record.claim.agent
                    raise TaskMoved(f"the claim is over, the task belongs to {owner} now", location=task.id)
                yield record
        except (FileNotFoundError, NotADirectoryError):
            if task.path.is_dir():
                raise
            raise TaskMoved("the claim is over, the task was moved out of active/", location=task.id) from None

    def _check_record(self, task: Task) -> TaskRecord:
        try:
            if not self._logs.is_changed(task):
                return self._records.load(task.path, task.id)
            problem = RecordTampered(f"{LOG} was changed by something other than hivemind", location=task.path)
        except RecordTampered as error:
            problem = error
        self._forget(task.id)
        self._claims.fail_damaged(task.path, task.owner, problem)
        raise TaskMoved(f"it has failed: {problem.message}", location=task.id)

    def _forget(self, task_id: str) -> None:
        self._records.forget(task_id)
        self._logs.forget(task_id)

    def _keep_late_result(self, task: Task, name: str, end: bytes) -> Path | None:
        """Write a result that came after the claim's end to `attempts/` of the task. Return None if the task was deleted."""
        layout = self._layout
        for folder in (layout.inbox / task.id, folder_of(layout, task.id)):
            if folder is None or not folder.is_dir():
                continue
            attempts = folder / ATTEMPTS
            late = attempts / free_name(f"late-{task.owner}", set(names_in(attempts)).__contains__)
            try:
                make_folder(late)
                write(late / name, end)
            except FileNotFoundError:
                continue  # moved meanwhile
            return late
        return None
