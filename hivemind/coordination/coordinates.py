"""Where an agent is: workspace, task focus, step focus, lane (seed 002, *Coordinates*)."""

from __future__ import annotations

from hivemind.coordination.errors import CoordinationError, UnknownStep
from hivemind.coordination.journal import Journal
from hivemind.coordination.lanes import check_agent, check_lane, lane_of
from hivemind.coordination.state import State
from hivemind.coordination.step import Step, check_task
from hivemind.frozen import frozen

FOCUS = "focus"
"""Given as a step: the first open step of the task that is not blocked."""


@frozen
class Place:
    """An address of memory. `step` is None where the task has no open step, `task` where nothing is in focus."""

    workspace: str
    task: str | None
    step: str | None
    lane: str


class Coordinates:
    """Where the agents of a workspace are. What an agent has in focus is the step that it leased last."""

    def __init__(self, journal: Journal, workspace: str) -> None:
        self._journal = journal
        self.workspace = workspace

    def resolve(
        self, agent_id: str | None = None, task: str | None = None, step: str | None = None, lane: str | None = None
    ) -> Place:
        """Where a call with these arguments is: what is given explicitly wins over the agent's focus.

        Without a task, that of the step in focus. Without a step, the one in focus if no task is named and it is open, else
        the first open one; `"focus"` is always the first open one. A step alone names its task too. Raises UnknownStep,
        CoordinationError.
        """
        who = None if agent_id is None else check_agent(agent_id)
        at = lane_of(who) if lane is None else check_lane(lane)
        named = None if task is None else check_task(task)

        def look(state: State) -> Place:
            if step is not None and step != FOCUS:
                return Place(self.workspace, *_own_step(state, named, step), at)
            held = None if who is None or named is not None else _in_focus(state, who)
            owner = named if held is None else held.task
            if held is None or held.status != "open" or step == FOCUS:
                steps = () if owner is None else state.steps_of(owner)
                held = next((one for one in steps if one.status == "open"), None)
            return Place(self.workspace, owner, None if held is None else held.id, at)

        return self._journal.view(look)


def _in_focus(state: State, who: str) -> Step | None:
    """The step that an agent leased last, of those that it holds."""
    held = filter(None, map(state.lease, state.held.get(who, ())))
    newest = max(held, key=lambda lease: lease.acquired_seq, default=None)
    return None if newest is None else state.step(newest.step_id)


def _own_step(state: State, task: str | None, step_id: str) -> tuple[str, str]:
    """(task, step), the step being one of the task."""
    step = state.step(step_id)
    if step is None:
        raise UnknownStep(step_id)
    if task is not None and step.task != task:
        raise CoordinationError(
            f"step {step_id} belongs to task {step.task}, not to {task}",
            code="STEP_OF_ANOTHER_TASK",
            mend="name the step alone, or its own task",
        )
    return step.task, step.id
