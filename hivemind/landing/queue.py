"""The landing queue: the finished tasks that the lander owns, read from their records. It has no file of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from hivemind.coordination import JournalState
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import crash_point
from hivemind.layout import LANDING
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.taskrun.landing_entry import LandingEntry, current_entry
from hivemind.tasks import AddedText, Task, TaskState
from hivemind.tasks.record import TaskHandOver, TaskRecord


@frozen
class QueuedTask:
    """A task in the queue with its entry. `seq` is the number of the task's last event."""

    task: Task
    entry: LandingEntry
    seq: int

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def has_news(self) -> bool:
        """True if a text was added to the task after it was finished. Its agent has to read that text first."""
        return len(self.task.said) > self.entry.said

    @property
    def order(self) -> tuple[int, str, str]:
        """The task's place in the queue: by priority, then by the time of its first finish."""
        return self.task.priority, self.entry.queued, self.id


def open_seqs(state: JournalState) -> dict[str, int]:
    """Return the open tasks that the lander owns according to the journal, each with the number of its last event."""
    return {entry.task: entry.seq for entry in state.open_tasks() if entry.agent_id == LANDING}


class Queue:
    """Reads and changes the entries of a hive's queue. A task is read again only after a new event about it."""

    def __init__(self, hive: Parts) -> None:
        self._hive = hive
        self._tasks: dict[str, QueuedTask] = {}

    def read(self) -> list[QueuedTask]:
        """Return the tasks in the order in which they come into their target branches. Skip tasks with an unreadable record;
        `hivemind doctor` reports these."""
        known_tasks, self._tasks = self._tasks, {}
        for task_id, seq in self._hive.journal.view(open_seqs).items():
            queued = known_tasks.get(task_id)
            if queued is None or queued.seq != seq:
                queued = self._load(task_id, seq)
            if queued is not None and queued.task.path.is_dir():
                self._tasks[task_id] = queued
        return sorted(self._tasks.values(), key=lambda queued: queued.order)

    def _load(self, task_id: str, seq: int) -> QueuedTask | None:
        try:
            task = self._hive.tasks.get(task_id)
            entry = current_entry(self._hive, task.kept) if task.owner == LANDING else None
        except UserError:
            return None
        return None if entry is None else QueuedTask(task, entry, seq)

    def change(self, queued: QueuedTask, event: str = "task.recorded", /, **changes: Any) -> QueuedTask:
        """Save an entry with changed fields, write the `event`, and return the changed task. Raises TaskMoved if the lander no
        longer has the task."""

        def rewrite(record: TaskRecord) -> TaskRecord:
            entry = current_entry(self._hive, record.kept) or queued.entry  # a person may have approved it meanwhile
            return replace(entry, **changes).save_in(record)

        return self.rewrite(queued, rewrite, event, changes.get("reason", ""))

    def rewrite(
        self, queued: QueuedTask, rewrite: Callable[[TaskRecord], TaskRecord], event: str, reason: str = ""
    ) -> QueuedTask:
        """Change a task's record, write the `event`, and return the changed task. If it begins to wait (`landing.waits`), send
        the notices that its `notify:` asks for."""

        def rewrite_and_notify(record: TaskRecord) -> TaskRecord:
            if event == "landing.waits":
                self._hive.tasks.outbox.put("parked", queued.id, record, queued.task.notify, reason)
            return rewrite(record)

        payload = {"reason": reason} if reason else {}
        record = self._hive.tasks.active.rewrite(queued.task, rewrite_and_notify, event, **_facts(queued), **payload)
        entry = LandingEntry.of(record.kept)
        assert entry is not None
        return replace(queued, entry=entry, task=replace(queued.task, kept=record.kept, parked=record.parked))

    def wait(self, queued: QueuedTask, reason: str) -> QueuedTask:
        """Let a task wait for `reason`, and return the changed task. If it already waits for the same reason, write no event."""
        if (queued.entry.state, queued.entry.reason) == ("waits", reason):
            return queued
        return self.change(queued, "landing.waits", state="waits", reason=reason)

    def send_back(self, queued: QueuedTask, text: str | None, **changes: Any) -> None:
        """Give a task back to the agent that did it or, if that agent is gone, to its role, else to anyone. Add `text` (if not
        None) to the task, and save the `changes` of its entry."""
        agents = self._hive.read_agents()  # without those whose files are gone
        entry = replace(queued.entry, state="returned", reason="", approved=False, **changes)
        to = entry.agent if entry.agent in agents else None
        role = entry.role if to is None and entry.role in agents.roles().values() else None

        def rewrite(record: TaskRecord) -> TaskRecord:
            assert record.claim is not None
            handed = TaskHandOver(LANDING, to, role, "it has not landed", record.claim.claimed)
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            key = f"landing.{entry.tries}.{record.claim.key}"
            said = record.said if text is None else (*record.said, AddedText(LANDING, now, text, key))
            kept = dict(record.kept)
            if review := kept.get("criteria"):  # the reviewer judges what has changed
                kept["criteria"] = {**review, "approved": None}
            return entry.save_in(replace(record, handed=handed, said=said, kept=kept))

        self.rewrite(queued, rewrite, "landing.returned", (text or "").partition("\n")[0])
        crash_point("landing.returned")
        self._hive.tasks.release(queued.task)


def get_queued(hive: Parts, task_id: str) -> tuple[Task, LandingEntry]:
    """Return a task in the queue and its entry. Raises UserError if it is not in the queue."""
    task = hive.tasks.get(task_id)
    entry = current_entry(hive, task.kept)
    if task.owner != LANDING or entry is None:
        is_returned = entry is not None and entry.state == "returned"
        message = "was returned, and is not finished again" if is_returned else "does not wait to land"
        raise UserError(message, location=task_id, remedy="see: hivemind land")
    return task, entry


def approve(hive: Parts, *task_ids: str) -> list[str]:
    """Let tasks that wait for a person land, in this order. Return the ids of tasks that have landed already. If one cannot be
    approved, raise UserError and change none."""
    waiting_ids, landed_ids = [], []
    try:
        for task_id in task_ids:
            task = hive.tasks.get(task_id)
            entry = LandingEntry.of(task.kept) if task.state is TaskState.DONE else None
            if entry is not None and any(branch.landed for branch in entry.branches):
                landed_ids.append(task_id)
            else:
                _check_approval(hive, task_id)
                waiting_ids.append(task_id)
    except UserError as error:
        message = error.message + (", so none of these tasks is changed" if len(task_ids) > 1 else "")
        raise UserError(message, location=error.location, remedy=error.remedy) from None

    def change(queued: str, entry: LandingEntry) -> LandingEntry:
        is_waiting = entry.state == "waits"
        return replace(entry, approved=True, queued=queued, state="queued" if is_waiting else entry.state, reason="")

    places = sorted(get_queued(hive, task_id)[1].queued for task_id in waiting_ids)
    for task_id, queued in zip(waiting_ids, places, strict=True):  # they change places, to land in this order
        change_entry(hive, task_id, partial(change, queued))
    return landed_ids


def _check_approval(hive: Parts, task_id: str) -> None:
    _, entry = get_queued(hive, task_id)
    if entry.parent is not None and not entry.asks:
        raise UserError(f"lands in the branch of {entry.parent}, by the agent of that", location=task_id)
    if entry.candidate_of is not None:
        raise UserError(f"is a candidate: {entry.candidate_of} lands once one is chosen", location=task_id)
    if not entry.branches:
        raise UserError("waits for its candidates", location=task_id, remedy=f"see: hivemind task show {task_id}")


def change_entry(hive: Parts, task_id: str, change: Callable[[LandingEntry], LandingEntry]) -> None:
    """Change the queue entry of a task for a person, and wake the agents. Raises UserError if the task is not in the queue."""
    task, _ = get_queued(hive, task_id)

    def rewrite(record: TaskRecord) -> TaskRecord:
        entry = LandingEntry.of(record.kept)
        assert entry is not None
        return change(entry).save_in(record)

    hive.tasks.active.rewrite(task, rewrite)
    ring_all(hive)  # the lander, or the parent's agent, which lands a subtask


def _facts(queued: QueuedTask) -> dict[str, str]:
    """Return the fields of an event about a task's landing."""
    if not queued.entry.branches:
        return {}
    branch = queued.entry.branches[0]
    return {"root": branch.root, "branch": branch.branch, "commit": branch.commit or branch.tip}
