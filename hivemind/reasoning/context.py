"""The context that the graph leaves of a conversation (spec 4, *recall*)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.reasoning.conversation import Conversation, Message
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import FLUSHED, NodeKind, Notes, ReasoningNode

__all__ = ["LAST_TURNS", "Context", "excerpt", "excerpted", "render"]

LAST_TURNS = 4
_MARK = "…"
_Part = tuple[tuple[str, int], Message]


@dataclass(frozen=True, slots=True)
class Context:
    """The messages, and which turns are left out of them because of the graph.

    `sources` says of each message where it comes from: ("turn", its id) or ("node", the id of the node whose notes it is).
    """

    messages: list[Message]
    hidden: frozenset[int]
    sources: tuple[tuple[str, int], ...]


def render(
    talk: Conversation,
    graph: ReasoningGraph,
    lane: str | None,
    *,
    last: int = LAST_TURNS,
    bare: bool = False,
    without: frozenset[int] = frozenset(),
) -> Context:
    """The messages with every folded run replaced in place by its summary's notes, every flushed turn by its node's.

    `bare` leaves out the notes of flushed nodes; nodes in `without` are taken as flushed. A turn stays as it is if it
    is protected (the preamble and the `last` turns), if an active node needs it, or if no node has it. A summary stands
    at the place of the last turn that it hides. Nodes of other lanes have turns of other conversations and play no part,
    unless `lane` is None: then the graph has one conversation.
    """
    kept, folded, flushed, lost = _owners(talk, graph, lane, without)
    ids = talk.turn_ids
    kept.update(ids[at] for at in talk.protected(last))
    hidden: set[int] = set()
    shown: dict[int, list[int]] = {}  # nodes by their place: the position of the last turn that they hide
    for owners in (folded, flushed):
        gone = {turn for turn in set().union(*owners.values()) - kept - hidden if turn in talk.index}
        for number, turns in sorted(owners.items()):
            if not gone.isdisjoint(turns):
                place = talk.index[next(turn for turn in sorted(turns, reverse=True) if turn in gone)]
                shown.setdefault(place, []).append(number)
        hidden |= gone
    parts = _opening(talk, graph)
    for node in lost:
        parts += _of_node(node.node_id, as_messages(node))
    left = [at for at in range(talk.preamble, len(ids)) if ids[at] not in hidden]
    for at in sorted({*left, *shown}):
        if ids[at] not in hidden:
            parts.append((("turn", ids[at]), talk.messages[at]))
        for number in sorted(shown.get(at, ())):
            parts += _of_node(number, _notes(graph.nodes[number], talk, bare, number in without))
    return Context([message for _, message in parts], frozenset(hidden), tuple(source for source, _ in parts))


def _of_node(number: int, messages: list[Message]) -> list[_Part]:
    return [(("node", number), message) for message in messages]


def _owners(
    talk: Conversation, graph: ReasoningGraph, lane: str | None, without: frozenset[int]
) -> tuple[set[int], dict[int, list[int]], dict[int, list[int]], list[ReasoningNode]]:
    """Turns that active nodes need; the turns of each summary, of each flushed node; active nodes whose turns nobody has."""
    kept: set[int] = set()
    folded: dict[int, list[int]] = {}
    flushed: dict[int, list[int]] = {}
    lost = []
    index = talk.index
    for number, node in graph.nodes.items():
        turns, active = node.related_turn_ids, node.active
        if not turns or active is False or lane not in (None, node.lane):  # of what is folded the summaries speak
            continue
        if "origin" in node.meta or (active == FLUSHED and "unfolded" in node.meta):  # of a published copy the draft
            continue
        if active is True and number in without:
            active = FLUSHED
        if active is True and node.kind is not NodeKind.TASK and not any(turn in index for turn in turns):
            lost.append(node)
        elif active is True and node.kind is not NodeKind.SUMMARY:
            kept.update(turns)
        else:
            (folded if active is True else flushed)[number] = turns
    return kept, folded, flushed, lost


def _opening(talk: Conversation, graph: ReasoningGraph) -> list[_Part]:
    """The preamble; the task itself is in it, also where the conversation did not say it."""
    opening: list[_Part] = [(("turn", talk.turn_ids[at]), talk.messages[at]) for at in range(talk.preamble)]
    if graph.root is not None and not any(message["role"] == "user" for _, message in opening):
        opening += _of_node(graph.root.node_id, [{"role": "user", "content": graph.root.text}])
    return opening


def _notes(node: ReasoningNode, talk: Conversation, bare: bool, without: bool) -> list[Message]:
    """What a node says in the place of its turns: of a flushed one nothing if that is longer than they were."""
    messages = as_messages(node)
    if node.active is True and not without:
        return messages
    turns = [talk.message(turn) for turn in node.related_turn_ids if turn in talk.index]
    return [] if bare or len(json.dumps(messages)) >= sum(len(json.dumps(turn)) for turn in turns) else messages


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
        with suppress(Unreadable), boundary("list of notes"):  # else it is a text like any other
            return [Notes(str(item["role"]), str(item["content"])) for item in json.loads(text)]
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
