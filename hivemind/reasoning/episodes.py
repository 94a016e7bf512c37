"""The conversation: its messages, grouped into episodes, and the context that the graph leaves of it (spec 4)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.frozen import frozen
from hivemind.reasoning.graph import ReasoningGraph
from hivemind.reasoning.node import FLUSHED, GraphError, NodeKind, Notes, ReasoningNode

Message = dict[str, Any]
LAST_TURNS = 4
_MARK = "…"
_Part = tuple[tuple[str, int], Message]


class Conversation:
    """Messages in their order, each with an id that it keeps. Ids count up; 0 is the first, as in the seed.

    An episode is an assistant turn with all the turns that answer it. What stands before the first assistant turn is
    the preamble. `done` counts the messages before the first episode that is not in the graph yet.
    """

    __slots__ = ("done", "index", "messages", "preamble", "turn_ids")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.turn_ids: list[int] = []
        self.index: dict[int, int] = {}
        self.preamble = self.done = 0

    def add(
        self,
        messages: Iterable[Mapping[str, Any]],
        first_id: int,
        turn_ids: Iterable[int] | None = None,
    ) -> None:
        """Take messages in, all or none, under `turn_ids`, or ids from `first_id` or after the last one.

        Raises GraphError for what is not a message, and for ids that do not rise.
        """
        checked = [_checked(message) for message in messages]
        last, before = self.turn_ids[-1] if self.turn_ids else -1, len(self.messages)
        first = max(first_id, last + 1)
        ids = list(range(first, first + len(checked)) if turn_ids is None else turn_ids)
        if len(ids) != len(checked) or any(one >= other for one, other in pairwise([last, *ids])):
            raise GraphError(f"{len(checked)} messages can't have the ids {ids} after {last}")
        self.messages += checked
        self.turn_ids += ids
        self.index |= {turn: at for at, turn in enumerate(ids, before)}
        if self.preamble == before:
            self.preamble += next((at for at, one in enumerate(checked) if one["role"] == "assistant"), len(checked))
            self.done = self.preamble

    def finished(self) -> Iterator[list[int]]:
        """The turns of each episode from `done` on that is over: answered, or followed by another."""
        at = self.done
        while at < len(self.messages):
            end = at + 1
            while end < len(self.messages) and self.messages[end]["role"] != "assistant":
                end += 1
            if end == len(self.messages) and not _answered(self.messages[at:end]):
                return
            yield self.turn_ids[at:end]
            at = end

    def message(self, turn: int) -> Message:
        return self.messages[self.index[turn]]

    def episode(self, turns: Sequence[int]) -> list[Message]:
        return [self.message(turn) for turn in turns]

    def protected(self, last: int) -> set[int]:
        """Positions that stay as they are: the preamble, and the last turns with the call that the first of them answers."""
        start = max(self.preamble, len(self.messages) - last)
        while start > self.preamble and self.messages[start]["role"] == "tool":
            start -= 1
        return {*range(self.preamble), *range(start, len(self.messages))}


def _answered(episode: Sequence[Message]) -> bool:
    first, *answers = episode
    if first["role"] != "assistant":
        return True
    calls = first.get("tool_calls")
    wanted = {call.get("id") for call in calls if isinstance(call, Mapping)} if isinstance(calls, list) else set()
    given = {answer.get("tool_call_id") for answer in answers}
    return bool(answers) and (wanted <= given or None in given)


def _checked(message: Mapping[str, Any]) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise GraphError(f"a message has a role, a text: {str(message)[:80]!r}")
    with boundary("message"):
        json.dumps(message)
    return dict(message)


def _text_of(message: Mapping[str, Any]) -> str:
    """What a message says, as plain text; of tool calls their names and arguments."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else []
    if isinstance(content, list):
        parts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts.append(f"{function.get('name')}({function.get('arguments', '')})")
    return "\n".join(parts)


def as_notes(episode: Sequence[Message], length: int | None = None) -> list[Notes]:
    """An episode as notes, each cut to `length` characters where one is given."""
    notes = []
    for message in episode:
        text = _text_of(message)
        if length is not None and len(text) > length:
            text = f"{text[: length - 1]}…"
        notes.append(Notes(message["role"], text))
    return notes


# -- the context that the graph leaves ----------------------------------------------------------------------------


@frozen
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
