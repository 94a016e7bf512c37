"""The check that every change of a step passes first: its lease, then its revision (spec 3, *Step lease*)."""

from __future__ import annotations

from hivemind.coordination.errors import RevisionMismatch, StaleGeneration, StepLeaseHeld, UnknownStep
from hivemind.coordination.state import State
from hivemind.coordination.step import Step

__all__ = ["check_lease", "check_step"]


def check_lease(state: State, step_id: str, agent_id: str | None, generation: int | None) -> None:
    """Raise StepLeaseHeld if another holds the step, StaleGeneration if the generation shown is not held any more.

    Who shows a generation says that it holds the lease: one that has passed on, was released or ran out is refused
    (fencing), so that a holder that was paused and comes back late changes nothing. Without a generation only the
    holder is looked at, and a step that nobody holds is open to everyone.
    """
    lease = state.lease(step_id)
    if lease is not None and lease.holder_agent_id != agent_id:
        raise StepLeaseHeld(lease, agent_id)
    if generation is not None and (lease is None or generation != lease.generation):
        raise StaleGeneration(step_id, agent_id, generation, lease)


def check_step(
    state: State, step_id: str, agent_id: str | None, generation: int | None, expected_revision: int | None
) -> Step:
    """The step, if this caller may change it now.

    Raises UnknownStep, StepLeaseHeld, StaleGeneration, RevisionMismatch.
    """
    step = state.steps.get(step_id)
    if step is None:
        raise UnknownStep(step_id)
    check_lease(state, step_id, agent_id, generation)
    if expected_revision is not None and expected_revision != step.revision:
        raise RevisionMismatch(step_id, expected_revision, step.revision)
    return step
