"""One request to a model, through pydantic-ai's direct requests, with its errors in our words."""

from __future__ import annotations

import asyncio
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from hivemind.boundary import Unreadable, boundary
from hivemind.json_text import fault_of, whole_text
from hivemind.masking import masked
from hivemind.minds.language.answer import Answer, Call, Refused, in_our_words
from hivemind.minds.language.config import ModelConfig
from hivemind.minds.language.connection import http_client, open_model
from hivemind.minds.mind import Action, ChatMessage, MindError, ToolSchema, Usage
from hivemind.minds.pictures import picture_bytes

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_LOOK_S = 0.25


class Client:
    """The model of a config, the connections to it, and the thread with the event loop that they live in: the libraries are
    asynchronous, and the agent and the thread that folds a task's conversation ask the same model.

    Its own library never asks twice: patience is the mind's.
    """

    def __init__(self, config: ModelConfig, root: Path | None, waiting: Callable[[], object]) -> None:
        """`waiting` is called while an answer is awaited."""
        self._config, self._root, self._waiting = config, root, waiting
        self._key = config.key()
        self._http = http_client(config)
        self._model = open_model(config, self._http)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name="model", daemon=True)
        self._thread.start()
        weakref.finalize(self, _stop, self._loop)

    def ask(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
        schema: Mapping[str, Any] | None,
        max_output: int,
    ) -> Answer:
        """The answer to a conversation, of at most so many tokens. Raises MindError and its kinds, and what `waiting` raises,
        which ends the request."""
        asked = self._ask(messages, tools, schema, max_output)
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            while not wait([answer], _LOOK_S).done:
                self._waiting()
            return answer.result()
        finally:
            answer.cancel()

    async def _ask(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
        schema: Mapping[str, Any] | None,
        max_output: int,
    ) -> Answer:
        asked, parameters = _model_messages(messages, self._config.name, self._root), self._parameters(tools, schema)
        settings = self._config.settings(max_output)
        try:
            response = await model_request(
                self._model, asked, model_settings=settings, model_request_parameters=parameters
            )
        except Exception as error:  # the boundary of the network: whatever a client library raises is said in our words
            raise in_our_words(error, self._key) from None
        return self._answer(response)

    def close(self) -> None:
        """Let go of the connections and end the thread."""
        asyncio.run_coroutine_threadsafe(self._http.aclose(), self._loop).result()
        _stop(self._loop)
        self._thread.join()

    def _parameters(self, tools: Sequence[ToolSchema], schema: Mapping[str, Any] | None) -> ModelRequestParameters:
        defined = [
            ToolDefinition(
                name=tool["name"],
                parameters_json_schema=tool["parameters"],
                description=tool["description"],
                strict=False,
            )
            for tool in tools
        ]
        if schema is None or not self._model.profile.get("supports_json_schema_output"):
            return ModelRequestParameters(function_tools=defined)
        form = OutputObjectDefinition(json_schema=dict(schema), name="answer", strict=False)
        return ModelRequestParameters(output_mode="native", output_object=form)

    def _answer(self, response: ModelResponse) -> Answer:
        text, used = whole_text(response.text or ""), _usage(response)
        if response.finish_reason == "content_filter":
            reason = f"the provider refused to answer{': ' + text if text else ''}"
            raise Refused(reason, Answer(text, usage=used))
        calls = tuple(
            Call(whole_text(part.tool_name), _given(part.args), part.tool_call_id)
            for part in response.parts
            if isinstance(part, ToolCallPart)
        )
        return Answer(text, calls, response.finish_reason == "length", used, _opaque(response))


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


def _given(arguments: str | Mapping[str, Any] | None) -> str | Mapping[str, Any] | None:
    """Arguments as they came, if a log can hold them."""
    fault = fault_of(arguments)
    return arguments if fault is None else f"(arguments that can't be used: {fault})"


def _usage(response: ModelResponse) -> Usage:
    """The tokens as reported; none for a report that can't be one, which is estimated like one that is missing."""
    try:
        used = response.usage
        cached = min(used.cache_read_tokens, used.input_tokens)
        written = min(used.cache_write_tokens, used.input_tokens - cached)
        return Usage(used.input_tokens, used.output_tokens, cached=cached, written=written)
    except MindError:
        return Usage()


def _opaque(response: ModelResponse) -> Sequence[Mapping[str, Any]]:
    """All parts of a response as JSON, if one of them is something that its provider wants back: thinking, signatures."""
    if not any(isinstance(part, ThinkingPart) or getattr(part, "provider_details", None) for part in response.parts):
        return ()
    [whole] = ModelMessagesTypeAdapter.dump_python([response], mode="json")
    parts: Sequence[Mapping[str, Any]] = whole["parts"]
    return () if masked(parts) != parts or fault_of(parts) else parts


def _model_messages(messages: Sequence[ChatMessage], model: str, root: Path | None) -> list[ModelMessage]:
    """The conversation in the library's words; the same messages always become the same ones."""
    made: list[ModelMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            names |= {call.id: _sendable(call.tool) for call in message.calls}
            made.append(_response(message, model))
            continue
        if message.role == "system":
            part: Any = SystemPromptPart(message.text)
        elif message.role == "tool":
            call = message.call_id or ""
            part = ToolReturnPart(names.get(call, "unknown"), message.text, call)
        else:
            part = UserPromptPart(_content(message, root))
        if made and isinstance(made[-1], ModelRequest):
            made[-1] = ModelRequest([*made[-1].parts, part])
        else:
            made.append(ModelRequest([part]))
    return made


def _content(message: ChatMessage, root: Path | None) -> str | list[UserContent]:
    """A text, with its pictures behind it; in the place of one whose file has changed stands that it has."""
    if root is None or not message.parts:
        return message.text
    shown: list[UserContent] = [message.text]
    for part in message.parts:
        raw = picture_bytes(root, part)
        gone = f"[the picture {part['path']} is not what it was any more]"
        shown.append(gone if raw is None else BinaryContent(raw, media_type=part["kind"]))
    return shown


def _response(message: ChatMessage, model: str) -> ModelResponse:
    """An answer as it was given: what its provider wants back goes only to the model that made it."""
    opaque = message.provider
    if opaque is not None and opaque.get("model") == model:
        kept = {"kind": "response", "parts": opaque["parts"]}
        with suppress(Unreadable), boundary("kept answer"):
            [response] = ModelMessagesTypeAdapter.validate_python([kept])
            if isinstance(response, ModelResponse):
                return _with_calls(response, message.calls)
    said = [TextPart(message.text or "(nothing)")] if message.text or not message.calls else []
    calls = [ToolCallPart(_sendable(call.tool), _sent_back(call), call.id) for call in message.calls]
    return ModelResponse([*said, *calls])


def _with_calls(response: ModelResponse, calls: Sequence[Action]) -> ModelResponse:
    """A kept answer with the calls as the conversation has them: by the ids that their results name, and readable."""
    parts: list[Any] = list(response.parts)
    left = iter(calls)
    for at, part in enumerate(parts):
        if isinstance(part, ToolCallPart):
            call = next(left)
            parts[at] = replace(part, tool_name=_sendable(call.tool), args=_sent_back(call), tool_call_id=call.id)
    return replace(response, parts=parts)


def _sendable(tool: str) -> str:
    """The name of a tool as providers accept it: one that a model made up may be refused with every later request."""
    return _NOT_IN_NAMES.sub("_", tool)[:_LONGEST_NAME] or "unknown"


def _sent_back(call: Action) -> dict[str, Any]:
    """The arguments as they came; what is no JSON object is wrapped in one, since providers refuse to read it."""
    return dict(call.arguments) if call.raw is None else {"unreadable": call.raw}
