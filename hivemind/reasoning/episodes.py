"""The conversation: messages grouped into episodes, and the context rendered from messages and graph."""

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
from hivemind.words import truncate

Message = dict[str, Any]
LAST_TURNS = 4
_MARK = "…"
_SourcedMessage = tuple[tuple[str, int], Message]


class EpisodeLog:
    """The messages of a conversation in order, each with a permanent id, its turn id. Ids count up from 0.

    An episode is an assistant message with all the messages that answer it. `preamble` is the number of messages before
    the first assistant message, `done` the number of messages before the first episode that is not in the graph yet.
    """

    __slots__ = ("done", "index", "messages", "preamble", "turn_ids")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.turn_ids: list[int] = []
        self.index: dict[int, int] = {}
        self.preamble = self.done = 0

    def add(self, messages: Iterable[Mapping[str, Any]], first_id: int, turn_ids: Iterable[int] | None = None) -> None:
        """Append messages, all or none. Their ids are `turn_ids`. By default they count up from `first_id`, or from the
        last message's id + 1 if that is higher.

        Raises GraphError if a message is malformed, or if the ids do not increase.
        """
        new_messages = [_checked_message(message) for message in messages]
        last_id, old_count = self.turn_ids[-1] if self.turn_ids else -1, len(self.messages)
        first = max(first_id, last_id + 1)
        ids = list(range(first, first + len(new_messages)) if turn_ids is None else turn_ids)
        if len(ids) != len(new_messages) or any(earlier >= later for earlier, later in pairwise([last_id, *ids])):
            raise GraphError(f"{len(new_messages)} messages can't have the ids {ids} after {last_id}")
        self.messages += new_messages
        self.turn_ids += ids
        self.index |= {turn: position for position, turn in enumerate(ids, old_count)}
        if self.preamble == old_count:
            self.preamble += next(
                (position for position, message in enumerate(new_messages) if message["role"] == "assistant"),
                len(new_messages),
            )
            self.done = self.preamble

    def finished_episodes(self) -> Iterator[list[int]]:
        """Yield the turn ids of each finished episode that is not in the graph yet. It is finished when it is answered,
        or followed by another episode."""
        start = self.done
        while start < len(self.messages):
            end = start + 1
            while end < len(self.messages) and self.messages[end]["role"] != "assistant":
                end += 1
            if end == len(self.messages) and not _is_answered(self.messages[start:end]):
                return
            yield self.turn_ids[start:end]
            start = end

    def message(self, turn: int) -> Message:
        return self.messages[self.index[turn]]

    def episode(self, turns: Sequence[int]) -> list[Message]:
        return [self.message(turn) for turn in turns]

    def protected_positions(self, last_turns: int) -> set[int]:
        """Return the positions of the messages that are never hidden: the preamble and the last `last_turns` messages.

        If the first of these last messages is the result of a call, the message with the call is protected, too.
        """
        start = max(self.preamble, len(self.messages) - last_turns)
        while start > self.preamble and self.messages[start]["role"] == "tool":
            start -= 1
        return {*range(self.preamble), *range(start, len(self.messages))}


def _is_answered(episode: Sequence[Message]) -> bool:
    first, *answers = episode
    if first["role"] != "assistant":
        return True
    calls = first.get("tool_calls")
    call_ids = {call.get("id") for call in calls if isinstance(call, Mapping)} if isinstance(calls, list) else set()
    answered_ids = {answer.get("tool_call_id") for answer in answers}
    return bool(answers) and (call_ids <= answered_ids or None in answered_ids)


def _checked_message(message: Mapping[str, Any]) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise GraphError(f"a message needs a role that is a text: {str(message)[:80]!r}")
    with boundary("message"):
        json.dumps(message)
    return dict(message)


def _message_text(message: Mapping[str, Any]) -> str:
    """Return a message as plain text, with the names and arguments of its tool calls."""
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


def as_notes(episode: Sequence[Message], max_length: int | None = None) -> list[Notes]:
    """Return an episode's messages as notes, each cut to `max_length` characters (None: uncut)."""
    notes = []
    for message in episode:
        text = _message_text(message)
        notes.append(Notes(message["role"], text if max_length is None else truncate(text, max_length)))
    return notes


# -- the rendered context -----------------------------------------------------------------------------------------


@frozen
class RenderedContext:
    """The messages of a context, and the ids of the messages that the graph hides.

    `sources` has one origin per message: ("turn", the message's id), or ("node", the id of the node whose notes it is).
    """

    messages: list[Message]
    hidden_turns: frozenset[int]
    sources: tuple[tuple[str, int], ...]


def render(
    episodes: EpisodeLog,
    graph: ReasoningGraph,
    lane: str | None,
    *,
    last_turns: int = LAST_TURNS,
    omit_flushed: bool = False,
    flushed_ids: frozenset[int] = frozenset(),
) -> RenderedContext:
    """Return the context: messages ("turns") of a summary or a flushed node are replaced by the notes of this node.

    `omit_flushed` leaves out the notes of flushed nodes; nodes in `flushed_ids` count as flushed. A turn stays
    unchanged if it is protected (the preamble and the `last_turns`), if an active node needs it, or if no node refers
    to it. Notes stand where the last turn was that their node hides. Nodes of other lanes are ignored, because their
    turns belong to other conversations. With `lane` None, all lanes belong to this conversation.
    """
    required_turns, folded_turns, flushed_turns, unplaced_nodes = _owners(episodes, graph, lane, flushed_ids)
    ids = episodes.turn_ids
    required_turns.update(ids[position] for position in episodes.protected_positions(last_turns))
    hidden_turns: set[int] = set()
    notes_by_position: dict[int, list[int]] = {}  # position of the last hidden turn → nodes
    for owners in (folded_turns, flushed_turns):
        newly_hidden = {
            turn for turn in set().union(*owners.values()) - required_turns - hidden_turns if turn in episodes.index
        }
        for number, turns in sorted(owners.items()):
            if not newly_hidden.isdisjoint(turns):
                last_position = episodes.index[
                    next(turn for turn in sorted(turns, reverse=True) if turn in newly_hidden)
                ]
                notes_by_position.setdefault(last_position, []).append(number)
        hidden_turns |= newly_hidden
    parts = _opening(episodes, graph)
    for node in unplaced_nodes:
        parts += _node_parts(node.node_id, as_messages(node))
    visible_positions = [
        position for position in range(episodes.preamble, len(ids)) if ids[position] not in hidden_turns
    ]
    for turn_position in sorted({*visible_positions, *notes_by_position}):
        if ids[turn_position] not in hidden_turns:
            parts.append((("turn", ids[turn_position]), episodes.messages[turn_position]))
        for number in sorted(notes_by_position.get(turn_position, ())):
            parts += _node_parts(
                number, _node_messages(graph.nodes[number], episodes, omit_flushed, number in flushed_ids)
            )
    return RenderedContext(
        [message for _, message in parts], frozenset(hidden_turns), tuple(source for source, _ in parts)
    )


def _node_parts(number: int, messages: list[Message]) -> list[_SourcedMessage]:
    return [(("node", number), message) for message in messages]


def _owners(
    episodes: EpisodeLog, graph: ReasoningGraph, lane: str | None, flushed_ids: frozenset[int]
) -> tuple[set[int], dict[int, list[int]], dict[int, list[int]], list[ReasoningNode]]:
    """Assign turns (messages) to the nodes that refer to them.

    Returns the turns that active nodes need, the turns of each summary, the turns of each flushed node, and the active
    nodes none of whose turns is in the conversation.
    """
    required_turns: set[int] = set()
    folded_turns: dict[int, list[int]] = {}
    flushed_turns: dict[int, list[int]] = {}
    unplaced_nodes = []
    index = episodes.index
    for number, node in graph.nodes.items():
        turns, active = node.related_turn_ids, node.active
        if not turns or active is False or lane not in (None, node.lane):  # summaries replace folded nodes
            continue
        if "origin" in node.meta or (active == FLUSHED and "unfolded" in node.meta):  # the turns belong to the draft
            continue
        if active is True and number in flushed_ids:
            active = FLUSHED
        if active is True and node.kind is not NodeKind.TASK and not any(turn in index for turn in turns):
            unplaced_nodes.append(node)
        elif active is True and node.kind is not NodeKind.SUMMARY:
            required_turns.update(turns)
        else:
            (folded_turns if active is True else flushed_turns)[number] = turns
    return required_turns, folded_turns, flushed_turns, unplaced_nodes


def _opening(episodes: EpisodeLog, graph: ReasoningGraph) -> list[_SourcedMessage]:
    """Return the preamble of the conversation. If no message of the user is in it, add the task as such a message."""
    opening: list[_SourcedMessage] = [
        (("turn", episodes.turn_ids[position]), episodes.messages[position]) for position in range(episodes.preamble)
    ]
    if graph.root is not None and not any(message["role"] == "user" for _, message in opening):
        opening += _node_parts(graph.root.node_id, [{"role": "user", "content": graph.root.text}])
    return opening


def _node_messages(node: ReasoningNode, episodes: EpisodeLog, omit_flushed: bool, is_flushed: bool) -> list[Message]:
    """Return the messages that replace a node's turns.

    A flushed node has none if `omit_flushed` is set, or if they would be longer than the turns.
    """
    messages = as_messages(node)
    if node.active is True and not is_flushed:
        return messages
    turns = [episodes.message(turn) for turn in node.related_turn_ids if turn in episodes.index]
    return [] if omit_flushed or len(json.dumps(messages)) >= sum(len(json.dumps(turn)) for turn in turns) else messages


def as_messages(node: ReasoningNode) -> list[Message]:
    """Return the notes of a node as messages.

    Notes of other roles than assistant and user become messages of the user that begin with the role, so no note can
    pose as a system message.
    """
    notes = node.thought if not isinstance(node.thought, str) else _from_text(node.thought)
    return [
        note.as_dict()
        if note.role in ("assistant", "user")
        else {"role": "user", "content": f"{note.role}: {note.content}"}
        for note in notes
    ]


def _from_text(text: str) -> list[Notes]:
    """Return a text as notes. The text may be the JSON of a list of notes, as in another implementation's snapshots."""
    if text.startswith("["):
        with suppress(Unreadable), boundary("list of notes"):  # otherwise it is plain text
            return [Notes(str(item["role"]), str(item["content"])) for item in json.loads(text)]
    return [Notes("assistant", text)] if text else []


def excerpt(text: str, length: int) -> str:
    """Return about `length` characters of a text, two thirds from its beginning and one third from its end. Return a
    short text whole."""
    if len(text) <= length or len(text) <= 1:
        return text
    head = (length * 2 + 2) // 3
    tail = length - head
    return f"{text[:head]}{_MARK}{text[len(text) - tail :] if tail else ''}"


def excerpt_messages(messages: Sequence[Message], length: int) -> list[Message]:
    """Return the messages. Every content of more than `length` characters is cut to an excerpt."""
    return [_excerpt_message(message, length) for message in messages]


def _excerpt_message(message: Message, length: int) -> Message:
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
