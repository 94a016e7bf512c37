"""Commit entries of a task's own log by events of the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hivemind.coordination.journal import Event, EventDraft, Journal
from hivemind.coordination.lanes import check_agent, check_lane, lane_of
from hivemind.coordination.state import JournalState
from hivemind.coordination.step import check_task
from hivemind.coordination.steps import check_leases, without_none


class Commits:
    """The commits of one task's new entries: published drafts, and branches of its graph.

    An entry is first written to the task's log under an id. The journal's event that names the id commits the entry. Opening the
    task's log removes entries that no event has committed (`has`). `Steps.capture` commits evidence.
    """

    def __init__(self, journal: Journal, task_id: str) -> None:
        self._journal = journal
        self.task = check_task(task_id)

    def has(self, commit_id: str) -> bool:
        """Return True if the journal contains the event that commits this id."""
        rows = self._journal.view(lambda state: state.rows(self.task))
        return rows is not None and commit_id in rows.commit_ids

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
        """Write `lane.published`: the draft `card` of the agent's lane is now visible to all. Return the event.

        `lane` is the lane of the draft; the default is the lane of the agent's name. `generation` is that of the agent's lease of
        `step_id`. Raises StepLeaseHeld if another agent holds the step, StaleGeneration. Committing the same id again writes a
        second event.
        """
        agent = check_agent(agent_id)
        payload = {"task_id": self.task, "commit_id": commit_id, "card": card, "agent_id": agent}
        payload |= {"lane": lane_of(agent) if lane is None else check_lane(lane), **without_none(step_id=step_id)}
        return self._write("lane.published", payload, agent, {} if step_id is None else {step_id: generation})

    def branch(
        self,
        action: str,
        name: str,
        *,
        agent_id: str | None = None,
        commit_id: str | None = None,
        steps: Mapping[str, int | None] | None = None,
        **fields: Any,
    ) -> Event:
        """Write `branch.<action>` (created, merged) for a branch of the task's graph. Return the event.

        `commit_id` commits the entry with that id in the task's log. `steps` maps step ids to the generations of their leases;
        the caller must hold them. `fields` are added to the event. Raises StepLeaseHeld, StaleGeneration.
        """
        agent = None if agent_id is None else check_agent(agent_id)
        payload = {"task_id": self.task, "branch": name, **fields, **without_none(agent_id=agent, commit_id=commit_id)}
        return self._write(f"branch.{action}", payload, agent, steps or {})

    def _write(
        self, kind: str, payload: Mapping[str, Any], agent: str | None, generations: Mapping[str, int | None]
    ) -> Event:
        def decide(state: JournalState) -> Sequence[EventDraft]:
            check_leases(state, generations, agent)
            return [(kind, payload)]

        return self._journal.transact(decide)[0]
