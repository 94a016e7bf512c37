"""The memory of a conversation: episodes go into the graph, a context that fits comes out (spec 4; seed 000)."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from hivemind.boundary import boundary
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import write
from hivemind.reasoning.ask import CompletingMind, NoAnswer, ask, patch_prompt
from hivemind.reasoning.context import LAST_TURNS, Context, render
from hivemind.reasoning.conversation import Conversation, Message, as_notes
from hivemind.reasoning.errors import GraphError, a_list, a_path, a_whole_number
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import SHARED, NodeKind, ReasoningNode, as_lane
from hivemind.reasoning.patch import MemoryPatch
from hivemind.reasoning.recall import Recall
from hivemind.reasoning.rules import FRUITLESS, parent_for, rule_patch
from hivemind.reasoning.snapshot import uncollected
from hivemind.reasoning.task_graph import TaskGraph
from hivemind.tokens import count_tokens

__all__ = ["Place", "ReasoningMemory"]

_LEFT = "the file was left as it is"


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of an episode beforehand: the node that it belongs below, and whether it led to nothing.

    A mind is told the first; the rule obeys both: what was fruitless is the first to go once its step is closed.
    """

    below: int | None = None
    fruitless: bool = False


_ANYWHERE = Place()


class ReasoningMemory:
    """Keeps one agent's conversation in a graph.

    `mind` makes patches and folds (None: they are made by rule, with no model). `graph` is a graph, or a task's graph
    on disk that several memories share, each in its own `lane`. `timeout` bounds each question to the mind, in seconds.
    With `background`, episodes are put into the graph by a thread beside the agent: `flush` waits for it, and `recall` for
    `grace` seconds if it must fold what a mind has not answered yet; then the rule does it.

    `only` says that the graph has this conversation and no other, whatever lanes its nodes are in. `last_turns` turns
    are always shown; with a `last_share` below 1 they are excerpted where they are more than that of the budget, so that
    one long turn does not push out all that was before.
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
        only: bool = False,
        last_turns: int = LAST_TURNS,
        last_share: float = 1.0,
        grace: float = 2.0,
    ) -> None:
        # a mind that says that it works by rule has no JSON to give
        self.mind = None if getattr(mind, "by_rule", False) else mind
        self.token_counter = token_counter
        self.max_tokens = a_whole_number(max_tokens, "a budget", 0)
        self.lane = as_lane(lane)
        self.step = step
        self.agent_id = agent_id
        self.timeout = timeout
        self.last_turns = last_turns
        self.last_share = last_share
        self.grace = grace
        self._seen = None if only else self.lane
        self._places: dict[int, Place] = {}  # of episodes that wait, by their first turns
        self._holder: ReasoningGraph | TaskGraph = ReasoningGraph() if graph is None else graph
        self._talk = Conversation()
        self._costs: dict[int, int] = {}
        self._news = threading.Condition(threading.RLock())  # held by who changes the conversation, or looks at it
        self._background = background
        self._worker: threading.Thread | None = None
        self._closing = False
        self._problem: UserError | None = None  # what stopped the worker, until somebody has been told

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
        with self._news:
            return render(self._talk, self.graph, self._seen, last=self.last_turns).messages

    @contextmanager
    def _change(self) -> Iterator[ReasoningGraph]:
        holder = self._holder
        with (
            self._news,
            holder.change(self.agent_id) if isinstance(holder, TaskGraph) else holder.transaction() as graph,
        ):
            yield graph

    # -- taking in ---------------------------------------------------------------------------------------------

    def init_memory(self, task: str) -> ReasoningNode:
        """Make the task node. Raises GraphError the second time."""
        with self._change() as graph:
            if graph.root is not None:
                raise GraphError("the memory has its task already")
            return graph.add_node(NodeKind.TASK, task)

    def memorize(self, messages: Sequence[Mapping[str, Any]]) -> list[ReasoningNode]:
        """Take new messages in and put every finished episode into the graph; returns the new nodes.

        In the background it returns at once, with none. An assistant turn without an answer waits for it. Raises GraphError
        for what is not a message (nothing is taken in then), UserError if the graph can't be written (the episode stays, and
        is put into the graph at the next call).
        """
        with self._news:
            self._take_in(a_list(messages, "messages"), None)
        return self._put_waiting()

    def resume(
        self, messages: Sequence[Mapping[str, Any]], turn_ids: Sequence[int], places: Mapping[int, Place] | None = None
    ) -> None:
        """Take in what was said before, under the ids that it had, into a memory that has heard nothing yet.

        Episodes that no node has are put into the graph; `places`, by an episode's first turn, are what is known of them.
        Raises as `memorize` does.
        """
        with self._news:
            if self._talk.messages:
                raise GraphError("the memory has a conversation already")
            self._take_in(messages, turn_ids)
            known = {turn for node in self.graph.nodes.values() for turn in node.related_turn_ids}
            self._talk.todo = deque(turns for turns in self._talk.todo if known.isdisjoint(turns))
            self._places.update(places or {})
        self._put_waiting()

    def _take_in(self, messages: Sequence[Mapping[str, Any]], turn_ids: Sequence[int] | None) -> None:
        root = self.graph.root
        if root is None:
            raise GraphError("the memory has no task yet", mend="call init_memory first")
        talk, before, first = self._talk, self._talk.preamble, 0
        if not talk.messages:  # the first id that no node of the graph knows
            turns = (turn for node in self.graph.nodes.values() for turn in node.related_turn_ids)
            first = max(turns, default=-1) + 1
        talk.add(messages, first, turn_ids)
        if talk.preamble > before:
            self.give([root.node_id], talk.turn_ids[before : talk.preamble])

    def give(self, nodes: Iterable[int], turns: Sequence[int]) -> bool:
        """Attach turns to those of the nodes that are active; False if none is. Raises UserError."""
        active = [node for node in map(self.graph.nodes.get, nodes) if node is not None and node.active is True]
        lacking = [node for node in active if not set(turns).issubset(node.related_turn_ids)]
        if lacking:
            with self._change() as graph:
                for node in lacking:
                    graph.update_node(node.node_id, related_turn_ids=sorted({*node.related_turn_ids, *turns}))
        return bool(active)

    # -- episodes into the graph -------------------------------------------------------------------------------

    def _put_waiting(self) -> list[ReasoningNode]:
        """Put what waits into the graph: now, or beside the agent."""
        if self._background:
            with self._news:
                self._problem = None
                if self._worker is None:
                    self._closing = False
                    self._worker = threading.Thread(target=self._work, name="reasoning-memory", daemon=True)
                    self._worker.start()
                self._news.notify_all()
            return []
        return self._put_all()

    def _put_all(self) -> list[ReasoningNode]:
        made: list[ReasoningNode] = []
        while self._talk.todo:
            made += self._put(self._talk.todo[0])
        return made

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._closing or (self._talk.todo and self._problem is None))
                if self._closing:
                    return
                turns = self._talk.todo[0]
            try:
                self._put(turns)
            except UserError as problem:  # told to who waits; what is to do is still there
                with self._news:
                    self._problem = problem
                    self._news.notify_all()

    def _put(self, turns: list[int]) -> list[ReasoningNode]:
        """Put one episode into the graph, one way or another."""
        if self.mind is None:
            return self._put_by_rule(turns)
        episode = self._talk.episode(turns)
        with self._holder.still() as graph:
            below = None if self._place(turns).below is None else self._parent(graph, turns)
            prompt = patch_prompt(graph, self.lane, episode, below)
        try:
            return ask(self.mind, prompt, MemoryPatch, lambda patch: self._apply(patch, turns), timeout=self.timeout)
        except NoAnswer as problem:
            return self._keep_whole(episode, turns, problem.reasons[-1])

    @contextmanager
    def _putting(self, turns: list[int]) -> Iterator[ReasoningGraph | None]:
        """The graph to put an episode into, which waits no more then; None if the rule has taken it over meanwhile."""
        with self._news:
            if turns not in self._talk.todo:
                yield None
                return
            with self._change() as graph:
                yield graph
            self._talk.todo.remove(turns)
            self._places.pop(turns[0], None)
            self._news.notify_all()

    def _put_by_rule(self, turns: list[int]) -> list[ReasoningNode]:
        with self._putting(turns) as graph:
            if graph is None:
                return []
            patch = rule_patch(self._talk.episode(turns), self._parent(graph, turns))
            made = graph.apply_patch(patch, turns, lane=self.lane, step=self.step)
            for node in made if self._place(turns).fruitless else ():
                graph.update_node(node.node_id, status=FRUITLESS)
            return made

    def _apply(self, patch: MemoryPatch, turns: list[int]) -> list[ReasoningNode]:
        if not patch.add_nodes:
            raise GraphError("the patch adds no node, so the episode would be lost")
        with self._putting(turns) as graph:
            return [] if graph is None else graph.apply_patch(patch, turns, lane=self.lane, step=self.step)

    def _keep_whole(self, episode: list[Message], turns: list[int], reason: str) -> list[ReasoningNode]:
        with self._putting(turns) as graph:
            if graph is None:
                return []
            node = graph.add_node(
                NodeKind.EVIDENCE, as_notes(episode), turns, lane=self.lane, step=self.step, tags=("unstructured",),
                status=FRUITLESS if self._place(turns).fruitless else "open", meta={"unstructured": reason},
            )  # fmt: skip
            graph.add_edge(self._parent(graph, turns), node.node_id, "support: kept whole")
            return [node]

    def _parent(self, graph: ReasoningGraph, turns: Sequence[int]) -> int:
        """The node that an episode belongs below: the one that was said, else the newest open subtask, else the task."""
        below = graph.nodes.get(self._place(turns).below or 0)
        return below.node_id if below is not None and below.active is True else parent_for(graph, self.lane)

    def _place(self, turns: Sequence[int]) -> Place:
        return self._places.get(turns[0], _ANYWHERE)

    # -- beside the agent --------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every finished episode is in the graph.

        What a mind has not answered after `timeout` seconds is put there by rule, and its answer is not used when it comes.
        Raises what kept an episode from the graph (a full disk, for instance).
        """
        self._hurry(timeout, lambda _: True)

    def _hurry(self, timeout: float | None, wanted: Callable[[list[int]], bool]) -> None:
        """The same for the episodes that are wanted."""
        if self._worker is None:
            self._put_all()
            return
        with self._news:
            self._news.wait_for(lambda: self._problem or not any(map(wanted, self._talk.todo)), timeout)
            if self._problem is not None:
                raise self._problem
            for turns in list(filter(wanted, self._talk.todo)):
                self._put_by_rule(turns)

    def close(self, *, wait: bool = True) -> None:
        """Wait as `flush` does, and end the thread. With `wait=False` what a mind has not answered yet is let go of."""
        try:
            if wait:
                self.flush()
        finally:
            with self._news:
                self._closing = True
                self._news.notify_all()
            if self._worker is not None and wait:
                self._worker.join()
            self._worker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the context -------------------------------------------------------------------------------------------

    def recall(self, max_tokens: int | None = None) -> list[Message]:
        """The messages of a context of at most `max_tokens` (default: the memory's), counted as their `json.dumps`.

        What is too much is folded and flushed: by the mind as long as it helps, else by rule. Raises BudgetTooSmall,
        and then nothing has changed.
        """
        return self.recall_context(max_tokens).messages

    def recall_context(self, max_tokens: int | None = None) -> Context:
        """The same, and where each message comes from: a turn, or the notes of a node."""
        budget = self.max_tokens if max_tokens is None else a_whole_number(max_tokens, "a budget", 0)
        with self._news:
            recall = Recall(
                self._talk, lambda: self.graph, self._change, self.token_counter, self._seen, budget, self._costs,
                self.last_turns, self.last_share,
            )  # fmt: skip
            context = recall.fits()
            if context is None:
                last = {self._talk.turn_ids[at] for at in self._talk.protected(self.last_turns)}
                self._hurry(
                    self.grace, lambda turns: not last.issuperset(turns)
                )  # only what is in the graph can be folded
                recall.check()
                if self.mind is not None:
                    recall.by_mind(self.mind, self.timeout)
                context = recall.fits() or recall.by_rule()
            return context

    # -- on disk (README.md, *graph.json*) -----------------------------------------------------------------------

    def save_memory(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        """Write the snapshot and the messages, whole or not at all. Raises UserError if the file can't be written."""
        path = a_path(path)
        self.flush()
        with self._news, uncollected():
            record = {**self.graph.to_dict(), **self._talk.to_dict()}
            text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), check_circular=False) + "\n"
        try:
            write(path, text.encode("utf-8", "surrogatepass"), durable=durable)
        except OSError as error:
            raise UserError(f"cannot be written ({error.strerror})", where=path) from None

    def load_memory(self, path: str | os.PathLike[str]) -> None:
        """Take the place of what is here: from `save_memory`, from a bare seed snapshot, or one in `{"memory": …}`.

        A memory on a task's graph takes the messages only: its graph is the task's log. Raises UserError for a file that
        can't be read, UnknownVersion for another version; then nothing has changed and the file stays.
        """
        path = a_path(path)
        try:
            with uncollected(), boundary("saved memory", path, mend=_LEFT), open(path, "rb") as file:
                record = json.loads(file.read())
                if isinstance(record, dict) and isinstance(record.get("memory"), dict):
                    record = record["memory"]
                if not isinstance(record, dict):
                    raise GraphError("is not a memory")
                graph, talk = ReasoningGraph.from_dict(record), Conversation.from_dict(record)
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror})", where=path) from None
        except UserError as error:
            kind = UnknownVersion if isinstance(error, UnknownVersion) else GraphError
            raise kind(error.what, where=path, mend=error.mend or _LEFT) from None
        with self._news:
            self._talk = talk
            self._costs.clear()
            if not isinstance(self._holder, TaskGraph):
                self._holder = graph
