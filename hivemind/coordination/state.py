"""The state of a workspace: tables that are a fold of the journal and of nothing else (spec 3, *Journal*)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from hivemind.coordination.entries import AgentEntry, Focus, Reservation, StepLease, TaskEntry
from hivemind.coordination.step import Receipt, Step

__all__ = ["State"]

_NAMES = tuple(one.name for one in fields(Step))
_EVIDENCE, _META = _NAMES.index("evidence"), _NAMES.index("meta")
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def _canonical(value: Any) -> bytes:
    """A plain value as JSON: equal values give equal bytes, on one line. Half a character, which a line of the log may have
    by an escape, stays what it is."""
    return _encode(value).encode("utf-8", "surrogatepass")


class _StepTable:
    """Steps by id, as values or packed: the steps of one task as one line of JSON.

    Those that a snapshot brought stay packed until one of their task is asked for. Of a long history most never are: so
    opening does not make them, and a process does not carry them as objects.
    """

    __slots__ = ("_made", "_packed")

    def __init__(self, packed: dict[str, bytes] | None = None) -> None:
        self._made: dict[str, Step] = {}
        self._packed: dict[str, bytes] = {} if packed is None else packed

    def __contains__(self, step_id: str) -> bool:
        return self.get(step_id) is not None

    def __getitem__(self, step_id: str) -> Step:
        """The step. Raises KeyError."""
        step = self.get(step_id)
        if step is None:
            raise KeyError(step_id)
        return step

    def get(self, step_id: str) -> Step | None:
        """The step, or None."""
        step = self._made.get(step_id)
        if step is None and self._packed and (rows := self._packed.pop(_pack_of(step_id), None)) is not None:
            for row in json.loads(rows):
                made = _step(row)
                self._made[made.id] = made
            step = self._made.get(step_id)
        return step

    def put(self, step: Step) -> None:
        """Set a step; what is packed with it is unpacked."""
        self.get(step.id)
        self._made[step.id] = step

    def remove(self, step_id: str) -> None:
        """Take a step out. Raises KeyError."""
        del self._made[self[step_id].id]

    def packed(self) -> Iterator[tuple[str, bytes]]:
        """Every pack and its steps as one line, by name: equal tables give equal bytes."""
        packs: dict[str, list[list[Any]]] = {}
        for step_id in sorted(self._made):
            packs.setdefault(_pack_of(step_id), []).append(_step_row(self._made[step_id]))
        for name in sorted({*packs, *self._packed}):
            yield name, self._packed[name] if name in self._packed else _canonical(packs[name])


def _pack_of(step_id: str) -> str:
    """What a step is packed with: its task, where its id was made by `Steps`."""
    return step_id.rpartition(".s")[0]


def _step_row(step: Step) -> list[Any]:
    row = [getattr(step, name) for name in _NAMES]
    row[_EVIDENCE] = [receipt.as_dict() for receipt in step.evidence]
    row[_META] = dict(step.meta)
    return row


def _step(row: list[Any]) -> Step:
    cells: list[Any] = [tuple(cell) if isinstance(cell, list) else cell for cell in row]
    cells[_EVIDENCE] = tuple(Receipt(**receipt) for receipt in row[_EVIDENCE])
    cells[_META] = MappingProxyType(row[_META])
    return Step(*cells)


_TABLES: dict[str, type[Any]] = {
    "leases": StepLease,
    "agents": AgentEntry,
    "focus": Focus,
    "tasks": TaskEntry,
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
        "agents", "by_task", "commits", "counters", "focus", "generations", "held", "leases", "malformed",
        "reservations", "seq", "steps", "tasks", "unknown",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seq = 0
        self.steps = _StepTable()
        self.by_task: dict[str, list[str]] = {}
        self.counters: dict[str, int] = {}
        self.leases: dict[str, StepLease] = {}
        self.held: dict[str, set[str]] = {}
        self.generations: dict[str, int] = {}
        self.agents: dict[str, AgentEntry] = {}
        self.focus: dict[str, Focus] = {}
        self.tasks: dict[str, TaskEntry] = {}
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
        lines = [_canonical(found)]
        for name, steps in self.steps.packed():
            lines += (_canonical(name), steps)
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
        state.steps = _StepTable({json.loads(name): steps for name, steps in zip(packs[::2], packs[1::2], strict=True)})
        for lease in state.leases.values():
            state.held.setdefault(lease.holder_agent_id, set()).add(lease.step_id)
        return state


def _row(value: Any) -> list[Any]:
    return [getattr(value, one.name) for one in fields(value)]


def _value(kind: type[Any], row: list[Any]) -> Any:
    return kind(*(tuple(cell) if isinstance(cell, list) else cell for cell in row))
