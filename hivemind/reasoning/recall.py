"""Making a context fit its budget: ask the mind, then fold and flush by rule, then excerpt (spec 4, *recall*)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hivemind.reasoning.episodes import Context, Conversation, Message, as_messages, excerpted, render
from hivemind.reasoning.errors import BudgetTooSmall, GraphError
from hivemind.reasoning.fold_rules import has_support, is_useless, may_go, rule_notes, runs, with_finished_steps
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.mind_prompts import CompletingMind, NoAnswer, ask, fold_prompt
from hivemind.reasoning.node import FlushAndFoldOp, NodeKind, ReasoningNode
from hivemind.reasoning.task_graph import TaskGraph

__all__ = ["Recall"]

_ROUNDS = 8
_SPARE = 4  # a quarter of the budget is freed beyond what is needed, so that not every turn needs it again
_OFFERED = 120
_CHARS = 800  # of a summary by rule, at most; more where the budget is large


@dataclass(frozen=True, slots=True)
class Recall:
    """One recall, from and in the graph that `store` holds; `costs` keeps what each turn costs.

    `last` turns stay; the longest of them are excerpted where they are more than `share` of the budget.
    """

    talk: Conversation
    store: ReasoningGraph | TaskGraph
    agent_id: str | None
    count: Callable[[str], int]
    lane: str | None
    budget: int
    costs: dict[int, int]
    last: int
    share: float

    def fits(self) -> Context | None:
        """The context, if it is within the budget as it is (without the notes of flushed nodes, if need be)."""
        for bare in (False, True):
            context = self._render(bare=bare)
            if self._size(context.messages) <= self.budget:
                return context
        return None

    def check(self) -> None:
        """Raises BudgetTooSmall if what no fold and no flush can take away is over the budget even as excerpts."""
        own = frozenset(node.node_id for node in self._own(self.store.graph))
        stays = render(self.talk, self.store.graph, self.lane, last=self.last, bare=True, without=own).messages
        least = self._size(excerpted(stays, 0))
        if least > self.budget:
            raise BudgetTooSmall(self.budget, least)

    def by_mind(self, mind: CompletingMind, timeout: float | None) -> None:
        """Let the mind fold and flush as long as that helps; what it can't do is left to the rule.

        No question is begun `timeout` seconds after the first one: the agent waits meanwhile.
        """
        end = None if timeout is None else time.monotonic() + timeout
        size = self._size(self._render().messages)
        for _ in range(_ROUNDS):
            offered = self._candidates()[:_OFFERED]
            if size <= self.budget or not offered or (end is not None and time.monotonic() > end):
                return
            prompt = fold_prompt(offered, size - self.budget + self.budget // _SPARE)
            try:
                ask(mind, prompt, FlushAndFoldOp, self._apply, timeout=timeout)
            except NoAnswer:
                return
            before, size = size, self._size(self._render().messages)
            if size >= before:
                return

    def _apply(self, operations: FlushAndFoldOp) -> None:
        with self.store.change(self.agent_id) as graph:
            mine = {node.node_id for node in self._own(graph)}
            for number in (*(op.id for op in operations.flush_ops), *(n for op in operations.fold_ops for n in op.ids)):
                if number in graph.nodes and number not in mine:
                    raise GraphError(f"node {number} is not active, or not yours to fold or flush")
            graph.apply_operations(operations)

    def by_rule(self) -> Context:
        """Flush what turned out useless, fold the oldest finished work, then flush what nothing supports, then the rest,
        until it fits. More is folded than is needed, so that not every turn folds again."""
        with self.store.change(self.agent_id) as graph:
            for bare, step in (
                (False, self._flush_useless),
                (False, partial(self._fold, mixed=False)),
                (False, partial(self._fold, mixed=True)),
                (True, self._flush),
            ):
                while True:
                    context = self._render(bare=bare)
                    over = self._size(context.messages) - self.budget
                    if over <= 0:
                        return context
                    if not step(graph, over):
                        break
        context = self._render(bare=True)
        return replace(context, messages=self._cut(context.messages, self.budget))

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
        over += self.budget // _SPARE
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
        notes = rule_notes(parts, min(now * 4 // 3, max(160, self.budget // 2), max(_CHARS, self.budget // 16)))
        saved = now - self.count(json.dumps([note.as_dict() for note in notes]))
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
            turns = [turn for turn in node.related_turn_ids if turn in self.talk.index and turn not in hidden]
            whole.update(turns)
            if len(turns) < len(node.related_turn_ids):
                total += self.count(json.dumps(as_messages(node)))
        for turn in whole - self.costs.keys():
            self.costs[turn] = self.count(json.dumps(self.talk.message(turn)))
        return total + sum(self.costs[turn] for turn in whole)

    def _own(self, graph: ReasoningGraph) -> list[ReasoningNode]:
        """The nodes of this lane that may go."""
        return [node for node in graph.active() if self.lane in (None, node.lane) and may_go(node)]

    def _candidates(self) -> list[ReasoningNode]:
        """Those of them that do not stand in the context for protected turns alone, oldest first."""
        last = {self.talk.turn_ids[at] for at in self.talk.protected(self.last)}
        own = self._own(self.store.graph)
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
        context = render(self.talk, self.store.graph, self.lane, last=self.last, bare=bare)
        messages = context.messages
        at = len(messages) - len(self.talk.protected(self.last)) + self.talk.preamble
        room = int(self.budget * self.share)
        if self.share == 1.0 or self._size(messages[at:]) <= room:
            return context
        least = self._size(excerpted(messages[at:], 0))
        return replace(context, messages=[*messages[:at], *self._cut(messages[at:], max(room, least))])

    def _size(self, messages: Sequence[Message]) -> int:
        return self.count(json.dumps(messages))
