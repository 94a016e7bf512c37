"""The end of an epoch: add the turns of a conversation to the task's graph, and replace older nodes there by summaries
(`ReasoningMemory`)."""

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
_EPISODE = 2  # messages of a turn: the answer with its calls, and the results
_LAST_SHARE = 1 / 2  # the share of the last turns in the returned text
_TIMEOUT_S = 60.0
_TITLE_CHARS = 160
_ARGUMENT_CHARS = 500
_RESULT_CHARS = 2_000
_log = logging.getLogger(__name__)

TokenCount = Callable[[str], int]


def fold_conversation(
    trail: TaskTrail,
    title: str,
    turns: Sequence[TurnMessages],
    tokens: int,
    count: TokenCount,
    mind: Mind | None = None,
) -> str:
    """Return the conversation so far in at most `tokens` tokens: a folded outline and the last four turns, shortened if needed.
    Return "" if `tokens` is too small.

    Adds the turns to the task's graph, and folds older nodes there into summaries. The `mind` decides where a turn belongs and
    writes the summaries; without one, rules do. Raises Parking if another agent has a lease on what must be folded.
    """
    memory = ReasoningMemory(
        mind, count, graph=trail.store, lane=trail.lane, agent_id=trail.agent, single_conversation=True, timeout=_TIMEOUT_S,
        last_turns=LAST_TURNS * _EPISODE, last_share=_LAST_SHARE,
    )  # fmt: skip
    try:
        with trail.store.change(trail.agent) as graph:
            trail.ensure_root(graph)
        _add_turns(memory, trail, title, turns)
        return _text(memory.recall_context(tokens))
    except BudgetTooSmall:
        return ""
    except CoordinationError as error:
        raise Parking(str(error)) from None


def _add_turns(memory: ReasoningMemory, trail: TaskTrail, title: str, turns: Sequence[TurnMessages]) -> None:
    known_turns = {turn for node in memory.graph.nodes.values() for turn in node.related_turn_ids}
    messages = [{"role": "user", "content": excerpt(_indent(mask(title)), _TITLE_CHARS)}]
    ids = [0]
    hints: dict[int, EpisodeHint] = {}
    for turn in turns:
        first = int(turn.answer.id[1:])
        if ids[-1] == first:  # the answer before made no calls: this one's message follows it at once
            del ids[-1], messages[-1]
        messages += _episode(turn)
        ids += [first, first + 1]
        if first not in known_turns:
            outcome = _outcome_nodes(memory, trail, turn)
            if not (outcome and _attach(memory, outcome, [first, first + 1])):
                hints[first] = _hint(memory, trail, turn)
    memory.resume(messages, ids, hints)


def _attach(memory: ReasoningMemory, nodes: Sequence[int], turns: Sequence[int]) -> bool:
    try:
        return memory.attach(nodes, turns)
    except HivemindError as error:
        _log.warning("a turn cannot be added to the graph: %s", error)
        return False


def _episode(turn: TurnMessages) -> list[dict[str, Any]]:
    """Return a turn as two messages: the answer with its calls, and the results. Indent all lines but the first, so
    quoted text cannot look like the beginning of a message."""
    calls = [f"{call.tool}({_arguments(call.arguments)})" for call in turn.answer.calls]
    results = [excerpt(result.text, _RESULT_CHARS) for result in turn.results] or ["no calls"]
    return [
        {"role": "assistant", "content": _indent("\n".join([*filter(None, [turn.answer.text]), *calls]) or "-")},
        {"role": "tool", "content": _indent("\n".join(results))},
    ]


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}={excerpt(json.dumps(value, ensure_ascii=False, default=str), _ARGUMENT_CHARS)}"
        for key, value in arguments.items()
    )


def _indent(text: str) -> str:
    return text.replace("\r", "\n").replace("\n", "\n  ")


def _outcome_nodes(memory: ReasoningMemory, trail: TaskTrail, turn: TurnMessages) -> list[int]:
    """Return the nodes that represent a turn's outcome: the cards that it added, or else the steps that it closed."""
    tools = {call.id: call.tool for call in turn.answer.calls}
    cards: list[int] = []
    steps: list[int] = []
    for result in turn.results:
        value, tool = result.result or {}, tools[result.call_id or ""]
        if result.ok and tool == "add_card" and isinstance(value.get("node"), int):
            cards += _foldable(memory.graph.nodes.get(value["node"]))
        elif result.ok and tool == "finish_step":
            steps += _foldable(trail.subtask(str(value.get("step"))))
    return cards or steps


def _hint(memory: ReasoningMemory, trail: TaskTrail, turn: TurnMessages) -> EpisodeHint:
    """Return where to put a turn without an outcome in the graph: below the node of its step, or else of the task."""
    node = trail.subtask(str(turn.answer.step)) or memory.graph.root
    assert node is not None  # the task's node was created first
    return EpisodeHint(node.node_id, is_fruitless=bool(turn.results) and not any(result.ok for result in turn.results))


def _foldable(node: ReasoningNode | None) -> list[int]:
    """Return the node's id in a list if the node may represent a turn, else []: a pinned or open node would keep the turn from
    being folded."""
    is_foldable = node is not None and node.active is True and not node.pinned and is_settled(node)
    return [node.node_id] if is_foldable and node is not None else []


def _text(context: RenderedContext) -> str:
    """Return the messages as text, each after its role or node number. Their contents are indented, so none of their lines looks
    like the beginning of a message."""
    lines = []
    for (source, number), message in zip(context.sources, context.messages, strict=True):
        content = str(message["content"])
        lines.append(f"{message['role']}: {content}" if source == "turn" else f"node {number}: {_indent(content)}")
    return "\n".join(lines)
