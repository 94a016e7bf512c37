"""The context that the graph leaves of a conversation (spec 4, *recall*)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.messages import Conversation, Message
from hivemind.reasoning.node import FLUSHED, NodeKind, ReasoningNode
from hivemind.reasoning.notes import Notes

__all__ = ["LAST_TURNS", "Context", "excerpt", "excerpted", "measure", "render"]

LAST_TURNS = 4
_MARK = "…"


@dataclass(frozen=True, slots=True)
class Context:
    """The messages, and which turns are left out of them because of the graph."""

    messages: list[Message]
    hidden: frozenset[int]


def measure(count: Callable[[str], int], messages: Sequence[Message]) -> int:
    """The tokens of a list of messages: those of its `json.dumps`."""
    return count(json.dumps(messages))


def render(
    talk: Conversation, graph: ReasoningGraph, lane: str, *, bare: bool = False, without: frozenset[int] = frozenset()
) -> Context:
    """The messages with every folded run replaced in place by its summary's notes, every flushed turn by its node's.

    `bare` leaves out the notes of flushed nodes; nodes in `without` are taken as flushed. A turn stays as it is if it
    is protected, if an active node needs it, or if no node has it. A summary stands at the place of the last turn that
    it hides. Nodes of other lanes have turns of other conversations and play no part.
    """
    kept, folded, flushed, lost = _owners(talk, graph, lane, without)
    protected = talk.protected(LAST_TURNS)
    hidden: set[int] = set()
    place: dict[int, int] = {}  # of each node whose notes are shown: the position of the last turn that it hides
    for at, turn in enumerate(talk.turn_ids):
        if at in protected or turn in kept:
            continue
        owners = folded.get(turn) or flushed.get(turn)
        if owners:
            hidden.add(turn)
            for owner in owners:
                place[owner] = at
    shown: dict[int, list[int]] = {}
    for number, at in sorted(place.items()):
        shown.setdefault(at, []).append(number)
    messages = _opening(talk, graph)
    for node in lost:
        messages += as_messages(node)
    for at in range(talk.preamble, len(talk.messages)):
        if talk.turn_ids[at] not in hidden:
            messages.append(talk.messages[at])
        for number in shown.get(at, ()):
            messages += _notes(graph.nodes[number], talk, bare, number in without)
    return Context(messages, frozenset(hidden))


def _owners(
    talk: Conversation, graph: ReasoningGraph, lane: str, without: frozenset[int]
) -> tuple[set[int], dict[int, list[int]], dict[int, list[int]], list[ReasoningNode]]:
    """Turns that active nodes need; turns by summary; turns by flushed node; active nodes whose turns nobody has."""
    kept: set[int] = set()
    folded: dict[int, list[int]] = {}
    flushed: dict[int, list[int]] = {}
    lost = []
    index = talk.index
    for number, node in graph.nodes.items():
        turns, active = node.related_turn_ids, node.active
        if active is False or not turns or node.lane != lane or (active == FLUSHED and "unfolded" in node.meta):
            continue
        if active is True and number in without:
            active = FLUSHED
        if active is True and node.kind is not NodeKind.TASK and not any(turn in index for turn in turns):
            lost.append(node)
        elif active is True and node.kind is not NodeKind.SUMMARY:
            kept.update(turns)
        else:
            owners = folded if active is True else flushed
            for turn in turns:
                owners.setdefault(turn, []).append(number)
    return kept, folded, flushed, lost


def _opening(talk: Conversation, graph: ReasoningGraph) -> list[Message]:
    """The preamble; the task itself is in it, also where the conversation did not say it."""
    opening = talk.messages[: talk.preamble]
    if graph.root is not None and not any(message["role"] == "user" for message in opening):
        opening = [*opening, {"role": "user", "content": graph.root.text}]
    return opening


def _notes(node: ReasoningNode, talk: Conversation, bare: bool, without: bool) -> list[Message]:
    if node.active is True and not without:
        return as_messages(node)
    if bare:
        return []
    messages = as_messages(node)
    raw = [talk.message(turn) for turn in node.related_turn_ids if turn in talk.index]
    return messages if len(json.dumps(messages)) < len(json.dumps(raw)) else []


def as_messages(node: ReasoningNode) -> list[Message]:
    """The notes of a node as messages. Only assistant and user speak; others are quoted with their name by the user,
    so that no note can pass for a system message."""
    thought = node.thought if not isinstance(node.thought, str) else _from_text(node.thought)
    return [_as_message(note) for note in thought]


def _as_message(note: Notes) -> Message:
    if note.role in ("assistant", "user"):
        return note.as_dict()
    return {"role": "user", "content": f"{note.role}: {note.content}"}


def _from_text(text: str) -> list[Notes]:
    """A text as notes; the published implementation of the seed stores the JSON of a list of notes as text."""
    if text.startswith("["):
        try:
            found = json.loads(text)
            return [Notes(str(item["role"]), str(item["content"])) for item in found]
        except (ValueError, TypeError, KeyError):
            pass  # a text like any other
    return [Notes("assistant", text)] if text else []


def excerpt(text: str, length: int) -> str:
    """`text` cut to about `length` characters: its beginning and, of the longer ones, its end."""
    if len(text) <= length or len(text) <= 1:
        return text
    head = (length * 2 + 2) // 3
    tail = length - head
    return f"{text[:head]}{_MARK}{text[len(text) - tail :] if tail else ''}"


def excerpted(messages: Sequence[Message], length: int) -> list[Message]:
    """The messages, every content that is longer than `length` characters cut to an excerpt."""
    return [_shortened(message, length) for message in messages]


def _shortened(message: Message, length: int) -> Message:
    content: Any = message.get("content")
    if isinstance(content, str) and len(content) > max(length, 1):
        return {**message, "content": excerpt(content, length)}
    if isinstance(content, list):
        parts = [
            {**part, "text": excerpt(part["text"], length)}
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
        return {**message, "content": parts}
    return message
