"""The state of a workspace: tables that are a fold of the journal and of nothing else (spec 3, *Journal*)."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from hivemind.boundary import boundary
from hivemind.coordination.entries import AgentEntry, Reservation, StepLease, TaskEntry
from hivemind.coordination.step import Receipt, Step

_NAMES = tuple(one.name for one in fields(Step))
_EVIDENCE, _META = _NAMES.index("evidence"), _NAMES.index("meta")
_AT_HAND = 256  # tasks that are over, and whose rows are kept as objects all the same
_CHUNK = 4096
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def _canonical(value: Any) -> bytes:
    """A plain value as JSON: equal values give equal bytes, on one line. Half a character, which a line of the log may have
    by an escape, stays what it is."""
    return _encode(value).encode("utf-8", "surrogatepass")


@dataclass(slots=True)
class TaskRows:
    """What the state has of one task: its steps by id, as they were added; how many it ever had; the last generation of each
    step's lease, kept when the lease ends; the ids that its own log waits for (publications, evidence)."""

    entry: TaskEntry | None = None
    steps: dict[str, Step] = field(default_factory=dict)
    counter: int = 0
    generations: dict[str, int] = field(default_factory=dict)
    commits: set[str] = field(default_factory=set)

    @property
    def over(self) -> bool:
        return self.entry is not None and self.entry.over

    def as_row(self, task: str) -> list[Any]:
        """A plain value."""
        entry = None if self.entry is None else _row(self.entry)
        steps = [_step_row(step) for step in self.steps.values()]
        return [task, entry, self.counter, steps, self.generations, sorted(self.commits)]

    @classmethod
    def of(cls, row: list[Any]) -> TaskRows:
        """What `as_row` gave."""
        _, entry, counter, steps, generations, commits = row
        made = [_step(row) for row in steps]
        told = None if entry is None else _value(TaskEntry, entry)
        return cls(told, {step.id: step for step in made}, counter, generations, set(commits))


def task_of_step(step_id: str) -> str:
    """The task of a step, whose id is `TASK.sNUMBER`; of any other id the empty text."""
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


def _line(rows: TaskRows, task: str) -> bytes:
    return _canonical(rows.as_row(task)) + b"\n"


def _head(task: str) -> bytes:
    """How the line of a task that is over begins; no other begins so."""
    return b"[" + _canonical(task) + b","


class EndedTasks:
    """The tasks that were over when a snapshot was written: lines of its file from `start` to `end`, in order. They are read
    when one is asked for, so that no process carries a long history."""

    def __init__(self, path: str, file: int, start: int, end: int) -> None:
        """`file` is open, and closed with this."""
        self._path, self._file, self._start, self._end = path, file, start, end

    def __del__(self) -> None:
        os.close(self._file)

    def get(self, head: bytes) -> bytes | None:
        """The line that begins so. Raises Unreadable for a file that was changed."""
        with boundary("snapshot", self._path):
            low, high = self._start, self._end
            while low < high:
                middle = (low + high) // 2
                begin = low if middle == low else middle - 1 + len(self._line(middle - 1))
                if begin >= high:
                    high = middle
                elif (line := self._line(begin)).startswith(head):
                    return line
                elif line < head:
                    low = begin + len(line)
                else:
                    high = middle
        return None

    def _line(self, at: int) -> bytes:
        """From there to the end of a line."""
        size = _CHUNK
        while b"\n" not in (chunk := os.pread(self._file, min(size, self._end - at), at)):
            if at + len(chunk) >= self._end or len(chunk) < size:
                raise ValueError("a line without an end")
            size *= 4
        return chunk[: chunk.index(b"\n") + 1]

    def __iter__(self) -> Iterator[bytes]:
        with open(os.dup(self._file), "rb") as file:
            file.seek(self._start)
            at = self._start
            while at < self._end:
                yield (line := file.readline())
                at += len(line)


_TABLES: dict[str, type[Any]] = {
    "leases": StepLease,
    "agents": AgentEntry,
    "reservations": Reservation,
}


class State:
    """The tables after the event `seq`. Only `fold.apply` changes them; the same log gives the same bytes.

    `held` are the steps of an agent; `unknown` and `malformed` count events of foreign kinds and of known kinds with
    unreadable fields. What belongs to a task is asked for by its name: once it is over, its rows are packed as a line of
    JSON, here until the next snapshot and then in its file.
    """

    __slots__ = (
        "_at_hand", "_ended", "_outdated", "_over", "_packed", "agents", "held", "leases", "malformed",
        "reservations", "seq", "unknown",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seq = 0
        self._at_hand: dict[str, TaskRows] = {}
        self._over: set[str] = set()  # of those at hand
        self._packed: dict[str, bytes] = {}
        self._ended: EndedTasks | None = None
        self._outdated: set[bytes] = set()  # its lines that were read, and may have changed
        self.leases: dict[str, StepLease] = {}
        self.held: dict[str, set[str]] = {}
        self.agents: dict[str, AgentEntry] = {}
        self.reservations: dict[str, Reservation] = {}
        self.unknown = 0
        self.malformed = 0

    # a task

    def rows(self, task: str) -> TaskRows | None:
        """What there is of a task, or None."""
        found = self._at_hand.get(task)
        if found is None and (self._packed or self._ended is not None):
            line = self._packed.pop(task, None)
            if line is None and self._ended is not None:
                line = self._ended.get(_head(task))
                if line is not None:
                    self._outdated.add(line)
            if line is not None:
                with boundary("snapshot's line"):
                    found = self._at_hand[task] = TaskRows.of(json.loads(line))
                self._over.add(task)
        return found

    def make(self, task: str) -> TaskRows:
        """The same, begun if there is nothing."""
        return self.rows(task) or self._at_hand.setdefault(task, TaskRows())

    def told(self, task: str, entry: TaskEntry) -> None:
        """Set what the newest event says of a task."""
        self.make(task).entry = entry
        (self._over.add if entry.over else self._over.discard)(task)

    def pack(self) -> None:
        """Let go of the rows of tasks that are over, if they are many."""
        if len(self._over) > _AT_HAND:
            self._packed.update((task, _line(self._at_hand.pop(task), task)) for task in self._over)
            self._over.clear()

    def task(self, task: str) -> TaskEntry | None:
        """The newest that was told of a task, or None."""
        found = self.rows(task)
        return None if found is None else found.entry

    def open_tasks(self) -> list[TaskEntry]:
        """Every task that was told of and is not over."""
        return [rows.entry for rows in self._at_hand.values() if rows.entry is not None and not rows.over]

    def tasks(self) -> list[str]:
        """The names of all tasks, sorted. Reads the whole history."""
        with boundary("snapshot"):
            ended = () if self._ended is None else (json.loads(line)[0] for line in self._ended)
            return sorted({*self._at_hand, *self._packed, *ended})

    # a step

    def step(self, step_id: str) -> Step | None:
        """The step, or None."""
        rows = self.rows(task_of_step(step_id))
        return None if rows is None else rows.steps.get(step_id)

    def steps_of(self, task: str) -> list[Step]:
        """A task's steps in the order of position, then id."""
        rows = self.rows(task)
        return [] if rows is None else sorted(rows.steps.values(), key=lambda step: (step.position, step.id))

    def lease(self, step_id: str) -> StepLease | None:
        """The active lease of a step, if it has one now."""
        lease = self.leases.get(step_id)
        return lease if lease is not None and self.seq < lease.expires_seq else None

    def generation(self, step_id: str) -> int:
        """The last generation of a step's lease, 0 if it never had one."""
        rows = self.rows(task_of_step(step_id))
        return 0 if rows is None else rows.generations.get(step_id, 0)

    # as bytes

    def lines(self) -> Iterator[bytes]:
        """The whole state: a line of JSON, then a line for each task that is over, in the order of their bytes.

        Equal states give equal bytes, whatever way they came about.
        """
        found: dict[str, Any] = {"seq": self.seq, "unknown": self.unknown, "malformed": self.malformed}
        for name in _TABLES:
            found[name] = {key: _row(value) for key, value in getattr(self, name).items()}
        here = sorted(self._at_hand.items())
        found["tasks"] = [rows.as_row(task) for task, rows in here if not rows.over]
        yield _canonical(found) + b"\n"
        newer = sorted([*(_line(rows, task) for task, rows in here if rows.over), *self._packed.values()])
        older = () if self._ended is None else (line for line in self._ended if line not in self._outdated)
        yield from heapq.merge(newer, older)

    @classmethod
    def of(cls, line: bytes, ended: EndedTasks | None = None) -> State:
        """The state whose first line that is. Raises KeyError, TypeError or ValueError for anything else."""
        found = json.loads(line)
        state = cls()
        state.seq, state.unknown, state.malformed = found["seq"], found["unknown"], found["malformed"]
        for name, kind in _TABLES.items():
            getattr(state, name).update((key, _value(kind, row)) for key, row in found[name].items())
        for row in found["tasks"]:
            state._at_hand[row[0]] = TaskRows.of(row)
        state._ended = ended
        for lease in state.leases.values():
            state.held.setdefault(lease.holder_agent_id, set()).add(lease.step_id)
        return state


def _row(value: Any) -> list[Any]:
    return [getattr(value, one.name) for one in fields(value)]


def _value(kind: type[Any], row: list[Any]) -> Any:
    return kind(*(tuple(cell) if isinstance(cell, list) else cell for cell in row))
