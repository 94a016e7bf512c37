"""The conversation of a task: every turn of its agents is an episode in the task's own graph (spec 4, ReasoningMemory).

`log.jsonl` says what a turn was, `graph.jsonl` what it belongs to and what became of it. The log comes first: what stands
there and not in the graph is put into the graph when the task is taken up again.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hivemind.coordination import CoordinationError
from hivemind.errors import HivemindError
from hivemind.fs import reached
from hivemind.masking import mask
from hivemind.memory import ContextMemoryBlock, Priority
from hivemind.memory.weighing import Weigher
from hivemind.minds import Mind
from hivemind.reasoning import BudgetTooSmall, ReasoningGraph, ReasoningMemory, ReasoningNode, TaskGraph
from hivemind.reasoning.context import Context, excerpt
from hivemind.reasoning.memory import Place
from hivemind.reasoning.rules import is_settled
from hivemind.taskrun.parking import Parking
from hivemind.taskrun.said import Record, actions_of, indented, said
from hivemind.taskrun.trail import Trail

__all__ = ["LAST_TURNS", "Shown", "TaskConversation"]

LAST_TURNS = 4
_EPISODE = 2  # messages of a turn: what was thought and done, what answered it
_LAST_SHARE = 2 / 3  # of the conversation, for the last turns: what was before is never pushed out by one long turn
_PATIENCE_S = 60.0
_TITLE_CHARS = 160
_TRIES = 4
_DIGEST_CHARS = 12
_log = logging.getLogger(__name__)

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Shown:
    """What of a conversation stands in a context: turns as they were said, nodes by their notes, tokens of the entry.

    `budget`, `seqs` and `digest` are for who makes it again: in how many tokens it was to fit, between which lines of the
    graph's log it was made, and the beginning of the SHA-256 of its text.
    """

    turns: tuple[int, ...]
    notes: tuple[int, ...]
    tokens: int
    budget: int
    seqs: tuple[int, int]
    digest: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "turns": list(self.turns), "notes": list(self.notes), "tokens": self.tokens,
            "budget": self.budget, "seqs": list(self.seqs), "sha256": self.digest,
        }  # fmt: skip


class _Asked:
    """The agent's mind as the memory asks it; counts what that costs."""

    def __init__(self, mind: Mind, count: Count) -> None:
        self._mind, self._count = mind, count
        self._mutex = threading.Lock()
        self._tokens = 0

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        answer = self._mind.complete(text, schema)
        with self._mutex:
            self._tokens += self._count(text) + self._count(str(answer))
        return answer

    def take_tokens(self) -> int:
        with self._mutex:
            tokens, self._tokens = self._tokens, 0
        return tokens


class TaskConversation:
    """One task's conversation, for the agent that has the task in hand.

    `records` are those of the task's log so far. A `mind` that does not work by rule makes patches beside the agent, and
    folds. `looking` changes nothing on the disk: what does not fit is folded in a copy of the graph, or in the graph of
    `then`.
    """

    def __init__(
        self,
        trail: Trail,
        title: str,
        records: Iterable[Record],
        count: Count,
        mind: Mind | None = None,
        *,
        looking: bool = False,
        then: ReasoningGraph | None = None,
    ) -> None:
        self._trail, self._weigher = trail, Weigher(count)
        by_rule = mind is None or looking or getattr(mind, "by_rule", False)
        self._mind = None if by_rule or mind is None else _Asked(mind, count)
        graph: ReasoningGraph | TaskGraph = trail.store
        if looking:
            graph = then or ReasoningGraph.from_dict(trail.store.graph.to_dict())
        self._memory = ReasoningMemory(
            self._mind, count, graph=graph, lane=trail.lane, agent_id=trail.agent, only=True, timeout=_PATIENCE_S,
            background=self._mind is not None, last_turns=LAST_TURNS * _EPISODE, last_share=_LAST_SHARE,
        )  # fmt: skip
        if isinstance(graph, ReasoningGraph):
            trail.rooted(graph)
        elif graph.graph.root is None:
            with graph.change(trail.agent) as empty:
                trail.rooted(empty)
        self._next = self._take_up(title, records)

    # taking in

    def _take_up(self, title: str, records: Iterable[Record]) -> int:
        """Hear again what was said; gives the first id that no turn has had."""
        graph = self._memory.graph
        known = {turn for node in graph.nodes.values() for turn in node.related_turn_ids}
        messages: list[dict[str, Any]] = [{"role": "user", "content": excerpt(indented(mask(title)), _TITLE_CHARS)}]
        ids = [0]
        places: dict[int, Place] = {}
        for record in records:
            episode = said(record)
            turns = _turns(record, len(episode), ids[-1])
            if not turns:
                continue  # nothing was said, or it is of an older program, or changed by hand
            messages += episode
            ids += turns
            if known.isdisjoint(turns):  # the process ended between the log and the graph
                with _later():
                    self._memory.give(self._outcome(record), turns)
                places[turns[0]] = self._place(record)
        with _later():
            self._memory.resume(messages, ids, places)
        return max((*known, *ids)) + 1

    def number(self, record: dict[str, Any]) -> None:
        """Give the record of a turn the ids of what was said in it, before it is logged."""
        episode = said(record)
        if episode:
            record["turns"] = list(range(self._next, self._next + len(episode)))
            self._next += len(episode)

    def add(self, record: Record) -> None:
        """Put a turn that is in the log into the graph.

        It is attached to the cards that it made, or to the step that it closed; one that left nothing there becomes a
        node of its own. What can't be written now is put there by the next turn or the next process.
        """
        reached("conversation.logged")
        episode, turns = said(record), record.get("turns")
        if not episode:
            return
        nodes = self._outcome(record)
        with _later():
            if nodes:
                self._memory.attach(episode, nodes, turn_ids=turns)
            else:
                self._memory.memorize(episode, turn_ids=turns, place=self._place(record))

    def _outcome(self, record: Record) -> list[int]:
        """The nodes that say what a turn brought: the cards that it made, or else the steps that it closed."""
        graph = self._memory.graph
        cards: list[int] = []
        steps: list[int] = []
        for action in actions_of(record):
            if "error" in action or "parked" in action:
                continue
            if action["tool"] == "add_card":
                made = action["result"].get("node")
                cards += _standing_for(graph.nodes.get(made) if isinstance(made, int) else None)
            elif action["tool"] == "finish_step":
                steps += _standing_for(self._trail.subtask(str(action["result"].get("step"))))
        return cards or steps

    def _place(self, record: Record) -> Place:
        """What is known of a turn without an outcome: it belongs below the node of its step, else the task."""
        focus = record.get("focus")
        step = focus.get("step") if isinstance(focus, Mapping) else None
        found = self._trail.subtask(str(step)) or self._memory.graph.root
        assert found is not None  # the task's own node was made first
        return Place(found.node_id, fruitless=_is_fruitless(record))

    # giving back

    def block(self, task: str, room: int) -> tuple[ContextMemoryBlock, Shown] | None:
        """The conversation as a block whose entry has at most `room` tokens, folded where it must be; None if not even
        excerpts of the last turns fit. Raises Parking if what is to be folded is in another agent's hands."""
        budget = room - self._weigher.tokens(_block(task, "", []))
        for _ in range(_TRIES):
            if budget < 0:
                break
            before = self._trail.store.seq
            try:
                context = self._memory.recall_context(budget)
            except BudgetTooSmall:
                return None
            except CoordinationError as error:
                raise Parking(str(error)) from None
            text, notes = _text(context), _numbers(context, "node")
            block = _block(task, text, notes)
            tokens = self._weigher.tokens(block)
            if tokens <= room:
                made = (before, self._trail.store.seq)
                return block, Shown(_numbers(context, "turn"), notes, tokens, budget, made, _digest(text))
            budget = min(budget - (tokens - room), budget * room // tokens)
        return None

    def again(self, budget: int) -> str:
        """The digest of the conversation's text in so many tokens; what does not fit at all has none, ''. For replays."""
        try:
            return _digest(_text(self._memory.recall_context(budget)))
        except BudgetTooSmall:
            return ""

    def settle(self) -> None:
        """See to it that every turn is in the graph, before the task ends: a slow mind is waited for a minute, no longer."""
        with _later():
            self._memory.flush(_PATIENCE_S)

    def take_tokens(self) -> int:
        """What the memory's questions have cost since the last call."""
        return 0 if self._mind is None else self._mind.take_tokens()

    def close(self) -> None:
        """Ask nothing more. What is not in the graph is in the log."""
        self._memory.close(wait=False)


@contextmanager
def _later() -> Iterator[None]:
    """What can't be written into the graph now stays in the log, and is tried again."""
    try:
        yield
    except HivemindError as error:
        _log.warning("a turn is not in the graph yet: %s", error)


def _turns(record: Record, number: int, last: int) -> list[int]:
    """The ids of what was said in a turn, [] if they are none: as many as messages, rising from after `last`."""
    turns = record.get("turns")
    if not isinstance(turns, list) or len(turns) != number or any(type(one) is not int for one in turns):
        return []
    return turns if all(one < other for one, other in pairwise([last, *turns])) else []


def _is_fruitless(record: Record) -> bool:
    """Whether a turn led to nothing: all that it tried failed, or it only waited."""
    actions = actions_of(record)
    return bool(actions) and all("error" in action or "parked" in action for action in actions)


def _standing_for(node: ReasoningNode | None) -> list[int]:
    """The node, if it can stand for a turn: what is pinned or still open stays, and would keep the turn with it."""
    fits = node is not None and node.active is True and not node.pinned and is_settled(node)
    return [node.node_id] if fits and node is not None else []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]


def _numbers(context: Context, kind: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number for source, number in context.sources if source == kind))


def _text(context: Context) -> str:
    """The messages, one after the other; only who speaks stands at the beginning of a line."""
    lines = []
    for (source, number), message in zip(context.sources, context.messages, strict=True):
        told = str(message["content"])
        lines.append(f"{message['role']}: {told}" if source == "turn" else f"node {number}: {indented(told)}")
    return "\n".join(lines)


def _block(task: str, text: str, notes: Iterable[int]) -> ContextMemoryBlock:
    return ContextMemoryBlock(
        id=f"context:conversation:{task}",
        context_type="conversation_context",
        summary=text,
        related_ids=[f"task:{task}", *(f"node:{number}" for number in notes)],
        priority=Priority.CRITICAL,
        metadata={"task_id": task, "origin": "agent"},
    )
