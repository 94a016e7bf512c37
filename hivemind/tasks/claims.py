"""The claims of a hive: an agent's next task, the tasks that it resumes, and the claims of agents that are gone."""

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
        """Claim the next task for an agent: highest priority first, then oldest, then by name. Return None if there is
        none.

        Exactly one agent gets a task. Drops that cannot become tasks are moved to failed/. `role` defaults to the
        agent's role, and `lanes` to the lanes of that role. Only the process that holds the agent's name may call this.
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
        """Claim a certain waiting task. Return None if another agent was faster, or if the drop could not become a
        task.

        Raises UserError if no such task waits, if it is for other agents, or if it waits for something.
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
        """Make the task of a drop, and follow its log."""
        self._recovered.discard(drop.agent)  # an error below leaves a half-made claim
        task = self._builder.make_task(drop, incarnation)
        self._recovered.add(drop.agent)
        return None if task is None else self._logs.follow(task)

    def resume(self, agent: str, incarnation: int | None = None) -> list[Task]:
        """Return the tasks that the agent has claimed, oldest claim first: after a restart it continues with them.

        Claims that a crash left half-made are finished. With `incarnation`, each claim gets a new key; an earlier
        process of the agent can then write nothing.
        """
        agent = check_name(agent, "agent name")
        self._return_human_drops()
        tasks = [self._logs.follow(task) for task in self.recovery.resume_tasks(agent, incarnation)]
        self._recovered.add(agent)
        return tasks

    def _return_human_drops(self) -> None:
        """Return to the inbox the drops that a person was cancelling when the command was killed. No other process
        would."""
        folder = self._layout.claimed / HUMAN
        lock = self._human_lock()
        if names_in(folder) and lock.acquire(wait=False):
            try:
                self.recovery.reclaim(HUMAN)
            finally:
                lock.release()

    def _human_lock(self) -> Lock:
        """Return the lock for claims in a person's name. An agent's process holds a lock on the agent's name in the
        same way."""
        return Lock(self._layout.locks / f"agent-{HUMAN}.lock")

    def orphans(self, alive: Collection[str]) -> list[Orphan]:
        """Return the claims of agents that are not in `alive`, and the folders in active/ without a claim (agent None)."""
        return self.recovery.orphans(alive)

    def reclaim(self, agent: str) -> list[Path]:
        """Return to the inbox all that an agent has claimed whose process will not come back. Return the new paths."""
        return self.recovery.reclaim(check_name(agent, "agent name"))

    def reject_waiting(self, task_id: str, error: str) -> Path:
        """Move a waiting task to failed/ with the text `error` as its error.md. Return its folder. Raises UserError."""
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
        """The number of drops that are half-written or wait. They may become claimable without a change of the inbox."""
        return self._queue.recheck_count
