"""The journal's half of what touches two stores: a task's own log waits for the event that names its id (spec 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.coordination.journal import Draft, Event, Journal
from hivemind.coordination.lanes import check_agent, check_lane, lane_of
from hivemind.coordination.state import State
from hivemind.coordination.step import check_task
from hivemind.coordination.steps import check_lease


class Commits:
    """Publications and branches of one task, as the journal tells them.

    `has` answers what the task's log asks about an id; `publish` commits one: what was written under an id that no event
    names is not there, and opening the task's log tidies it away. (Evidence is committed by `Steps.capture`.)
    """

    def __init__(self, journal: Journal, task_id: str) -> None:
        self._journal = journal
        self.task = check_task(task_id)

    def has(self, commit_id: str) -> bool:
        """True if the journal has the event that commits this id."""
        rows = self._journal.view(lambda state: state.rows(self.task))
        return rows is not None and commit_id in rows.commits

    def publish(
        self,
        commit_id: str,
        *,
        card: int | str,
        agent_id: str,
        step_id: str | None = None,
        generation: int | None = None,
        lane: str | None = None,
    ) -> Event:
        """Write `lane.published` for a card of the agent's lane, under the lease of the step that it is tagged to.

        `lane` is where it drafts, if not in the lane of its name. Raises StepLeaseHeld, StaleGeneration; committing an id
        again raises nothing and gives a second event.
        """
        who = check_agent(agent_id)
        payload: dict[str, Any] = {"task_id": self.task, "commit_id": commit_id, "card": card, "agent_id": who}
        payload["lane"] = lane_of(who) if lane is None else check_lane(lane)

        def decide(state: State) -> Sequence[Draft]:
            if step_id is not None:
                check_lease(state, step_id, who, generation)
                payload["step_id"] = step_id
            return [("lane.published", payload)]

        return self._journal.transact(decide)[0]

    def branch(
        self,
        word: str,
        name: str,
        *,
        agent_id: str | None = None,
        commit_id: str | None = None,
        steps: Mapping[str, int | None] | None = None,
        **fields: Any,
    ) -> Event:
        """Write `branch.<word>` (created, merged) for a branch of the task's graph; `commit_id` commits what its
        log holds under that id. With `steps` (and the generation shown for each) under their leases: raises as `publish`."""
        who = None if agent_id is None else check_agent(agent_id)
        by = {name: value for name, value in (("agent_id", who), ("commit_id", commit_id)) if value is not None}

        def decide(state: State) -> Sequence[Draft]:
            for step_id, generation in (steps or {}).items():
                check_lease(state, step_id, who, generation)
            return [(f"branch.{word}", {"task_id": self.task, "branch": name, **by, **fields})]

        return self._journal.transact(decide)[0]
