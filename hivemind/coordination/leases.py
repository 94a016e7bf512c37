"""Claiming, renewing and releasing the leases of steps (seed 002, *Step lease*; spec 3)."""

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
from hivemind.coordination.journal import Draft, Journal
from hivemind.coordination.lanes import check_agent
from hivemind.coordination.state import State

_Leases = list[StepLease]


def lease_claim(state: State, step_id: str, agent_id: str, ttl_seq: int = DEFAULT_TTL_SEQ) -> Draft:
    """The event by which a step that nobody holds is leased to an agent."""
    generation = state.generation(step_id) + 1
    return "lease.claimed", {"step_id": step_id, "agent_id": agent_id, "ttl_seq": ttl_seq, "generation": generation}


class StepLeases:
    """The leases of a workspace's steps. A step need not be known to be leased: the lease is of its id.

    Every call that changes a lease is one check and one append under the journal's lock, so that of any number of
    callers exactly one wins. All raise CoordinationError for an agent_id, a step_id or a ttl_seq that is none.
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
        to_do: bool = False,
    ) -> StepLease:
        """The lease of a step, for `ttl_seq` events (1 to 10,000) from the claim on.

        A free or expired step is taken, with a new generation. What the agent holds already stays as it is, without an
        event, unless `renew`. What another holds raises StepLeaseHeld, or with `force`, which is for people, is taken over.
        With `to_do` the step must be one that there is still something to do about: raises UnknownStep, WrongStatus (done),
        CoordinationError (`TASK_OVER`).
        """
        agent_id, step_id = check_agent(agent_id), _check_step_id(step_id)
        _check_ttl(ttl_seq)

        def decide(state: State) -> Sequence[Draft]:
            if to_do:
                _check_to_do(state, step_id)
            held = state.lease(step_id)
            if held is not None and held.holder_agent_id == agent_id:
                return (
                    [("lease.renewed", {"step_id": step_id, "agent_id": agent_id, "ttl_seq": ttl_seq})] if renew else []
                )
            if held is not None and not force:
                raise StepLeaseHeld(held, agent_id)
            kind, claim = lease_claim(state, step_id, agent_id, ttl_seq)
            if held is None:
                return [(kind, claim)]
            return [("lease.taken_over", {**claim, "from_agent_id": held.holder_agent_id})]

        return self._journal.change(decide, lambda state, _: state.leases[step_id])

    def renew(
        self, step_id: str, agent_id: str, generation: int | None = None, ttl_seq: int = DEFAULT_TTL_SEQ
    ) -> StepLease:
        """The agent's own active lease, for `ttl_seq` events from now. Raises StepLeaseNotHeld, StaleGeneration."""
        agent_id, step_id = check_agent(agent_id), _check_step_id(step_id)
        _check_ttl(ttl_seq)

        def decide(state: State) -> Sequence[Draft]:
            _own(state, step_id, agent_id, generation)
            return [("lease.renewed", {"step_id": step_id, "agent_id": agent_id, "ttl_seq": ttl_seq})]

        return self._journal.change(decide, lambda state, _: state.leases[step_id])

    def release(self, step_id: str, agent_id: str, generation: int | None = None) -> None:
        """End the agent's own active lease. Raises StepLeaseNotHeld, StaleGeneration."""
        agent_id, step_id = check_agent(agent_id), _check_step_id(step_id)

        def decide(state: State) -> Sequence[Draft]:
            _own(state, step_id, agent_id, generation)
            return [("lease.released", {"step_id": step_id, "agent_id": agent_id})]

        self._journal.transact(decide)

    def get(self, step_id: str) -> StepLease | None:
        """The active lease of a step, or None."""
        return self._journal.view(lambda state: state.lease(step_id))

    def list(self, agent_id: str | None = None) -> _Leases:
        """The active leases of all agents or of one, by step id."""
        wanted = None if agent_id is None else check_agent(agent_id)

        def look(state: State) -> _Leases:
            steps = state.leases if wanted is None else state.held.get(wanted, ())
            return [lease for step_id in sorted(steps) if (lease := state.lease(step_id)) is not None]

        return self._journal.view(look)

    def release_all(self, agent_id: str) -> _Leases:
        """End every active lease of an agent that stops in order, in one line. Returns those that ended."""
        agent_id = check_agent(agent_id)
        ended: _Leases = []

        def decide(state: State) -> Sequence[Draft]:
            ended.extend(filter(None, (state.lease(one) for one in sorted(state.held.get(agent_id, ())))))
            return [("lease.released", {"step_id": one.step_id, "agent_id": agent_id}) for one in ended]

        self._journal.transact(decide)
        return ended


def _own(state: State, step_id: str, agent_id: str, generation: int | None) -> StepLease:
    lease = state.lease(step_id)
    if lease is None or lease.holder_agent_id != agent_id:
        raise StepLeaseNotHeld(step_id, agent_id, lease)
    if generation is not None and generation != lease.generation:
        raise StaleGeneration(step_id, agent_id, generation, lease)
    return lease


def _check_to_do(state: State, step_id: str) -> None:
    step = state.step(step_id)
    if step is None:
        raise UnknownStep(step_id)
    if step.status == "done":
        raise WrongStatus(step_id, f"is {step.status}, this needs it open or blocked")
    task = state.task(step.task)
    if task is not None and task.over:
        raise CoordinationError(
            f"step {step_id} is of a task that is over ({task.state})",
            code="TASK_OVER",
            mend=f"hivemind task retry {step.task}",
        )


def _check_step_id(step_id: object) -> str:
    if not isinstance(step_id, str) or not 1 <= len(step_id) <= 128 or not step_id.isprintable():
        raise CoordinationError(f"{step_id!r} is no step_id", code="INVALID_STEP_ID", mend="see: hivemind view resume")
    return step_id


def _check_ttl(ttl_seq: object) -> None:
    if not isinstance(ttl_seq, int) or isinstance(ttl_seq, bool) or not 1 <= ttl_seq <= MAX_TTL_SEQ:
        raise CoordinationError(
            f"ttl_seq is {ttl_seq!r}", code="INVALID_TTL", mend=f"it counts events: 1 to {MAX_TTL_SEQ}"
        )
