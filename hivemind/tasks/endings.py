"""How tasks end: agents finish or fail them, people cancel or retry them, and an outcome can be rejected later."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hivemind.errors import UserError
from hivemind.fs import crash_point, move, write
from hivemind.layout import HUMAN
from hivemind.masking import mask, strip_controls
from hivemind.names import check_name
from hivemind.tasks.claimed_tasks import ClaimedTasks
from hivemind.tasks.claims import Claims
from hivemind.tasks.folder import ended_folder, hold, is_open, move_task, set_aside
from hivemind.tasks.record import TaskRecord, load_sound
from hivemind.tasks.settings import Settings
from hivemind.tasks.task import Task, TaskState


class Endings:
    """Ends the tasks of one hive, together with their open subtasks."""

    def __init__(self, settings: Settings, claims: Claims, active: ClaimedTasks) -> None:
        self._layout = settings.layout
        self._claims = claims
        self._active = active

    def finish(self, task: Task, result: str) -> Path:
        """Write result.md, move the task to done/ and cancel its open subtasks. Return its new folder.

        Raises TaskMoved if the claim is over; the late result is then kept in `attempts/`.
        """
        folder, record = self._active.close(task, "done", result)
        self._cancel_subtasks(record, f"{task.id} is done without it")
        return folder

    def fail(self, task: Task, reason: str) -> Path:
        """Write error.md with the reason, move the task to failed/ and cancel its open subtasks, as `finish` does."""
        text = reason if reason.startswith("#") else f"# {task.title}\n\n{reason.rstrip()}\n"
        folder, record = self._active.close(task, "failed", text)
        self._cancel_subtasks(record, f"{task.id} has failed")
        return folder

    def retry(self, task_id: str) -> Path:
        """Move a failed or done task back to the inbox, as a person may do by hand. Raises UserError if it cannot."""
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
        """Add a text to a failed or done task, and move it back to the inbox as `retry` does."""
        place = self._ended_folder(task_id)
        self._active.add_text(place, text, check_name(by, "agent name"), reopens=True)
        return self.retry(task_id)

    def disown(self, task_id: str, reason: str) -> Path:
        """Reject the outcome of a task that is over: set its files aside in `attempts/` and move the task to failed/
        with the reason.

        Raises UserError if the task is not over.
        """
        place = self._ended_folder(task_id)
        with hold(place, wait=True):
            set_aside(place)
            write(place / "error.md", strip_controls(mask(f"# {task_id}\n\n{reason}\n")))
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
        """Move an open task and its subtasks to failed/, with an error.md that names `by`. Raises UserError."""
        task_id = check_name(task_id, "task id")
        explanation = f"Cancelled by {by}{f': {reason}' if reason else '.'}"
        target = self._cancel(task_id, f"# {task_id} was cancelled\n\n{explanation}\n")
        self._cancel_subtasks(load_sound(target), f"{task_id} was cancelled")
        return target

    def _cancel(self, task_id: str, error: str) -> Path:
        if (self._layout.active / task_id).is_dir():
            with suppress(FileNotFoundError):  # it has ended meanwhile
                return self._active.fail_active(self._layout.active / task_id, error)
        if ended_folder(self._layout, task_id) is not None:
            raise UserError("is over already", location=task_id, remedy=f"hivemind archive {task_id} puts it away")
        try:
            return self._claims.reject_waiting(task_id, error)
        except UserError:
            if not (self._layout.active / task_id).is_dir():
                raise
        return self._cancel(task_id, error)  # it was claimed meanwhile

    def _cancel_subtasks(self, record: TaskRecord | None, reason: str) -> None:
        """Cancel the open subtasks on record. Any other subtask ends when it is claimed, or when its agent checks the
        parent."""
        if record is None or record.claim is None:
            return
        for task_id in (subtask_id for ids in record.kept.get("subtasks", {}).values() for subtask_id in ids):
            if is_open(self._layout, task_id):
                with suppress(UserError, OSError):
                    self.cancel(task_id, by=record.claim.agent, reason=reason)
