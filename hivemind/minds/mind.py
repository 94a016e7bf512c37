"""The Mind protocol, its errors, and the types that an agent and its mind exchange: messages, calls, turns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, Literal, Protocol, TypedDict

from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen

_MAX_COUNT = 2**53  # larger integers are not exact in JSON
Role = Literal["system", "user", "assistant", "tool"]
KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
}
"""The environment variables that may contain a provider's key; the first that is set is used."""
_RECORD_FIELDS = (
    "id", "role", "text", "parts", "calls", "call_id", "ok", "at", "agent", "provider", "result", "news", "cut", "step",
)  # fmt: skip


class MissingKey(UserError):
    """A mind has neither a key nor a login."""


class MindError(HivemindError):
    """The mind's answer cannot be used, and repeating the request would not help."""


class ToolSchema(TypedDict):
    """A tool as a mind sees it. `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class ContextTooLong(MindError):
    """The context is longer than the model can read. A shorter context may succeed."""


class MindUnavailable(MindError):
    """A provider or program that the mind needs is down. The agent parks the task.

    `after_s` is the wait in seconds that the provider asked for. If `passing`, a retry soon may succeed. If `lost`, the request
    was accepted but its answer did not arrive, so it may have cost something.
    """

    def __init__(self, reason: str, *, after_s: float | None = None, passing: bool = False, lost: bool = False) -> None:
        super().__init__(reason)
        self.after_s = after_s
        self.passing = passing
        self.lost = lost


UNANSWERED = "unanswered"
"""The tag of a note that says that a step's question has no answer."""


@frozen
class ToolCall:
    """A tool call. The runtime validates the arguments and sets the caller's identity.

    The result refers to the call's `id`. If the arguments cannot be read, `raw` has their text, and `arguments` is {}.
    `traceparent` names the caller's span, if the caller is a program that sent one.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    raw: str | None = None
    traceparent: str | None = None

    def as_record(self) -> dict[str, Any]:
        record = {"id": self.id, "tool": self.tool, "arguments": dict(self.arguments)}
        optional_fields = {"raw": self.raw, "traceparent": self.traceparent}
        return record | {name: text for name, text in optional_fields.items() if text is not None}


@frozen
class Usage:
    """The cost of a thought: input and output tokens, and money in the currency of the price list.

    `cached` and `written` count the input tokens that were read from and written to the provider's cache. `unpriced`
    counts tokens without a known price; `money` does not include them. Raises MindError unless all token counts are
    integers ≥ 0 and money is a finite number ≥ 0.
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
            if type(value) is not int or not 0 <= value <= _MAX_COUNT:
                raise MindError(f"its usage is invalid: {name} is {value!r:.50} and must be an integer ≥ 0")
        if type(self.money) not in (int, float) or not 0 <= self.money <= _MAX_COUNT:
            raise MindError(f"its usage is invalid: money is {self.money!r:.50} and must be a finite number ≥ 0")

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            *(amount + other_amount for amount, other_amount in zip(astuple(self), astuple(other), strict=True))
        )

    def __sub__(self, other: Usage) -> Usage:
        """Return the difference, at least 0 in each field."""
        return Usage(
            *(max(amount - other_amount, 0) for amount, other_amount in zip(astuple(self), astuple(other), strict=True))
        )

    def as_record(self) -> dict[str, Any]:
        """Return the fields that are not 0."""
        return {name: value for name, value in asdict(self).items() if value}


@frozen
class Thought:
    """A mind's answer: a text (possibly empty), the calls to make in order, and the cost.

    If `cut`, the answer reached its maximum length, and its calls were dropped. If `chained`, each call depends on the one before
    it, so a failed call ends the turn. `provider` is opaque data that the provider wants back unchanged. `seconds` is the time
    since the turn began.
    """

    text: str = ""
    actions: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    cut: bool = False
    chained: bool = False
    provider: Mapping[str, Any] | None = None
    seconds: float = 0.0


@frozen
class ChatMessage:
    """One message of a conversation, as stored in messages.jsonl.

    A `tool` message answers the call `call_id`. `ok` is false if the call failed. `result` keeps the call's small result values
    for programs; the mind reads `text`. `news` says what a user message within a conversation is about.
    """

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
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
        """Return the JSON form, without empty fields."""
        record = {name: getattr(self, name) for name in _RECORD_FIELDS}
        record |= {"parts": list(self.parts), "calls": [call.as_record() for call in self.calls]}
        always_included = ("role", "text", "ok")
        return {
            key: value
            for key, value in record.items()
            if value is not None and (key in always_included or value not in ("", [], False))
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> ChatMessage:
        """Return the message in a JSON form. A malformed record may raise any exception."""
        calls = tuple(
            ToolCall(
                str(call["tool"]), dict(call["arguments"]), str(call["id"]), call.get("raw"), call.get("traceparent")
            )
            for call in record.get("calls", ())
        )
        record_fields = {key: record[key] for key in _RECORD_FIELDS if key in record}
        return cls(**{**record_fields, "calls": calls, "parts": tuple(record.get("parts", ()))})


@frozen
class ToolResult:
    """The result of a call: `value` for programs, `text` for readers, `problem` if the call failed, `seconds` it took."""

    call: ToolCall
    text: str
    value: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    seconds: float = 0.0

    @classmethod
    def failure(cls, call: ToolCall, problem: str, value: Mapping[str, Any] | None = None) -> ToolResult:
        return cls(call, f"failed: {problem}", value or {}, problem)

    @property
    def ok(self) -> bool:
        return self.problem is None

    def as_record(self) -> dict[str, Any]:
        """Return the call and its result for a log."""
        error_field = {} if self.problem is None else {"error": self.problem}
        return {**self.call.as_record(), "ok": self.ok, "result": dict(self.value), **error_field}


@dataclass(slots=True)
class Turn:
    """One turn of the cycle, filled in by its steps: sense, scope, recall, select, build, think, act, tidy.

    `focus` is the turn's subject: a task at one of its steps, a message, or nothing. A mind may read the focus's `kind` (task,
    message, nothing), `id`, `tool` (the next call by rule: plan_steps, finish_step, finish_task, reply_mail), `title`, `text`,
    `todo` (the step: id, title, kind, argument …, or {}), `message`, `asks_review`, `heard` and `stranger`.

    A mind that works by rule reads `recalled_entries` (id, content, metadata) and `search_gap`, a sentence on what the search
    left out or found by words alone. Other minds read the conversation in `messages`. `previous_results` are the results of the
    last turn about the same subject. `epoch` is the reason why the conversation starts again. If `taken_up` is True, the calls
    are from an earlier answer. `parking` is the reason why the task is parked after the turn, `problem` the reason why the turn
    failed.
    """

    agent: str
    focus: Any = None
    recalled_entries: Sequence[Mapping[str, Any]] = ()
    search_gap: str = ""
    messages: Sequence[ChatMessage] = ()
    previous_results: Sequence[ToolResult] = ()
    thought: Thought | None = None
    results: Sequence[ToolResult] = ()
    epoch: str | None = None
    taken_up: bool = False
    parking: Any = None
    problem: str | None = None
    began_at: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Return how many seconds ago the turn began."""
        return time.monotonic() - self.began_at

    @property
    def cause(self) -> str:
        """The request's cause: `mail` for a message, else that of the last news (correction, continuation), else `turn`."""
        if self.focus.kind == "message":
            return "mail"
        news = self.messages[-1].news if self.messages else None
        return str((news or {}).get("cause", "turn"))

    def as_record(self) -> dict[str, Any]:
        """Return the turn without its messages, as a program that serves as a mind receives it."""
        focus = self.focus
        return {
            "agent": self.agent, "about": {"kind": focus.kind, "id": focus.id, "next": focus.tool},
            "title": focus.title, "step": dict(focus.todo), "attachments": [str(path) for path in focus.attachments],
        }  # fmt: skip


class Mind(Protocol):
    """A mind. It keeps no state between calls: the turn contains all that it may use.

    A mind with `by_rule = True` reads the structured fields of the turn; no conversation is built for it.
    """

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:
        """Return the thought with the next calls. Raises MindError, ContextTooLong and MindUnavailable."""
        ...

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """Return the answer to a plain prompt, as JSON by the schema if one is given. Used for summaries, and for placing turns
        in a task's graph. Raises MindError."""
        ...
