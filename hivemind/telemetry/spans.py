"""Makes spans of the lines of conversations, named by OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from hivemind.frozen import frozen
from hivemind.taskrun.conversation import usage_of
from hivemind.trace_context import TraceContext

Attributes = Mapping[str, Any]
Line = Mapping[str, Any]
VERSION = version("hivemind-swarm")
_SCOPE = InstrumentationScope("hivemind", VERSION)
_PROVIDERS = {"google": "gcp.gemini", "ollama": "ollama", "openai-compatible": "openai"}
"""The conventions' names of providers where they differ from ours."""
_MAX_CHARS = 16_384  # of a text in an attribute


@frozen
class SpanFactory:
    """Makes the spans of one hive. Texts of people, minds and tools are left out unless `has_content`."""

    resource: Resource
    has_content: bool

    def span(
        self, context: TraceContext, name: str, times: tuple[float, float], attributes: Attributes, content: Attributes, *,
        error: tuple[str, str] | None = None, kind: SpanKind = SpanKind.INTERNAL,
    ) -> ReadableSpan:  # fmt: skip
        """Return a span. `times` are its start and end in seconds since 1970, `error` has a type and a text.

        `content` are attributes with texts of people, minds and tools, which may have to be left out.
        """
        start, end = int(times[0] * 1e9), int(times[1] * 1e9)
        values = {name: value for name, value in attributes.items() if value not in (None, "")}
        if self.has_content:
            values |= {name: _as_text(value) for name, value in content.items() if value}
        events: list[Event] = []
        if error is not None:
            values["error.type"] = error[0]
            message = {"exception.message": _as_text(error[1])} if self.has_content else {}
            events.append(Event("exception", {"exception.type": error[0], **message}, end))
        return ReadableSpan(
            name, _span_context(context, context.span),
            None if context.parent is None else _span_context(context, context.parent), self.resource, values, events,
            kind=kind, status=Status() if error is None else Status(StatusCode.ERROR),
            start_time=min(start, end), end_time=end, instrumentation_scope=_SCOPE,
        )  # fmt: skip

    def tool_span(
        self, context: TraceContext, call: Attributes, times: tuple[float, float], result: Attributes, attributes: Attributes
    ) -> ReadableSpan:  # fmt: skip
        """Return the span of a tool call, as a child of `context`. If a program made the call and sent its own span, that is
        the parent.
        """
        span = context.child("call", str(call["id"]))
        if (caller := TraceContext.parse(call.get("traceparent"))) is not None:
            span = caller.child(context.span, str(call["id"]))
        names = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call["tool"], "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call["id"],
        }  # fmt: skip
        text = result.get("text") or result.get("error") or result.get("result")
        content = {"gen_ai.tool.call.arguments": call["arguments"], "gen_ai.tool.call.result": text}
        error = None if result.get("ok", True) else ("tool_error", str(text))
        return self.span(span, f"execute_tool {call['tool']}", times, {**attributes, **names}, content, error=error)


class ConversationSpans:
    """Makes the spans of one conversation, line by line, within the span `context`. All have the `attributes`."""

    def __init__(self, factory: SpanFactory, context: TraceContext, attributes: Attributes) -> None:
        self._factory, self.context, self._attributes = factory, context, attributes
        self._has_program = False
        self._requests: dict[str, Line] = {}
        self._answered: dict[str, Line] = {}
        self._calls: dict[str, tuple[Attributes, Line]] = {}

    def line_spans(self, line: Line) -> Iterator[ReadableSpan]:
        """Yield the spans that end with `line`, the conversation's next line. Malformed lines may raise any exception."""
        if "reserved" in line:
            yield from self._noted_requests()
            self._requests[line["request"]] = line
        elif line.get("answered") in self._requests:  # a coding agent reports repeatedly; the last report counts
            self._answered[line["answered"]] = line
        elif "opening" in line:
            kind = line.get("mind") or ""
            kinds = set(kind) if isinstance(kind, dict) else {str(kind).partition(":")[0].strip()}
            self._has_program = not kinds.isdisjoint({"agent", "acp"})
        elif line.get("role") == "assistant":
            if (request := self._requests.pop(line.get("request", ""), None)) is not None:
                yield self._request_span(request, line)
            self._calls |= {call["id"]: (call, line) for call in line.get("calls", ())}
        elif line.get("role") == "tool" and line["call_id"] in self._calls:
            yield self._call_span(line["call_id"], line, timestamp(line))

    def open_spans(self, end: float) -> Iterator[ReadableSpan]:
        """Yield the spans that were open when the conversation ended."""
        yield from self._noted_requests()
        for call_id in [*self._calls]:
            yield self._call_span(call_id, {}, end)

    def _noted_requests(self) -> Iterator[ReadableSpan]:
        """Yield a span for each request to the model that was answered but added no message to the conversation."""
        for request_id, line in self._answered.items():
            yield self._request_span(self._requests.pop(request_id), line)
        self._answered = {}

    def _request_span(self, request: Line, line: Line) -> ReadableSpan:
        provider, _, model = str(request["model"]).rpartition(":")
        model = os.path.basename(model) if provider == "command" else model
        usage, name = usage_of(line), {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        title, kind = f"chat {model}", SpanKind.CLIENT
        if self._has_program:
            program = provider or model
            name = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": program}
            title, kind = f"invoke_agent {program}", SpanKind.INTERNAL
        attributes = {
            **self._attributes, "gen_ai.agent.name": request.get("agent") or line.get("agent"), **name,
            "gen_ai.provider.name": _PROVIDERS.get(provider, provider) or "hivemind",
            "gen_ai.usage.input_tokens": usage.tokens_in, "gen_ai.usage.output_tokens": usage.tokens_out,
            "gen_ai.usage.cache_read.input_tokens": usage.cached, "gen_ai.usage.cache_creation.input_tokens": usage.written,
        }  # fmt: skip
        error = ("provider_error", str(line["error"])) if "error" in line else None
        return self._factory.span(
            self.context.child("request", request["request"]), title, (timestamp(request), timestamp(line)), attributes,
            {"gen_ai.output.messages": message_json("assistant", line.get("text"), line.get("calls", ()))},
            error=error, kind=kind,
        )  # fmt: skip

    def _call_span(self, call_id: str, line: Line, end: float) -> ReadableSpan:
        call, answer = self._calls.pop(call_id)
        attributes = {**self._attributes, "gen_ai.agent.name": answer.get("agent")}
        start = end - line["seconds"] if "seconds" in line else min(end, timestamp(answer))
        return self._factory.tool_span(self.context, call, (start, end), line, attributes)


def message_json(role: str, text: object, calls: Sequence[Attributes] = ()) -> str:
    """Return a message as JSON in the form of OpenTelemetry's conventions, or "" for one without text and calls.

    A message of the role `assistant` gets a `finish_reason`.
    """
    parts = [{"type": "text", "content": text}] if text else []
    parts += [
        {"type": "tool_call", "id": call["id"], "name": call["tool"], "arguments": call["arguments"]} for call in calls
    ]
    end = {"finish_reason": "tool_call" if calls else "stop"} if role == "assistant" else {}
    return json.dumps([{"role": role, "parts": parts, **end}], ensure_ascii=False, default=str) if parts else ""


def timestamp(line: Line) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()


def _as_text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def _span_context(context: TraceContext, span: str) -> SpanContext:
    return SpanContext(int(context.trace, 16), int(span, 16), False, TraceFlags(int(context.flags, 16)))
