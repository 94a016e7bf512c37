"""Convert a model's answers and errors to thoughts and MindErrors, and describe tools to models that cannot call them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.frozen import frozen
from hivemind.json_text import find_json, without_surrogates
from hivemind.minds.mind import (
    ChatMessage,
    ContextTooLong,
    MindError,
    MindUnavailable,
    Thought,
    ToolCall,
    ToolSchema,
    Usage,
)
from hivemind.minds.scripted import parse_thought

_PROMPTED_TOOLS = """
To call tools, answer with one JSON object and no other text, in this form:
{"text": "why, in a few words", "calls": [{"tool": "NAME", "arguments": {…}}]}
The tools follow, one JSON object per line; `parameters` is the JSON Schema of the arguments:"""
_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size|limit)|prompt is too long|too many (input )?tokens|maximum.{0,30}tokens",
    re.IGNORECASE,
)
_OUTPUT_LIMIT = re.compile(r"(output|completion) tokens", re.IGNORECASE)
_ALLOWED_OUTPUT = re.compile(
    r"max_tokens: \d+ > (\d+)|at most (\d+) completion tokens|maxOutputTokens .*from 1 \(inclusive\) to (\d+) \(exclusive"
)
"""The error messages with which Anthropic, OpenAI and Google report the maximum length of an answer."""
_TOO_LARGE = 413
_REJECTED = frozenset({400, 422})
_RETRY_SOON = frozenset({408, 425})
"""A proxy's statuses for a request that came too slowly or too early: repeating it soon may succeed."""
_MAX_ERROR_CHARS = 300


def without_tools(messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> list[ChatMessage]:
    """Return a conversation rewritten for a model that cannot call tools.

    The tools are described in the system message; calls and results become texts.
    """
    instructions = "\n".join([_PROMPTED_TOOLS, *(json.dumps(tool, ensure_ascii=False) for tool in tools)])
    names = {call.id: call.tool for message in messages for call in message.calls}
    plain_messages = []
    for message in messages:
        if message.role == "system":
            plain_messages.append(ChatMessage("system", f"{message.text}\n{instructions}"))
        elif message.role == "assistant":  # as the model has written it
            calls = [{"tool": call.tool, "arguments": dict(call.arguments)} for call in message.calls]
            answer = json.dumps({"text": message.text, "calls": calls}, ensure_ascii=False)
            plain_messages.append(ChatMessage("assistant", answer))
        elif message.role == "tool":
            plain_messages.append(
                ChatMessage("user", f"Result of {names.get(message.call_id or '', 'a call')}: {message.text}")
            )
        else:
            plain_messages.append(message)
    return plain_messages


def completion_messages(text: str, schema: Mapping[str, Any] | None) -> list[ChatMessage]:
    """Return the messages for a completion. With a schema, they ask for JSON."""
    if schema is None:
        instructions = "Do what the text asks, and answer only with the result."
    else:
        schema_json = json.dumps(schema, ensure_ascii=False)
        instructions = f"Answer with one JSON value and no other text. Its JSON Schema:\n{schema_json}"
    return [ChatMessage("system", instructions), ChatMessage("user", text)]


def answer_schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """Return the JSON Schema of an answer that has calls as JSON (`tools: prompted`). Each tool's arguments have the tool's own
    schema.

    If that schema has definitions, any object is allowed here, because all arguments are validated again later.
    """
    action = {"anyOf": [_call_schema(tool) for tool in tools]}
    return {
        "type": "object",
        "properties": {"text": {"type": "string"}, "calls": {"type": "array", "items": action}},
        "required": ["text", "calls"],
        "additionalProperties": False,
    }


def _call_schema(tool: ToolSchema) -> dict[str, Any]:
    arguments = {"type": "object"} if "$defs" in tool["parameters"] else tool["parameters"]
    return {
        "type": "object",
        "properties": {"tool": {"const": tool["name"]}, "arguments": arguments},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


@frozen
class Completion:
    """A model's answer. `cut` is True if it reached its maximum length. `parts` is JSON that the provider wants back
    unchanged."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    cut: bool = False
    usage: Usage = field(default_factory=Usage)
    parts: Sequence[Mapping[str, Any]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for the log."""
        calls = [{"tool": call.tool, "arguments": call.raw or call.arguments} for call in self.calls]
        return {"text": self.text, **({"calls": calls} if calls else {}), **({"cut": True} if self.cut else {})}


def thought_of_answer(answer: Completion, *, model: str, prompted: bool) -> Thought:
    """Return the thought in an answer. If the answer was cut off, use only its text: half a call may look like another call. With
    `prompted`, the model writes its calls as JSON in the text."""
    if answer.cut:
        return Thought(answer.text, usage=answer.usage, cut=True)
    provider = {"model": model, "parts": list(answer.parts)} if answer.parts else None
    if answer.calls:
        return Thought(answer.text, answer.calls, answer.usage, provider=provider)
    text, actions = _parse_written_calls(answer.text) if prompted or "{" in answer.text else (answer.text, ())
    # the provider's parts do not contain these calls
    return Thought(text, actions, answer.usage, provider=None if actions else provider)


def read_call(tool: str, arguments: str | Mapping[str, Any] | None, call_id: str) -> ToolCall:
    """Return a call with these arguments, which may be JSON text. Arguments that are no object are kept in `raw`."""
    parsed: Any = arguments or {}
    with suppress(Unreadable):
        for _ in range(2):  # some models encode the JSON twice
            if isinstance(parsed, str):
                parsed = find_json(parsed)
    if isinstance(parsed, Mapping):
        return ToolCall(tool, parsed, call_id)
    return ToolCall(tool, {}, call_id, raw=str(arguments))


def _parse_written_calls(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Find calls that the model wrote as JSON in its text. Return the value of `text` in that JSON, and the calls. If there are
    none, return the whole text and no calls."""
    try:
        value = find_json(text)
        if isinstance(value, dict) and "tool" in value:
            value = [value]
        answer = {"calls": value} if isinstance(value, list) else value
        if not isinstance(answer, dict) or not answer.get("calls"):
            return text, ()
        thought = parse_thought({"text": str(answer.get("text") or ""), "calls": answer["calls"]})
    except (MindError, Unreadable):
        return text, ()
    return thought.text, thought.actions


class AnswerRefused(MindError):
    """The model or its provider refuses to answer. The message contains the reason, if one was given.

    `answer` is the refused answer, if there is one: refusals are charged, too.
    """

    def __init__(self, reason: str, answer: Completion | None = None) -> None:
        super().__init__(reason)
        self.answer = answer


class OutputLimitTooHigh(MindError):
    """The request's limit for the answer is above the model's own limit, which is `most` tokens."""

    def __init__(self, reason: str, max_output: int) -> None:
        super().__init__(reason)
        self.max_output = max_output


def translate_error(error: Exception, key: str | None) -> MindError:
    """Return a client library's exception as a MindError. The `key` is removed from its text."""
    from pydantic_ai import exceptions as theirs

    message = _error_message(error, key)
    after_s = getattr(error, "retry_after", None)
    status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    if isinstance(error, theirs.ContentFilterError):
        return AnswerRefused(f"the provider refused to answer: {message}")
    if (
        isinstance(error, theirs.ModelContextWindowExceededError)
        or status == _TOO_LARGE
        # the length of the context, not of the answer that the request allows
        or (status in _REJECTED and _TOO_LONG.search(message) and not _OUTPUT_LIMIT.search(message))
    ):
        return ContextTooLong(f"the context is too long for the model: {message}")
    if status in _REJECTED and (match := _ALLOWED_OUTPUT.search(message)):
        inclusive, exclusive = match[1] or match[2], match[3]
        return OutputLimitTooHigh(f"max_output is too high: {message}", int(inclusive or int(exclusive) - 1))
    if isinstance(error, theirs.ModelRateLimitError):
        return MindUnavailable(f"the provider was asked too often: {message}", after_s=after_s, passing=True)
    if (
        isinstance(error, theirs.ModelUnavailableError | theirs.ModelServerError)
        or (status or 0) >= 500
        or status in _RETRY_SOON
    ):
        return MindUnavailable(f"the provider has trouble: {message}", after_s=after_s, passing=True)
    if isinstance(error, theirs.ModelQuotaExceededError):
        return MindUnavailable(f"the account's quota is used up: {message}")
    if isinstance(error, theirs.ModelAuthenticationError):
        return MindUnavailable(f"the provider does not accept the key: {message}")
    if isinstance(error, theirs.ModelNotFoundError):
        return MindUnavailable(f"the provider does not have the model: {message}")
    if status is not None and 300 <= status < 400:
        return MindUnavailable("the provider answers with a redirect, which is not followed: its url: has changed")
    return _connection_error(error, message)


def _connection_error(error: Exception, message: str) -> MindError:
    from pydantic import ValidationError
    from pydantic_ai import exceptions as theirs

    if isinstance(error, theirs.ModelRequestTimeout | theirs.ModelTimeoutError) and _was_sent(error):
        return MindUnavailable(f"no answer in time: {message}", passing=True, lost=True)
    if isinstance(error, theirs.ModelConnectionError):
        return MindUnavailable(f"no connection: {message}", passing=True, lost=_was_sent(error))
    if isinstance(error, theirs.ModelAPIError) and getattr(error, "status_code", None) is not None:
        return MindError(f"the provider does not understand the request: {message}")
    # Not an answer of this kind of server: a proxy's page, a truncated body, a body that is too large. The request may have
    # been charged, and an immediate retry would have the same result.
    problem = message
    if isinstance(error, IndexError):
        problem = "its list of choices is empty"
    elif isinstance(error.__cause__, ValidationError):
        locations = (".".join(map(str, detail["loc"])) for detail in error.__cause__.errors()[:5])
        problem = f"missing or wrong in it: {', '.join(locations)}"
    remedy = "check that url: and model: in the agent's file name a server of this kind, and see its log"
    return MindUnavailable(f"the response is not an answer of a model: {problem}; {remedy}", lost=True)


def _was_sent(error: Exception) -> bool:
    return getattr(error, "phase", None) not in ("pool", "connect")


def _error_message(error: Exception, key: str | None) -> str:
    """Return the error's message on one line, without the key, cut to 300 characters."""
    cause = error.__cause__
    text = str(error) or type(error).__name__
    if cause is not None and str(cause) and str(cause) not in text:
        text = f"{text} ({type(cause).__name__}: {cause})"
    if key:
        text = text.replace(key, "[key]")
    text = without_surrogates(" ".join(text.split()))
    return text if len(text) <= _MAX_ERROR_CHARS else f"{text[:_MAX_ERROR_CHARS]}…"
