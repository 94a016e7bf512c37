"""What a model answered, and the thought that it amounts to; how one that cannot call tools is told of them in words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.frozen import frozen
from hivemind.json_text import find_json, whole_text
from hivemind.minds.mind import (
    Action,
    ChatMessage,
    ContextTooLong,
    MindError,
    MindUnavailable,
    Thought,
    ToolSchema,
    Usage,
)
from hivemind.minds.scripted import thought_from

_PROMPTED = """
You have no way to call tools but this: answer with one JSON object and nothing else, of this form:
{"text": "why, in a few words", "calls": [{"tool": "NAME", "arguments": {…}}]}
The tools, one JSON object a line, `parameters` being the JSON Schema of the arguments:"""
_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size|limit)|prompt is too long|too many (input )?tokens|maximum.{0,30}tokens",
    re.IGNORECASE,
)
_BOUND_TOO_HIGH = re.compile(r"(output|completion) tokens", re.IGNORECASE)
_MOST_ALLOWED = re.compile(
    r"max_tokens: \d+ > (\d+)|at most (\d+) completion tokens|maxOutputTokens .*from 1 \(inclusive\) to (\d+) \(exclusive"
)
"""How Anthropic, OpenAI and Google say how long an answer may be at most."""
_TOO_LARGE = 413
_NOT_UNDERSTOOD = frozenset({400, 422})
_NOT_YET = frozenset({408, 425})
"""A proxy's words for a request that came too slowly, or too early: the same request may do in a moment."""
_SHOWN = 300


def in_words(messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> list[ChatMessage]:
    """A conversation for a model that cannot call tools: they are told in the system message, calls and results are texts."""
    told = "\n".join([_PROMPTED, *(json.dumps(tool, ensure_ascii=False) for tool in tools)])
    names = {call.id: call.tool for message in messages for call in message.calls}
    plain = []
    for message in messages:
        if message.role == "system":
            plain.append(ChatMessage("system", f"{message.text}\n{told}"))
        elif message.role == "assistant":
            plain.append(ChatMessage("assistant", written_form(message.text, message.calls)))
        elif message.role == "tool":
            plain.append(ChatMessage("user", f"Result of {names.get(message.call_id or '', 'a call')}: {message.text}"))
        else:
            plain.append(message)
    return plain


def completion_messages(text: str, schema: Mapping[str, Any] | None) -> list[ChatMessage]:
    """The messages for a completion; with a schema it is told to answer in JSON."""
    if schema is None:
        told = "Do what the text asks, and answer with the result alone."
    else:
        form = json.dumps(schema, ensure_ascii=False)
        told = f"Answer with one JSON value and nothing else. Its JSON Schema:\n{form}"
    return [ChatMessage("system", told), ChatMessage("user", text)]


def answer_schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """The JSON Schema of an answer with prompted tools: only tools that there are, with arguments by their own schemas.

    Arguments whose schema refers to definitions of its own are any object; they are checked afterwards all the same.
    """
    action = {"anyOf": [_form_of(tool) for tool in tools]}
    return {
        "type": "object",
        "properties": {"text": {"type": "string"}, "calls": {"type": "array", "items": action}},
        "required": ["text", "calls"],
        "additionalProperties": False,
    }


def _form_of(tool: ToolSchema) -> dict[str, Any]:
    arguments = {"type": "object"} if "$defs" in tool["parameters"] else tool["parameters"]
    return {
        "type": "object",
        "properties": {"tool": {"const": tool["name"]}, "arguments": arguments},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


@frozen
class Call:
    """A tool call as it came: `arguments` is text or an object, `key` what the provider knows it by."""

    tool: str
    arguments: str | Mapping[str, Any] | None
    key: str


@frozen
class Answer:
    """One answer. `cut` if it ended at the bound of its length; `parts` is what the provider wants back unchanged, if it wants
    anything."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    cut: bool = False
    usage: Usage = field(default_factory=Usage)
    parts: Sequence[Mapping[str, Any]] = ()

    def as_dict(self) -> dict[str, Any]:
        """The answer for the log."""
        calls = [{"tool": call.tool, "arguments": call.arguments} for call in self.calls]
        return {"text": self.text, **({"calls": calls} if calls else {}), **({"cut": True} if self.cut else {})}


def thought_in(answer: Answer, *, model: str, prompted: bool) -> Thought:
    """The thought that an answer amounts to: of one that was cut only the text, since half a call may be another call."""
    if answer.cut:
        return Thought(answer.text, usage=answer.usage, cut=True)
    provider = {"model": model, "parts": list(answer.parts)} if answer.parts else None
    if answer.calls:
        return Thought(answer.text, tuple(map(_action, answer.calls)), answer.usage, provider=provider)
    text, actions = _written(answer.text) if prompted or "{" in answer.text else (answer.text, ())
    return Thought(text, actions, answer.usage, provider=None if actions else provider)  # its parts have no such calls


def _action(call: Call) -> Action:
    """The call with its arguments as an object; what cannot be read stands in `raw`."""
    if isinstance(call.arguments, Mapping):
        return Action(call.tool, call.arguments, call.key)
    if not call.arguments:
        return Action(call.tool, {}, call.key)
    try:
        value = find_json(call.arguments)
        if isinstance(value, str):  # JSON in a string in JSON, as some models write it
            value = find_json(value)
    except Unreadable:
        value = None
    if isinstance(value, dict):
        return Action(call.tool, value, call.key)
    return Action(call.tool, {}, call.key, raw=str(call.arguments))


def _written(text: str) -> tuple[str, tuple[Action, ...]]:
    """Calls that were written down as JSON instead of being made; a text without any is only a text."""
    try:
        value = find_json(text)
        if isinstance(value, dict) and "tool" in value:
            value = [value]
        told = {"calls": value} if isinstance(value, list) else value
        if not isinstance(told, dict) or not told.get("calls"):
            return text, ()
        thought = thought_from({"text": str(told.get("text") or ""), "calls": told["calls"]})
    except (MindError, Unreadable):
        return text, ()
    return thought.text, thought.actions


def written_form(text: str, actions: Sequence[Action]) -> str:
    """An answer with prompted tools, as it is sent back: one JSON object."""
    calls = [{"tool": one.tool, "arguments": dict(one.arguments)} for one in actions]
    return json.dumps({"text": text, "calls": calls}, ensure_ascii=False)


class Refused(MindError):
    """The model or its provider will not answer this; the message says why, if it was told.

    `answer` is what came all the same: a refusal is charged for, too.
    """

    def __init__(self, reason: str, answer: Answer | None = None) -> None:
        super().__init__(reason)
        self.answer = answer


class BoundTooHigh(MindError):
    """More tokens of answer were asked for than the model can give, which are `most`."""

    def __init__(self, reason: str, most: int) -> None:
        super().__init__(reason)
        self.most = most


def in_our_words(error: Exception, key: str | None) -> MindError:
    """The MindError that says what a client library's exception means; a key that stands in its text is taken out."""
    from pydantic_ai import exceptions as theirs

    said = _said(error, key)
    after = getattr(error, "retry_after", None)
    status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    if isinstance(error, theirs.ContentFilterError):
        return Refused(f"the provider refused to answer: {said}")
    if (
        isinstance(error, theirs.ModelContextWindowExceededError)
        or status == _TOO_LARGE
        or _says_too_long(status, said)
    ):
        return ContextTooLong(f"the context is too long for the model: {said}")
    if status in _NOT_UNDERSTOOD and (allowed := _MOST_ALLOWED.search(said)):
        inclusive, exclusive = allowed[1] or allowed[2], allowed[3]
        return BoundTooHigh(f"max_output is too high: {said}", int(inclusive or int(exclusive) - 1))
    if isinstance(error, theirs.ModelRateLimitError):
        return MindUnavailable(f"asked too often: {said}", after_s=after, passing=True)
    if (
        isinstance(error, theirs.ModelUnavailableError | theirs.ModelServerError)
        or (status or 0) >= 500
        or status in _NOT_YET
    ):
        return MindUnavailable(f"the provider has trouble: {said}", after_s=after, passing=True)
    if isinstance(error, theirs.ModelQuotaExceededError):
        return MindUnavailable(f"the account's quota is used up: {said}")
    if isinstance(error, theirs.ModelAuthenticationError):
        return MindUnavailable(f"the provider does not accept the key: {said}")
    if isinstance(error, theirs.ModelNotFoundError):
        return MindUnavailable(f"the provider has no such model: {said}")
    if status is not None and 300 <= status < 400:
        return MindUnavailable(
            "the provider answers with a redirect, which is not followed: its url: is another one by now"
        )
    return _of_the_connection(error, said)


def _says_too_long(status: int | None, said: str) -> bool:
    """Whether a request was turned away for the length of its context, not for the length of the answer that it asks for."""
    return status in _NOT_UNDERSTOOD and bool(_TOO_LONG.search(said)) and not _BOUND_TOO_HIGH.search(said)


def _of_the_connection(error: Exception, said: str) -> MindError:
    from pydantic import ValidationError
    from pydantic_ai import exceptions as theirs

    if isinstance(error, theirs.ModelRequestTimeout | theirs.ModelTimeoutError) and _was_sent(error):
        return MindUnavailable(f"no answer in time: {said}", passing=True, lost=True)
    if isinstance(error, theirs.ModelConnectionError):
        return MindUnavailable(f"no connection: {said}", passing=True, lost=_was_sent(error))
    if isinstance(error, theirs.ModelAPIError) and getattr(error, "status_code", None) is not None:
        return MindError(f"the provider does not understand the request: {said}")
    # What is no answer of this kind of server at all, a page of a proxy, half a body, too much of it: what was sent may have been
    # charged for, and at once the same would come again.
    what = said
    if isinstance(error, IndexError):
        what = "its choices are an empty list"
    elif isinstance(error.__cause__, ValidationError):
        places = (".".join(map(str, one["loc"])) for one in error.__cause__.errors()[:5])
        what = f"missing or wrong in it: {', '.join(places)}"
    mend = "see whether url: and model: in the agent's file name a server of this kind, and what its log says"
    return MindUnavailable(f"what came is no answer of a model: {what}; {mend}", lost=True)


def _was_sent(error: Exception) -> bool:
    return getattr(error, "phase", None) not in ("pool", "connect")


def _said(error: Exception, key: str | None) -> str:
    """The error's own words in one line, without the key and not too long."""
    cause = error.__cause__
    text = str(error) or type(error).__name__
    if cause is not None and str(cause) and str(cause) not in text:
        text = f"{text} ({type(cause).__name__}: {cause})"
    if key:
        text = text.replace(key, "[key]")
    text = whole_text(" ".join(text.split()))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
