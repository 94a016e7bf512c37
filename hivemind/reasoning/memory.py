"""The memory of a conversation: episodes go into the graph, a context that fits comes out (spec 4; seed 000)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import write
from hivemind.reasoning.ask import CompletingMind, NoAnswer, ask
from hivemind.reasoning.bulk import uncollected
from hivemind.reasoning.context import render
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.messages import Conversation, Message
from hivemind.reasoning.node import SHARED, NodeKind, ReasoningNode, as_lane
from hivemind.reasoning.ops import MemoryPatch
from hivemind.reasoning.prompts import patch_prompt
from hivemind.reasoning.recall import Recall
from hivemind.reasoning.rules import as_notes, parent_for, rule_patch
from hivemind.reasoning.task_graph import TaskGraph
from hivemind.tokens import count_tokens

__all__ = ["ReasoningMemory"]


class ReasoningMemory:
    """Keeps one agent's conversation in a graph.

    `mind` makes patches and folds (None: they are made by rule, with no model). `graph` is a graph, or a task's graph
    on disk that several memories share, each in its own `lane`. `timeout` bounds each question to the mind, in seconds.
    With `background`, episodes are put into the graph by a thread beside the agent: `flush` waits for it.
    """

    def __init__(
        self,
        mind: CompletingMind | None = None,
        token_counter: Callable[[str], int] = count_tokens,
        max_tokens: int = 100_000,
        *,
        graph: ReasoningGraph | TaskGraph | None = None,
        lane: str = SHARED,
        step: str | None = None,
        agent_id: str | None = None,
        timeout: float | None = None,
        background: bool = False,
    ) -> None:
        # a mind that says that it works by rule has no JSON to give
        self.mind = None if getattr(mind, "by_rule", False) else mind
        self.token_counter = token_counter
        self.max_tokens = max_tokens
        self.lane = as_lane(lane)
        self.step = step
        self.agent_id = agent_id
        self.timeout = timeout
        self._holder: ReasoningGraph | TaskGraph = ReasoningGraph() if graph is None else graph
        self._talk = Conversation()
        self._costs: dict[int, int] = {}
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._background = background
        self._worker: threading.Thread | None = None
        self._closing = False
        self._problem: UserError | None = None

    # -- what there is -----------------------------------------------------------------------------------------

    @property
    def graph(self) -> ReasoningGraph:
        """The graph, for reading."""
        return self._holder.graph if isinstance(self._holder, TaskGraph) else self._holder

    @property
    def messages(self) -> list[Message]:
        """The whole conversation as it was said; change nothing in it."""
        return self._talk.messages

    @property
    def turn_ids(self) -> list[int]:
        """The ids of the messages, in their order."""
        return self._talk.turn_ids

    def context(self) -> list[Message]:
        """The messages as the graph leaves them, whatever they cost."""
        with self._lock:
            return render(self._talk, self.graph, self.lane).messages

    @contextmanager
    def _change(self) -> Iterator[ReasoningGraph]:
        with self._lock:
            if isinstance(self._holder, TaskGraph):
                with self._holder.change(self.agent_id) as graph:
                    yield graph
            else:
                with self._holder.transaction() as graph:
                    yield graph

    # -- taking in ---------------------------------------------------------------------------------------------

    def init_memory(self, task: str) -> ReasoningNode:
        """Make the task node. Raises GraphError the second time."""
        with self._change() as graph:
            if graph.root is not None:
                raise GraphError("the memory has its task already")
            return graph.add_node(NodeKind.TASK, task)

    def memorize(self, messages: Sequence[Mapping[str, Any]]) -> list[ReasoningNode]:
        """Take new messages in and put every finished episode into the graph; gives the new nodes.

        In the background it returns at once, with none. An assistant turn without an answer waits for it. Raises
        GraphError for what is no message (nothing is taken in then), UserError if the graph can't be written (the
        episode stays, and is put into the graph at the next call).
        """
        if self.graph.root is None:
            raise GraphError("the memory has no task yet", mend="call init_memory first")
        with self._news:
            self._take_in(messages)
            self._problem = None
            if self._background:
                self._start()
                self._news.notify_all()
                return []
        return self._work_off()

    def _take_in(self, messages: Iterable[Mapping[str, Any]]) -> None:
        talk, before = self._talk, self._talk.preamble
        talk.add(messages, 0 if talk.turn_ids else self._first_id())
        if talk.preamble > before:
            root = self.graph.root
            assert root is not None
            turns = [*root.related_turn_ids, *talk.turn_ids[before : talk.preamble]]
            with self._change() as graph:
                graph.update_node(root.node_id, related_turn_ids=turns)

    def _first_id(self) -> int:
        """The first id that no node of the graph knows."""
        return max((turn for node in self.graph.nodes.values() for turn in node.related_turn_ids), default=-1) + 1

    def _work_off(self) -> list[ReasoningNode]:
        made: list[ReasoningNode] = []
        while self._talk.todo:
            made += self._put(self._talk.todo[0])
            with self._news:
                self._talk.todo.popleft()
                self._news.notify_all()
        return made

    def _put(self, turns: list[int]) -> list[ReasoningNode]:
        """Put one episode into the graph, one way or another."""
        episode = self._talk.episode(turns)
        if self.mind is None:
            return self._apply(rule_patch(self.graph, episode, self.lane), turns)
        prompt = patch_prompt(self.graph, self.lane, episode)
        try:
            return ask(self.mind, prompt, MemoryPatch, lambda patch: self._apply(patch, turns), timeout=self.timeout)
        except NoAnswer as problem:
            return self._keep_whole(episode, turns, problem.reasons[-1])

    def _apply(self, patch: MemoryPatch, turns: list[int]) -> list[ReasoningNode]:
        if not patch.add_nodes:
            raise GraphError("the patch adds no node, so the episode would be lost")
        with self._change() as graph:
            return graph.apply_patch(patch, turns, lane=self.lane, step=self.step)

    def _keep_whole(self, episode: list[Message], turns: list[int], reason: str) -> list[ReasoningNode]:
        with self._change() as graph:
            node = graph.add_node(
                NodeKind.EVIDENCE,
                as_notes(episode),
                turns,
                lane=self.lane,
                step=self.step,
                tags=("unstructured",),
                meta={"unstructured": reason},
            )
            graph.add_edge(parent_for(graph, self.lane), node.node_id, "support: kept whole")
        return [node]

    # -- beside the agent --------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._worker is None:
            self._closing = False
            self._worker = threading.Thread(target=self._run, name="reasoning-memory", daemon=True)
            self._worker.start()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._closing or (self._talk.todo and self._problem is None))
                if self._closing:
                    return
            try:
                self._work_off()
            except UserError as problem:  # told to whoever waits; the episode is still there
                with self._news:
                    self._problem = problem
                    self._news.notify_all()

    def flush(self) -> None:
        """Wait until every finished episode is in the graph. Raises what kept one from it (a full disk, for instance)."""
        with self._news:
            if self._worker is None:
                self._work_off()
                return
            self._news.wait_for(lambda: not self._talk.todo or self._problem is not None)
            if self._problem is not None:
                raise self._problem

    def close(self) -> None:
        """Wait as `flush` does, and end the thread."""
        try:
            self.flush()
        finally:
            with self._news:
                self._closing = True
                self._news.notify_all()
            if self._worker is not None:
                self._worker.join()
                self._worker = None

    def __enter__(self) -> ReasoningMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- giving back -------------------------------------------------------------------------------------------

    def recall(self, max_tokens: int | None = None) -> list[Message]:
        """The messages of a context of at most `max_tokens` (default: the memory's), counted as their `json.dumps`.

        What is too much is folded and flushed: by the mind as long as it helps, else by rule. Raises BudgetTooSmall,
        and then nothing has changed.
        """
        recall = Recall(
            self._talk,
            lambda: self.graph,
            self._change,
            self.token_counter,
            lane=self.lane,
            budget=self.max_tokens if max_tokens is None else max_tokens,
            costs=self._costs,
        )
        with self._lock:
            messages = recall.fits()
            if messages is None:
                self.flush()  # an episode that is not in the graph can't be folded
                recall.check()
                if self.mind is not None:
                    recall.by_mind(self.mind, self.timeout)
                messages = recall.fits() or recall.by_rule()
            return messages

    # -- on disk -----------------------------------------------------------------------------------------------

    def save_memory(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        """Write the snapshot and the messages, whole or not at all. Raises UserError if the file can't be written."""
        self.flush()
        with self._lock, uncollected():
            record = {**self.graph.to_dict(), **self._talk.to_dict()}
            text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        try:
            write(path, text + "\n", durable=durable)
        except OSError as error:
            raise UserError(f"cannot be written ({error.strerror})", where=path) from None

    def load_memory(self, path: str | os.PathLike[str]) -> None:
        """Take the place of what is here: from `save_memory`, from a bare seed snapshot, or one in `{"memory": …}`.

        A memory on a task's graph takes the messages only: its graph is the task's log. Raises UserError for a file that
        can't be read, UnknownVersion for another version; then nothing has changed and the file stays.
        """
        record = _read(path)
        try:
            graph, talk = ReasoningGraph.from_dict(record), Conversation.from_dict(record)
        except UserError as error:
            kind = UnknownVersion if isinstance(error, UnknownVersion) else GraphError
            raise kind(error.what, where=path, mend=error.mend or "the file was left as it is") from None
        with self._lock:
            self._talk = talk
            self._costs.clear()
            if not isinstance(self._holder, TaskGraph):
                self._holder = graph


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            text = file.read()
        with uncollected():
            record = json.loads(text)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from None
    except ValueError as error:
        raise UserError(f"is damaged ({error})", where=path, mend="the file was left as it is") from None
    if isinstance(record, dict) and isinstance(record.get("memory"), dict):
        record = record["memory"]
    if not isinstance(record, dict):
        raise UserError("is no memory", where=path, mend="the file was left as it is")
    return record
