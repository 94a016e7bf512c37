"""The graph of a task on disk. Several agents write it, each in its lane, under the task's lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, Unpack

from hivemind.errors import UserError
from hivemind.fs import Log, crash_point, write
from hivemind.names import check_name
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.graph_log import LOG_NAME, MAIN, Branch, History, Note, Trace
from hivemind.reasoning.merging import MergeReport, merge_branches
from hivemind.reasoning.node import SHARED, GraphError, ReasoningNode, as_lane

Guard = Callable[[Sequence[str]], AbstractContextManager[object]]
SNAPSHOT_NAME = "graph.json"


class LogFields(TypedDict, total=False):
    """The agent that wrote a note or an action, its lane and its step."""

    agent_id: str | None
    lane: str
    step: str | None


class TaskGraph:
    """One task's graph, notes and traces, in the task's folder. Threads may share it. No file stays open between calls.

    A change with a commit is a transaction over log and journal. `is_committed` returns True if the journal contains the
    event of the transaction with this id. `guard` is called under the task's lock with the steps that a change touches.
    It returns a context manager, which is entered while the log's line is written. The context manager raises to refuse
    the change, and blocks changes of the steps' leases.

    In a durable hive a change is on disk when the call returns. With `lazy`, it is on disk only after `sync`,
    `save_snapshot` or a change with a commit.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        branch: str = MAIN,
        lazy: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        is_committed: Callable[[str], bool] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._history = History(Log(self.folder / LOG_NAME, "graph-log", 1, numbered=True, lazy=lazy))
        self._clock = clock
        self._is_committed = is_committed
        self._guard = guard
        self._mutex = threading.RLock()
        self._changing_graph: ReasoningGraph | None = None
        self.branch = MAIN
        if branch != MAIN:
            self.checkout(branch)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Exclude other threads during the block. Raises UserError if the task's folder is gone."""
        with self._mutex:
            try:
                yield
            except FileNotFoundError as error:
                if error.filename not in (self._history.log.path, os.path.dirname(self._history.log.path)):
                    raise
                remedy = "open the task at its current place"
                raise UserError("the task's folder is gone", location=self.folder, remedy=remedy) from None

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def graph(self) -> ReasoningGraph:
        """The current graph, for reading. It includes the changes of other processes. Costs one stat if there are none."""
        with self._exclusive():
            if self._changing_graph is not None:
                return self._changing_graph
            return self._history.state(self.branch).graph

    @property
    def seq(self) -> int:
        """The number of the log's last line. It serves as the clock: `at` takes it, and the age of cards is counted in lines."""
        with self._exclusive():
            self._history.refresh()
            return self._history.log.seq

    def at(self, seq: int, branch: str | None = None) -> ReasoningGraph:
        """Return a copy of a branch's graph (None: the current branch) after line `seq` of the log. Raises GraphError
        for a seq beyond the last line."""
        with self._exclusive():
            self._history.refresh()
            if not 0 <= seq <= self._history.log.seq:
                raise GraphError(f"there is no seq {seq}; the last is {self._history.log.seq}")
            return self._history.at(branch or self.branch, seq).graph

    def notes(self) -> Sequence[Note]:
        """Return the notes of the branch, oldest first."""
        with self._exclusive():
            return tuple(self._history.state(self.branch).notes)

    def traces(self) -> Sequence[Trace]:
        """Return the traces of the branch, oldest first."""
        with self._exclusive():
            return tuple(self._history.state(self.branch).traces)

    # -- writing -----------------------------------------------------------------------------------------------

    @contextmanager
    def change(
        self, agent_id: str | None = None, *, commit: Callable[[str], object] | None = None
    ) -> Iterator[ReasoningGraph]:
        """Change the graph under the task's lock. All changes in the block are one line of the log; if it raises, none is made.

        With `commit` the line is prepared first. Then `commit(transaction id)` is called, which writes the journal's
        event with that id; then the line takes effect. If `commit` raises, the line is aborted. The guard is released
        before `commit` is called, so `commit` must check the leases. Do not enter while holding the journal's lock. Raises
        GraphError, or UserError (disk full, the folder is gone).
        """
        with self._exclusive():
            if self._changing_graph is not None:
                if commit is not None:
                    raise GraphError("a change with a commit can't be nested in another change")
                with self._changing_graph.transaction():
                    yield self._changing_graph
                return
            with self._history.log.locked():
                self._history.refresh()
                self._settle_pending()
                yield from self._locked_change(agent_id, commit)

    def _locked_change(self, agent_id: str | None, commit: Callable[[str], object] | None) -> Iterator[ReasoningGraph]:
        history, log = self._history, self._history.log
        state = history.state(self.branch)
        graph, last_seq, now = state.graph, log.seq, self._time()
        graph.seq = last_seq + (commit is not None)  # a change in two stores takes effect with its second line
        graph.next_id, graph.now, graph.operations = history.next_id, now, []
        self._changing_graph = graph
        try:
            with graph.transaction():
                yield graph
                if graph.operations:
                    record = {"at": now, "agent_id": agent_id, "branch": self.branch, "ops": graph.operations}
                    self._write(record, commit, self._step_guard(graph))
                    state.add_entries(graph.operations, log.seq, now, agent_id)
                    history.register(graph.operations, log.seq)
        except BaseException:
            if log.seq != last_seq:  # the log has lines that are undone in memory
                log.rewind()  # the next refresh rebuilds the state from the file
            raise
        finally:
            graph.operations = graph.now = self._changing_graph = None
            graph.seq = log.seq

    def _write(
        self, record: dict[str, Any], commit: Callable[[str], object] | None, guard: AbstractContextManager[object]
    ) -> None:
        log = self._history.log
        if commit is None:
            log.append(record, guard=guard)
            return
        name = f"{self.folder.name}:{log.seq + 1}"
        log.append({**record, "tx": name}, guard=guard, sync_now=True)
        crash_point("graph.commit.prepared")
        try:
            commit(name)
        except BaseException:
            log.append({"at": record["at"], "branch": self.branch, "ops": [{"op": "abort", "tx": name}]})
            raise
        crash_point("graph.commit.committed")
        log.append({"at": record["at"], "branch": self.branch, "ops": [{"op": "commit", "tx": name}]})

    def _settle_pending(self) -> None:
        """Decide each transaction over log and journal that a crash interrupted: commit it if the journal has its
        event, else abort it."""
        if self._is_committed is None:
            return
        for name, record in list(self._history.pending.items()):
            end = "commit" if self._is_committed(name) else "abort"
            ops = [{"op": end, "tx": name}]
            self._history.append({"at": self._time(), "branch": record["branch"], "ops": ops})

    def _step_guard(self, graph: ReasoningGraph) -> AbstractContextManager[object]:
        """Call `guard` with the steps that the current change touches, and return its context manager."""
        steps = () if self._guard is None else self._touched_steps(graph)
        return self._guard(steps) if self._guard is not None and steps else nullcontext()

    @staticmethod
    def _touched_steps(graph: ReasoningGraph) -> list[str]:
        """Return the steps that the current change touches, sorted."""
        operations = graph.operations or ()
        steps = {graph.nodes[op["id"]].step for op in operations if op.get("id") in graph.nodes}
        steps |= {op.get("step") for op in operations if op["op"] in ("note", "trace")}
        merged_nodes = {
            name for op in operations if op["op"] == "merge" for name in op["parts"] if name.startswith("node ")
        }
        steps |= {graph.nodes[int(name.removeprefix("node "))].step for name in merged_nodes}
        return sorted(step for step in steps if step is not None)

    def _time(self) -> str:
        return self._clock().astimezone(UTC).isoformat()

    def add_note(self, text: str, **by: Unpack[LogFields]) -> Note:
        """Add a note of the agent, lane and step in `by`, and return it."""
        with self._exclusive():
            self._add_entries(by, {"op": "note", "text": text})
            return self._history.state(self.branch).notes[-1]

    def add_trace(self, kind: str, text: str, **by: Unpack[LogFields]) -> Trace:
        """Add the record of an action, and return it."""
        with self._exclusive():
            self.add_traces([(kind, text)], **by)
            return self._history.state(self.branch).traces[-1]

    def add_traces(self, actions: Iterable[tuple[str, str]], **by: Unpack[LogFields]) -> None:
        """Add the records of several actions (kind, text), all or none."""
        self._add_entries(by, *({"op": "trace", "kind": kind, "text": text} for kind, text in actions))

    def _add_entries(self, by: LogFields, *operations: dict[str, Any]) -> None:
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
        """Publish a draft card, and return its copy in the shared lane. `hidden` allows a folded or flushed card.

        A copy that is up to date is not written again. Raises GraphError.
        """
        with self.change(agent_id, commit=commit) as graph:
            return graph.publish(node_id, hidden=hidden)

    def sync(self) -> None:
        """Write all postponed changes through to the disk. Raises UserError."""
        with self._exclusive():
            self._history.log.sync()

    def save_snapshot(self, *, sync: bool = True) -> Path:
        """Write graph.json, the snapshot of the current graph, and return its path.

        With `sync`, the log is on disk when the call returns. The new file's name is on disk only after the next sync of
        the folder.
        """
        if sync:
            self.sync()
        path = self.folder / SNAPSHOT_NAME
        try:
            write(path, f"{self.graph.to_json()}\n".encode("utf-8", "surrogatepass"), sync_name=False)
        except OSError as error:
            raise UserError(f"cannot be written ({error.strerror})", location=path) from None
        return path

    # -- branches ----------------------------------------------------------------------------------------------

    def branches(self) -> list[Branch]:
        """Return all branches, main first, then by name."""
        with self._exclusive():
            self._history.refresh()
            branches = self._history.branches
            return [branches[name] for name in sorted(branches, key=lambda name: (name != MAIN, name))]

    def checkout(self, name: str) -> ReasoningGraph:
        """Switch this object to a branch, and return its graph. Raises GraphError if there is none with that name."""
        with self._exclusive():
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
        """Create a branch, and return it. It begins with the state of `base` (None: the current branch) after line
        `base_seq` (None: the last line).

        `commit` is called with the transaction id and the branch, and writes the journal's event, as for `change`.
        Raises GraphError.
        """
        name = check_name(name, "branch name")
        branch: Branch
        commit_branch = None if commit is None else lambda tx: commit(tx, branch)
        with self.change(agent_id, commit=commit_branch) as graph:
            history = self._history
            base = history.branch(base or self.branch).name
            base_seq = history.log.seq if base_seq is None else base_seq
            if name in history.branches or name in history.deleted:
                raise GraphError(f"there is or was a branch {name!r}", remedy="choose another name")
            if not history.branches[base].base_seq <= base_seq <= history.log.seq:
                raise GraphError(f"branch {base!r} has no seq {base_seq}")
            branch = Branch(name, base, base_seq)
            graph.note({"op": "branch", "name": name, "base": base, "base_seq": base_seq})
        return branch

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
        """Merge the changes of `source` since the last merge into `into` (default: the current branch).

        Each node, edge and link is merged three-way. `resolve` is use_from or use_into for all conflicts, or maps the names
        of conflicts to these words. Writes no line if conflicts remain, or in a dry run. `commit` is called with the
        transaction id and the steps that the merge touches; it checks their leases while it writes the journal's event.
        Raises GraphError.
        """
        current_branch = self.branch
        with self._exclusive():
            self.checkout(into or current_branch)
            try:
                commit_merge = None if commit is None else lambda tx: commit(tx, self._touched_steps(self.graph))
                with self.change(agent_id, commit=commit_merge) as graph:
                    return self._merge(graph, source, resolve, dry_run=dry_run)
            finally:
                self.branch = current_branch

    def _merge(
        self, graph: ReasoningGraph, source: str, resolve: str | Mapping[str, str] | None, *, dry_run: bool
    ) -> MergeReport:
        history, into = self._history, self.branch
        if source == into:
            raise GraphError(f"branch {source!r} cannot be merged into itself")
        base_from, base_into = history.merge_bases(source, into)
        source_graph = history.at(source, history.log.seq).graph
        operation = {"op": "merge", "from": source, "into": into, "from_seq": history.log.seq}
        return merge_branches((base_from, source_graph), (base_into, graph), operation, resolve, dry_run=dry_run)
