"""An epoch's end: the turns of a conversation go into the task's graph, which folds them (spec 4, ReasoningMemory; spec 8)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hivemind.coordination import CoordinationError
from hivemind.errors import HivemindError
from hivemind.masking import mask
from hivemind.minds import Mind
from hivemind.reasoning import (
    BudgetTooSmall,
    EpisodeHint,
    ReasoningMemory,
    ReasoningNode,
    RenderedContext,
    excerpt,
    is_settled,
)
from hivemind.taskrun.conversation import TurnMessages
from hivemind.taskrun.trail import TaskTrail
from hivemind.taskrun.waits import Parking

LAST_TURNS = 4
_EPISODE = 2  # messages of a turn: what was answered and asked for, what came of it
_LAST_SHARE = 1 / 2  # of what is returned, for the last turns
_PATIENCE_S = 60.0
_TITLE_CHARS = 160
_ARGUMENT_CHARS = 500
_RESULT_CHARS = 2_000
_log = logging.getLogger(__name__)

Count = Callable[[str], int]


def folded(
    trail: TaskTrail, title: str, turns: Sequence[TurnMessages], tokens: int, count: Count, mind: Mind | None = None
) -> str:
    """What was said so far, in at most `tokens` tokens: a folded outline, and the last four turns, excerpted if they must be.

    Puts the turns into the task's graph, flushes and folds there; a `mind` makes the patches and folds, else rules do. Empty
    if nothing fits. Raises Parking if what is to be folded is in another agent's hands.
    """
    memory = ReasoningMemory(
        mind, count, graph=trail.store, lane=trail.lane, agent_id=trail.agent, only=True, timeout=_PATIENCE_S,
        last_turns=LAST_TURNS * _EPISODE, last_share=_LAST_SHARE,
    )  # fmt: skip
    try:
        with trail.store.change(trail.agent) as graph:
            trail.rooted(graph)
        _take_in(memory, trail, title, turns)
        return _text(memory.recall_context(tokens))
    except BudgetTooSmall:
        return ""
    except CoordinationError as error:
        raise Parking(str(error)) from None


def _take_in(memory: ReasoningMemory, trail: TaskTrail, title: str, turns: Sequence[TurnMessages]) -> None:
    known = {turn for node in memory.graph.nodes.values() for turn in node.related_turn_ids}
    messages = [{"role": "user", "content": excerpt(_indented(mask(title)), _TITLE_CHARS)}]
    ids = [0]
    places: dict[int, EpisodeHint] = {}
    for turn in turns:
        first = int(turn.answer.id[1:])
        messages += _episode(turn)
        ids += [first, first + 1]
        if first not in known:
            outcome = _outcome(memory, trail, turn)
            if not (outcome and _given(memory, outcome, [first, first + 1])):
                places[first] = _place(memory, trail, turn)
    memory.resume(messages, ids, places)


def _given(memory: ReasoningMemory, nodes: Sequence[int], turns: Sequence[int]) -> bool:
    try:
        return memory.attach(nodes, turns)
    except HivemindError as error:
        _log.warning("a turn is not in the graph: %s", error)
        return False


def _episode(turn: TurnMessages) -> list[dict[str, Any]]:
    """A turn as an answer and what came of it; all lines but the first are indented, so that nothing that was quoted can look
    like the beginning of another."""
    calls = [f"{call.tool}({_arguments(call.arguments)})" for call in turn.answer.calls]
    results = [excerpt(one.text, _RESULT_CHARS) for one in turn.results] or ["nothing was done"]
    return [
        {"role": "assistant", "content": _indented("\n".join([*filter(None, [turn.answer.text]), *calls]) or "-")},
        {"role": "tool", "content": _indented("\n".join(results))},
    ]


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}={excerpt(json.dumps(value, ensure_ascii=False, default=str), _ARGUMENT_CHARS)}"
        for key, value in arguments.items()
    )


def _indented(text: str) -> str:
    return text.replace("\r", "\n").replace("\n", "\n  ")


def _outcome(memory: ReasoningMemory, trail: TaskTrail, turn: TurnMessages) -> list[int]:
    """The nodes that say what a turn brought: the cards that it made, or else the steps that it closed."""
    tools = {call.id: call.tool for call in turn.answer.calls}
    cards: list[int] = []
    steps: list[int] = []
    for one in turn.results:
        value, tool = one.result or {}, tools[one.call_id or ""]
        if one.ok and tool == "add_card" and isinstance(value.get("node"), int):
            cards += _standing_for(memory.graph.nodes.get(value["node"]))
        elif one.ok and tool == "finish_step":
            steps += _standing_for(trail.subtask(str(value.get("step"))))
    return cards or steps


def _place(memory: ReasoningMemory, trail: TaskTrail, turn: TurnMessages) -> EpisodeHint:
    """Where a turn without an outcome belongs: below the node of its step, else the task."""
    found = trail.subtask(str(turn.answer.step)) or memory.graph.root
    assert found is not None  # the task's own node was made first
    return EpisodeHint(found.node_id, fruitless=bool(turn.results) and not any(one.ok for one in turn.results))


def _standing_for(node: ReasoningNode | None) -> list[int]:
    """The node, if it can stand for a turn: what is pinned or still open stays, and would keep the turn with it."""
    fits = node is not None and node.active is True and not node.pinned and is_settled(node)
    return [node.node_id] if fits and node is not None else []


def _text(context: RenderedContext) -> str:
    """The messages, one after the other; only who speaks stands at the beginning of a line."""
    lines = []
    for (source, number), message in zip(context.sources, context.messages, strict=True):
        told = str(message["content"])
        lines.append(f"{message['role']}: {told}" if source == "turn" else f"node {number}: {_indented(told)}")
    return "\n".join(lines)
