"""The log of a task's graph, and what it adds up to, branch by branch, at any seq (README.md, *graph.jsonl*)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import Log
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import SHARED, Edge, GraphError, Link, NodeKind, card_of, node_from
from hivemind.reasoning.snapshot import restore

_Parts = dict[str, dict[str, Any]]
_CHOOSE = "choose use_into or use_from"


@frozen
class MergeConflict:
    """Something that both branches changed, each in its way. `name` is `node 7`, `edge 3 → 7` or `link 3 blocks 7`."""

    name: str
    base: dict[str, Any] | None
    use_from: dict[str, Any] | None
    use_into: dict[str, Any] | None


@frozen
class MergeReport:
    """What a merge did, or would do: the names of what it takes over, and the conflicts that are left."""

    taken: tuple[str, ...]
    conflicts: tuple[MergeConflict, ...]
    written: bool


def _parts(graph: ReasoningGraph) -> _Parts:
    """What a graph consists of, by name, as JSON has it: nodes, drawn edges and links. Folding is a field of the node."""
    found: _Parts = {}
    for number, node in graph.nodes.items():
        record = node.as_dict() | {"created_seq": node.created_seq}
        if "folded" in node.meta:
            record["meta"] = {key: value for key, value in record["meta"].items() if key != "folded"}
        if number in graph.folded_into:
            record["folded_into"] = graph.folded_into[number]
        found[f"node {number}"] = record
    found |= {f"edge {edge.src} → {edge.dst}": asdict(edge) for edge in graph.drawn}
    return found | {f"link {link.src} {link.relation} {link.dst}": asdict(link) for link in graph.links.values()}


def compare(
    source: tuple[ReasoningGraph, ReasoningGraph],
    into: tuple[ReasoningGraph, ReasoningGraph],
    resolve: str | Mapping[str, str] | None,
) -> tuple[dict[str, Any], list[MergeConflict], bool]:
    """What of `source` is to be put into `into`, the conflicts left, and whether anything has been decided at all.

    Each branch is given as it was when both last agreed, and as it is now. Raises GraphError for a bad choice.
    """
    (base_from, theirs), (base_into, ours) = map(_parts, source), map(_parts, into)
    taken: dict[str, Any] = {}
    left: list[MergeConflict] = []
    decided = False
    for name in sorted(base_from.keys() | base_into.keys() | theirs.keys() | ours.keys()):
        now_from, now_into = theirs.get(name), ours.get(name)
        if now_from in (base_from.get(name), now_into):
            continue
        choice: str | None = "use_from"
        if now_into != base_into.get(name):
            choice = resolve.get(name) if isinstance(resolve, Mapping) else resolve
            if choice not in (None, "use_from", "use_into"):
                raise GraphError(f"{choice!r} resolves no conflict", mend="say use_from or use_into")
        if choice is None:
            left.append(MergeConflict(name, base_from.get(name), now_from, now_into))
        elif choice == "use_from":
            taken[name] = now_from
        decided = decided or choice is not None
    return taken, left, decided


def put(graph: ReasoningGraph, operation: Mapping[str, Any]) -> None:
    """Put the parts of a merge into a graph (a part that is null goes away). Raises GraphError if it is not sound then."""
    changed: dict[str, list[dict[str, Any]]] = {"node": [], "edge": [], "link": []}
    for name, part in {**_parts(graph), **operation["parts"]}.items():
        if part is not None:
            changed[name.partition(" ")[0]].append(dict(part))
    members: dict[int, list[int]] = {}
    for record in changed["node"]:
        if "folded_into" in record:
            members.setdefault(record["folded_into"], []).append(record["node_id"])
    with boundary("merge of branches"):
        nodes = [node_from(record, record["created_seq"]) for record in changed["node"]]
        edges = [Edge.from_dict(record) for record in changed["edge"]]
        links = [Link(**record) for record in changed["link"]]
    folded = {number for group in members.values() for number in group}
    for node in nodes:
        if node.node_id in members:
            node.meta["folded"] = sorted(members[node.node_id])
        if (node.active is False) != (node.node_id in folded) and node.kind is not NodeKind.TASK:
            raise GraphError(
                f"the merged graph is not sound: node {node.node_id} is folded in one branch and not in the other",
                mend="resolve the nodes of one fold the same way",
            )
    merged = type(graph)()
    try:
        restore(merged, nodes, edges, links)
    except GraphError as error:
        raise GraphError(f"the merged graph is not sound: {error.what}", mend=_CHOOSE) from None
    if not all(merged.is_attached(node.node_id) for node in merged.active()):
        raise GraphError("the merged graph is not sound: a node hangs on nothing", mend=_CHOOSE)
    graph.become(merged)
    graph.note(dict(operation))


LOG_NAME = "graph.jsonl"
MAIN = "main"
_Record = Mapping[str, Any]


@frozen
class Note:
    """What an agent wrote down in plain text. `at` is an ISO time in UTC."""

    seq: int
    at: str
    agent: str | None
    lane: str
    step: str | None
    text: str


@frozen
class Trace(Note):
    """One action: who did what (`kind`), in which step, and how it went."""

    kind: str


@frozen
class Branch:
    """An alternative within one task's graph: it sees its own entries, and its base's up to `base_seq`."""

    name: str
    base: str | None
    base_seq: int


class State:
    """The graph, notes and trace of one branch."""

    def __init__(self) -> None:
        self.graph = ReasoningGraph()
        self.notes: list[Note] = []
        self.traces: list[Trace] = []

    def take(self, operations: Sequence[_Record], seq: int, at: str, agent: str | None) -> None:
        """Apply one line of the log; call it inside a boundary. Raises GraphError if it doesn't fit: the state is no use then."""
        self.graph.now = at
        with self.graph.replay(seq):
            for operation in operations:
                _apply(self.graph, operation)
        self.graph.now = None
        self.say(operations, seq, at, agent)

    def say(self, operations: Sequence[_Record], seq: int, at: str, agent: str | None) -> None:
        """Take in the notes and traces of one line."""
        for op in operations:
            said = seq, at, agent, op.get("lane", SHARED), op.get("step"), op.get("text", "")
            if op["op"] == "note":
                self.notes.append(Note(*said))
            elif op["op"] == "trace":
                self.traces.append(Trace(*said, op["kind"]))


_CHANGES: dict[str, Callable[[ReasoningGraph, _Record], object]] = {
    "node": lambda graph, op: graph.add_node(
        op["kind"], op["thought"], op["related_turn_ids"], **card_of(op.get("meta") or {})
    ),
    "edge": lambda graph, op: graph.add_edge(op["src"], op["dst"], op["rationale"], op.get("relation")),
    "link": lambda graph, op: graph.add_link(op["src"], op["dst"], op["relation"]),
    "set": lambda graph, op: graph.set_fields(op["id"], op["fields"]),
    "flush": lambda graph, op: graph.flush_node(op["id"], op["rationale"]),
    "fold": lambda graph, op: graph.fold_nodes(op["ids"], op["notes"], op["rationale"]),
    "unfold": lambda graph, op: graph.unfold(op["id"]),
    "merge": lambda graph, op: put(graph, op),
}
_BESIDE = ("note", "trace", "branch", "branch_deleted", "commit", "abort")  # no part of the graph


def _apply(graph: ReasoningGraph, op: _Record) -> None:
    if op["op"] in ("node", "fold"):
        graph.next_id = op["id"]
    if op["op"] in _CHANGES:
        _CHANGES[op["op"]](graph, op)
    elif op["op"] not in _BESIDE:
        raise GraphError(f"an operation {op['op']!r} that this program does not know")


def _highest_id(operations: Sequence[_Record]) -> int:
    """The highest id of a node that the operations make, 0 if they make none."""
    return max((op["id"] for op in operations if op.get("op") in ("node", "fold")), default=0)


class History:
    """Follows a log. Builds a branch when it is first asked for, and keeps it up to date line by line."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._start()

    def _start(self) -> None:
        self._epoch = self.log.epoch
        self.branches = {MAIN: Branch(MAIN, None, 0)}
        self.deleted: set[str] = set()
        self.pending: dict[str, _Record] = {}
        self._merges: list[dict[str, Any]] = []
        self.next_id = 1
        self._states = {MAIN: State()}  # built from the first line on, so that opening reads the file once

    def refresh(self) -> None:
        """Take in what is new. Raises UserError naming a damaged line."""
        records = self.log.read()
        if self.log.seq == 0 and not os.path.isdir(os.path.dirname(self.log.path)):
            raise FileNotFoundError(errno.ENOENT, "is gone", self.log.path)
        if self._epoch != self.log.epoch:
            self._start()
        self._take_all(records)

    def append(self, record: dict[str, Any]) -> None:
        """Write a line under the lock and take it in as if it had been read."""
        self._take_all([{"seq": self.log.append(record), **record}])

    def _take_all(self, records: Iterable[_Record]) -> None:
        try:
            for record in records:
                with self._readable(record):
                    self._take(record)
        except BaseException:  # half of a line may be in the states: the next look builds them anew
            self.log.rewind()
            raise

    def _take(self, record: _Record) -> None:
        operations, agent = self._effect(record, self.pending)
        state = self._states.get(record["branch"])
        if state is not None:
            state.take(operations, record["seq"], record["at"], agent)
        if "tx" in record:
            self.pending[record["tx"]] = record
            self.next_id = max(self.next_id, _highest_id(record["ops"]) + 1)
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
        if state.graph.record is None:  # lines of other branches count too; not while it is being changed
            state.graph.seq, state.graph.next_id = self.log.seq, self.next_id
        return state

    def branch(self, name: str) -> Branch:
        """The branch of that name. Raises GraphError if there is none."""
        if not isinstance(name, str) or name not in self.branches:
            raise GraphError(f"there is no branch {name!r}", mend=f"branches: {', '.join(sorted(self.branches))}")
        return self.branches[name]

    def at(self, name: str, seq: int) -> State:
        """The state of a branch after line `seq`, read from the file."""
        until = dict(self._chain(name, seq))
        state, pending = State(), dict[str, _Record]()
        highest = 0
        for record in self.log.records():
            if record["seq"] > seq:
                break
            with self._readable(record):
                highest = max(highest, _highest_id(record["ops"]))
                if record["seq"] <= until.get(record["branch"], 0):
                    operations, agent = self._effect(record, pending)
                    state.take(operations, record["seq"], record["at"], agent)
                if "tx" in record:
                    pending[record["tx"]] = record
        state.graph.next_id, state.graph.seq = highest + 1, seq
        return state

    def agreed(self, source: str, into: str) -> tuple[ReasoningGraph, ReasoningGraph]:
        """Both branches as they were when they last agreed: at their last merge, or where they parted."""
        for merge in reversed(self._merges):
            if {merge["from"], merge["into"]} == {source, into}:
                seqs = {merge["from"]: merge["from_seq"], merge["into"]: merge["seq"]}
                return self.at(source, seqs[source]).graph, self.at(into, seqs[into]).graph
        seen = dict(self._chain(into, self.log.seq))
        for name, seq in self._chain(source, self.log.seq):
            if name in seen:
                common = self.at(name, min(seq, seen[name])).graph
                return common, common
        raise GraphError(f"branches {source!r} and {into!r} have nothing in common")

    def _chain(self, name: str, seq: int) -> list[tuple[str, int]]:
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
        self.next_id = max(self.next_id, _highest_id(operations) + 1)
        for op in operations:
            if op["op"] == "branch":
                self.branches[op["name"]] = Branch(op["name"], op["base"], op["base_seq"])
            elif op["op"] == "branch_deleted":
                del self.branches[op["name"]]
                self.deleted.add(op["name"])
            elif op["op"] == "merge":
                self._merges.append({**op, "seq": seq})
