"""The graph of a task on disk: several agents write it, each in its lane, under the task's lock (spec 4)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, Unpack

from hivemind.errors import UserError
from hivemind.fs import Log, reached, write
from hivemind.names import check_name
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.graph_log import LOG_NAME, MAIN, Branch, History, MergeReport, Note, Trace, compare, put
from hivemind.reasoning.node import SHARED, GraphError, ReasoningNode, as_lane

Guard = Callable[[Sequence[str]], AbstractContextManager[object]]
SNAPSHOT_NAME = "graph.json"


class Said(TypedDict, total=False):
    """Who said a note or did an action, in which lane, of which step."""

    agent_id: str | None
    lane: str
    step: str | None


class TaskGraph:
    """One task's graph, notes and trace, in the task's folder. Holds no file open between calls; threads may share it.

    `committed` tells whether the journal has the event of a transaction that spans two stores. `guard` is called under the
    task's lock with the steps that a change touches; the context manager that it returns is held while the line is
    written. It refuses by raising, and keeps the steps' leases where they are until the line is in the file.

    With `durable` a change is on the disk when the call returns; with `lazy` too, after `sync`, a change with a commit or
    `save_snapshot`: for callers that call `sync` before they write anything that depends on it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        branch: str = MAIN,
        durable: bool = True,
        lazy: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        committed: Callable[[str], bool] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._history = History(Log(self.folder / LOG_NAME, "graph-log", 1, numbered=True, durable=durable, lazy=lazy))
        self._clock = clock
        self._committed = committed
        self._guard = guard
        self._mutex = threading.RLock()
        self._changing: ReasoningGraph | None = None
        self.branch = MAIN
        if branch != MAIN:
            self.checkout(branch)

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """One thread at a time; if the task's folder is gone, the error says so."""
        with self._mutex:
            try:
                yield
            except FileNotFoundError as error:
                if error.filename not in (self._history.log.path, os.path.dirname(self._history.log.path)):
                    raise
                mend = "open the task where it is now"
                raise UserError("the task's folder is gone", where=self.folder, mend=mend) from None

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def graph(self) -> ReasoningGraph:
        """The graph as it is now, for reading; what others wrote since is in it. Costs a stat if nothing is new."""
        with self._opened():
            if self._changing is not None:
                return self._changing
            return self._history.state(self.branch).graph

    @property
    def seq(self) -> int:
        """The number of the log's last line: what `at` takes, and what ages cards."""
        with self._opened():
            self._history.refresh()
            return self._history.log.seq

    def at(self, seq: int, branch: str | None = None) -> ReasoningGraph:
        """The graph as it was after line `seq` of the log, a copy of its own. Raises GraphError for a seq not reached."""
        with self._opened():
            self._history.refresh()
            if not 0 <= seq <= self._history.log.seq:
                raise GraphError(f"there is no seq {seq}; the last is {self._history.log.seq}")
            return self._history.at(branch or self.branch, seq).graph

    def notes(self) -> Sequence[Note]:
        """The notes of the branch, oldest first."""
        with self._opened():
            return tuple(self._history.state(self.branch).notes)

    def traces(self) -> Sequence[Trace]:
        """The trace of the branch, oldest first."""
        with self._opened():
            return tuple(self._history.state(self.branch).traces)

    # -- writing -----------------------------------------------------------------------------------------------

    @contextmanager
    def change(
        self, agent_id: str | None = None, *, commit: Callable[[str], object] | None = None
    ) -> Iterator[ReasoningGraph]:
        """The graph to change, under the task's lock: all that is done inside is one line of the log, or none.

        With `commit` the line is written first, then `commit(transaction id)` is called, which writes the journal's
        event with that id, then the line counts. If `commit` raises, nothing has happened; it checks the leases
        itself, as the guard is let go before. Do not enter it while holding the journal's lock. Raises GraphError,
        UserError (disk full, the folder is gone).
        """
        with self._opened():
            if self._changing is not None:
                if commit is not None:
                    raise GraphError("a change with a commit can't lie within another change")
                with self._changing.transaction():
                    yield self._changing
                return
            with self._history.log.locked():
                self._history.refresh()
                self._settle()
                yield from self._locked_change(agent_id, commit)

    def _locked_change(self, agent_id: str | None, commit: Callable[[str], object] | None) -> Iterator[ReasoningGraph]:
        history, log = self._history, self._history.log
        state = history.state(self.branch)
        graph, before, now = state.graph, log.seq, self._time()
        graph.seq = before + (commit is not None)  # a change in two stores counts from its second line
        graph.next_id, graph.now, graph.record = history.next_id, now, []
        self._changing = graph
        try:
            with graph.transaction():
                yield graph
                if graph.record:
                    record = {"at": now, "agent_id": agent_id, "branch": self.branch, "ops": graph.record}
                    self._write(record, commit, self._guarded(graph))
                    state.say(graph.record, log.seq, now, agent_id)
                    history.note(graph.record, log.seq)
        except BaseException:
            if log.seq != before:  # the log is ahead of what is undone here
                log.rewind()  # the next look rebuilds everything from the file
            raise
        finally:
            graph.record = graph.now = self._changing = None
            graph.seq = log.seq

    def _write(
        self,
        record: dict[str, Any],
        commit: Callable[[str], object] | None,
        guard: AbstractContextManager[object],
    ) -> None:
        log = self._history.log
        if commit is None:
            log.append(record, guard=guard)
            return
        name = f"{self.folder.name}:{log.seq + 1}"
        log.append({**record, "tx": name}, guard=guard, now=True)
        reached("graph.commit.prepared")
        try:
            commit(name)
        except BaseException:
            log.append({"at": record["at"], "branch": self.branch, "ops": [{"op": "abort", "tx": name}]})
            raise
        reached("graph.commit.committed")
        log.append({"at": record["at"], "branch": self.branch, "ops": [{"op": "commit", "tx": name}]})

    def _settle(self) -> None:
        """Finish or abandon what a crash left between two stores."""
        if self._committed is None:
            return
        for name, record in list(self._history.pending.items()):
            end = "commit" if self._committed(name) else "abort"
            ops = [{"op": end, "tx": name}]
            self._history.append({"at": self._time(), "branch": record["branch"], "ops": ops})

    def _guarded(self, graph: ReasoningGraph) -> AbstractContextManager[object]:
        """What keeps the steps of the present change from going to others."""
        steps = () if self._guard is None else self._steps(graph)
        return self._guard(steps) if self._guard is not None and steps else nullcontext()

    @staticmethod
    def _steps(graph: ReasoningGraph) -> list[str]:
        """The steps that the present change touches, sorted."""
        operations = graph.record or ()
        steps = {graph.nodes[op["id"]].step for op in operations if op.get("id") in graph.nodes}
        steps |= {op.get("step") for op in operations if op["op"] in ("note", "trace")}
        taken = {name for op in operations if op["op"] == "merge" for name in op["parts"] if name.startswith("node ")}
        steps |= {graph.nodes[int(name.removeprefix("node "))].step for name in taken}
        return sorted(step for step in steps if step is not None)

    def _time(self) -> str:
        return self._clock().astimezone(UTC).isoformat()

    def add_note(self, text: str, **by: Unpack[Said]) -> Note:
        """Write a note down."""
        with self._opened():
            self._say(by, {"op": "note", "text": text})
            return self._history.state(self.branch).notes[-1]

    def add_trace(self, kind: str, text: str, **by: Unpack[Said]) -> Trace:
        """Add an action to the trace."""
        with self._opened():
            self.add_traces([(kind, text)], **by)
            return self._history.state(self.branch).traces[-1]

    def add_traces(self, actions: Iterable[tuple[str, str]], **by: Unpack[Said]) -> None:
        """Add actions (kind, text) to the trace, all or none."""
        self._say(by, *({"op": "trace", "kind": kind, "text": text} for kind, text in actions))

    def _say(self, by: Said, *operations: dict[str, Any]) -> None:
        lane = as_lane(by.get("lane", SHARED))
        with self.change(by.get("agent_id")) as graph:
            for operation in operations:
                graph.note({**operation, "lane": lane, "step": by.get("step")})

    def publish(
        self,
        node_id: int,
        *,
        agent_id: str | None = None,
        commit: Callable[[str], object] | None = None,
        hidden: bool = False,
    ) -> ReasoningNode:
        """The published copy of a draft card (with `hidden` also of one that is folded or flushed); nothing is written if
        it is up to date. Raises GraphError."""
        with self.change(agent_id, commit=commit) as graph:
            return graph.publish(node_id, hidden=hidden)

    def sync(self) -> None:
        """Flush every change to the disk. Raises UserError."""
        with self._opened():
            self._history.log.sync()

    def save_snapshot(self) -> Path:
        """Write graph.json, the seed's snapshot of the graph as it is now; returns its path. The log is on the disk then, the
        snapshot some time later: it can be rebuilt."""
        self.sync()
        path = self.folder / SNAPSHOT_NAME
        try:
            write(path, f"{self.graph.to_json()}\n".encode("utf-8", "surrogatepass"), durable=False)
        except OSError as error:
            raise UserError(f"cannot be written ({error.strerror})", where=path) from None
        return path

    # -- branches ----------------------------------------------------------------------------------------------

    def branches(self) -> list[Branch]:
        """All branches, main first, then by name."""
        with self._opened():
            self._history.refresh()
            known = self._history.branches
            return [known[name] for name in sorted(known, key=lambda name: (name != MAIN, name))]

    def checkout(self, name: str) -> ReasoningGraph:
        """Work on that branch from now on (this object only); returns its graph. Raises GraphError if there is none."""
        with self._opened():
            self._history.refresh()
            self._history.branch(name)
            self.branch = name
            return self.graph

    def create_branch(
        self,
        name: str,
        *,
        base: str | None = None,
        base_seq: int | None = None,
        agent_id: str | None = None,
        commit: Callable[[str, Branch], object] | None = None,
    ) -> Branch:
        """A new branch that sees `base` (default: the current one) up to `base_seq` (default: now). Raises GraphError.

        `commit` gets the id of the change and the branch, and writes the journal's half of it, as for `change`.
        """
        name = check_name(name, "branch name")
        made: Branch
        told = None if commit is None else lambda tx: commit(tx, made)
        with self.change(agent_id, commit=told) as graph:
            history = self._history
            base = history.branch(base or self.branch).name
            base_seq = history.log.seq if base_seq is None else base_seq
            if name in history.branches or name in history.deleted:
                raise GraphError(f"there is, or was, a branch {name!r}", mend="take another name")
            if not history.branches[base].base_seq <= base_seq <= history.log.seq:
                raise GraphError(f"branch {base!r} has no seq {base_seq}")
            made = Branch(name, base, base_seq)
            graph.note({"op": "branch", "name": name, "base": base, "base_seq": base_seq})
        return made

    def merge(
        self,
        source: str,
        *,
        into: str | None = None,
        resolve: str | Mapping[str, str] | None = None,
        dry_run: bool = False,
        agent_id: str | None = None,
        commit: Callable[[str, Sequence[str]], object] | None = None,
    ) -> MergeReport:
        """Bring what changed in `source` since the last merge into `into` (default: the current branch).

        Three-way for each node, edge and link. `resolve` is use_from or use_into for every conflict, or a mapping by the
        conflict's name. With conflicts left, or as a dry run, nothing is written. Raises GraphError.
        `commit` gets the id of the change and the steps that it touches, whose leases it checks while it writes the
        journal's half of it.
        """
        here = self.branch
        with self._opened():
            self.checkout(into or here)
            try:
                told = None if commit is None else lambda tx: commit(tx, self._steps(self.graph))
                with self.change(agent_id, commit=told) as graph:
                    return self._merge(graph, source, resolve, dry_run=dry_run)
            finally:
                self.branch = here

    def _merge(
        self, graph: ReasoningGraph, source: str, resolve: str | Mapping[str, str] | None, *, dry_run: bool
    ) -> MergeReport:
        history, into = self._history, self.branch
        if source == into:
            raise GraphError(f"branch {source!r} into itself")
        base_from, base_into = history.agreed(source, into)
        theirs = history.at(source, history.log.seq).graph
        taken, conflicts, decided = compare((base_from, theirs), (base_into, graph), resolve)
        report = MergeReport(tuple(taken), tuple(conflicts), written=decided and not conflicts and not dry_run)
        if report.written:
            put(graph, {"op": "merge", "from": source, "into": into, "from_seq": history.log.seq, "parts": taken})
        return report
