"""The Mind protocol, its errors, and what passes between an agent and its mind: messages, the turn (spec 8)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, Literal, Protocol, TypedDict

from hivemind.errors import HivemindError
from hivemind.frozen import frozen

_MOST = 2**53  # beyond it numbers are no longer exact in JSON
Role = Literal["system", "user", "assistant", "tool"]
_RECORD = (
    "id", "role", "text", "parts", "calls", "call_id", "ok", "at", "agent", "provider", "result", "news", "cut", "step",
)  # fmt: skip


class MindError(HivemindError):
    """The mind's answer can't be used, and asking again the same way would not help."""


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


@frozen
class Action:
    """A call of a tool. The runtime validates the arguments and sets the identity; a mind can't.

    `id` is what its result is known by. `raw` is what came in place of arguments that cannot be read, which are {} then.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    raw: str | None = None

    def as_record(self) -> dict[str, Any]:
        record = {"id": self.id, "tool": self.tool, "arguments": dict(self.arguments)}
        return record if self.raw is None else {**record, "raw": self.raw}


@frozen
class Usage:
    """What a thought cost: tokens in and out, and money in the currency of the price list.

    `cached` of the tokens in were read from the provider's cache, `written` were written to it; `unpriced` are those of the
    tokens whose price nobody knows: `money` is then what the others cost. Raises MindError for tokens that are not whole
    numbers from 0, and money that is not a finite number from 0.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    money: float = 0.0
    unpriced: int = 0
    cached: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        for name in ("tokens_in", "tokens_out", "unpriced", "cached", "written"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= _MOST:
                raise MindError(f"its usage is no usage: {name} is {value!r:.50}, and must be a whole number from 0")
        if type(self.money) not in (int, float) or not 0 <= self.money <= _MOST:
            raise MindError(f"its usage is no usage: money is {self.money!r:.50}, and must be a finite number from 0")

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Usage) -> Usage:
        """Return what was used beyond the other."""
        return Usage(*(max(whole - part, 0) for whole, part in zip(astuple(self), astuple(other), strict=True)))

    def as_record(self) -> dict[str, Any]:
        """Its fields, without those that are 0."""
        return {name: value for name, value in asdict(self).items() if value}


@frozen
class Thought:
    """What came back: a text (may be empty), the calls to make in order, and what it cost.

    `cut` says that the answer ended at the bound of its length; its calls were dropped. With `chained` a call that fails
    ends the turn: the ones after it build on it. `provider` is what the provider wants back unchanged, opaque. `seconds` is
    the time from the turn's beginning.
    """

    text: str = ""
    actions: tuple[Action, ...] = ()
    usage: Usage = Usage()
    cut: bool = False
    chained: bool = False
    provider: Mapping[str, Any] | None = None
    seconds: float = 0.0


@frozen
class ChatMessage:
    """One message of a conversation, as it stands in messages.jsonl.

    A `tool` message answers the call `call_id`: `ok` is false if that failed, `result` keeps its small values for programs
    (the mind reads `text`). `news` says what a user message in the middle of a conversation tells of.
    """

    role: Role
    text: str = ""
    calls: tuple[Action, ...] = ()
    call_id: str | None = None
    ok: bool | None = None
    parts: tuple[Mapping[str, Any], ...] = ()
    provider: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    news: Mapping[str, Any] | None = None
    cut: bool = False
    step: str | None = None
    agent: str = ""
    at: str = ""
    id: str = ""

    def as_record(self) -> dict[str, Any]:
        """Its JSON form, without what is empty."""
        record = {name: getattr(self, name) for name in _RECORD}
        record |= {"parts": list(self.parts), "calls": [call.as_record() for call in self.calls]}
        kept = ("role", "text", "ok")
        return {
            key: one for key, one in record.items() if one is not None and (key in kept or one not in ("", [], False))
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> ChatMessage:
        """The message from its JSON form. Raises whatever the record provokes."""
        calls = tuple(
            Action(str(one["tool"]), dict(one["arguments"]), str(one["id"]), one.get("raw"))
            for one in record.get("calls", ())
        )
        told = {key: record[key] for key in _RECORD if key in record}
        return cls(**{**told, "calls": calls, "parts": tuple(record.get("parts", ()))})


@frozen
class Result:
    """What became of a call: `value` is what the tool answered, `text` the same for a reader, `problem` why it failed, `seconds`
    how long it took."""

    call: Action
    text: str
    value: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    seconds: float = 0.0

    @classmethod
    def failed(cls, call: Action, problem: str, value: Mapping[str, Any] | None = None) -> Result:
        """The result of a call that failed, as its reader is told of it."""
        return cls(call, f"failed: {problem}", value or {}, problem)

    @property
    def ok(self) -> bool:
        return self.problem is None

    def as_record(self) -> dict[str, Any]:
        """The call and what became of it, for a log."""
        told = {} if self.problem is None else {"error": self.problem}
        return {**self.call.as_record(), "ok": self.ok, "result": dict(self.value), **told}


@dataclass(slots=True)
class Turn:
    """One turn of the cycle, filled in step by step: sense, scope, recall, select, build, think, act, tidy.

    `focus` is what it is about, a task at one of its steps, a message, or nothing. A mind may read of it: `kind` (task, message,
    nothing), `id`, `tool` (what comes next by rule: plan_steps, finish_step, finish_task, reply_mail), `title`, `text`, `todo`
    (the step: id, title, kind, argument …, or {}), `message`, `asks_review`, `heard` and `stranger`.
    `found` are the entries of what was recalled (id, content, metadata) for a mind that works by rule, `messages` the
    conversation for one that reads, `before` the results of the turn before about the same thing. `epoch` says why the
    conversation begins anew, `taken_up` that the calls are those of an earlier answer, `parking` why the task rests after
    it, `problem` why it came to nothing.
    """

    agent: str
    focus: Any = None
    found: Sequence[Mapping[str, Any]] = ()
    messages: Sequence[ChatMessage] = ()
    before: Sequence[Result] = ()
    thought: Thought | None = None
    results: Sequence[Result] = ()
    epoch: str | None = None
    taken_up: bool = False
    parking: Any = None
    problem: str | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long it has lasted so far."""
        return time.monotonic() - self.began

    @property
    def cause(self) -> str:
        """Why its mind is asked: about mail, to go on after an answer that was cut off or could not be used, else for the turn
        itself."""
        if self.focus.kind == "message":
            return "mail"
        told = self.messages[-1].news if self.messages else None
        return str((told or {}).get("cause", "turn"))

    def as_record(self) -> dict[str, Any]:
        """What a program that thinks is told of the turn, beside its messages."""
        focus = self.focus
        return {
            "agent": self.agent, "about": {"kind": focus.kind, "id": focus.id, "next": focus.tool},
            "title": focus.title, "step": dict(focus.todo),
        }  # fmt: skip


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
