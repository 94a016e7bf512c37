"""The state of a workspace: tables that are computed from the journal alone."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import filterfalse
from types import MappingProxyType
from typing import Any

from hivemind.boundary import boundary
from hivemind.coordination.entries import AgentEntry, Reservation, StepLease, TaskEntry
from hivemind.coordination.step import Receipt, Step

_STEP_FIELDS = tuple(column.name for column in fields(Step))
_EVIDENCE, _META = _STEP_FIELDS.index("evidence"), _STEP_FIELDS.index("meta")
_MAX_LOADED_TASKS = 256  # finished tasks that may stay in memory as objects
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def _canonical(value: Any) -> bytes:
    """Return a plain value as one line of JSON. Equal values produce equal bytes.

    A lone surrogate, which an escape in the log can produce, is kept.
    """
    return _encode(value).encode("utf-8", "surrogatepass")


@dataclass(slots=True)
class TaskRows:
    """The rows of one task.

    `steps` are in the order in which they were added. `generations` contains the last generation of each step's lease, also after
    the lease has ended. `commit_ids` names the committed entries of the task's own log (published drafts, evidence).
    """

    entry: TaskEntry | None = None
    steps: dict[str, Step] = field(default_factory=dict)
    last_step_number: int = 0
    generations: dict[str, int] = field(default_factory=dict)
    commit_ids: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        return self.entry is not None and self.entry.is_over

    def as_row(self, task: str) -> list[Any]:
        """Return the rows as plain JSON values."""
        entry = None if self.entry is None else _as_row(self.entry)
        steps = [_step_row(step) for step in self.steps.values()]
        return [task, entry, self.last_step_number, steps, self.generations, sorted(self.commit_ids)]

    @classmethod
    def from_row(cls, row: list[Any]) -> TaskRows:
        """Rebuild the rows from the output of `as_row`."""
        _, entry, counter, steps, generations, commits = row
        task_steps = [_step_from_row(row) for row in steps]
        task_entry = None if entry is None else _from_row(TaskEntry, entry)
        return cls(task_entry, {step.id: step for step in task_steps}, counter, generations, set(commits))


def task_of_step(step_id: str) -> str:
    """Return the task of a step id `TASK.sNUMBER`, or an empty text for any other id."""
    return step_id.rpartition(".s")[0]


def _step_row(step: Step) -> list[Any]:
    row = [getattr(step, name) for name in _STEP_FIELDS]
    row[_EVIDENCE] = [receipt.as_dict() for receipt in step.evidence]
    row[_META] = dict(step.meta)
    return row


def _step_from_row(row: list[Any]) -> Step:
    cells: list[Any] = [tuple(cell) if isinstance(cell, list) else cell for cell in row]
    cells[_EVIDENCE] = tuple(Receipt(**receipt) for receipt in row[_EVIDENCE])
    cells[_META] = MappingProxyType(row[_META])
    return Step(*cells)


def _line(rows: TaskRows, task: str) -> bytes:
    return _canonical(rows.as_row(task)) + b"\n"


class EndedTasks:
    """The lines of finished tasks in a snapshot's file: one sorted line per task, between two byte offsets.

    A task's line is read when the task is needed, so no process keeps a long history in memory.
    """

    def __init__(self, path: str, descriptor: int, start: int, end: int) -> None:
        """Take over the open file `descriptor`, which is closed with this object. The lines are between `start` and `end`."""
        self._path, self._descriptor, self._start, self._end = path, descriptor, start, end

    def __del__(self) -> None:
        os.close(self._descriptor)

    def find_line(self, prefix: bytes) -> bytes | None:
        """Return the line that starts with `prefix`, or None. Raises Unreadable if the file was changed."""
        with boundary("snapshot", self._path), open(self._descriptor, "rb", closefd=False) as file:
            low, high = self._start, self._end
            while low < high:
                middle = line_start = (low + high) // 2
                if middle > low:  # the first line that begins there or later
                    file.seek(middle - 1)
                    line_start += len(file.readline()) - 1
                file.seek(line_start)
                line = file.readline()
                if line_start >= high or (line > prefix and not line.startswith(prefix)):
                    high = middle
                elif not line.endswith(b"\n"):
                    raise ValueError("a line without an end")
                elif line.startswith(prefix):
                    return line
                else:
                    low = line_start + len(line)
        return None

    def __iter__(self) -> Iterator[bytes]:
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(self._start)
            offset = self._start
            while offset < self._end and (line := file.readline()):
                yield line
                offset += len(line)


_TABLES: dict[str, type[Any]] = {"leases": StepLease, "agents": AgentEntry, "reservations": Reservation}


@dataclass(slots=True, eq=False)
class JournalState:
    """The tables after the event `seq`. Only `apply_events` changes them. Equal logs produce equal bytes.

    `leased_step_ids` are the steps leased by each agent. `unknown` and `malformed` count events of unknown kinds, and
    of known kinds with unreadable fields. Read a task's rows through the methods: the rows of a finished task are
    packed as a line of JSON, in memory until the next snapshot and then in its file.
    """

    seq: int = 0
    leases: dict[str, StepLease] = field(default_factory=dict)
    leased_step_ids: dict[str, set[str]] = field(default_factory=dict)
    agents: dict[str, AgentEntry] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    unknown: int = 0
    malformed: int = 0
    _loaded: dict[str, TaskRows] = field(default_factory=dict)
    _loaded_over: set[str] = field(default_factory=set)  # the finished tasks among _loaded
    _packed: dict[str, bytes] = field(default_factory=dict)
    _ended_tasks: EndedTasks | None = None
    _outdated_lines: set[bytes] = field(default_factory=set)  # of _ended_tasks, for tasks that are loaded again

    # a task

    def rows(self, task: str) -> TaskRows | None:
        """Return the task's rows, or None for an unknown task."""
        rows = self._loaded.get(task)
        if rows is None and (self._packed or self._ended_tasks is not None):
            line = self._packed.pop(task, None)
            if line is None and self._ended_tasks is not None:
                line = self._ended_tasks.find_line(b"[" + _canonical(task) + b",")  # no other line begins so
                if line is not None:
                    self._outdated_lines.add(line)
            if line is not None:
                with boundary("snapshot's line"):
                    rows = self._loaded[task] = TaskRows.from_row(json.loads(line))
                self._loaded_over.add(task)
        return rows

    def rows_or_new(self, task: str) -> TaskRows:
        """Return the task's rows. Create them if there are none."""
        return self.rows(task) or self._loaded.setdefault(task, TaskRows())

    def set_task(self, entry: TaskEntry) -> None:
        """Set the task's newest entry."""
        self.rows_or_new(entry.task).entry = entry
        (self._loaded_over.add if entry.is_over else self._loaded_over.discard)(entry.task)

    def pack(self) -> None:
        """Pack the rows of finished tasks if many are in memory."""
        if len(self._loaded_over) > _MAX_LOADED_TASKS:
            self._packed.update((task, _line(self._loaded.pop(task), task)) for task in self._loaded_over)
            self._loaded_over.clear()

    def task(self, task: str) -> TaskEntry | None:
        """Return the task's newest entry, or None for an unknown task."""
        rows = self.rows(task)
        return None if rows is None else rows.entry

    def open_tasks(self) -> list[TaskEntry]:
        """Return the newest entries of all unfinished tasks."""
        return [rows.entry for rows in self._loaded.values() if rows.entry is not None and not rows.is_over]

    def tasks(self) -> list[str]:
        """Return the ids of all tasks, sorted. Reads the whole history."""
        with boundary("snapshot"):
            return sorted({*self._loaded, *self._packed, *(json.loads(line)[0] for line in self._ended_tasks or ())})

    # a step

    def step(self, step_id: str) -> Step | None:
        """Return the step, or None if it does not exist."""
        rows = self.rows(task_of_step(step_id))
        return None if rows is None else rows.steps.get(step_id)

    def steps_of(self, task: str) -> list[Step]:
        """Return the task's steps, ordered by position, then id."""
        rows = self.rows(task)
        return [] if rows is None else sorted(rows.steps.values(), key=lambda step: (step.position, step.id))

    def lease(self, step_id: str) -> StepLease | None:
        """Return the step's active lease, or None."""
        lease = self.leases.get(step_id)
        return lease if lease is not None and self.seq < lease.expires_seq else None

    def generation(self, step_id: str) -> int:
        """Return the last generation of the step's lease, 0 if it never had one."""
        rows = self.rows(task_of_step(step_id))
        return 0 if rows is None else rows.generations.get(step_id, 0)

    # as bytes

    def lines(self) -> Iterator[bytes]:
        """Yield the whole state: one line with everything unfinished, then one line per finished task, sorted.

        Equal states produce equal bytes, whether they were read from the log or from a snapshot.
        """
        tables: dict[str, Any] = {"seq": self.seq, "unknown": self.unknown, "malformed": self.malformed}
        for name in _TABLES:
            tables[name] = {key: _as_row(value) for key, value in getattr(self, name).items()}
        loaded_rows = sorted(self._loaded.items())
        tables["tasks"] = [rows.as_row(task) for task, rows in loaded_rows if not rows.is_over]
        yield _canonical(tables) + b"\n"
        newer = sorted([*(_line(rows, task) for task, rows in loaded_rows if rows.is_over), *self._packed.values()])
        older = filterfalse(self._outdated_lines.__contains__, self._ended_tasks or ())
        yield from heapq.merge(newer, older)

    @classmethod
    def from_line(cls, line: bytes, ended_tasks: EndedTasks | None = None) -> JournalState:
        """Rebuild the state from the first of its `lines`; `ended_tasks` has the others. Raises KeyError, TypeError or ValueError
        for a bad line.
        """
        tables = json.loads(line)
        state = cls()
        state.seq, state.unknown, state.malformed = tables["seq"], tables["unknown"], tables["malformed"]
        for name, kind in _TABLES.items():
            getattr(state, name).update((key, _from_row(kind, row)) for key, row in tables[name].items())
        for row in tables["tasks"]:
            state._loaded[row[0]] = TaskRows.from_row(row)
        state._ended_tasks = ended_tasks
        for lease in state.leases.values():
            state.leased_step_ids.setdefault(lease.holder_agent_id, set()).add(lease.step_id)
        return state


def _as_row(value: Any) -> list[Any]:
    return [getattr(value, column.name) for column in fields(value)]


def _from_row(kind: type[Any], row: list[Any]) -> Any:
    return kind(*(tuple(cell) if isinstance(cell, list) else cell for cell in row))
