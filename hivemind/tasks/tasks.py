"""The tasks of a hive, as agents and faces see them (spec 1, *Tasks*; README.md says what lies on the disk)."""

from __future__ import annotations

import builtins
import math
import threading
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hivemind.coordination import Journal
from hivemind.errors import UserError
from hivemind.fs import CrashCount, Lock, crash_point, is_settled, make_folder, move, open_watcher, write
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, Layout
from hivemind.masking import mask, strip_controls
from hivemind.names import check_name
from hivemind.tasks.adding import Adding
from hivemind.tasks.claim import ClaimedDrop, Claims, Orphan, rename
from hivemind.tasks.claimed_tasks import ClaimedTasks
from hivemind.tasks.folder import ATTEMPTS, ended_place, held, is_open, leave, open_log, set_aside
from hivemind.tasks.form import TextReader
from hivemind.tasks.inbox import Inbox, Settings, Settled
from hivemind.tasks.listing import Listing
from hivemind.tasks.outbox import Outbox
from hivemind.tasks.queue_cache import QueueCache, lanes_of
from hivemind.tasks.record import RECORD, Records, load
from hivemind.tasks.schedule import Schedule
from hivemind.tasks.task import Task, TaskProblem, TaskState

MAX_BYTES = 1024 * 1024
_NET_S = 1.0  # how often `wait` looks although no change was reported


class Tasks(Adding, ClaimedTasks, Listing):
    """The tasks of one hive. A task's state is the folder it lies in: inbox, active, done, failed.

    `agents` gives the hive's agents with their roles. `max_bytes` bounds a task's text. `settle_ms` is how long a drop
    must rest where it cannot be known that nobody writes it any more; `grace_s` how long a task may name a dependency
    that is not there yet. `roots` are folders outside the hive that links among attachments may lead to. With
    `ask_about_files` a drop that is no text becomes a question to a person. `here` gives what `where:` of a task may say if
    agents of this hive are to claim it. The `journal` is told of every change of a
    task's record; without one nobody notices if something else changes it.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        agents: Callable[[], Mapping[str, str | None]] = dict,
        durable: bool = True,
        max_bytes: int = MAX_BYTES,
        settle_ms: float = 250,
        grace_s: float = 2.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        roots: Collection[Path] = (),
        settled: Settled = is_settled,
        rename: Callable[[str, str], None] = rename,
        ask_about_files: bool = False,
        tell_of: Collection[str] = (),
        zone: str = "UTC",
        here: Callable[[], tuple[str, ...]] = tuple,
        journal: Journal | None = None,
    ) -> None:
        folders = (layout.inbox, layout.active, layout.done, layout.failed, layout.locks)
        for folder in () if layout.read_only else folders:
            make_folder(folder, durable=durable)
        self._crashes = CrashCount(layout.reading, read_only=layout.read_only)
        self.outbox = outbox = Outbox(layout, tell_of, durable=durable)
        reader, records = TextReader(self._crashes, max_bytes), Records(journal, durable=durable)
        settings = Settings(
            layout, reader, records, agents, durable, settle_ms, grace_s, clock, roots, settled, rename,
            ask_about_files, outbox, here,
        )  # fmt: skip
        inbox = Inbox(settings)
        self._queue = QueueCache(settings, inbox)
        ClaimedTasks.__init__(self, settings, Claims(settings, inbox, self._queue))
        Listing.__init__(self, settings, inbox, self._queue.known)
        Adding.__init__(self, settings)
        self.schedule = Schedule(settings, zone, self._taken)
        self._recovered: set[str] = set()

    def close(self) -> None:
        """Let go of the files that are kept open; the object can be used again."""
        self._queue.close()
        self._crashes.close()

    # claiming

    def claim(
        self, agent: str, role: str | None = None, incarnation: int = 0, *, lanes: Container[str] | None = None
    ) -> Task | None:
        """The next task for this agent, now its own, or None: highest priority first, then oldest, then by name.

        Exactly one agent gets a task. Drops that cannot become tasks go to failed/ on the way. `role` is looked up
        unless given, `lanes` are those of its role then. Only the process that holds the agent's name may call this for it.
        """
        agent = check_name(agent, "agent name")
        role = self._settings.agents().get(agent) if role is None else role
        if agent not in self._recovered:
            for half_made in self._claims.finish_half_made(agent, incarnation):
                return self._follow(half_made)
        while (taken := self._claims.take(agent, role, lanes)) is not None:
            if (task := self._settle(taken, incarnation)) is not None:
                return task
        self._recovered.add(agent)
        return None

    def claim_one(self, agent: str, task_id: str, role: str | None = None, incarnation: int = 0) -> Task | None:
        """A certain waiting task, now this agent's own; None if another was faster, or if it could be no task.

        Raises UserError if no such task waits, if it is for others, or if it waits for something.
        """
        agent, task_id = check_name(agent, "agent name"), check_name(task_id, "task id")
        role = self._settings.agents().get(agent) if role is None else role
        entry, why = self._waiting(task_id)
        lanes = lanes_of(agent, role, self._settings.here())
        if entry.lane not in lanes:
            whom = " of the role ".join(filter(None, (entry.assignee or "an agent", entry.role)))
            whom += "" if entry.where is None else " of another hive"
            raise UserError(f"is for {whom}", location=task_id, remedy="see: hivemind task list")
        if why is not None:
            raise UserError(f"can't be claimed: {why}", location=task_id)
        taken = self._claims.take_entry(agent, entry, lanes)
        return None if taken is None else self._settle(taken, incarnation)

    def _settle(self, taken: ClaimedDrop, incarnation: int) -> Task | None:
        """The second half of a claim."""
        self._recovered.discard(taken.agent)  # until it is done: an error on the way leaves a half-made claim
        task = self._claims.settle(taken, incarnation)
        self._recovered.add(taken.agent)
        return None if task is None else self._follow(task)

    def take(self, agent: str, role: str | None = None) -> ClaimedDrop | None:
        """The first half of `claim` by itself: one drop, this agent's alone, its text read. `mine` does the rest."""
        agent = check_name(agent, "agent name")
        self._recovered.discard(agent)
        taken = self._claims.take(agent, role)
        if taken is not None:
            self._claims.sync(agent)
        return taken

    def mine(self, agent: str, incarnation: int | None = None) -> builtins.list[Task]:
        """The tasks that this agent has claimed, oldest claim first: what it goes on with after a restart.

        Finishes claims that a crash left half-made. With `incarnation` every claim gets a new key, so that a process
        that held the agent's name before can write nothing more.
        """
        agent = check_name(agent, "agent name")
        self._return_persons()
        found = [self._follow(task) for task in self._claims.mine(agent, incarnation)]
        self._recovered.add(agent)
        return found

    def _return_persons(self) -> None:
        """Put back what a person was cancelling when the command was killed: nobody else goes on with that."""
        folder = self.layout.claimed / HUMAN
        lock = self._persons()
        if names_in(folder) and lock.acquire(wait=False):
            try:
                self._claims.reclaim(HUMAN)
            finally:
                lock.release()

    def _persons(self) -> Lock:
        """Held by whoever claims in a person's name, as an agent's process holds that of its own."""
        return Lock(self.layout.locks / f"agent-{HUMAN}.lock")

    def orphans(self, alive: Collection[str]) -> builtins.list[Orphan]:
        """Claims of agents that are not among `alive`, and folders in active/ that are nobody's (agent None)."""
        return self._claims.orphans(alive)

    def reclaim(self, agent: str) -> builtins.list[Path]:
        """Put back into the inbox what an agent has claimed whose process is gone for good; where it lies now."""
        return self._claims.reclaim(check_name(agent, "agent name"))

    @property
    def restless(self) -> int:
        """How many drops anybody's last look left alone because they are half-written or wait: look again by and by."""
        return self._queue.restless

    def outcome(self, task_id: str) -> Literal["done", "failed"] | None:
        """How a task has ended; None if it has not, or is none: few stats. Raises UserError for what is no id."""
        place = ended_place(self.layout, check_name(task_id, "task id"))
        if place is None or not place.is_dir():
            return None
        return "done" if place.parent.name == TaskState.DONE else "failed"

    # working

    def read_log(self, task_id: str, attempt: int | None = None) -> Iterator[dict[str, Any]]:
        """The records of a task's log, or of an earlier attempt's, oldest first. Raises UserError if there is no such task."""
        folder = self.get(task_id).path
        if not folder.is_dir():  # a file that waits in the inbox
            return iter(())
        return open_log(folder if attempt is None else folder / ATTEMPTS / str(attempt), durable=False).records()

    def kept(self, task_id: str) -> Mapping[str, Any]:
        """What the runtime has kept with a task, which may be another's or over. Raises UserError if there is no such task,
        or if something other than the program has changed its record."""
        return self._records.load(self.get(task_id).path, task_id).kept

    def say(self, task_id: str, text: str, *, by: str = HUMAN, key: str | None = None) -> Path:
        """Add to the text of a task that was claimed, or that an agent made, and wake whoever works on it; returns where it
        lies. Said again under the same `key` it is there once. Raises UserError if it waits as a person dropped it (change
        the file), is over (retry it), or is not there."""
        task_id = check_name(task_id, "task id")
        if not text.strip():
            raise UserError("says nothing", location=task_id)
        active, inbox = self.layout.active / task_id, self.layout.inbox / task_id
        for folder in (active, inbox, active):  # again: it may be claimed this very moment
            try:
                self._say(folder, text, check_name(by, "agent name"), key)
            except (FileNotFoundError, NotADirectoryError, TaskProblem):
                if (folder / RECORD).exists():
                    raise
                continue
            return folder
        state = self.get(task_id).state
        mend = "change its text itself" if state is TaskState.INBOX else "change its task.md, then: hivemind task retry"
        raise UserError(
            f"is {'not claimed yet' if state is TaskState.INBOX else 'over'}", location=task_id, remedy=mend
        )

    # dividing

    def is_open(self, task_id: str) -> bool:
        """Check that a task which was claimed once is neither over nor gone, by a few stats. A drop that nobody has claimed yet
        is not open. Raises UserError for what is no id."""
        return is_open(self.layout, check_name(task_id, "task id"))

    # ending

    def finish(self, task: Task, result: str) -> Path:
        where = super().finish(task, result)
        self._cancel_subtasks(where, f"{task.id} is done without it")
        return where

    def fail(self, task: Task, reason: str) -> Path:
        where = super().fail(task, reason)
        self._cancel_subtasks(where, f"{task.id} has failed")
        return where

    def retry(self, task_id: str) -> Path:
        """Move a failed or done task back into the inbox, as a person may by hand. Raises UserError."""
        place = ended_place(self.layout, check_name(task_id, "task id"))
        if place is None:
            raise UserError(
                "no failed or finished task has that id", location=task_id, remedy="see: hivemind task list"
            )
        try:
            move(place, self.layout.inbox / task_id, durable=self._durable)
        except FileExistsError:
            where = self.layout.relative(self.layout.inbox / task_id)
            raise UserError("something of that name waits already", location=where, remedy="move it away") from None
        crash_point("tasks.retry.back")
        return self.layout.inbox / task_id

    def disown(self, task_id: str, reason: str) -> Path:
        """What became of a task that is over counts for nobody: it is kept below `attempts/`, and the task has failed for that
        reason. Raises UserError if it is not over."""
        place = ended_place(self.layout, check_name(task_id, "task id"))
        if place is None:
            raise UserError("is not over", location=task_id)
        with held(place, wait=True):
            set_aside(place, durable=self._durable)
            write(place / "error.md", strip_controls(mask(f"# {task_id}\n\n{reason}\n")), durable=self._durable)
            if place.parent.name == TaskState.FAILED:
                return place
            return leave(self.layout, place, self.layout.failed, durable=self._durable)

    def cancel(self, task_id: str, *, by: str = HUMAN, reason: str = "") -> Path:
        """End a waiting or active task and its subtasks: failed/ID with an error.md that says who cancelled it.

        Raises UserError.
        """
        task_id = check_name(task_id, "task id")
        why = f"Cancelled by {by}." + (f"\n\n{reason}" if reason else "")
        where = self._cancel(task_id, f"# {task_id} was cancelled\n\n{why}\n")
        self._cancel_subtasks(where, f"{task_id} was cancelled")
        return where

    def _cancel(self, task_id: str, error: str) -> Path:
        if (self.layout.active / task_id).is_dir():
            return self._cancel_active(self.layout.active / task_id, error)
        if ended_place(self.layout, task_id) is not None:
            raise UserError("is over already", location=task_id, remedy="see: hivemind task show")
        with self._persons():
            self._claims.reclaim(HUMAN)
            entry, _ = self._waiting(task_id)
            taken = self._claims.take_entry(HUMAN, entry)
            if taken is None:
                raise UserError("was claimed or withdrawn this very moment", location=task_id, remedy="try again")
            try:
                return self._claims.reject(taken, error, task_id=entry.id)
            except BaseException:
                self._claims.reclaim(HUMAN)
                raise

    def _cancel_subtasks(self, folder: Path, why: str) -> None:
        """What can't be cancelled now ends by itself: it is not claimed any more, and its agent finds its parent over."""
        try:
            record = load(folder)
        except UserError:
            return
        if record is None or record.claim is None:
            return
        for task_id in (one for ids in record.kept.get("subtasks", {}).values() for one in ids):
            if is_open(self.layout, task_id):
                with suppress(UserError, OSError):
                    self.cancel(task_id, by=record.claim.agent, reason=why)

    # looking

    def wait(self, task_id: str, timeout: float | None = None, *, watch: str = "auto") -> Task:
        """The task once it is done or failed, for a program that waits for its result; its folder is `path`.

        `timeout` is in seconds (None: for as long as it takes), `watch` as in hive.yaml. A task that waits for a person
        is waited for. Raises UserError if there is no such task, and if it is not over in time.
        """
        if self.get(task_id).state not in (TaskState.DONE, TaskState.FAILED):
            self._wait(task_id, timeout, watch)
        return self.get(task_id)

    def _wait(self, task_id: str, timeout: float | None, watch: str) -> None:
        until = math.inf if timeout is None else time.monotonic() + timeout
        moved = threading.Event()
        with open_watcher(watch, [self.layout.done, self.layout.failed], [], lambda _: moved.set()):
            while self.outcome(task_id) is None:
                left = until - time.monotonic()
                if left <= 0:
                    raise UserError(
                        f"is not over after {timeout:g} s", location=task_id, remedy="hivemind task list says why"
                    )
                moved.wait(min(_NET_S, left))
                moved.clear()
