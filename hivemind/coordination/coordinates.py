"""Where an agent is: workspace, task focus, step focus, lane (seed 002, *Coordinates*)."""

from __future__ import annotations

from collections.abc import Sequence

from hivemind.coordination.entries import Focus
from hivemind.coordination.errors import CoordinationError, UnknownStep
from hivemind.coordination.journal import Draft, Journal
from hivemind.coordination.lanes import check_agent, check_lane, lane_of
from hivemind.coordination.state import State
from hivemind.coordination.step import Step, check_task
from hivemind.frozen import frozen

__all__ = ["FOCUS", "Coordinates", "Place"]

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
    """Where the agents of a workspace are. The focus of each is kept in the journal."""

    def __init__(self, journal: Journal, workspace: str) -> None:
        self._journal = journal
        self.workspace = workspace

    def focus(self, agent_id: str) -> Focus | None:
        """What the agent last set its focus on, or None."""
        who = check_agent(agent_id)
        return self._journal.view(lambda state: state.focus.get(who))

    def set_focus(self, agent_id: str, task: str | None = None, step: str | None = None) -> Focus:
        """Set an agent's focus; no task clears it. Setting what is set already writes no event.

        Raises UnknownStep, and CoordinationError (`STEP_OF_ANOTHER_TASK`).
        """
        who = check_agent(agent_id)
        task = None if task is None else check_task(task)

        def decide(state: State) -> Sequence[Draft]:
            wanted_task, wanted_step = _own_step(state, task, step)
            now = state.focus.get(who)
            if now is not None and (now.task, now.step) == (wanted_task, wanted_step):
                return []
            fields = {"task_id": wanted_task, "step_id": wanted_step}
            return [("focus.set", {"agent_id": who, **{name: one for name, one in fields.items() if one}})]

        self._journal.transact(decide)
        found = self.focus(who)
        assert found is not None
        return found

    def resolve(
        self, agent_id: str | None = None, task: str | None = None, step: str | None = None, lane: str | None = None
    ) -> Place:
        """Where a call with these arguments is: what is given explicitly wins over the stored focus.

        Without a step, the stored one if it belongs to the task and is open, else the first open one; `"focus"` is always
        the first open one. A step alone names its task too. Raises UnknownStep, CoordinationError.
        """
        who = None if agent_id is None else check_agent(agent_id)
        at = lane_of(who) if lane is None else check_lane(lane)
        named = None if task is None else check_task(task)

        def look(state: State) -> Place:
            stored = None if who is None else state.focus.get(who)
            if step is not None and step != FOCUS:
                owner, one = _own_step(state, named, step)
                return Place(self.workspace, owner, one, at)
            owner = named or (stored.task if stored is not None else None)
            if owner is None:
                return Place(self.workspace, None, None, at)
            if step is None and stored is not None and stored.task == owner and _is_open(state, stored.step):
                return Place(self.workspace, owner, stored.step, at)
            first = _first_open(state, owner)
            return Place(self.workspace, owner, None if first is None else first.id, at)

        return self._journal.view(look)


def _first_open(state: State, task: str) -> Step | None:
    return next((one for one in state.steps_of(task) if one.status == "open"), None)


def _is_open(state: State, step_id: str | None) -> bool:
    found = None if step_id is None else state.step(step_id)
    return found is not None and found.status == "open"


def _own_step(state: State, task: str | None, step_id: str | None) -> tuple[str | None, str | None]:
    """(task, step), the step being one of the task."""
    if step_id is None:
        return task, None
    if step_id == FOCUS:
        first = None if task is None else _first_open(state, task)
        return task, None if first is None else first.id
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
