"""The conversation: messages under ids of their own, grouped into episodes (spec 4, *memorize*)."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hivemind.boundary import boundary
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.node import Notes

__all__ = ["Conversation", "Message", "as_notes"]

Message = dict[str, Any]


class Conversation:
    """Messages in their order, each with an id that it keeps. Ids count up; 0 is the first, as in the seed.

    An episode is an assistant turn with all the turns that answer it. What stands before the first assistant turn is
    the preamble. `todo` holds the finished episodes that are not in the graph yet, `waiting` the one without an answer.
    """

    __slots__ = ("index", "messages", "preamble", "todo", "turn_ids", "waiting")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.turn_ids: list[int] = []
        self.index: dict[int, int] = {}
        self.preamble = 0
        self.waiting: list[int] = []
        self.todo: deque[list[int]] = deque()

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
        last = self.turn_ids[-1] if self.turn_ids else -1
        first = max(first_id, last + 1)
        ids = list(range(first, first + len(checked)) if turn_ids is None else turn_ids)
        if len(ids) != len(checked) or any(one >= other for one, other in pairwise([last, *ids])):
            raise GraphError(f"{len(checked)} messages can't have the ids {ids} after {last}")
        for turn, message in zip(ids, checked, strict=True):
            self._take(turn, message)
        if self.waiting and self._answered():
            self._close()

    def _take(self, turn: int, message: Message) -> None:
        if message["role"] == "assistant":
            self._close()
            self.waiting = [turn]
        elif self.preamble == len(self.messages):
            self.preamble += 1
        else:
            self.waiting.append(turn)
        self.index[turn] = len(self.messages)
        self.messages.append(message)
        self.turn_ids.append(turn)

    def _close(self) -> None:
        if self.waiting:
            self.todo.append(self.waiting)
            self.waiting = []

    def _answered(self) -> bool:
        first, *answers = [self.message(turn) for turn in self.waiting]
        if first["role"] != "assistant":
            return True
        calls = first.get("tool_calls")
        wanted = {call.get("id") for call in calls if isinstance(call, Mapping)} if isinstance(calls, list) else set()
        given = {answer.get("tool_call_id") for answer in answers}
        return bool(answers) and (wanted <= given or None in given)

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
