"""The Mind protocol and what goes in and out of it (spec 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

from hivemind.errors import HivemindError

__all__ = [
    "Action",
    "Context",
    "ContextTooLong",
    "Mind",
    "MindError",
    "MindUnavailable",
    "Thought",
    "ToolSchema",
    "Usage",
]

Context = Sequence[Mapping[str, Any]]
"""What a mind gets: the entries that `ContextBuilder.build_context` makes, the capsule among them (spec 2)."""

_MOST = 2**53  # beyond it numbers are no longer exact in JSON


class ToolSchema(TypedDict):
    """A tool as a mind sees it; `parameters` is a JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """A wish to use a tool. The runtime validates the arguments and sets the identity; a mind can't."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a thought cost: tokens in and out, and money in the currency of the price list.

    `unpriced` are those of the tokens whose price nobody knows: `money` is then what the others cost. Raises MindError for
    tokens that are no whole numbers from 0, and money that is no finite number from 0.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    money: float = 0.0
    unpriced: int = 0

    def __post_init__(self) -> None:
        for name in ("tokens_in", "tokens_out", "unpriced"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= _MOST:
                raise MindError(f"its usage is no usage: {name} is {value!r:.50}, and must be a whole number from 0")
        if type(self.money) not in (int, float) or not 0 <= self.money <= _MOST:
            raise MindError(f"its usage is no usage: money is {self.money!r:.50}, and must be a finite number from 0")

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.money + other.money,
            self.unpriced + other.unpriced,
        )


@dataclass(frozen=True, slots=True)
class Thought:
    """What came back: a text (may be empty), the actions to take in order, and what it cost."""

    text: str = ""
    actions: tuple[Action, ...] = ()
    usage: Usage = Usage()


class MindError(HivemindError):
    """The mind's answer can't be used, and asking again the same way would not help."""


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
    """Something that thinks. Stateless between calls: all that it may know stands in the context."""

    def think(self, context: Context, tools: Sequence[ToolSchema]) -> Thought:
        """What to do next. Raises MindError, MindUnavailable."""
        ...

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """An answer to a plain prompt, JSON if a schema is given (patches, folds, summaries). Raises MindError."""
        ...
