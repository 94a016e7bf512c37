"""The memory of a conversation: records episodes in the graph, and renders a context that fits a budget."""

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
    EpisodeLog,
    Message,
    RenderedContext,
    as_messages,
    as_notes,
    excerpt_messages,
    render,
)
from hivemind.reasoning.fold_rules import (
    FRUITLESS,
    choose_parent,
    fold_runs,
    has_support,
    is_removable,
    is_useless,
    rule_notes,
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

_UNCHANGED_REMEDY = "the file was not changed"
_MAX_ROUNDS = 8
_SPARE_DIVISOR = 4  # folds free an extra quarter of the budget, so not every turn folds again
_MAX_OFFERED = 120
_EXCERPT_LENGTH = 400  # characters per message in a node created by rule
_SUMMARY_LENGTH = 800  # characters of a summary by rule; more if the budget is large


@frozen
class EpisodeHint:
    """Facts about an episode from its agent: the node below which it belongs (None: unknown), and whether it was fruitless.

    The prompt to the mind names this parent. Without a mind, the rules use both facts: once its step is closed, a
    fruitless episode is flushed (hidden) first.
    """

    parent_id: int | None = None
    is_fruitless: bool = False


_NO_HINT = EpisodeHint()


class ReasoningMemory:
    """A memory that records one agent's conversation in a graph, and builds contexts of limited size from it.

    `mind` records episodes and makes contexts smaller; with None, rules do it without a model. `graph` is a graph, or a
    task's graph on disk that several memories share, each in its own `lane`. A recall does not ask the mind after
    `timeout` seconds. `single_conversation` means that all nodes of the graph, in any lane, belong to this
    conversation. The `last_turns` newest messages are always in the context; if they exceed the share `last_share` of
    the budget, they are excerpted, so one long message does not displace all earlier ones.
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
        single_conversation: bool = False,
        last_turns: int = LAST_TURNS,
        last_share: float = 1.0,
    ) -> None:
        # a mind that works by rules answers no prompts
        self.mind = None if getattr(mind, "by_rule", False) else mind
        self.token_counter = token_counter
        self.max_tokens = max_tokens
        self.lane = as_lane(lane)
        self.step = step
        self.agent_id = agent_id
        self.timeout = timeout
        self.last_turns = last_turns
        self.last_share = last_share
        self.visible_lane = None if single_conversation else self.lane
        self._hints: Mapping[int, EpisodeHint] = {}  # first turn of a resumed episode → hint
        self._known_turns: set[int] = set()  # turns that had a node at resume or load
        self.store: ReasoningGraph | TaskGraph = ReasoningGraph() if graph is None else graph
        self.episodes = EpisodeLog()
        self.turn_tokens: dict[int, int] = {}

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def graph(self) -> ReasoningGraph:
        """The graph, for reading."""
        return self.store.graph

    @property
    def messages(self) -> list[Message]:
        """The whole conversation, unchanged; do not modify it."""
        return self.episodes.messages

    @property
    def turn_ids(self) -> list[int]:
        """The ids of the conversation's messages, in order."""
        return self.episodes.turn_ids

    def context(self) -> list[Message]:
        """Return the messages of the context, whatever their number of tokens."""
        return self.render_context().messages

    def render_context(
        self, *, omit_flushed: bool = False, flushed_ids: frozenset[int] = frozenset()
    ) -> RenderedContext:
        """Return the context with the origin of each message. The arguments are those of `episodes.render`."""
        return render(
            self.episodes,
            self.graph,
            self.visible_lane,
            last_turns=self.last_turns,
            omit_flushed=omit_flushed,
            flushed_ids=flushed_ids,
        )

    # -- adding messages ---------------------------------------------------------------------------------------

    def init_memory(self, task: str) -> ReasoningNode:
        """Create the task node. Raises GraphError if there is one."""
        with self.store.change(self.agent_id) as graph:
            if graph.root is not None:
                raise GraphError("the memory already has its task")
            return graph.add_node(NodeKind.TASK, task)

    def memorize(self, messages: Sequence[Mapping[str, Any]]) -> list[ReasoningNode]:
        """Add messages, record every finished episode in the graph, and return the new nodes.

        An episode is finished when its assistant message is answered. Raises GraphError for a malformed message (then no
        message is added), or UserError if the graph can't be written (the next call records the episode).
        """
        self._add_messages(messages, None)
        return self.flush()

    def resume(
        self,
        messages: Sequence[Mapping[str, Any]],
        turn_ids: Sequence[int],
        hints: Mapping[int, EpisodeHint] | None = None,
    ) -> None:
        """Add the messages of an earlier conversation, with their ids, to an empty memory.

        Episodes without a node are recorded in the graph; if there are several, the mind is asked once for all. `hints`
        maps the id of an episode's first message to its hint. Raises the errors of `memorize`.
        """
        if self.episodes.messages:
            raise GraphError("the memory already has a conversation")
        self._add_messages(messages, turn_ids)
        self._known_turns, self._hints = _known_turn_ids(self.graph), dict(hints or {})
        pending_episodes = [turns for turns in self.episodes.finished_episodes() if self._known_turns.isdisjoint(turns)]
        if self.mind is not None and len(pending_episodes) > 1:
            self._record_all(self.mind, pending_episodes)
        self.flush()

    def _add_messages(self, messages: Sequence[Mapping[str, Any]], turn_ids: Sequence[int] | None) -> None:
        root = self.graph.root
        if root is None:
            raise GraphError("the memory has no task yet", remedy="call init_memory first")
        episodes, old_preamble, first_id = self.episodes, self.episodes.preamble, 0
        if not episodes.messages:  # the first id that no node of the graph has
            first_id = max(_known_turn_ids(self.graph), default=-1) + 1
        episodes.add(messages, first_id, turn_ids)
        if episodes.preamble > old_preamble:
            self.attach([root.node_id], episodes.turn_ids[old_preamble : episodes.preamble])

    def attach(self, nodes: Iterable[int], turns: Sequence[int]) -> bool:
        """Add message ids to those of the nodes that are active. Return False if none is active. Raises UserError."""
        active = [node for node in map(self.graph.nodes.get, nodes) if node is not None and node.active is True]
        incomplete_nodes = [node for node in active if not set(turns).issubset(node.related_turn_ids)]
        if incomplete_nodes:
            with self.store.change(self.agent_id) as graph:
                for node in incomplete_nodes:
                    graph.update_node(node.node_id, related_turn_ids=sorted({*node.related_turn_ids, *turns}))
        return bool(active)

    # -- recording episodes ------------------------------------------------------------------------------------

    def flush(self) -> list[ReasoningNode]:
        """Record every finished episode in the graph, and return the new nodes. Raises UserError if the disk is full."""
        new_nodes: list[ReasoningNode] = []
        for turns in self.episodes.finished_episodes():
            if self._known_turns.isdisjoint(turns):
                new_nodes += self._record_episode(turns)
            self.episodes.done += len(turns)
        return new_nodes

    def _record_all(self, mind: CompletingMind, pending_episodes: Sequence[list[int]]) -> None:
        """Ask the mind once for patches (new nodes and edges) that record several episodes, and apply them.

        An episode without a valid patch is recorded as one node with an excerpt of it.
        """
        episodes = [(self.episodes.episode(turns), self._hinted_parent(turns)) for turns in pending_episodes]
        prompt = patch_prompt(self.graph, self.lane, episodes)
        patches: dict[int, MemoryPatch] = {}
        with suppress(NoAnswer):
            ask(
                mind,
                prompt,
                EpisodePatches,
                lambda answer: patches.update((patch.episode, patch) for patch in answer.episodes),
                1,
            )
        for number, (turns, (episode, _)) in enumerate(zip(pending_episodes, episodes, strict=True), 1):
            try:
                self._apply(patches.get(number, MemoryPatch()), turns)
            except GraphError:
                self._record_by_rule(episode, turns)
            self._known_turns.update(turns)

    def _record_episode(self, turns: list[int]) -> list[ReasoningNode]:
        """Record one episode by the mind's patch, and return the new nodes. If no answer is usable, record it whole.
        Without a mind, use rules."""
        episode = self.episodes.episode(turns)
        if self.mind is None:
            return self._record_by_rule(episode, turns)
        prompt = patch_prompt(self.graph, self.lane, [(episode, self._hinted_parent(turns))])
        try:
            return ask(self.mind, prompt, MemoryPatch, lambda patch: self._apply(patch, turns))
        except NoAnswer as problem:
            return self._record_by_rule(episode, turns, problem.reasons[-1])

    def _apply(self, patch: MemoryPatch, turns: list[int]) -> list[ReasoningNode]:
        if not patch.add_nodes:
            raise GraphError("the patch adds no node, so the episode would be lost")
        with self.store.change(self.agent_id) as graph:
            return graph.apply_patch(patch, turns, lane=self.lane, step=self.step)

    def _record_by_rule(
        self, episode: list[Message], turns: list[int], rejection: str | None = None
    ) -> list[ReasoningNode]:
        """Record an episode as one node, and return it in a list. The node has an excerpt of the episode.

        If the mind's answers were rejected, `rejection` is the reason, and the node has the whole episode.
        """
        with self.store.change(self.agent_id) as graph:
            node = graph.add_node(
                NodeKind.EVIDENCE,
                as_notes(episode, _EXCERPT_LENGTH if rejection is None else None),
                turns,
                lane=self.lane,
                step=self.step,
                status=FRUITLESS if self._hint(turns).is_fruitless else "open",
                tags=() if rejection is None else ("unstructured",),
                meta={} if rejection is None else {"unstructured": rejection},
            )
            reason = "the findings of this episode" if rejection is None else "kept whole"
            graph.add_edge(self._parent_id(graph, turns), node.node_id, f"support: {reason}")
            return [node]

    def _parent_id(self, graph: ReasoningGraph, turns: Sequence[int]) -> int:
        """Return the id of the node below which an episode belongs: by its hint, else the newest open subtask, else the
        task node."""
        below = graph.nodes.get(self._hint(turns).parent_id or 0)
        return below.node_id if below is not None and below.active is True else choose_parent(graph, self.lane)

    def _hinted_parent(self, turns: Sequence[int]) -> int | None:
        """Return the id of the node below which the episode belongs by its hint; None if the hint names none."""
        return None if self._hint(turns).parent_id is None else self._parent_id(self.graph, turns)

    def _hint(self, turns: Sequence[int]) -> EpisodeHint:
        return self._hints.get(turns[0], _NO_HINT)

    # -- the context -------------------------------------------------------------------------------------------

    def recall(self, max_tokens: int | None = None) -> list[Message]:
        """Return the messages of a context that has at most `max_tokens` tokens as JSON (None: the memory's budget).

        Until it fits, the graph's nodes are folded into summaries or flushed (hidden). The mind chooses them while that
        helps, then rules do. Raises BudgetTooSmall, without a change.
        """
        return self.recall_context(max_tokens).messages

    def recall_context(self, max_tokens: int | None = None) -> RenderedContext:
        """Do the work of `recall`. Return the context with the origin of each message: a message of the conversation,
        or a node."""
        budget = self.max_tokens if max_tokens is None else max_tokens
        recall = _Recall(self, budget)
        context = recall.fitting_context()
        if context is None:
            self.flush()  # only recorded episodes can be folded
            recall.check()
            if self.mind is not None:
                recall.by_mind(self.mind)
            context = recall.fitting_context() or recall.by_rule()
        return context

    # -- on disk (README.md, *graph.json*) -----------------------------------------------------------------------

    def save_memory(self, path: str | os.PathLike[str]) -> None:
        """Record all finished episodes, and write the graph's snapshot and the messages to a file, atomically.

        Raises UserError if the file cannot be written.
        """
        self.flush()
        text = snapshot_text(self.graph, messages=self.messages, turn_ids=self.turn_ids) + "\n"
        try:
            write(path, text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise UserError(f"cannot be written ({error.strerror})", location=path) from None

    def load_memory(self, path: str | os.PathLike[str]) -> None:
        """Replace this memory by a file's content: the output of `save_memory`, a snapshot, or a snapshot in `{"memory": …}`.

        A memory on a task's graph loads the messages only, because its graph comes from the task's log. Raises
        UserError if the file cannot be read, UnknownVersion for another version; the memory is then unchanged.
        """
        try:
            with boundary("saved memory", path, remedy=_UNCHANGED_REMEDY), open(path, "rb") as file:
                record = json.loads(file.read())
                if isinstance(record, dict) and isinstance(record.get("memory"), dict):
                    record = record["memory"]
                if not isinstance(record, dict):
                    raise GraphError("is not a memory")
                graph, episodes = ReasoningGraph.from_dict(record), EpisodeLog()
                episodes.add(record.get("messages") or (), 0, record.get("turn_ids"))
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror})", location=path) from None
        except UserError as error:
            kind = UnknownVersion if isinstance(error, UnknownVersion) else GraphError
            raise kind(error.message, location=path, remedy=error.remedy or _UNCHANGED_REMEDY) from None
        self.episodes = episodes
        self.turn_tokens.clear()
        if isinstance(self.store, ReasoningGraph):
            self.store = graph
        self._known_turns = _known_turn_ids(self.graph)


def _known_turn_ids(graph: ReasoningGraph) -> set[int]:
    """Return the ids of the messages to which a node of the graph refers."""
    return {turn for node in graph.nodes.values() for turn in node.related_turn_ids}


# -- recall: fold and flush by the mind, then by rules, then excerpt ---------------------------------------------------


class _Recall:
    """One recall from a memory. It folds nodes of the memory's graph into summaries, and flushes (hides) nodes."""

    def __init__(self, memory: ReasoningMemory, budget: int) -> None:
        self._memory, self._budget = memory, budget
        self._episodes, self._store, self._token_counter = memory.episodes, memory.store, memory.token_counter

    def fitting_context(self) -> RenderedContext | None:
        """Return the context, if necessary without the notes of flushed nodes; None if it still exceeds the budget."""
        for omit_flushed in (False, True):
            context = self._render(omit_flushed=omit_flushed)
            if self._size(context.messages) <= self._budget:
                return context
        return None

    def check(self) -> None:
        """Raise BudgetTooSmall if the messages that must stay exceed the budget even as excerpts."""
        removable_ids = frozenset(node.node_id for node in self._removable_nodes(self._store.graph))
        min_tokens = self._size(
            excerpt_messages(self._memory.render_context(omit_flushed=True, flushed_ids=removable_ids).messages, 0)
        )
        if min_tokens > self._budget:
            raise BudgetTooSmall(self._budget, min_tokens)

    def by_mind(self, mind: CompletingMind) -> None:
        """Let the mind choose nodes to fold into summaries or to flush (hide), as long as that makes the context smaller.

        The mind is not asked after `timeout` seconds, because the agent waits meanwhile.
        """
        end = time.monotonic() + self._memory.timeout
        size = self._size(self._render().messages)
        for _ in range(_MAX_ROUNDS):
            candidates = self._candidates()[:_MAX_OFFERED]
            if size <= self._budget or not candidates or time.monotonic() > end:
                return
            prompt = fold_prompt(candidates, size - self._budget + self._budget // _SPARE_DIVISOR)
            try:
                ask(mind, prompt, FlushAndFoldOp, self._apply)
            except NoAnswer:
                return
            previous_size, size = size, self._size(self._render().messages)
            if size >= previous_size:
                return

    def _apply(self, operations: FlushAndFoldOp) -> None:
        with self._store.change(self._memory.agent_id) as graph:
            allowed_ids = {node.node_id for node in self._removable_nodes(graph)}
            for number in (
                *(op.id for op in operations.flush_ops),
                *(node_id for op in operations.fold_ops for node_id in op.ids),
            ):
                if number in graph.nodes and number not in allowed_ids:
                    raise GraphError(f"node {number} is not active, or may not be folded or flushed")
            graph.apply_operations(operations)

    def by_rule(self) -> RenderedContext:
        """Make the context fit by rules, and return it: flush useless nodes, fold the oldest finished work, then flush
        other nodes, unsupported ones first.

        Folds more than necessary, so the next turns need not fold again. If that is not enough, excerpts the longest
        messages.
        """
        with self._store.change(self._memory.agent_id) as graph:
            for omit_flushed, step in (
                (False, self._flush_useless),
                (False, partial(self._fold, mixed=False)),
                (False, partial(self._fold, mixed=True)),
                (True, self._flush_unsupported),
            ):
                while True:
                    context = self._render(omit_flushed=omit_flushed)
                    excess_tokens = self._size(context.messages) - self._budget
                    if excess_tokens <= 0:
                        return context
                    if not step(graph, excess_tokens):
                        break
        context = self._render(omit_flushed=True)
        return replace(context, messages=self._excerpt_to_fit(context.messages, self._budget))

    def _flush_useless(self, graph: ReasoningGraph, _excess_tokens: int) -> bool:
        """Flush (hide) nodes that are fruitless, rejected or superseded. Return False if there are none."""
        useless = [node for node in self._candidates() if is_useless(graph, node)]
        for node in useless:
            graph.flush_node(node.node_id, f"{node.status}, flushed by rule")
        return bool(useless)

    def _fold(self, graph: ReasoningGraph, excess_tokens: int, *, mixed: bool) -> bool:
        """Fold finished work into summaries until about `excess_tokens` and a reserve are saved. Return False if
        nothing could be saved.

        `mixed` is as in `fold_runs`.
        """
        candidates = with_finished_steps(graph, {node.node_id for node in self._candidates()})
        hidden_turns = self._render().hidden_turns
        excess_tokens += self._budget // _SPARE_DIVISOR
        has_saved = False
        for run in fold_runs(graph, candidates, mixed=mixed):
            saved = self._fold_units(graph, run, hidden_turns)
            if not saved and len(run) > 1:
                saved = sum(self._fold_units(graph, [unit], hidden_turns) for unit in run)
            has_saved = has_saved or saved > 0
            excess_tokens -= saved
            if excess_tokens <= 0:
                break
        return has_saved

    def _fold_units(self, graph: ReasoningGraph, units: Sequence[Sequence[int]], hidden_turns: frozenset[int]) -> int:
        """Fold units into one summary if that is possible and saves tokens. Return an estimate of the saved tokens, 0
        if nothing was folded."""
        parts = [[graph.nodes[number] for number in unit] for unit in units]
        nodes = [node for part in parts for node in part]
        if len(nodes) == 1 and nodes[0].kind is NodeKind.SUMMARY:
            return 0
        current_tokens = self._estimate_tokens(nodes, hidden_turns)
        notes = rule_notes(
            parts, min(current_tokens * 4 // 3, max(160, self._budget // 2), max(_SUMMARY_LENGTH, self._budget // 16))
        )
        saved = current_tokens - self._token_counter(json.dumps([note.as_dict() for note in notes]))
        if saved <= 0:
            return 0
        try:
            graph.fold_nodes([node.node_id for node in nodes], notes, "the oldest finished work, folded by rule")
        except GraphError:
            return 0  # not convex: a flushed node is between them
        return saved

    def _flush_unsupported(self, graph: ReasoningGraph, excess_tokens: int) -> bool:
        """Flush (hide) nodes, unsupported ones first, until about `excess_tokens` are saved. Return False if no node
        could be flushed."""
        candidates = [node for node in self._candidates() if node.related_turn_ids]
        hidden_turns = self._render(omit_flushed=True).hidden_turns
        for node in sorted(candidates, key=lambda node: has_support(graph, node.node_id)):
            graph.flush_node(node.node_id, "flushed by rule to fit the budget")
            excess_tokens -= self._estimate_tokens([node], hidden_turns)
            if excess_tokens <= 0:
                break
        return bool(candidates)

    def _estimate_tokens(self, nodes: Iterable[ReasoningNode], hidden_turns: frozenset[int]) -> int:
        """Estimate the tokens of nodes in the context: their visible turns, and the notes that replace hidden turns."""
        total = 0
        shown_turns: set[int] = set()
        for node in nodes:
            turns = [
                turn for turn in node.related_turn_ids if turn in self._episodes.index and turn not in hidden_turns
            ]
            shown_turns.update(turns)
            if len(turns) < len(node.related_turn_ids):
                total += self._token_counter(json.dumps(as_messages(node)))
        for turn in shown_turns - self._memory.turn_tokens.keys():
            self._memory.turn_tokens[turn] = self._token_counter(json.dumps(self._episodes.message(turn)))
        return total + sum(self._memory.turn_tokens[turn] for turn in shown_turns)

    def _removable_nodes(self, graph: ReasoningGraph) -> list[ReasoningNode]:
        """Return the nodes of this lane that may be folded or flushed."""
        return [
            node for node in graph.active() if self._memory.visible_lane in (None, node.lane) and is_removable(node)
        ]

    def _candidates(self) -> list[ReasoningNode]:
        """Return the removable nodes with at least one turn that is not protected, oldest first."""
        protected_turns = {
            self._episodes.turn_ids[position]
            for position in self._episodes.protected_positions(self._memory.last_turns)
        }
        removable_nodes = self._removable_nodes(self._store.graph)
        return [
            node
            for node in removable_nodes
            if not node.related_turn_ids or not protected_turns.issuperset(node.related_turn_ids)
        ]

    def _excerpt_to_fit(self, messages: list[Message], budget: int) -> list[Message]:
        """Cut the longest contents to excerpts of one common length, the greatest with which all messages fit. Raises
        BudgetTooSmall."""
        low, high = 0, max((len(json.dumps(message)) for message in messages), default=0)
        best = excerpt_messages(messages, 0)
        min_tokens = self._size(best)
        if min_tokens > budget:
            raise BudgetTooSmall(budget, min_tokens)
        while low < high:
            middle = (low + high + 1) // 2
            excerpts = excerpt_messages(messages, middle)
            if self._size(excerpts) <= budget:
                low, best = middle, excerpts
            else:
                high = middle - 1
        return best

    def _render(self, *, omit_flushed: bool = False) -> RenderedContext:
        """Render the context. Excerpts the last messages if they exceed their share of the budget."""
        context = self._memory.render_context(omit_flushed=omit_flushed)
        messages = context.messages
        start = (
            len(messages) - len(self._episodes.protected_positions(self._memory.last_turns)) + self._episodes.preamble
        )
        max_tokens = int(self._budget * self._memory.last_share)
        if self._memory.last_share == 1.0 or self._size(messages[start:]) <= max_tokens:
            return context
        min_tokens = self._size(excerpt_messages(messages[start:], 0))
        return replace(
            context, messages=[*messages[:start], *self._excerpt_to_fit(messages[start:], max(max_tokens, min_tokens))]
        )

    def _size(self, messages: Sequence[Message]) -> int:
        return self._token_counter(json.dumps(messages))
