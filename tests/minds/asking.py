"""The requests of the tests of language models, and the record of their time and cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from hivemind.minds import ChatMessage, MeteredExchange, Patience, Thought, Turn
from hivemind.testing.mind import example_turn
from tests.minds.request import Request

__all__ = ["OPENING", "TOOL", "Clock", "Counted", "exchanged", "note", "turn"]

TOOL = {
    "name": "note",
    "description": "Write a note.",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["text"],
        "additionalProperties": False,
    },
}
OPENING = (ChatMessage("system", "Be brief."), ChatMessage("user", "# Note it\n\nWrite down what you see. 🐝"))


def turn(*more: ChatMessage) -> Turn:
    """A turn of a task with a conversation."""
    return replace(example_turn(), messages=[*OPENING, *more])


def exchanged(thought: Thought, *results: str, ok: bool = True) -> list[ChatMessage]:
    """A thought and the results of its calls, as they stand in the conversation afterwards."""
    pairs = zip(thought.actions, results, strict=True)
    answer = ChatMessage("assistant", thought.text, thought.actions, provider=thought.provider)
    return [answer, *(ChatMessage("tool", text, call_id=call.id, ok=ok) for call, text in pairs)]


class Clock:
    """A clock that sleeping moves on."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def patience(self, **more) -> Patience:
        return Patience(sleep=self.sleep, clock=lambda: self.now, draw=lambda: 1.0, **more)


class Counted:
    """A meter that records its calls."""

    def __init__(self) -> None:
        self.asked, self.exchanges = [], []

    @contextmanager
    def __call__(self, asked) -> Iterator[MeteredExchange]:
        self.asked.append(asked)
        exchange = MeteredExchange()
        try:
            yield exchange
        finally:
            self.exchanges.append(exchange)


def note(request: Request) -> None:
    request.answer(None, [("note", {"text": "seen"})])
