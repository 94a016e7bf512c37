"""Resolve the coordinates of a call: its workspace, task, step and lane. Those that it does not name follow from the agent's
focus.
"""

from __future__ import annotations

from hivemind.coordination.errors import CoordinationError, UnknownStep
from hivemind.coordination.journal import Journal
from hivemind.coordination.lanes import check_agent, check_lane, lane_of
from hivemind.coordination.state import JournalState
from hivemind.coordination.step import Step, check_task
from hivemind.frozen import frozen

FOCUS = "focus"
"""The step argument that selects the task's first open step that is not blocked."""


@frozen
class Coordinates:
    """The workspace, task, step and lane that a call is about. `task` is None if no task is in focus, `step` if the task has no
    open step.
    """

    workspace: str
    task: str | None
    step: str | None
    lane: str


class CoordinateResolver:
    """Resolves coordinates within a workspace. An agent's focus is the step that it leased last."""

    def __init__(self, journal: Journal, workspace: str) -> None:
        self._journal = journal
        self.workspace = workspace

    def resolve(
        self, agent_id: str | None = None, task: str | None = None, step: str | None = None, lane: str | None = None
    ) -> Coordinates:
        """Return the coordinates of a call. An explicit argument wins over the agent's focus (the step that it leased last).

        * The task is `task`, or that of `step`, or that of the focused step.
        * The step is `step`, or the focused step if `task` is None and that step is open. If neither applies, and always for
          `step="focus"`, it is the task's first open step.
        * The lane is `lane`, or the lane of the agent's name.

        Raises UnknownStep, CoordinationError.
        """
        agent = None if agent_id is None else check_agent(agent_id)
        agent_lane = lane_of(agent) if lane is None else check_lane(lane)
        task_id = None if task is None else check_task(task)

        def locate(state: JournalState) -> Coordinates:
            if step is not None and step != FOCUS:
                known_step = _step_of(state, task_id, step)
                return Coordinates(self.workspace, known_step.task, known_step.id, agent_lane)
            focused_step = None if agent is None or task_id is not None else _focused_step(state, agent)
            owner_task = task_id if focused_step is None else focused_step.task
            if focused_step is None or focused_step.status != "open" or step == FOCUS:
                steps = () if owner_task is None else state.steps_of(owner_task)
                focused_step = next((candidate for candidate in steps if candidate.status == "open"), None)
            step_id = None if focused_step is None else focused_step.id
            return Coordinates(self.workspace, owner_task, step_id, agent_lane)

        return self._journal.view(locate)


def _focused_step(state: JournalState, agent: str) -> Step | None:
    """Return the step that the agent leased last, among those that it still leases. None if it leases no existing step."""
    leases = filter(None, map(state.lease, state.leased_step_ids.get(agent, ())))
    newest = max(leases, key=lambda lease: lease.acquired_seq, default=None)
    return None if newest is None else state.step(newest.step_id)


def _step_of(state: JournalState, task: str | None, step_id: str) -> Step:
    """Return the step. Raises UnknownStep if it does not exist, CoordinationError if it is not of `task` (None: of any task)."""
    step = state.step(step_id)
    if step is None:
        raise UnknownStep(step_id)
    if task is not None and step.task != task:
        message = f"step {step_id} belongs to task {step.task}, not to {task}"
        remedy = "pass the step alone, or the task to which it belongs"
        raise CoordinationError(message, code="STEP_OF_ANOTHER_TASK", remedy=remedy)
    return step
