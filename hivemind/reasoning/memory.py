"""The memory of a conversation: episodes go into the graph, a context that fits comes out (spec 4; seed 000)."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hivemind.reasoning.arguments import a_list, a_path, a_whole_number
from hivemind.reasoning.ask import CompletingMind, NoAnswer, ask
from hivemind.reasoning.beside import Beside
from hivemind.reasoning.context import LAST_TURNS, Context, render
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.memory_file import load, save
from hivemind.reasoning.messages import Conversation, Message
from hivemind.reasoning.node import SHARED, NodeKind, ReasoningNode, as_lane
from hivemind.reasoning.ops import MemoryPatch
from hivemind.reasoning.prompts import patch_prompt
from hivemind.reasoning.recall import Recall
from hivemind.reasoning.rules import FRUITLESS, as_notes, parent_for, rule_patch
from hivemind.reasoning.task_graph import TaskGraph
from hivemind.tokens import count_tokens

__all__ = ["Place", "ReasoningMemory"]


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
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._background = background
        self._beside = Beside(self._news, lambda: self._talk.todo, self._put_next)

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
            return render(self._talk, self.graph, self._seen, last=self.last_turns).messages

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

    def memorize(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        turn_ids: Sequence[int] | None = None,
        place: Place = _ANYWHERE,
    ) -> list[ReasoningNode]:
        """Take new messages in and put every finished episode into the graph; gives the new nodes.

        `turn_ids` are the ids that the messages have already; `place` is what is known of the episode. In the background
        it returns at once, with none. An assistant turn without an answer waits for it. Raises GraphError for what is no
        message (nothing is taken in then), UserError if the graph can't be written (the episode stays, and is put into the
        graph at the next call).
        """
        with self._news:
            new = self._take_in(a_list(messages, "messages"), turn_ids)
            self._places.update((turns[0], place) for turns in self._talk.todo if turns[0] in new)
        return self._go_on()

    def attach(
        self, messages: Sequence[Mapping[str, Any]], nodes: Iterable[int], *, turn_ids: Sequence[int] | None = None
    ) -> None:
        """Take in one whole episode that left its outcome in the graph already: those nodes get its turns.

        Where none of them is active it is put into the graph as `memorize` does. Raises as that does.
        """
        with self._news:
            if not messages or messages[0].get("role") != "assistant":
                raise GraphError("an episode begins with an assistant turn")
            new = self._take_in(messages, turn_ids, known=True)
            attached = False
            try:
                attached = self.give(nodes, new)
            finally:
                if not attached:
                    self._talk.todo.append(new)
        self._go_on()

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
        self._go_on()

    def _take_in(
        self, messages: Sequence[Mapping[str, Any]], turn_ids: Sequence[int] | None, *, known: bool = False
    ) -> list[int]:
        """Take messages in; gives their ids."""
        root = self.graph.root
        if root is None:
            raise GraphError("the memory has no task yet", mend="call init_memory first")
        talk, before, there = self._talk, self._talk.preamble, len(self._talk.messages)
        talk.add(messages, 0 if there else self._first_id(), turn_ids, known=known)
        if talk.preamble > before:
            self.give([root.node_id], talk.turn_ids[before : talk.preamble])
        return talk.turn_ids[there:]

    def give(self, nodes: Iterable[int], turns: Sequence[int]) -> bool:
        """Attach turns to those of the nodes that are active; False if none is. Raises UserError."""
        active = [node for node in map(self.graph.nodes.get, nodes) if node is not None and node.active is True]
        new = {node.node_id: sorted({*node.related_turn_ids, *turns}) for node in active}
        if any(len(now) > len(self.graph.nodes[number].related_turn_ids) for number, now in new.items()):
            with self._change() as graph:
                for number, now in new.items():
                    graph.update_node(number, related_turn_ids=now)
        return bool(active)

    def _go_on(self) -> list[ReasoningNode]:
        if self._background:
            self._beside.start()
            return []
        return self._work_off()

    def _first_id(self) -> int:
        """The first id that no node of the graph knows."""
        return max((turn for node in self.graph.nodes.values() for turn in node.related_turn_ids), default=-1) + 1

    def _work_off(self) -> list[ReasoningNode]:
        made: list[ReasoningNode] = []
        while (new := self._put_next()) is not None:
            made += new
        return made

    def _put_next(self) -> list[ReasoningNode] | None:
        """Put the oldest episode that waits into the graph; None if none waits."""
        with self._news:
            if not self._talk.todo:
                return None
            turns = self._talk.todo[0]
        return self._put(turns)

    def _done(self, turns: list[int]) -> None:
        """The episode is in the graph: it waits no more."""
        with self._news:
            self._talk.todo.remove(turns)
            self._places.pop(turns[0], None)
            self._news.notify_all()

    def _put(self, turns: list[int]) -> list[ReasoningNode]:
        """Put one episode into the graph, one way or another."""
        if self.mind is None:
            return self._put_by_rule(turns)
        episode = self._talk.episode(turns)
        below = None if self._place(turns).below is None else self._parent(turns)
        with self._holder.still() as graph:
            prompt = patch_prompt(graph, self.lane, episode, below)
        try:
            return ask(self.mind, prompt, MemoryPatch, lambda patch: self._apply(patch, turns), timeout=self.timeout)
        except NoAnswer as problem:
            return self._keep_whole(episode, turns, problem.reasons[-1])

    def _put_by_rule(self, turns: list[int]) -> list[ReasoningNode]:
        with self._change() as graph:
            episode = self._talk.episode(turns)
            made = graph.apply_patch(rule_patch(episode, self._parent(turns)), turns, lane=self.lane, step=self.step)
            for node in made if self._place(turns).fruitless else ():
                graph.update_node(node.node_id, status=FRUITLESS)
        self._done(turns)
        return made

    def _apply(self, patch: MemoryPatch, turns: list[int]) -> list[ReasoningNode]:
        if not patch.add_nodes:
            raise GraphError("the patch adds no node, so the episode would be lost")
        with self._lock:
            if turns not in self._talk.todo:
                return []  # too late: the rule has taken the episode over
            with self._change() as graph:
                made = graph.apply_patch(patch, turns, lane=self.lane, step=self.step)
            self._done(turns)
        return made

    def _keep_whole(self, episode: list[Message], turns: list[int], reason: str) -> list[ReasoningNode]:
        with self._lock:
            if turns not in self._talk.todo:
                return []  # as above
            with self._change() as graph:
                node = graph.add_node(
                    NodeKind.EVIDENCE, as_notes(episode), turns, lane=self.lane, step=self.step, tags=("unstructured",),
                    status=FRUITLESS if self._place(turns).fruitless else "open", meta={"unstructured": reason},
                )  # fmt: skip
                graph.add_edge(self._parent(turns), node.node_id, "support: kept whole")
            self._done(turns)
        return [node]

    def _parent(self, turns: Sequence[int]) -> int:
        """The node that an episode belongs below: the one that was said, else the newest open subtask, else the task."""
        graph = self.graph
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
        if not self._beside.is_running:
            self._work_off()
            return
        if self._beside.wait(lambda: not any(map(wanted, self._talk.todo)), timeout):
            return
        with self._lock:
            for turns in [turns for turns in self._talk.todo if wanted(turns)]:
                self._put_by_rule(turns)

    def close(self, *, wait: bool = True) -> None:
        """Wait as `flush` does, and end the thread. With `wait=False` what a mind has not answered yet is let go of."""
        try:
            if wait:
                self.flush()
        finally:
            self._beside.close(wait=wait)

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
        return self.recall_context(max_tokens).messages

    def recall_context(self, max_tokens: int | None = None) -> Context:
        """The same, and where each message comes from: a turn, or the notes of a node."""
        budget = self.max_tokens if max_tokens is None else a_whole_number(max_tokens, "a budget", 0)
        recall = Recall(
            self._talk,
            lambda: self.graph,
            self._change,
            self.token_counter,
            lane=self._seen,
            budget=budget,
            costs=self._costs,
            last=self.last_turns,
            share=self.last_share,
        )
        with self._lock:
            context = recall.fits()
            if context is None:
                self._hurry(self.grace, self._is_over)  # an episode that is not in the graph can't be folded
                recall.check()
                if self.mind is not None:
                    recall.by_mind(self.mind, self.timeout)
                context = recall.fits() or recall.by_rule()
            return context

    def _is_over(self, turns: list[int]) -> bool:
        """Whether an episode has a turn that is not one of the last, which stay."""
        last = {self._talk.turn_ids[at] for at in self._talk.protected(self.last_turns)}
        return not last.issuperset(turns)

    # -- on disk -----------------------------------------------------------------------------------------------

    def save_memory(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        """Write the snapshot and the messages, whole or not at all. Raises UserError if the file can't be written."""
        path = a_path(path)
        self.flush()
        with self._lock:
            save(path, self.graph, self._talk, durable=durable)

    def load_memory(self, path: str | os.PathLike[str]) -> None:
        """Take the place of what is here: from `save_memory`, from a bare seed snapshot, or one in `{"memory": …}`.

        A memory on a task's graph takes the messages only: its graph is the task's log. Raises UserError for a file that
        can't be read, UnknownVersion for another version; then nothing has changed and the file stays.
        """
        graph, talk = load(a_path(path))
        with self._lock:
            self._talk = talk
            self._costs.clear()
            if not isinstance(self._holder, TaskGraph):
                self._holder = graph
