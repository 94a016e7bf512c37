"""What a task's log adds up to, branch by branch, and at any past seq."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.reasoning.entries import MAIN, Branch, Note, Trace
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.log import GraphLog
from hivemind.reasoning.node import SHARED
from hivemind.reasoning.replay import highest_id, replay

__all__ = ["History", "State"]

_Record = Mapping[str, Any]


class State:
    """The graph, notes and trace of one branch."""

    __slots__ = ("graph", "notes", "traces")

    def __init__(self) -> None:
        self.graph = ReasoningGraph()
        self.notes: list[Note] = []
        self.traces: list[Trace] = []

    def take(self, operations: Sequence[_Record], seq: int, at: str, agent: str | None) -> None:
        """Apply one line of the log."""
        replay(self.graph, operations, seq, at)
        self.say(operations, seq, at, agent)

    def say(self, operations: Sequence[_Record], seq: int, at: str, agent: str | None) -> None:
        """Take in the notes and traces of one line."""
        for op in operations:
            lane, step = op.get("lane", SHARED), op.get("step")
            if op["op"] == "note":
                self.notes.append(Note(seq, at, agent, lane, step, op["text"]))
            elif op["op"] == "trace":
                self.traces.append(Trace(seq, at, agent, lane, step, op["kind"], op["text"]))


class History:
    """Follows a log. Builds a branch when it is first asked for, and keeps it up to date line by line."""

    def __init__(self, log: GraphLog) -> None:
        self.log = log
        self._start()

    def _start(self) -> None:
        self._epoch = self.log.epoch
        self.branches = {MAIN: Branch(MAIN, None, 0)}
        self.deleted: set[str] = set()
        self.pending: dict[str, _Record] = {}
        self.merges: list[dict[str, Any]] = []
        self.next_id = 1
        self._states: dict[str, State] = {
            MAIN: State()
        }  # built from the first line on, so that opening reads the file once

    def forget(self) -> None:
        """Build everything anew from the file at the next look."""
        self.log.rewind()

    def refresh(self) -> None:
        """Take in what is new. Raises UserError naming a damaged line."""
        records = self.log.read()
        if self._epoch != self.log.epoch:
            self._start()
        try:
            for record in records:
                with self._readable(record):
                    self._take(record)
        except UserError:
            self.log.rewind()
            raise

    def append(self, record: dict[str, Any]) -> None:
        """Write a line under the lock and take it in as if it had been read."""
        seq = self.log.append(record)
        self._take({"seq": seq, **record})

    def _take(self, record: _Record) -> None:
        operations, agent = self._effect(record, self.pending)
        state = self._states.get(record["branch"])
        if state is not None:
            state.take(operations, record["seq"], record["at"], agent)
        if "tx" in record:
            self.pending[record["tx"]] = record
            self.next_id = max(self.next_id, highest_id(record["ops"]) + 1)
        self.note(operations, record["seq"])
        for op in record["ops"]:
            if op["op"] in ("commit", "abort"):
                self.pending.pop(op["tx"], None)

    def state(self, name: str) -> State:
        """The state of a branch as it is now. Raises GraphError if there is no such branch."""
        self.refresh()
        self.branch(name)
        if name not in self._states:
            self._states[name] = self.at(name, self.log.seq)
        state = self._states[name]
        if state.graph.structure.undo is None:  # lines of other branches count too; not while it is being changed
            state.graph.seq, state.graph.next_id = self.log.seq, self.next_id
        return state

    def branch(self, name: str) -> Branch:
        """The branch of that name. Raises GraphError if there is none."""
        if not isinstance(name, str) or name not in self.branches:
            raise GraphError(f"there is no branch {name!r}", mend=f"branches: {', '.join(sorted(self.branches))}")
        return self.branches[name]

    def at(self, name: str, seq: int) -> State:
        """The state of a branch after line `seq`, read from the file."""
        until = dict(self.chain(name, seq))
        state, pending = State(), dict[str, _Record]()
        highest = 0
        for record in self.log.records():
            if record["seq"] > seq:
                break
            with self._readable(record):
                highest = max(highest, highest_id(record["ops"]))
                if record["seq"] <= until.get(record["branch"], 0):
                    operations, agent = self._effect(record, pending)
                    state.take(operations, record["seq"], record["at"], agent)
                if "tx" in record:
                    pending[record["tx"]] = record
        state.graph.next_id, state.graph.seq = highest + 1, seq
        return state

    def chain(self, name: str, seq: int) -> list[tuple[str, int]]:
        """The branch and its bases, each with the last seq that is seen of it."""
        chain = []
        at: str | None = name
        while at is not None:
            chain.append((at, seq))
            branch = self.branch(at)
            at, seq = branch.base, min(seq, branch.base_seq)
        return chain

    @staticmethod
    def _effect(record: _Record, pending: Mapping[str, _Record]) -> tuple[Sequence[_Record], str | None]:
        """What a line does, and who did it: a prepared line does nothing until the line of its commit."""
        if "tx" in record:
            return (), None
        for op in record["ops"]:
            if op["op"] == "commit" and op["tx"] in pending:
                prepared = pending[op["tx"]]
                return prepared["ops"], prepared.get("agent_id")
        return record["ops"], record.get("agent_id")

    @contextmanager
    def _readable(self, record: _Record) -> Iterator[None]:
        """Where a line cannot be taken in, because someone has changed the file by hand, UserError names it."""
        line = f"{self.log.path}:{record['seq'] + 1}"
        try:
            with boundary("line of a graph's log", line):
                yield
        except GraphError as error:
            raise UserError(f"does not fit what stands before it ({error.what})", where=line) from None

    def note(self, operations: Sequence[_Record], seq: int) -> None:
        """Take in what operations say about ids, branches and merges."""
        self.next_id = max(self.next_id, highest_id(operations) + 1)
        for op in operations:
            if op["op"] == "branch":
                self.branches[op["name"]] = Branch(op["name"], op["base"], op["base_seq"])
            elif op["op"] == "branch_deleted":
                del self.branches[op["name"]]
                self.deleted.add(op["name"])
            elif op["op"] == "merge":
                self.merges.append({**op, "seq": seq})
