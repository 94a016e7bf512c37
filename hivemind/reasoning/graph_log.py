"""The log of a task's graph, and the state of each branch at any seq (README.md, *graph.jsonl*)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import Log
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.merging import apply_merge
from hivemind.reasoning.node import SHARED, GraphError, card_fields

LOG_NAME = "graph.jsonl"
MAIN = "main"
_Record = Mapping[str, Any]


@frozen
class Note:
    """A note of an agent in plain text. `at` is the time in ISO 8601, UTC."""

    seq: int
    at: str
    agent: str | None
    lane: str
    step: str | None
    text: str


@frozen
class Trace(Note):
    """The record of one action: its `kind`, agent, step and outcome (`text`)."""

    kind: str


@frozen
class Branch:
    """A branch of a task's graph. It consists of its own entries in the log, and of its base's entries up to `base_seq`."""

    name: str
    base: str | None
    base_seq: int


class GraphState:
    """The graph, notes and traces of one branch."""

    def __init__(self) -> None:
        self.graph = ReasoningGraph()
        self.notes: list[Note] = []
        self.traces: list[Trace] = []

    def apply_line(self, operations: Sequence[_Record], seq: int, at: str, agent: str | None) -> None:
        """Apply the operations of one line of the log. Call this inside `boundary(…)`.

        Raises GraphError if an operation is impossible; the state is then invalid.
        """
        self.graph.now = at
        with self.graph.replay(seq):
            for operation in operations:
                _apply(self.graph, operation)
        self.graph.now = None
        self.add_entries(operations, seq, at, agent)

    def add_entries(self, operations: Sequence[_Record], seq: int, at: str, agent: str | None) -> None:
        """Add the notes and traces (records of actions) of one line of the log."""
        for op in operations:
            fields = seq, at, agent, op.get("lane", SHARED), op.get("step"), op.get("text", "")
            if op["op"] == "note":
                self.notes.append(Note(*fields))
            elif op["op"] == "trace":
                self.traces.append(Trace(*fields, op["kind"]))


_OPERATIONS: dict[str, Callable[[ReasoningGraph, _Record], object]] = {
    "node": lambda graph, op: graph.add_node(
        op["kind"], op["thought"], op["related_turn_ids"], **card_fields(op.get("meta") or {})
    ),
    "edge": lambda graph, op: graph.add_edge(op["src"], op["dst"], op["rationale"], op.get("relation")),
    "link": lambda graph, op: graph.add_link(op["src"], op["dst"], op["relation"]),
    "set": lambda graph, op: graph.set_fields(op["id"], op["fields"]),
    "flush": lambda graph, op: graph.flush_node(op["id"], op["rationale"]),
    "fold": lambda graph, op: graph.fold_nodes(op["ids"], op["notes"], op["rationale"]),
    "unfold": lambda graph, op: graph.unfold(op["id"]),
    "merge": lambda graph, op: apply_merge(graph, op),
}
_OTHER_OPERATIONS = ("note", "trace", "branch", "branch_deleted", "commit", "abort")  # do not change the graph


def _apply(graph: ReasoningGraph, op: _Record) -> None:
    if op["op"] in ("node", "fold"):
        graph.next_id = op["id"]
    if op["op"] in _OPERATIONS:
        _OPERATIONS[op["op"]](graph, op)
    elif op["op"] not in _OTHER_OPERATIONS:
        raise GraphError(f"this program does not know the operation {op['op']!r}")


def _highest_id(operations: Sequence[_Record]) -> int:
    """Return the highest id among the nodes that the operations create; 0 if they create none."""
    return max((op["id"] for op in operations if op.get("op") in ("node", "fold")), default=0)


class History:
    """A graph's log and the states of its branches. A state is built at first use, and updated line by line."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._reset()

    def _reset(self) -> None:
        self._epoch = self.log.epoch
        self.branches = {MAIN: Branch(MAIN, None, 0)}
        self.deleted: set[str] = set()
        self.pending: dict[str, _Record] = {}
        self._merges: list[dict[str, Any]] = []
        self.next_id = 1
        self._states = {MAIN: GraphState()}  # built from the first line on: opening reads the file once

    def refresh(self) -> None:
        """Apply the lines that were added to the log. Raises UserError with the location of a damaged line."""
        records = self.log.read()
        if self.log.seq == 0 and not self.log.is_locked and not os.path.isdir(os.path.dirname(self.log.path)):
            raise FileNotFoundError(errno.ENOENT, "is gone", self.log.path)
        if self._epoch != self.log.epoch:
            self._reset()
        self._apply_all(records)

    def append(self, record: dict[str, Any]) -> None:
        """Write a record as a line of the log, under the log's lock, and apply it."""
        self._apply_all([{"seq": self.log.append(record), **record}])

    def _apply_all(self, records: Iterable[_Record]) -> None:
        try:
            for record in records:
                with self._naming_line(record):
                    self._apply_record(record)
        except BaseException:  # a line may be half applied: the next refresh rebuilds the states
            self.log.rewind()
            raise

    def _apply_record(self, record: _Record) -> None:
        operations, agent = self._effect(record, self.pending)
        state = self._states.get(record["branch"])
        if state is not None:
            state.apply_line(operations, record["seq"], record["at"], agent)
        if "tx" in record:
            self.pending[record["tx"]] = record
            self.next_id = max(self.next_id, _highest_id(record["ops"]) + 1)
        self.register(operations, record["seq"])
        for op in record["ops"]:
            if op["op"] in ("commit", "abort"):
                self.pending.pop(op["tx"], None)

    def state(self, name: str) -> GraphState:
        """Return the current state of a branch. Raises GraphError if there is none."""
        self.refresh()
        self.branch(name)
        if name not in self._states:
            self._states[name] = self.at(name, self.log.seq)
        state = self._states[name]
        if state.graph.operations is None:  # lines of other branches count too, except during a change
            state.graph.seq, state.graph.next_id = self.log.seq, self.next_id
        return state

    def branch(self, name: str) -> Branch:
        """Return the branch with that name. Raises GraphError if there is none."""
        if not isinstance(name, str) or name not in self.branches:
            raise GraphError(f"there is no branch {name!r}", remedy=f"branches: {', '.join(sorted(self.branches))}")
        return self.branches[name]

    def at(self, name: str, seq: int) -> GraphState:
        """Return the state of a branch after line `seq`, read from the file."""
        visible_seqs = dict(self._chain(name, seq))
        state, prepared_lines = GraphState(), dict[str, _Record]()
        highest = 0
        for record in self.log.records():
            if record["seq"] > seq:
                break
            with self._naming_line(record):
                highest = max(highest, _highest_id(record["ops"]))
                if record["seq"] <= visible_seqs.get(record["branch"], 0):
                    operations, agent = self._effect(record, prepared_lines)
                    state.apply_line(operations, record["seq"], record["at"], agent)
                if "tx" in record:
                    prepared_lines[record["tx"]] = record
        state.graph.next_id, state.graph.seq = highest + 1, seq
        return state

    def merge_bases(self, source: str, into: str) -> tuple[ReasoningGraph, ReasoningGraph]:
        """Return the graphs of both branches at their last merge. If they never merged, return twice the graph from
        which both branched off."""
        for merge in reversed(self._merges):
            if {merge["from"], merge["into"]} == {source, into}:
                seqs = {merge["from"]: merge["from_seq"], merge["into"]: merge["seq"]}
                return self.at(source, seqs[source]).graph, self.at(into, seqs[into]).graph
        visible_seqs = dict(self._chain(into, self.log.seq))
        for name, seq in self._chain(source, self.log.seq):
            if name in visible_seqs:
                common = self.at(name, min(seq, visible_seqs[name])).graph
                return common, common
        raise GraphError(f"branches {source!r} and {into!r} have nothing in common")

    def _chain(self, name: str, seq: int) -> list[tuple[str, int]]:
        """Return the branch, its base, the base's base and so on, each with the last seq that is visible in the branch."""
        chain = []
        branch_name: str | None = name
        while branch_name is not None:
            chain.append((branch_name, seq))
            branch = self.branch(branch_name)
            branch_name, seq = branch.base, min(seq, branch.base_seq)
        return chain

    @staticmethod
    def _effect(record: _Record, pending_records: Mapping[str, _Record]) -> tuple[Sequence[_Record], str | None]:
        """Return the operations that take effect with a line, and their agent (None: unknown).

        A prepared line has no effect yet; its operations take effect with the line of its commit.
        """
        if "tx" in record:
            return (), None
        for op in record["ops"]:
            if op["op"] == "commit" and op["tx"] in pending_records:
                prepared = pending_records[op["tx"]]
                return prepared["ops"], prepared.get("agent_id")
        return record["ops"], record.get("agent_id")

    @contextmanager
    def _naming_line(self, record: _Record) -> Iterator[None]:
        """Turn an error in the block into a UserError with the location of the record's line: the file was probably
        edited by hand."""
        line = f"{self.log.path}:{record['seq'] + 1}"
        try:
            with boundary("line of a graph's log", line):
                yield
        except GraphError as error:
            raise UserError(f"does not fit the lines before it ({error.message})", location=line) from None

    def register(self, operations: Sequence[_Record], seq: int) -> None:
        """Record the ids, branches and merges that operations create."""
        self.next_id = max(self.next_id, _highest_id(operations) + 1)
        for op in operations:
            if op["op"] == "branch":
                self.branches[op["name"]] = Branch(op["name"], op["base"], op["base_seq"])
            elif op["op"] == "branch_deleted":
                del self.branches[op["name"]]
                self.deleted.add(op["name"])
            elif op["op"] == "merge":
                self._merges.append({**op, "seq": seq})
