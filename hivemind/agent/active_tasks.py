"""The tasks that an agent has claimed, until each is parked, ended or taken away."""

from __future__ import annotations

import logging
from collections.abc import Collection

from hivemind.coordination import StepLeaseHeld
from hivemind.errors import HivemindError, is_disk_full
from hivemind.landing.subtasks import land_subtasks
from hivemind.outcome import ENDED
from hivemind.presence.parts import Parts
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import DISK_FULL, ParkedRest, Parking, disk_full_parking
from hivemind.taskrun.worktree import put_down_ended
from hivemind.tasks import Task, TaskMoved
from hivemind.tasks.queue import partitions_of

MAX_TROUBLE = 3
_AGAIN_S = 2.0
_log = logging.getLogger(__name__)


class ActiveTasks:
    """One agent's tasks in active/. A damaged file in a task's folder ends that task, never the agent."""

    def __init__(self, hive: Parts, name: str, incarnation: int) -> None:
        self._hive, self._name, self._incarnation = hive, name, incarnation
        self._role = hive.agents[name].role
        self._runs: dict[str, TaskRun] = {}
        self._parked: dict[str, ParkedRest] = {}
        self._problem_counts: dict[str, int] = {}
        self._closed: dict[str, tuple[Task, ParkedRest]] = {}
        """Tasks that could neither be opened nor failed, to be tried again."""

    @property
    def runs(self) -> Collection[TaskRun]:
        return self._runs.values()

    # opening

    def resume(self, crashed_task: str | None = None) -> None:
        """Load the tasks that the agent's last process had claimed. If that process died during a turn, `crashed_task` is the
        turn's task, whose crash is counted.

        Raises HivemindError or OSError if the hive itself cannot be read or written.
        """
        active_tasks = self._hive.tasks.mine(self._name, self._incarnation)
        for task in active_tasks:
            self._open(task, has_crashed=task.id == crashed_task)
        put_down_ended(self._hive.layout, self._name, self._hive.tasks.listing.is_open)
        journaled_ids = self._hive.journal.view(
            lambda state: {entry.task for entry in state.open_tasks() if entry.agent_id == self._name}
        )
        # These left active/, but their process died before it journaled that.
        for task_id in sorted(journaled_ids - {task.id for task in active_tasks}):
            for outcome in ENDED:
                if (self._hive.layout.tasks / outcome / task_id).is_dir():
                    self._hive.steps.end_task(task_id, outcome, agent_id=self._name)

    def claim(self, task_id: str | None = None) -> TaskRun | None:
        """Claim the next task in the inbox, or the task `task_id`. Return None if no task could be claimed and opened.

        Raises UserError if the task `task_id` is not waiting, or not for this agent.
        """
        while len(self._runs) + len(self._closed) < self._hive.config.max_active:
            if task_id is None:
                task = self._hive.tasks.claim(self._name, self._role, self._incarnation, partitions=self._partitions())
            else:
                task = self._hive.tasks.claims.claim_one(self._name, task_id, self._role, self._incarnation)
            if task is None:
                return None
            if (work := self._open(task)) is not None or task_id is not None:
                return work
        return None

    def _partitions(self) -> tuple[str, ...] | None:
        """Return the partitions of the queue from which the agent may claim, if it takes only tasks for itself or its role.
        Return None if it takes any task."""
        if self._hive.agents[self._name].claims == "any":
            return None
        local_hives = self._hive.linked_hives.local_names(self._hive.config.workspace.lower())
        return partitions_of(self._name, self._role, local_hives, named=True)

    def _open(self, task: Task, *, has_crashed: bool = False) -> TaskRun | None:
        """Load a claimed task; if it `has_crashed`, count the crash. Return None if it is gone or cannot be loaded. In the second
        case, park it if the problem may pass, else fail it with the reason and keep its files."""
        previous = self._closed.pop(task.id, None)
        try:
            work = TaskRun(self._hive, task, self._name)
            if has_crashed:
                work.count_crash()
            work.begin()
        except TaskMoved:
            return None
        except (HivemindError, OSError) as error:
            if not isinstance(error, StepLeaseHeld | OSError) and not is_disk_full(error):
                self._give_up(task, str(error))
                return None
            is_full = is_disk_full(error)
            parking = disk_full_parking() if is_full else Parking(f"cannot be opened: {error}", again_s=_AGAIN_S)
            parked_rest = ParkedRest.of(parking, previous[1] if previous else None)
            if not is_full and isinstance(error, OSError) and parked_rest.looks >= MAX_TROUBLE:
                self._give_up(task, parked_rest.reason)
            else:
                self._park_closed(task, parked_rest)
            return None
        self._runs[task.id] = work
        if previous is not None:
            self._hive.tasks.active.unpark(task)
        elif task.parked is not None:  # it is looked at once; only another reason is journaled
            self._parked[task.id] = ParkedRest(task.parked.reason, task.parked.since, float("-inf"), looks=0)
        return work

    def _give_up(self, task: Task, reason: str) -> None:
        """Fail a task that could not be opened. If the failure cannot be written, try again later."""
        try:
            self._hive.steps.check_end(task.id, agent_id=self._name)
            self._hive.tasks.fail(task, reason)
            self._hive.steps.end_task(task.id, "failed", agent_id=self._name, reason=reason)
        except TaskMoved:
            return
        except (HivemindError, OSError) as error:
            self._retry_failing(task, reason, error)

    def _retry_failing(self, task: Task, reason: str, error: Exception) -> None:
        self._park_closed(task, ParkedRest.of(Parking(f"cannot be failed ({reason}): {error}", again_s=_AGAIN_S)))

    def _park_closed(self, task: Task, parked_rest: ParkedRest) -> None:
        self._closed[task.id] = (task, parked_rest)
        try:
            self._hive.tasks.active.park(task, parked_rest.reason, parked_rest.until)  # for `status` and `--until-idle`
        except (HivemindError, OSError) as error:
            _log.warning("task %s: %s; the task's parking cannot be recorded: %s", task.id, parked_rest.reason, error)

    # choosing

    def next(self) -> TaskRun | None:
        """Return the task to continue, by priority, then by id, or None if no task can continue."""
        for task, parked_rest in list(self._closed.values()):
            if parked_rest.is_over:
                self._open(task)
        ready = [work for work in list(self._runs.values()) if self._is_ready(work)]
        return min(ready, key=lambda work: (work.task.priority, work.task.id), default=None)

    def _is_ready(self, work: TaskRun) -> bool:
        if not work.task.path.exists():  # a person has moved it away
            self.drop(work)
            return False
        try:
            if work.is_orphan:
                self._hive.tasks.cancel(work.task.id, by=self._name, reason=f"{work.task.parent} is over")
                self.drop(work)
                return False
            if work.take_additions():
                self.unpark(work)
            if land_subtasks(self._hive, work):
                self.unpark(work)
        except TaskMoved:
            self.drop(work)
            return False
        parked_rest = self._parked.get(work.task.id)
        if parked_rest is None:
            return True
        return parked_rest.is_over or work.has_come(parked_rest.reason)

    # after a turn

    def count_problem(self, work: TaskRun, problem: str) -> None:
        """Count a problem of the task. The third problem in a row fails the task."""
        task_id = work.task.id
        self.unpark(work)
        self._problem_counts[task_id] = self._problem_counts.get(task_id, 0) + 1
        if self._problem_counts[task_id] >= MAX_TROUBLE:
            try:
                work.fail(problem)
            except Parking as parking:
                self.park(work, parking)
            except OSError as error:
                if is_disk_full(error):
                    raise
                self._runs.pop(task_id)
                self._retry_failing(work.task, problem, error)
            else:
                self.drop(work)

    def clear_problems(self, work: TaskRun) -> None:
        """Reset the problem count and unpark the task after a successful turn."""
        self._problem_counts.pop(work.task.id, None)
        self.unpark(work)

    def is_parked_for(self, work: TaskRun, parking: Parking) -> bool:
        """Return True if the task was already parked for the same reason."""
        parked_rest = self._parked.get(work.task.id)
        return parked_rest is not None and parked_rest.reason == parking.reason

    def park(self, work: TaskRun, parking: Parking) -> None:
        """Park the task. The journal gets no event if the task was already parked for the same reason."""
        task_id, is_recorded = work.task.id, self.is_parked_for(work, parking)
        parked_rest = self._parked[task_id] = ParkedRest.of(parking, self._parked.get(task_id))
        if parking.reason == DISK_FULL:  # no file can be written; leases are kept, since others have no room either
            return
        self._hive.tasks.active.park(work.task, parked_rest.reason, parked_rest.until)
        if not is_recorded:
            self._hive.journal.append(
                "task.parked", task_id=task_id, agent_id=self._name, reason=parked_rest.reason,
                until=None if parked_rest.until is None else parked_rest.until.isoformat(),
                **({} if parking.asks is None else {"asks": parking.asks}),
            )  # fmt: skip
        self._release(work)

    def unpark(self, work: TaskRun) -> None:
        if self._parked.pop(work.task.id, None) is not None:
            self._hive.tasks.active.unpark(work.task)

    def drop(self, work: TaskRun) -> None:
        """Forget a task that ended, was taken away, or is handed over, and release its leases."""
        self._release(work)
        work.worktrees.put_down()
        if work.handed_to:
            work.let_go()
        self._runs.pop(work.task.id, None)
        self._parked.pop(work.task.id, None)
        self._problem_counts.pop(work.task.id, None)

    def _release(self, work: TaskRun) -> None:
        steps = {step.id for step in work.steps()}
        for lease in self._hive.leases.list(self._name):
            if lease.step_id in steps:
                self._hive.leases.release(lease.step_id, self._name)
        work.lease = None

    @property
    def has_task_wait(self) -> bool:
        """True if a parked task waits for another task. The end of that other task rings no bell here, so the agent has to look
        for it."""
        parked = [(work, rest) for work in self.runs if (rest := self._parked.get(work.task.id)) is not None]
        return any(work.waits.awaited_task(rest.reason) is not None for work, rest in parked)

    @property
    def remaining_s(self) -> float:
        """The seconds until the first parked task is due, or infinity if none is parked."""
        parked_rests = [*self._parked.values(), *(parked_rest for _, parked_rest in self._closed.values())]
        return min((parked_rest.remaining_s for parked_rest in parked_rests), default=float("inf"))
