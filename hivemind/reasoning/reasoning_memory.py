"""The memory of a conversation: episodes go into the graph, a context that fits comes out (spec 4; seed 000)."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hivemind.boundary import boundary
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import write
from hivemind.reasoning.episodes import LAST_TURNS, Context, Conversation, Message, as_notes, render
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.fold_rules import FRUITLESS, parent_for, rule_patch
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.mind_prompts import CompletingMind, NoAnswer, ask, patch_prompt
from hivemind.reasoning.node import SHARED, MemoryPatch, NodeKind, ReasoningNode, as_lane
from hivemind.reasoning.recall import Recall
from hivemind.reasoning.snapshot import snapshot_text
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
        only: bool = False,
        last_turns: int = LAST_TURNS,
        last_share: float = 1.0,
    ) -> None:
        # a mind that says that it works by rule has no JSON to give
        self.mind = None if getattr(mind, "by_rule", False) else mind
        self.token_counter = token_counter
        self.max_tokens = max_tokens
        self.lane = as_lane(lane)
        self.step = step
        self.agent_id = agent_id
        self.timeout = timeout
        self.last_turns = last_turns
        self.last_share = last_share
        self._seen = None if only else self.lane
        self._places: dict[int, Place] = {}  # of episodes that wait, by their first turns
        self._store: ReasoningGraph | TaskGraph = ReasoningGraph() if graph is None else graph
        self._talk = Conversation()
        self._costs: dict[int, int] = {}

    # -- what there is -----------------------------------------------------------------------------------------

    @property
    def graph(self) -> ReasoningGraph:
        """The graph, for reading."""
        return self._store.graph

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
        return render(self._talk, self.graph, self._seen, last=self.last_turns).messages

    # -- taking in ---------------------------------------------------------------------------------------------

    def init_memory(self, task: str) -> ReasoningNode:
        """Make the task node. Raises GraphError the second time."""
        with self._store.change(self.agent_id) as graph:
            if graph.root is not None:
                raise GraphError("the memory has its task already")
            return graph.add_node(NodeKind.TASK, task)

    def memorize(self, messages: Sequence[Mapping[str, Any]]) -> list[ReasoningNode]:
        """Take new messages in and put every finished episode into the graph; returns the new nodes.

        An assistant turn without an answer waits for it. Raises GraphError for what is not a message (nothing is taken in
        then), UserError if the graph can't be written (the episode stays, and is put into the graph at the next call).
        """
        self._take_in(messages, None)
        return self.flush()

    def resume(
        self, messages: Sequence[Mapping[str, Any]], turn_ids: Sequence[int], places: Mapping[int, Place] | None = None
    ) -> None:
        """Take in what was said before, under the ids that it had, into a memory that has heard nothing yet.

        Episodes that no node has are put into the graph; `places`, by an episode's first turn, are what is known of them.
        Raises as `memorize` does.
        """
        if self._talk.messages:
            raise GraphError("the memory has a conversation already")
        self._take_in(messages, turn_ids)
        _forget_known(self._talk, self.graph)
        self._places.update(places or {})
        self.flush()

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
            with self._store.change(self.agent_id) as graph:
                for node in lacking:
                    graph.update_node(node.node_id, related_turn_ids=sorted({*node.related_turn_ids, *turns}))
        return bool(active)

    # -- episodes into the graph -------------------------------------------------------------------------------

    def flush(self) -> list[ReasoningNode]:
        """Put every finished episode into the graph; returns the new nodes. Raises what kept one from it (a full disk)."""
        made: list[ReasoningNode] = []
        while self._talk.todo:
            turns = self._talk.todo[0]
            made += self._put(turns)
            self._talk.todo.popleft()
            self._places.pop(turns[0], None)
        return made

    def _put(self, turns: list[int]) -> list[ReasoningNode]:
        """Put one episode into the graph: as the mind says, or by rule; unabridged if the mind's answers are useless."""
        episode, graph = self._talk.episode(turns), self.graph
        if self.mind is None:
            return self._put_by_rule(episode, turns)
        below = None if self._place(turns).below is None else self._parent(graph, turns)
        prompt = patch_prompt(graph, self.lane, episode, below)
        try:
            return ask(self.mind, prompt, MemoryPatch, lambda patch: self._apply(patch, turns), timeout=self.timeout)
        except NoAnswer as problem:
            return self._keep_whole(episode, turns, problem.reasons[-1])

    def _put_by_rule(self, episode: list[Message], turns: list[int]) -> list[ReasoningNode]:
        with self._store.change(self.agent_id) as graph:
            patch = rule_patch(episode, self._parent(graph, turns))
            made = graph.apply_patch(patch, turns, lane=self.lane, step=self.step)
            for node in made if self._place(turns).fruitless else ():
                graph.update_node(node.node_id, status=FRUITLESS)
            return made

    def _apply(self, patch: MemoryPatch, turns: list[int]) -> list[ReasoningNode]:
        if not patch.add_nodes:
            raise GraphError("the patch adds no node, so the episode would be lost")
        with self._store.change(self.agent_id) as graph:
            return graph.apply_patch(patch, turns, lane=self.lane, step=self.step)

    def _keep_whole(self, episode: list[Message], turns: list[int], reason: str) -> list[ReasoningNode]:
        with self._store.change(self.agent_id) as graph:
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

    # -- the context -------------------------------------------------------------------------------------------

    def recall(self, max_tokens: int | None = None) -> list[Message]:
        """The messages of a context of at most `max_tokens` (default: the memory's), counted as their `json.dumps`.

        What is too much is folded and flushed: by the mind as long as it helps, else by rule. Raises BudgetTooSmall,
        and then nothing has changed.
        """
        return self.recall_context(max_tokens).messages

    def recall_context(self, max_tokens: int | None = None) -> Context:
        """The same, and where each message comes from: a turn, or the notes of a node."""
        budget = self.max_tokens if max_tokens is None else max_tokens
        recall = Recall(
            self._talk, self._store, self.agent_id, self.token_counter, self._seen, budget, self._costs,
            self.last_turns, self.last_share,
        )  # fmt: skip
        context = recall.fits()
        if context is None:
            self.flush()  # only what is in the graph can be folded
            recall.check()
            if self.mind is not None:
                recall.by_mind(self.mind, self.timeout)
            context = recall.fits() or recall.by_rule()
        return context

    # -- on disk (README.md, *graph.json*) -----------------------------------------------------------------------

    def save_memory(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        """Write the snapshot and the messages, whole or not at all. Raises UserError if the file can't be written."""
        self.flush()
        text = snapshot_text(self.graph, messages=self.messages, turn_ids=self.turn_ids) + "\n"
        try:
            write(path, text.encode("utf-8", "surrogatepass"), durable=durable)
        except OSError as error:
            raise UserError(f"cannot be written ({error.strerror})", where=path) from None

    def load_memory(self, path: str | os.PathLike[str]) -> None:
        """Take the place of what is here: from `save_memory`, from a bare seed snapshot, or one in `{"memory": …}`.

        A memory on a task's graph takes the messages only: its graph is the task's log. Raises UserError for a file that
        can't be read, UnknownVersion for another version; then nothing has changed and the file stays.
        """
        try:
            with boundary("saved memory", path, mend=_LEFT), open(path, "rb") as file:
                record = json.loads(file.read())
                if isinstance(record, dict) and isinstance(record.get("memory"), dict):
                    record = record["memory"]
                if not isinstance(record, dict):
                    raise GraphError("is not a memory")
                graph, talk = ReasoningGraph.from_dict(record), Conversation()
                talk.add(record.get("messages") or (), 0, record.get("turn_ids"))
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror})", where=path) from None
        except UserError as error:
            kind = UnknownVersion if isinstance(error, UnknownVersion) else GraphError
            raise kind(error.what, where=path, mend=error.mend or _LEFT) from None
        self._talk = talk
        self._costs.clear()
        if isinstance(self._store, ReasoningGraph):
            self._store = graph
        _forget_known(talk, self.graph)


def _forget_known(talk: Conversation, graph: ReasoningGraph) -> None:
    """Episodes that a node has already wait no more."""
    known = {turn for node in graph.nodes.values() for turn in node.related_turn_ids}
    talk.todo = deque(turns for turns in talk.todo if known.isdisjoint(turns))
