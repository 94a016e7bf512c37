"""The memory of a conversation: episodes go into the graph, a context that fits comes out (spec 4; seed 000)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from hivemind.boundary import boundary
from hivemind.errors import UnknownVersion, UserError
from hivemind.frozen import frozen
from hivemind.fs import write
from hivemind.reasoning.episodes import (
    LAST_TURNS,
    Context,
    Conversation,
    Message,
    as_messages,
    as_notes,
    excerpted,
    render,
)
from hivemind.reasoning.fold_rules import (
    FRUITLESS,
    has_support,
    is_useless,
    may_go,
    parent_for,
    rule_notes,
    runs,
    with_finished_steps,
)
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.mind_prompts import CompletingMind, NoAnswer, ask, fold_prompt, patch_prompt
from hivemind.reasoning.node import (
    SHARED,
    BudgetTooSmall,
    EpisodePatches,
    FlushAndFoldOp,
    GraphError,
    MemoryPatch,
    NodeKind,
    ReasoningNode,
    as_lane,
)
from hivemind.reasoning.snapshot import snapshot_text
from hivemind.reasoning.task_graph import TaskGraph
from hivemind.tokens import count_tokens

_LEFT = "the file was left as it is"
_ROUNDS = 8
_SPARE = 4  # a quarter of the budget is freed beyond what is needed, so that not every turn needs it again
_OFFERED = 120
_EXCERPT = 400  # characters of a message in a node by rule
_CHARS = 800  # of a summary by rule, at most; more where the budget is large


@frozen
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
    on disk that several memories share, each in its own `lane`. `timeout` seconds after a recall began the mind is asked no more.
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
        timeout: float = inf,
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
        self.shown_lane = None if only else self.lane
        self._places: Mapping[int, Place] = {}  # of episodes that were resumed, by their first turns
        self._known: set[int] = set()  # turns that had a node when the conversation was resumed or loaded
        self.store: ReasoningGraph | TaskGraph = ReasoningGraph() if graph is None else graph
        self.talk = Conversation()
        self.costs: dict[int, int] = {}

    # -- what there is -----------------------------------------------------------------------------------------

    @property
    def graph(self) -> ReasoningGraph:
        """The graph, for reading."""
        return self.store.graph

    @property
    def messages(self) -> list[Message]:
        """The whole conversation as it was said; change nothing in it."""
        return self.talk.messages

    @property
    def turn_ids(self) -> list[int]:
        """The ids of the messages, in their order."""
        return self.talk.turn_ids

    def context(self) -> list[Message]:
        """The messages as the graph leaves them, whatever they cost."""
        return self.rendered().messages

    def rendered(self, *, bare: bool = False, without: frozenset[int] = frozenset()) -> Context:
        """The same, and where each message comes from; `bare` and `without` as for `episodes.render`."""
        return render(self.talk, self.graph, self.shown_lane, last=self.last_turns, bare=bare, without=without)

    # -- taking in ---------------------------------------------------------------------------------------------

    def init_memory(self, task: str) -> ReasoningNode:
        """Make the task node. Raises GraphError the second time."""
        with self.store.change(self.agent_id) as graph:
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

        Episodes that no node has are put into the graph, with one question to the mind for all of them; `places`, by an
        episode's first turn, are what is known of them.
        Raises as `memorize` does.
        """
        if self.talk.messages:
            raise GraphError("the memory has a conversation already")
        self._take_in(messages, turn_ids)
        self._known, self._places = _known_to(self.graph), dict(places or {})
        todo = [turns for turns in self.talk.finished() if self._known.isdisjoint(turns)]
        if self.mind is not None and len(todo) > 1:
            self._put_together(self.mind, todo)
        self.flush()

    def _take_in(self, messages: Sequence[Mapping[str, Any]], turn_ids: Sequence[int] | None) -> None:
        root = self.graph.root
        if root is None:
            raise GraphError("the memory has no task yet", mend="call init_memory first")
        talk, before, first = self.talk, self.talk.preamble, 0
        if not talk.messages:  # the first id that no node of the graph knows
            first = max(_known_to(self.graph), default=-1) + 1
        talk.add(messages, first, turn_ids)
        if talk.preamble > before:
            self.attach([root.node_id], talk.turn_ids[before : talk.preamble])

    def attach(self, nodes: Iterable[int], turns: Sequence[int]) -> bool:
        """Attach turns to those of the nodes that are active; False if none is. Raises UserError."""
        active = [node for node in map(self.graph.nodes.get, nodes) if node is not None and node.active is True]
        lacking = [node for node in active if not set(turns).issubset(node.related_turn_ids)]
        if lacking:
            with self.store.change(self.agent_id) as graph:
                for node in lacking:
                    graph.update_node(node.node_id, related_turn_ids=sorted({*node.related_turn_ids, *turns}))
        return bool(active)

    # -- episodes into the graph -------------------------------------------------------------------------------

    def flush(self) -> list[ReasoningNode]:
        """Put every finished episode into the graph; returns the new nodes. Raises what kept one from it (a full disk)."""
        made: list[ReasoningNode] = []
        for turns in self.talk.finished():
            if self._known.isdisjoint(turns):
                made += self._put(turns)
            self.talk.done += len(turns)
        return made

    def _put_together(self, mind: CompletingMind, todo: Sequence[list[int]]) -> None:
        """Put several episodes into the graph as the mind says, asked once; where its answer has no
        patch that fits, by rule."""
        episodes = [(self.talk.episode(turns), self._below(turns)) for turns in todo]
        prompt = patch_prompt(self.graph, self.lane, episodes)
        patches: dict[int, MemoryPatch] = {}
        with suppress(NoAnswer):
            ask(
                mind,
                prompt,
                EpisodePatches,
                lambda told: patches.update((one.episode, one) for one in told.episodes),
                1,
            )
        for number, (turns, (episode, _)) in enumerate(zip(todo, episodes, strict=True), 1):
            try:
                self._apply(patches.get(number, MemoryPatch()), turns)
            except GraphError:
                self._put_by_rule(episode, turns)
            self._known.update(turns)

    def _put(self, turns: list[int]) -> list[ReasoningNode]:
        """Put one episode into the graph: as the mind says, or by rule; unabridged if the mind's answers are useless."""
        episode = self.talk.episode(turns)
        if self.mind is None:
            return self._put_by_rule(episode, turns)
        prompt = patch_prompt(self.graph, self.lane, [(episode, self._below(turns))])
        try:
            return ask(self.mind, prompt, MemoryPatch, lambda patch: self._apply(patch, turns))
        except NoAnswer as problem:
            return self._put_by_rule(episode, turns, problem.reasons[-1])

    def _apply(self, patch: MemoryPatch, turns: list[int]) -> list[ReasoningNode]:
        if not patch.add_nodes:
            raise GraphError("the patch adds no node, so the episode would be lost")
        with self.store.change(self.agent_id) as graph:
            return graph.apply_patch(patch, turns, lane=self.lane, step=self.step)

    def _put_by_rule(self, episode: list[Message], turns: list[int], useless: str | None = None) -> list[ReasoningNode]:
        """Keep an episode as one node: an excerpt of it, or, where all that the mind said was `useless`, the whole."""
        with self.store.change(self.agent_id) as graph:
            node = graph.add_node(
                NodeKind.EVIDENCE,
                as_notes(episode, _EXCERPT if useless is None else None),
                turns,
                lane=self.lane,
                step=self.step,
                status=FRUITLESS if self._place(turns).fruitless else "open",
                tags=() if useless is None else ("unstructured",),
                meta={} if useless is None else {"unstructured": useless},
            )
            why = "what this episode found" if useless is None else "kept whole"
            graph.add_edge(self._parent(graph, turns), node.node_id, f"support: {why}")
            return [node]

    def _parent(self, graph: ReasoningGraph, turns: Sequence[int]) -> int:
        """The node that an episode belongs below: the one that was said, else the newest open subtask, else the task."""
        below = graph.nodes.get(self._place(turns).below or 0)
        return below.node_id if below is not None and below.active is True else parent_for(graph, self.lane)

    def _below(self, turns: Sequence[int]) -> int | None:
        """The node that the agent was at in an episode, where that is known."""
        return None if self._place(turns).below is None else self._parent(self.graph, turns)

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
        recall = _Recall(self, budget)
        context = recall.fits()
        if context is None:
            self.flush()  # only what is in the graph can be folded
            recall.check()
            if self.mind is not None:
                recall.by_mind(self.mind)
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
        self.talk = talk
        self.costs.clear()
        if isinstance(self.store, ReasoningGraph):
            self.store = graph
        self._known = _known_to(self.graph)


def _known_to(graph: ReasoningGraph) -> set[int]:
    """The turns that the graph has a node for."""
    return {turn for node in graph.nodes.values() for turn in node.related_turn_ids}


# -- making a context fit: the mind is asked, then it is folded and flushed by rule, then excerpted (spec 4, *recall*) ------


class _Recall:
    """One recall, from and in the graph of `memory`."""

    def __init__(self, memory: ReasoningMemory, budget: int) -> None:
        self._memory, self._budget = memory, budget
        self._talk, self._store, self._count = memory.talk, memory.store, memory.token_counter

    def fits(self) -> Context | None:
        """The context, if it is within the budget as it is (without the notes of flushed nodes, if need be)."""
        for bare in (False, True):
            context = self._render(bare=bare)
            if self._size(context.messages) <= self._budget:
                return context
        return None

    def check(self) -> None:
        """Raises BudgetTooSmall if what no fold and no flush can take away is over the budget even as excerpts."""
        own = frozenset(node.node_id for node in self._own(self._store.graph))
        least = self._size(excerpted(self._memory.rendered(bare=True, without=own).messages, 0))
        if least > self._budget:
            raise BudgetTooSmall(self._budget, least)

    def by_mind(self, mind: CompletingMind) -> None:
        """Let the mind fold and flush as long as that helps; what it can't do is left to the rule.

        No question is begun `timeout` seconds after the first one: the agent waits meanwhile.
        """
        end = time.monotonic() + self._memory.timeout
        size = self._size(self._render().messages)
        for _ in range(_ROUNDS):
            offered = self._candidates()[:_OFFERED]
            if size <= self._budget or not offered or time.monotonic() > end:
                return
            prompt = fold_prompt(offered, size - self._budget + self._budget // _SPARE)
            try:
                ask(mind, prompt, FlushAndFoldOp, self._apply)
            except NoAnswer:
                return
            before, size = size, self._size(self._render().messages)
            if size >= before:
                return

    def _apply(self, operations: FlushAndFoldOp) -> None:
        with self._store.change(self._memory.agent_id) as graph:
            mine = {node.node_id for node in self._own(graph)}
            for number in (*(op.id for op in operations.flush_ops), *(n for op in operations.fold_ops for n in op.ids)):
                if number in graph.nodes and number not in mine:
                    raise GraphError(f"node {number} is not active, or not yours to fold or flush")
            graph.apply_operations(operations)

    def by_rule(self) -> Context:
        """Flush what turned out useless, fold the oldest finished work, then flush what nothing supports, then the rest,
        until it fits. More is folded than is needed, so that not every turn folds again."""
        with self._store.change(self._memory.agent_id) as graph:
            for bare, step in (
                (False, self._flush_useless),
                (False, partial(self._fold, mixed=False)),
                (False, partial(self._fold, mixed=True)),
                (True, self._flush),
            ):
                while True:
                    context = self._render(bare=bare)
                    over = self._size(context.messages) - self._budget
                    if over <= 0:
                        return context
                    if not step(graph, over):
                        break
        context = self._render(bare=True)
        return replace(context, messages=self._cut(context.messages, self._budget))

    def _flush_useless(self, graph: ReasoningGraph, _over: int) -> bool:
        """Flush what turned out useless. False if nothing has."""
        useless = [node for node in self._candidates() if is_useless(graph, node)]
        for node in useless:
            graph.flush_node(node.node_id, f"{node.status}, flushed by rule")
        return bool(useless)

    def _fold(self, graph: ReasoningGraph, over: int, *, mixed: bool) -> bool:
        """Fold until about `over` tokens and a part of the budget more are saved. False if nothing could be."""
        candidates = with_finished_steps(graph, {node.node_id for node in self._candidates()})
        hidden = self._render().hidden
        over += self._budget // _SPARE
        done = False
        for run in runs(graph, candidates, mixed=mixed):
            saved = self._fold_units(graph, run, hidden)
            if not saved and len(run) > 1:
                saved = sum(self._fold_units(graph, [unit], hidden) for unit in run)
            done = done or saved > 0
            over -= saved
            if over <= 0:
                break
        return done

    def _fold_units(self, graph: ReasoningGraph, units: Sequence[Sequence[int]], hidden: frozenset[int]) -> int:
        """Fold units into one summary, if that can be and saves something; returns about how many tokens it does."""
        parts = [[graph.nodes[number] for number in unit] for unit in units]
        nodes = [node for part in parts for node in part]
        if len(nodes) == 1 and nodes[0].kind is NodeKind.SUMMARY:
            return 0
        now = self._weight(nodes, hidden)
        notes = rule_notes(parts, min(now * 4 // 3, max(160, self._budget // 2), max(_CHARS, self._budget // 16)))
        saved = now - self._count(json.dumps([note.as_dict() for note in notes]))
        if saved <= 0:
            return 0
        try:
            graph.fold_nodes([node.node_id for node in nodes], notes, "the oldest finished work, folded by rule")
        except GraphError:
            return 0  # not convex: a flushed node lies between
        return saved

    def _flush(self, graph: ReasoningGraph, over: int) -> bool:
        """Flush until about `over` tokens are saved, first what nothing supports. False if nothing could be."""
        candidates = [node for node in self._candidates() if node.related_turn_ids]
        hidden = self._render(bare=True).hidden
        for node in sorted(candidates, key=lambda node: has_support(graph, node.node_id)):
            graph.flush_node(node.node_id, "flushed by rule to fit the budget")
            over -= self._weight([node], hidden)
            if over <= 0:
                break
        return bool(candidates)

    def _weight(self, nodes: Iterable[ReasoningNode], hidden: frozenset[int]) -> int:
        """About how many tokens nodes have in the context: their turns that stand there, or else their notes."""
        total = 0
        whole: set[int] = set()
        for node in nodes:
            turns = [turn for turn in node.related_turn_ids if turn in self._talk.index and turn not in hidden]
            whole.update(turns)
            if len(turns) < len(node.related_turn_ids):
                total += self._count(json.dumps(as_messages(node)))
        for turn in whole - self._memory.costs.keys():
            self._memory.costs[turn] = self._count(json.dumps(self._talk.message(turn)))
        return total + sum(self._memory.costs[turn] for turn in whole)

    def _own(self, graph: ReasoningGraph) -> list[ReasoningNode]:
        """The nodes of this lane that may go."""
        return [node for node in graph.active() if self._memory.shown_lane in (None, node.lane) and may_go(node)]

    def _candidates(self) -> list[ReasoningNode]:
        """Those of them that do not stand in the context for protected turns alone, oldest first."""
        last = {self._talk.turn_ids[at] for at in self._talk.protected(self._memory.last_turns)}
        own = self._own(self._store.graph)
        return [node for node in own if not node.related_turn_ids or not last.issuperset(node.related_turn_ids)]

    def _cut(self, messages: list[Message], budget: int) -> list[Message]:
        """The longest contents cut to one common length, the greatest that fits."""
        low, high = 0, max((len(json.dumps(message)) for message in messages), default=0)
        best = excerpted(messages, 0)
        least = self._size(best)
        if least > budget:
            raise BudgetTooSmall(budget, least)
        while low < high:
            middle = (low + high + 1) // 2
            tried = excerpted(messages, middle)
            if self._size(tried) <= budget:
                low, best = middle, tried
            else:
                high = middle - 1
        return best

    def _render(self, *, bare: bool = False) -> Context:
        """The context, its last messages cut where they would leave too little of the budget to what was before."""
        context = self._memory.rendered(bare=bare)
        messages = context.messages
        at = len(messages) - len(self._talk.protected(self._memory.last_turns)) + self._talk.preamble
        room = int(self._budget * self._memory.last_share)
        if self._memory.last_share == 1.0 or self._size(messages[at:]) <= room:
            return context
        least = self._size(excerpted(messages[at:], 0))
        return replace(context, messages=[*messages[:at], *self._cut(messages[at:], max(room, least))])

    def _size(self, messages: Sequence[Message]) -> int:
        return self._count(json.dumps(messages))
