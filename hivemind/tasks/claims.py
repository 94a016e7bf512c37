"""The claims of a hive: agents claim the next task, and people withdraw waiting ones. Recovery is in `recovery.py`."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from hivemind.errors import UserError
from hivemind.layout import HUMAN
from hivemind.logger import logger
from hivemind.names import check_name
from hivemind.tasks.drop_claims import ClaimedDrop
from hivemind.tasks.listing import Listing
from hivemind.tasks.queue import partitions_of
from hivemind.tasks.queue_cache import QueueCache
from hivemind.tasks.recovery import Recovery
from hivemind.tasks.settings import Settings
from hivemind.tasks.task import Task
from hivemind.tasks.task_builder import TaskBuilder

_log = logger(__name__)


class Claims:
    """Makes the claims of one hive."""

    def __init__(
        self, settings: Settings, queue: QueueCache, listing: Listing, builder: TaskBuilder, recovery: Recovery
    ) -> None:
        self._settings, self._records = settings, settings.records
        self._queue, self._listing = queue, listing
        self._drops, self._builder, self._recovery = builder.drops, builder, recovery

    def claim(
        self, agent: str, role: str | None = None, incarnation: int = 0, *, partitions: Container[str] | None = None
    ) -> Task | None:
        """Claim the next task for an agent. Return None if no task waits for the agent.

        The order is highest priority first, then oldest, then by name. No two agents get the same task. Drops that cannot become
        tasks are moved to failed/. `role` defaults to the agent's role. `partitions` are the parts of the queue to claim from, by
        default the agent's (`partitions_of`). `incarnation` is the number of the agent's process. Only the process with the lock
        of the agent's name may call this.
        """
        agent = check_name(agent, "agent name")
        role = self._settings.agents().get(agent) if role is None else role
        if agent not in self._recovery.recovered:
            for half_made in self._recovery.finish_half_made(agent, incarnation):
                return self._records.follow(half_made)
        while (drop := self._drops.take(agent, role, partitions)) is not None:
            if (task := self._make_task(drop, incarnation)) is not None:
                return task
        return None

    def claim_one(self, agent: str, task_id: str, role: str | None = None, incarnation: int = 0) -> Task | None:
        """Claim the waiting task `task_id`. Return None if another agent was faster, or if the drop could not become a task.

        `role` and `incarnation` are as for `claim`. Raises UserError if no task with this id waits, if it is for other agents, or
        if something prevents the claim.
        """
        agent, task_id = check_name(agent, "agent name"), check_name(task_id, "task id")
        role = self._settings.agents().get(agent) if role is None else role
        queued, obstacle = self._listing.find_waiting(task_id)
        partitions = partitions_of(agent, role, self._settings.local_hives())
        if queued.partition not in partitions:
            whom = " of the role ".join(filter(None, (queued.assignee or "an agent", queued.role)))
            whom += "" if queued.target_hive is None else " of another hive"
            raise UserError(f"is for {whom}", location=task_id, remedy="see: hivemind task list")
        if obstacle is not None:
            raise UserError(f"can't be claimed: {obstacle}", location=task_id)
        drop = self._drops.take_drop(agent, queued, partitions)
        return None if drop is None else self._make_task(drop, incarnation)

    def _make_task(self, drop: ClaimedDrop, incarnation: int) -> Task | None:
        self._recovery.recovered.discard(drop.agent)  # an error below leaves a half-made claim
        task = self._builder.make_task(drop, incarnation)
        self._recovery.recovered.add(drop.agent)
        return None if task is None else self._records.follow(task)

    def reject_waiting(self, task_id: str, error: str) -> Path:
        """Move a waiting task to failed/ with the text `error` as its error.md. Return the new folder.

        Raises UserError if no task with this id waits.
        """
        with self._recovery.human_lock():
            self._recovery.reclaim(HUMAN)
            queued, _ = self._listing.find_waiting(task_id)
            drop = self._drops.take_drop(HUMAN, queued)
            if drop is None:
                raise UserError("was claimed or withdrawn this very moment", location=task_id, remedy="try again")
            try:
                return self._builder.reject(drop, error, task_id=queued.id)
            except BaseException:
                self._recovery.reclaim(HUMAN)
                raise

    @property
    def recheck_count(self) -> int:
        """The number of drops that are half-written or wait for a dependency. They may become claimable without a change of the
        inbox."""
        return self._queue.recheck_count
