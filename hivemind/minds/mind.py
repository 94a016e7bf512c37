"""The Mind protocol (spec 8), its tools' schemas and its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict

from hivemind.minds.turn import MindError, Thought, Turn

__all__ = ["ContextTooLong", "Mind", "MindUnavailable", "ToolSchema"]


class ToolSchema(TypedDict):
    """A tool as a mind sees it; `parameters` is a JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class ContextTooLong(MindError):
    """The context is longer than the model can read: a shorter one may do."""


class MindUnavailable(MindError):
    """What the mind needs is down (a provider, a program): the task is parked and nothing is lost.

    `after_s` is how long it asked to be left alone, in seconds, if it said so; `passing` says that asking again soon may
    do; `lost` that the question was taken in and its answer did not arrive, so that it may have cost something.
    """

    def __init__(self, reason: str, *, after_s: float | None = None, passing: bool = False, lost: bool = False) -> None:
        super().__init__(reason)
        self.after_s = after_s
        self.passing = passing
        self.lost = lost


class Mind(Protocol):
    """Something that thinks. Stateless between calls: all that it may know stands in the turn.

    One that works by rule has `by_rule = True`: it reads the turn's structured part, and no conversation is built for it.
    """

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:
        """What to do next. Raises MindError, ContextTooLong, MindUnavailable."""
        ...

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """An answer to a plain prompt, JSON if a schema is given (patches, folds, summaries). Raises MindError."""
        ...
