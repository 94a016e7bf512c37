"""The state of a workspace: tables that are a fold of the journal and of nothing else (spec 3, *Journal*)."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from hivemind.coordination.lease import StepLease
from hivemind.coordination.reservation import Reservation
from hivemind.coordination.step import Step
from hivemind.coordination.step_table import StepTable, canonical
from hivemind.coordination.swarm import AgentEntry, BranchEntry, Focus, TaskEntry

__all__ = ["State"]

_TABLES: dict[str, type[Any]] = {
    "leases": StepLease,
    "agents": AgentEntry,
    "focus": Focus,
    "tasks": TaskEntry,
    "branches": BranchEntry,
    "reservations": Reservation,
}
_PLAIN = ("by_task", "counters", "generations")


class State:
    """The tables after the event `seq`. Only `fold.apply` changes them; the same log gives the same bytes.

    `by_task` are a task's step ids as they were added; `counters` the number of steps a task ever had; `generations` the
    last generation of each step's lease, kept when the lease ends; `held` the steps of an agent; `commits` the ids that
    a task's own log waits for (publications, evidence); `unknown` and `malformed` count events of foreign kinds and of
    known kinds with unreadable fields.
    """

    __slots__ = (
        "agents", "branches", "by_task", "commits", "counters", "focus", "generations", "held", "leases", "malformed",
        "reservations", "seq", "steps", "tasks", "unknown",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seq = 0
        self.steps = StepTable()
        self.by_task: dict[str, list[str]] = {}
        self.counters: dict[str, int] = {}
        self.leases: dict[str, StepLease] = {}
        self.held: dict[str, set[str]] = {}
        self.generations: dict[str, int] = {}
        self.agents: dict[str, AgentEntry] = {}
        self.focus: dict[str, Focus] = {}
        self.tasks: dict[str, TaskEntry] = {}
        self.branches: dict[str, BranchEntry] = {}
        self.commits: dict[str, set[str]] = {}
        self.reservations: dict[str, Reservation] = {}
        self.unknown = 0
        self.malformed = 0

    def lease(self, step_id: str) -> StepLease | None:
        """The active lease of a step, if it has one now."""
        lease = self.leases.get(step_id)
        return lease if lease is not None and self.seq < lease.expires_seq else None

    def steps_of(self, task: str) -> list[Step]:
        """A task's steps in the order of position, then id."""
        found = [self.steps[step_id] for step_id in self.by_task.get(task, ())]
        return sorted(found, key=lambda step: (step.position, step.id))

    def as_bytes(self) -> bytes:
        """The whole state: a line of JSON, then for each task with steps its name and its steps on a line each.

        Equal states give equal bytes, whatever way they came about.
        """
        found: dict[str, Any] = {"seq": self.seq, "unknown": self.unknown, "malformed": self.malformed}
        for name in _TABLES:
            found[name] = {key: _row(value) for key, value in getattr(self, name).items()}
        for name in _PLAIN:
            found[name] = getattr(self, name)
        found["commits"] = {task: sorted(ids) for task, ids in self.commits.items()}
        lines = [canonical(found)]
        for name, steps in self.steps.packed():
            lines += (canonical(name), steps)
        return b"\n".join(lines)

    @classmethod
    def of(cls, content: bytes) -> State:
        """The state that `as_bytes` gave. Raises KeyError, TypeError or ValueError for anything else."""
        first, *packs = content.split(b"\n")
        found = json.loads(first)
        state = cls()
        state.seq, state.unknown, state.malformed = found["seq"], found["unknown"], found["malformed"]
        for name, kind in _TABLES.items():
            getattr(state, name).update((key, _value(kind, row)) for key, row in found[name].items())
        for name in _PLAIN:
            getattr(state, name).update(found[name])
        state.commits.update((task, set(ids)) for task, ids in found["commits"].items())
        state.steps = StepTable({json.loads(name): steps for name, steps in zip(packs[::2], packs[1::2], strict=True)})
        for lease in state.leases.values():
            state.held.setdefault(lease.holder_agent_id, set()).add(lease.step_id)
        return state


def _row(value: Any) -> list[Any]:
    return [getattr(value, one.name) for one in fields(value)]


def _value(kind: type[Any], row: list[Any]) -> Any:
    return kind(*(tuple(cell) if isinstance(cell, list) else cell for cell in row))
