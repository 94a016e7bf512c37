"""Work on claimed tasks, their ends (README.md, *The end*), and tasks that people cancel, retry or reject.

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
from hivemind.fs import crash_point, make_folder, move, ring, write
from hivemind.fs.atomic import fsync_folder_later
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, LANDING
from hivemind.masking import mask, strip_controls
from hivemind.names import check_name
from hivemind.outcome import OUTCOME_FILES, Outcome
from hivemind.tasks.attempts import ATTEMPTS, set_aside
from hivemind.tasks.claims import Claims
from hivemind.tasks.folder import ended_folder, folder_of, free_name, is_open, locked_folder, move_task, remove_ends
from hivemind.tasks.listing import Listing
from hivemind.tasks.record import LOG, RECORD, Claim, RecordTampered, TaskHandOver, TaskRecord, load_sound, open_log
from hivemind.tasks.recovery import Recovery
from hivemind.tasks.settings import Settings
from hivemind.tasks.task import AddedText, ParkedTask, Task, TaskMoved, TaskProblem, TaskState

_SHORT = timedelta(seconds=60)  # a shorter wait is not reported


class ClaimedTasks:
    """The operations on a hive's tasks after their claim. A method that takes a Task raises TaskMoved if its claim is over."""

    def __init__(self, settings: Settings, listing: Listing, claims: Claims, recovery: Recovery) -> None:
        self._layout = settings.layout
        self._listing = listing
        self._claims, self._recovery = claims, recovery
        self._records = settings.records
        self._clock, self._outbox = settings.clock, settings.outbox

    def finish(self, task: Task, result: str) -> Path:
        """Write result.md, move the task to done/ and cancel its open subtasks. Return its new folder.

        Raises TaskMoved if the claim is over; the late result is then kept in `attempts/`.
        """
        return self._end(task, "done", result, f"{task.id} is done without it")

    def fail(self, task: Task, reason: str) -> Path:
        """Write error.md with the reason, move the task to failed/ and cancel its open subtasks, as `finish` does."""
        text = reason if reason.startswith("#") else f"# {task.title}\n\n{reason.rstrip()}\n"
        return self._end(task, "failed", text, f"{task.id} has failed")

    def _end(self, task: Task, outcome: Outcome, text: str, subtask_reason: str) -> Path:
        name, place = OUTCOME_FILES[outcome], self._layout.tasks / outcome
        end = _end_file(text)
        try:
            with self._claimed_record(task) as record:
                if record.parked is not None:
                    self._save(task, record, parked=None)
                self._records.announce_end(task.id, end)
                self._records.seal_log(task)
                self._outbox.put(outcome, task.id, record, task.notify)
                remove_ends(task.path, but=name)
                write(task.path / name, end, sync_name=False)
                fsync_folder_later(task.path)  # with the log's name and the graph's
                crash_point("tasks.close.written")
                target = move_task(self._layout, task.path, place, record=record)
                crash_point("tasks.close.moved")
                self._records.forget(task.id)
        except TaskMoved as moved:
            late_result = self._keep_late_result(task, name, end)
            raise TaskMoved(moved.message, location=task.id, late_result=late_result) from None
        self._cancel_subtasks(record, subtask_reason)
        return target

    def release(self, task: Task) -> Path:
        """Move the task back to the inbox, with its log, for the next agent to continue. Return the new folder."""
        with self._claimed_record(task) as record:
            remove_ends(task.path)
            inode = os.stat(task.path).st_ino  # nobody has to wait until it is whole
            self._save(task, record, parked=None, inode=inode)
            crash_point("tasks.release.ready")
            self._records.forget(task.id)
            return self._recovery.drops.put_back(task.path)

    def hand_over(self, task: Task, *, to: str | None = None, role: str | None = None, reason: str = "") -> None:
        """Record that the task is handed over to an agent (`to`) or a role. `release` then moves it to the inbox.

        If the agent dies between the two calls, its next start moves the task (`Tasks.mine`). Raises UserError for an invalid
        name, and if both or neither of `to` and `role` are set.
        """
        if (to is None) == (role is None):
            raise UserError("name either an agent or a role to hand the task over to", location=task.id)
        to, role = (None if target is None else check_name(target, "name") for target in (to, role))
        with self._claimed_record(task) as record:
            assert record.claim is not None
            handed = TaskHandOver(record.claim.agent, to, role, mask(reason), record.claim.claimed)
            self._save(task, record, handed=handed)
            crash_point("tasks.hand_over.written")

    def park(self, task: Task, reason: str, until: datetime | None = None) -> ParkedTask:
        """Record why the task waits, and until when (None: until an event). Return the record. The agent keeps its claim."""
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
        """Store the runtime's JSON value under `name` in the task's record (`Task.kept`). None removes the name.

        With `unpark`, the same write ends the wait of a parked task.
        """
        with self._claimed_record(task) as record:
            values = {key: kept_value for key, kept_value in record.kept.items() if key != name}
            if value is not None:
                values[name] = value
            self._save(task, record, kept=values, parked=None if unpark else record.parked)

    def rewrite(
        self, task: Task, change: Callable[[TaskRecord], TaskRecord], event: str = "task.recorded", **payload: object
    ) -> TaskRecord:
        """Replace the task's record by what `change` returns for it. Return the new record.

        The journal's event about it is of the kind `event`, with the fields `payload`.
        """
        with self._claimed_record(task) as record:
            new_record = change(record)
            agent = None if new_record.claim is None else new_record.claim.agent
            self._records.save(task.path, new_record, event, agent_id=agent, **payload)
            return new_record

    def pass_on(
        self, task: Task, agent: str, change: Callable[[TaskRecord], TaskRecord], event: str, **payload: object
    ) -> None:
        """Transfer the task's claim to the runtime's process `agent`, such as the lander. The same write replaces the record by
        what `change` returns for it. `event` and `payload` are as for `rewrite`.
        """
        claim = Claim(os.urandom(8).hex(), agent, 0, self._clock().isoformat(timespec="milliseconds"))
        self.rewrite(task, lambda record: replace(change(record), claim=claim), event, **payload)
        self._records.forget(task.id)

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
        """Add a text by `by` to the record in a task's folder. Skip a text with a `key` that the record already has.

        With `reopens`, prepare the folder for its move to the inbox.
        """
        with locked_folder(folder, wait=True):
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

    def log(self, task: Task, *records: Mapping[str, Any], sync_now: bool = False) -> None:
        """Append records to the task's messages.jsonl in one write. With `sync_now`, they survive a power cut after the
        return.

        Raises UserError after an incomplete write, which is undone.
        """
        with self._claimed_record(task):
            self._records.append_to_log(task, *records, sync_now=sync_now)

    def log_late(self, task_id: str, *records: Mapping[str, Any]) -> None:
        """Append an agent's last records to the log of a task that it has passed to the lander. Do nothing if the claim is not
        the lander's."""
        while (folder := folder_of(self._layout, task_id)) is not None:
            with suppress(FileNotFoundError), locked_folder(folder, wait=True):
                record = load_sound(folder)
                if record is not None and record.claim is not None and record.claim.agent == LANDING:
                    open_log(folder).append(*records, separate_lines=True)
                return

    @contextmanager
    def _claimed_record(self, task: Task) -> Iterator[TaskRecord]:
        """Lock the task's folder and yield its record. Raises TaskMoved if the claim is over or the folder was moved.

        If another program has changed the task's record or log, the task fails.
        """
        try:
            with locked_folder(task.path, wait=True):
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
            if not self._records.is_log_changed(task):
                return self._records.load(task.path, task.id)
            problem = RecordTampered(f"{LOG} was changed by something other than hivemind", location=task.path)
        except RecordTampered as error:
            problem = error
        self._records.forget(task.id)
        self._recovery.fail_damaged(task.path, task.owner, problem)
        raise TaskMoved(f"it has failed: {problem.message}", location=task.id)

    def _keep_late_result(self, task: Task, name: str, end: bytes) -> Path | None:
        """Write a result that came after the claim's end to `attempts/` of the task, as the file `name`. Return its folder, or
        None if the task was deleted.
        """
        layout = self._layout
        for folder in (layout.inbox / task.id, folder_of(layout, task.id)):
            if folder is None or not folder.is_dir():
                continue
            attempts = folder / ATTEMPTS
            late = attempts / free_name(f"late-{task.owner}", set(names_in(attempts)).__contains__)
            with suppress(FileNotFoundError):  # moved meanwhile
                make_folder(late)
                write(late / name, end)
                return late
        return None

    # tasks that are over, and tasks that people end

    def retry(self, task_id: str) -> Path:
        """Move a failed or done task back to the inbox and return its new folder. Raises UserError for any other task."""
        place = self._ended_folder(task_id)
        try:
            move(place, self._layout.inbox / task_id)
        except FileExistsError:
            taken_path = self._layout.relative(self._layout.inbox / task_id)
            message = "a drop of that name waits already"
            raise UserError(message, location=taken_path, remedy="move it away") from None
        crash_point("tasks.retry.back")
        return self._layout.inbox / task_id

    def reopen(self, task_id: str, text: str, *, by: str = HUMAN) -> Path:
        """Add a text to a failed or done task, and move it back to the inbox as `retry` does. Return the task's new folder."""
        place = self._ended_folder(task_id)
        self.add_text(place, text, check_name(by, "agent name"), reopens=True)
        return self.retry(task_id)

    def disown(self, task_id: str, reason: str) -> Path:
        """Reject the outcome of a task that is over: set its files aside in `attempts/` and move the task to failed/ with the
        reason.

        Return its new folder. Raises UserError if the task is not over.
        """
        place = self._ended_folder(task_id)
        with locked_folder(place, wait=True):
            set_aside(place)
            write(place / "error.md", _end_file(f"# {task_id}\n\n{reason}\n"))
            if place.parent.name == TaskState.FAILED:
                return place
            return move_task(self._layout, place, self._layout.failed)

    def _ended_folder(self, task_id: str) -> Path:
        place = ended_folder(self._layout, check_name(task_id, "task id"))
        if place is None:
            message = "no failed or finished task has that id"
            raise UserError(message, location=task_id, remedy="see: hivemind task list")
        return place

    def cancel(self, task_id: str, *, by: str = HUMAN, reason: str = "") -> Path:
        """Move an open task and its subtasks to failed/. Their error.md names `by` and the reason. Return the task's new folder.

        Raises UserError if the task does not exist or is over.
        """
        task_id = check_name(task_id, "task id")
        explanation = f"Cancelled by {by}{f': {reason}' if reason else '.'}"
        target = self._cancel(task_id, f"# {task_id} was cancelled\n\n{explanation}\n")
        self._cancel_subtasks(load_sound(target), f"{task_id} was cancelled")
        return target

    def _cancel(self, task_id: str, error: str) -> Path:
        if (self._layout.active / task_id).is_dir():
            with suppress(FileNotFoundError):  # the task has ended meanwhile
                return self._fail_active(self._layout.active / task_id, error)
        if ended_folder(self._layout, task_id) is not None:
            raise UserError("is over already", location=task_id, remedy=f"hivemind archive {task_id} puts it away")
        try:
            return self._claims.reject_waiting(task_id, error)
        except UserError:
            if not (self._layout.active / task_id).is_dir():
                raise
        return self._cancel(task_id, error)  # it was claimed meanwhile

    def _cancel_subtasks(self, record: TaskRecord | None, reason: str) -> None:
        """Cancel the open subtasks that the record names. Any other subtask ends when it is claimed, or when its agent checks the
        parent."""
        if record is None or record.claim is None:
            return
        for task_id in (subtask_id for ids in record.kept.get("subtasks", {}).values() for subtask_id in ids):
            if is_open(self._layout, task_id):
                with suppress(UserError, OSError):
                    self.cancel(task_id, by=record.claim.agent, reason=reason)

    def _fail_active(self, path: Path, reason: str) -> Path:
        """Move an active task to failed/, even while an agent works on it, and return its new folder. Later writes of that agent
        are refused.
        """
        with locked_folder(path, wait=True):
            remove_ends(path)
            write(path / OUTCOME_FILES["failed"], _end_file(reason))
            crash_point("tasks.cancel.written")
            return move_task(self._layout, path, self._layout.failed)


def _end_file(text: str) -> bytes:
    return strip_controls(mask(text)).encode()
