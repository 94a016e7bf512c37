"""Claim, renew and release the leases of steps."""

from __future__ import annotations

from collections.abc import Sequence

from hivemind.coordination.entries import DEFAULT_TTL_SEQ, MAX_TTL_SEQ, StepLease
from hivemind.coordination.errors import (
    CoordinationError,
    StaleGeneration,
    StepLeaseHeld,
    StepLeaseNotHeld,
    UnknownStep,
    WrongStatus,
)
from hivemind.coordination.journal import EventDraft, Journal
from hivemind.coordination.lanes import check_agent
from hivemind.coordination.state import JournalState

_Leases = list[StepLease]


def claim_event(state: JournalState, step_id: str, agent_id: str, ttl_seq: int = DEFAULT_TTL_SEQ) -> EventDraft:
    """Return the event that leases a free step to an agent for `ttl_seq` events."""
    generation = state.generation(step_id) + 1
    return "lease.claimed", {"step_id": step_id, "agent_id": agent_id, "ttl_seq": ttl_seq, "generation": generation}


class StepLeases:
    """The leases of a workspace's steps. A lease belongs to a step id, which need not exist.

    Each change of a lease is one check and one append under the journal's lock: of several callers exactly one wins.
    All methods raise CoordinationError for an invalid agent_id, step_id or ttl_seq.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def claim(
        self,
        step_id: str,
        agent_id: str,
        ttl_seq: int = DEFAULT_TTL_SEQ,
        force: bool = False,
        renew: bool = False,
        *,
        require_unfinished: bool = False,
    ) -> StepLease:
        """Claim a step for `ttl_seq` events (1 to 10,000), counted from the claim. Return its lease.

        A free or expired step is leased under a new generation. If the agent already holds the step, its lease stays unchanged;
        with `renew` it is extended. If another agent holds it, StepLeaseHeld is raised; with `force`, which is for the operator,
        the lease is taken over. With `require_unfinished` the call raises UnknownStep, WrongStatus for a step that is done, and
        CoordinationError (`TASK_OVER`) for a step of a finished task.
        """
        agent_id, step_id = check_agent(agent_id), _check_step_id(step_id)
        _check_ttl(ttl_seq)

        def decide(state: JournalState) -> Sequence[EventDraft]:
            if require_unfinished:
                _check_unfinished(state, step_id)
            lease = state.lease(step_id)
            if lease is not None and lease.holder_agent_id == agent_id:
                renewal = {"step_id": step_id, "agent_id": agent_id, "ttl_seq": ttl_seq}
                return [("lease.renewed", renewal)] if renew else []
            if lease is not None and not force:
                raise StepLeaseHeld(lease, agent_id)
            kind, claim = claim_event(state, step_id, agent_id, ttl_seq)
            if lease is None:
                return [(kind, claim)]
            return [("lease.taken_over", {**claim, "from_agent_id": lease.holder_agent_id})]

        return self._journal.transact_and_query(decide, lambda state, _: state.leases[step_id])

    def renew(
        self, step_id: str, agent_id: str, generation: int | None = None, ttl_seq: int = DEFAULT_TTL_SEQ
    ) -> StepLease:
        """Extend the agent's active lease to `ttl_seq` events from now, and return it.

        `generation`, if not None, must be that of the lease. Raises StepLeaseNotHeld, StaleGeneration.
        """
        _check_ttl(ttl_seq)
        lease = self._change_own("lease.renewed", step_id, agent_id, generation, ttl_seq=ttl_seq)
        assert lease is not None
        return lease

    def release(self, step_id: str, agent_id: str, generation: int | None = None) -> None:
        """End the agent's active lease. `generation`, if not None, must be that of the lease. Raises StepLeaseNotHeld,
        StaleGeneration.
        """
        self._change_own("lease.released", step_id, agent_id, generation)

    def _change_own(
        self, kind: str, step_id: str, agent_id: str, generation: int | None, **fields: int
    ) -> StepLease | None:
        agent, step_id = check_agent(agent_id), _check_step_id(step_id)

        def decide(state: JournalState) -> Sequence[EventDraft]:
            lease = state.lease(step_id)
            if lease is None or lease.holder_agent_id != agent:
                raise StepLeaseNotHeld(step_id, agent, lease)
            if generation is not None and generation != lease.generation:
                raise StaleGeneration(step_id, agent, generation, lease)
            return [(kind, {"step_id": step_id, "agent_id": agent, **fields})]

        return self._journal.transact_and_query(decide, lambda state, _: state.leases.get(step_id))

    def get(self, step_id: str) -> StepLease | None:
        """Return the step's active lease, or None."""
        return self._journal.view(lambda state: state.lease(step_id))

    def list(self, agent_id: str | None = None) -> _Leases:
        """Return the active leases of all agents, or of one, ordered by step id."""
        agent = None if agent_id is None else check_agent(agent_id)
        return self._journal.view(lambda state: _active_leases(state, agent))

    def release_all(self, agent_id: str) -> _Leases:
        """End every active lease of an agent that shuts down, in one line of the log. Return the ended leases."""
        released_leases: _Leases = []

        def decide(state: JournalState) -> Sequence[EventDraft]:
            released_leases.extend(_active_leases(state, agent_id))
            return [("lease.released", {"step_id": lease.step_id, "agent_id": agent_id}) for lease in released_leases]

        agent_id = check_agent(agent_id)
        self._journal.transact(decide)
        return released_leases


def _active_leases(state: JournalState, agent_id: str | None) -> _Leases:
    step_ids = state.leases if agent_id is None else state.leased_step_ids.get(agent_id, ())
    return [lease for step_id in sorted(step_ids) if (lease := state.lease(step_id)) is not None]


def _check_unfinished(state: JournalState, step_id: str) -> None:
    step = state.step(step_id)
    if step is None:
        raise UnknownStep(step_id)
    if step.status == "done":
        raise WrongStatus(step_id, f"is {step.status}; it must be open or blocked")
    task = state.task(step.task)
    if task is not None and task.is_over:
        raise CoordinationError(
            f"step {step_id} belongs to a finished task ({task.state})",
            code="TASK_OVER",
            remedy=f"hivemind task retry {step.task}",
        )


def _check_step_id(step_id: object) -> str:
    if not isinstance(step_id, str) or not 1 <= len(step_id) <= 128 or not step_id.isprintable():
        raise CoordinationError(
            f"{step_id!r} is not a step_id", code="INVALID_STEP_ID", remedy="list the steps with: hivemind view resume"
        )
    return step_id


def _check_ttl(ttl_seq: object) -> None:
    if not isinstance(ttl_seq, int) or isinstance(ttl_seq, bool) or not 1 <= ttl_seq <= MAX_TTL_SEQ:
        raise CoordinationError(
            f"{ttl_seq!r} is not a valid ttl_seq",
            code="INVALID_TTL",
            remedy=f"pass a number of events, from 1 to {MAX_TTL_SEQ}",
        )
