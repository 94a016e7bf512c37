"""The claims of a hive: the next task for an agent, the tasks that it goes on with, and claims that nobody holds any more."""

from __future__ import annotations

from collections.abc import Collection, Container
from pathlib import Path

from hivemind.errors import UserError
from hivemind.fs import Lock
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN
from hivemind.names import check_name
from hivemind.tasks.drop import DropReader, Settings
from hivemind.tasks.drop_claims import ClaimedDrop, DropClaims
from hivemind.tasks.listing import Listing
from hivemind.tasks.logs import TaskLogs
from hivemind.tasks.queue_cache import QueueCache, lanes_of
from hivemind.tasks.recovery import ClaimRecovery, Orphan
from hivemind.tasks.task import Task
from hivemind.tasks.task_builder import TaskBuilder


class Claims:
    """The claims of one hive. `logs` follow each task that is claimed here."""

    def __init__(
        self, settings: Settings, reader: DropReader, queue: QueueCache, listing: Listing, logs: TaskLogs
    ) -> None:
        self._settings = settings
        self._layout = settings.layout
        self._queue = queue
        self._listing = listing
        self._logs = logs
        self.drops = DropClaims(settings, reader, queue)
        self._builder = TaskBuilder(settings, self.drops)
        self.recovery = ClaimRecovery(settings, reader, self.drops, self._builder)
        self._recovered: set[str] = set()

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
            for half_made in self.recovery.finish_half_made(agent, incarnation):
                return self._logs.follow(half_made)
        while (drop := self.drops.take(agent, role, lanes)) is not None:
            if (task := self._make_task(drop, incarnation)) is not None:
                return task
        self._recovered.add(agent)
        return None

    def claim_one(self, agent: str, task_id: str, role: str | None = None, incarnation: int = 0) -> Task | None:
        """A certain waiting task, now this agent's own; None if another was faster, or if it could be no task.

        Raises UserError if no such task waits, if it is for others, or if it waits for something.
        """
        agent, task_id = check_name(agent, "agent name"), check_name(task_id, "task id")
        role = self._settings.agents().get(agent) if role is None else role
        queued, obstacle = self._listing.find_waiting(task_id)
        lanes = lanes_of(agent, role, self._settings.local_hives())
        if queued.lane not in lanes:
            whom = " of the role ".join(filter(None, (queued.assignee or "an agent", queued.role)))
            whom += "" if queued.target_hive is None else " of another hive"
            raise UserError(f"is for {whom}", location=task_id, remedy="see: hivemind task list")
        if obstacle is not None:
            raise UserError(f"can't be claimed: {obstacle}", location=task_id)
        drop = self.drops.take_drop(agent, queued, lanes)
        return None if drop is None else self._make_task(drop, incarnation)

    def _make_task(self, drop: ClaimedDrop, incarnation: int) -> Task | None:
        """The second half of a claim."""
        self._recovered.discard(drop.agent)  # until it is done: an error on the way leaves a half-made claim
        task = self._builder.make_task(drop, incarnation)
        self._recovered.add(drop.agent)
        return None if task is None else self._logs.follow(task)

    def resume(self, agent: str, incarnation: int | None = None) -> list[Task]:
        """The tasks that this agent has claimed, oldest claim first: what it goes on with after a restart.

        Finishes claims that a crash left half-made. With `incarnation` every claim gets a new key, so that a process
        that held the agent's name before can write nothing more.
        """
        agent = check_name(agent, "agent name")
        self._return_human_drops()
        tasks = [self._logs.follow(task) for task in self.recovery.resume_tasks(agent, incarnation)]
        self._recovered.add(agent)
        return tasks

    def _return_human_drops(self) -> None:
        """Put back what a person was cancelling when the command was killed: nobody else goes on with that."""
        folder = self._layout.claimed / HUMAN
        lock = self._human_lock()
        if names_in(folder) and lock.acquire(wait=False):
            try:
                self.recovery.reclaim(HUMAN)
            finally:
                lock.release()

    def _human_lock(self) -> Lock:
        """Held by whoever claims in a person's name, as an agent's process holds that of its own."""
        return Lock(self._layout.locks / f"agent-{HUMAN}.lock")

    def orphans(self, alive: Collection[str]) -> list[Orphan]:
        """Claims of agents that are not among `alive`, and folders in active/ that are nobody's (agent None)."""
        return self.recovery.orphans(alive)

    def reclaim(self, agent: str) -> list[Path]:
        """Put back into the inbox what an agent has claimed whose process is gone for good; where it lies now."""
        return self.recovery.reclaim(check_name(agent, "agent name"))

    def reject_waiting(self, task_id: str, error: str) -> Path:
        """Move a waiting task to failed/ with this error.md; where it lies now. Raises UserError."""
        with self._human_lock():
            self.recovery.reclaim(HUMAN)
            queued, _ = self._listing.find_waiting(task_id)
            drop = self.drops.take_drop(HUMAN, queued)
            if drop is None:
                raise UserError("was claimed or withdrawn this very moment", location=task_id, remedy="try again")
            try:
                return self._builder.reject(drop, error, task_id=queued.id)
            except BaseException:
                self.recovery.reclaim(HUMAN)
                raise

    @property
    def recheck_count(self) -> int:
        """How many drops anybody's last look left alone because they are half-written or wait: look again by and by."""
        return self._queue.recheck_count
