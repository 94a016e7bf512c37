"""What lease events and the lives of agents do to the state (spec 3, *Step lease*)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivemind.coordination.fields import Apply, agent, number, optional_text, text
from hivemind.coordination.lease import DEFAULT_TTL_SEQ, StepLease
from hivemind.coordination.state import State
from hivemind.coordination.swarm import AgentEntry

__all__ = ["LEASE_FOLDS", "drop_lease", "free_agent"]


def drop_lease(state: State, step_id: str) -> None:
    """The step has no holder from here on. Its generation is kept, so that the next holder gets a new one."""
    lease = state.leases.pop(step_id, None)
    if lease is not None:
        steps = state.held[lease.holder_agent_id]
        steps.discard(step_id)
        if not steps:
            del state.held[lease.holder_agent_id]


def free_agent(state: State, agent_id: str) -> None:
    """Everything that ends with its holder: leases and reservations."""
    for step_id in tuple(state.held.get(agent_id, ())):
        drop_lease(state, step_id)
    for key in [key for key, held in state.reservations.items() if held.agent_id == agent_id]:
        del state.reservations[key]


def _taken(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    step_id, holder = text(payload, "step_id"), agent(payload)
    ttl = number(payload, "ttl_seq", DEFAULT_TTL_SEQ)
    generation = state.generations.get(step_id, 0) + 1
    drop_lease(state, step_id)
    state.generations[step_id] = generation
    state.leases[step_id] = StepLease(step_id, holder, seq, seq + ttl, generation)
    state.held.setdefault(holder, set()).add(step_id)


def _renewed(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    step_id, holder = text(payload, "step_id"), agent(payload)
    ttl = number(payload, "ttl_seq", DEFAULT_TTL_SEQ)
    lease = state.leases.get(step_id)
    if lease is not None and lease.holder_agent_id == holder:
        state.leases[step_id] = StepLease(step_id, holder, lease.acquired_seq, seq + ttl, lease.generation)


def _ended(state: State, _seq: int, payload: Mapping[str, Any]) -> None:
    drop_lease(state, text(payload, "step_id"))


def _started(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    agent_id = agent(payload)
    before = state.agents.get(agent_id)
    past = 0 if before is None else before.incarnation
    incarnation = number(payload, "incarnation", past + 1)
    if incarnation != past:
        free_agent(state, agent_id)
    state.agents[agent_id] = AgentEntry(agent_id, incarnation, "started", seq)


def _exited(state: State, seq: int, payload: Mapping[str, Any]) -> None:
    agent_id = agent(payload)
    before = state.agents.get(agent_id)
    past = 0 if before is None else before.incarnation
    incarnation = number(payload, "incarnation", past)
    if incarnation < past:  # a late word about an earlier life
        return
    free_agent(state, agent_id)
    state.agents[agent_id] = AgentEntry(agent_id, incarnation, "exited", seq)


def _heartbeat(_state: State, _seq: int, payload: Mapping[str, Any]) -> None:
    optional_text(payload, "agent_id")


LEASE_FOLDS: dict[str, Apply] = {
    "agent.exited": _exited,
    "agent.heartbeat": _heartbeat,
    "agent.started": _started,
    "lease.claimed": _taken,
    "lease.expired": _ended,
    "lease.released": _ended,
    "lease.renewed": _renewed,
    "lease.taken_over": _taken,
}
