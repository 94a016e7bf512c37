"""Send requests to a model through pydantic-ai's direct requests, and translate its errors."""

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
from hivemind.json_text import fault_of, without_surrogates
from hivemind.masking import mask_values
from hivemind.minds.language.answer import AnswerRefused, Completion, read_call, translate_error
from hivemind.minds.language.config import ModelConfig
from hivemind.minds.language.connection import http_client, open_model
from hivemind.minds.mind import ChatMessage, MindError, ToolCall, ToolSchema, Usage
from hivemind.minds.pictures import read_picture

_FORBIDDEN_NAME_CHARS = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARS = 64
_POLL_S = 0.25


class Client:
    """A model, the connections to it, and a thread with their event loop.

    The client libraries are asynchronous, and two threads use the same model: the agent's and the thread that folds a task's
    conversation. The libraries do not retry requests; the mind's Patience does.
    """

    def __init__(self, config: ModelConfig, root: Path | None, on_wait: Callable[[], object]) -> None:
        """Prepare the connections, and start the thread with their event loop. Pictures are read from below `root`; without it
        none are sent. `on_wait` is called repeatedly while an answer is awaited."""
        self._config, self._root, self._on_wait = config, root, on_wait
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
    ) -> Completion:
        """Return the answer to a conversation, of at most `max_output` tokens.

        Raises MindError and its subclasses. An exception in `on_wait` ends the request and is raised.
        """
        request = model_request(
            self._model,
            _model_messages(messages, self._config.name, self._root),
            model_settings=self._config.settings(max_output),
            model_request_parameters=self._request_parameters(tools, schema),
        )
        response = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            while not wait([response], _POLL_S).done:
                self._on_wait()
            error = response.exception()
        finally:
            response.cancel()
        if isinstance(error, Exception):  # client libraries may raise any exception
            raise translate_error(error, self._key)
        return self._read_response(response.result())

    def close(self) -> None:
        """Close the connections and end the thread."""
        asyncio.run_coroutine_threadsafe(self._http.aclose(), self._loop).result()
        _stop(self._loop)
        self._thread.join()

    def _request_parameters(
        self, tools: Sequence[ToolSchema], schema: Mapping[str, Any] | None
    ) -> ModelRequestParameters:
        definitions = [
            ToolDefinition(
                name=tool["name"],
                parameters_json_schema=tool["parameters"],
                description=tool["description"],
                strict=False,
            )
            for tool in tools
        ]
        if schema is None or not self._model.profile.get("supports_json_schema_output"):
            return ModelRequestParameters(function_tools=definitions)
        output_object = OutputObjectDefinition(json_schema=dict(schema), name="answer", strict=False)
        return ModelRequestParameters(output_mode="native", output_object=output_object)

    def _read_response(self, response: ModelResponse) -> Completion:
        text, usage = without_surrogates(response.text or ""), _usage(response)
        if response.finish_reason == "content_filter":
            reason = f"the provider refused to answer{': ' + text if text else ''}"
            raise AnswerRefused(reason, Completion(text, usage=usage))
        calls = tuple(
            read_call(without_surrogates(part.tool_name), _loggable_arguments(part.args), part.tool_call_id)
            for part in response.parts
            if isinstance(part, ToolCallPart)
        )
        return Completion(text, calls, response.finish_reason == "length", usage, _opaque_parts(response))


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


def _loggable_arguments(arguments: str | Mapping[str, Any] | None) -> str | Mapping[str, Any] | None:
    """Return the arguments unchanged, or a text that says why a log cannot store them."""
    fault = fault_of(arguments)
    return arguments if fault is None else f"(arguments that cannot be used: {fault})"


def _usage(response: ModelResponse) -> Usage:
    """Return the reported tokens. For an invalid or missing report, return an empty Usage, which is estimated later."""
    try:
        usage = response.usage
        cached_tokens = min(usage.cache_read_tokens, usage.input_tokens)
        written_tokens = min(usage.cache_write_tokens, usage.input_tokens - cached_tokens)
        return Usage(usage.input_tokens, usage.output_tokens, cached=cached_tokens, written=written_tokens)
    except MindError:
        return Usage()


def _opaque_parts(response: ModelResponse) -> Sequence[Mapping[str, Any]]:
    """Return a response's parts as JSON if the provider wants some of them back (thinking, signatures), else none."""
    if not any(isinstance(part, ThinkingPart) or getattr(part, "provider_details", None) for part in response.parts):
        return ()
    [response_record] = ModelMessagesTypeAdapter.dump_python([response], mode="json")
    parts: Sequence[Mapping[str, Any]] = response_record["parts"]
    return () if mask_values(parts) != parts or fault_of(parts) else parts


def _model_messages(messages: Sequence[ChatMessage], model: str, root: Path | None) -> list[ModelMessage]:
    """Return a conversation as the library's messages. Equal messages always have equal results."""
    model_messages: list[ModelMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            names |= {call.id: _accepted_name(call.tool) for call in message.calls}
            model_messages.append(_model_response(message, model))
            continue
        if message.role == "system":
            part: Any = SystemPromptPart(message.text)
        elif message.role == "tool":
            call_id = message.call_id or ""
            part = ToolReturnPart(names.get(call_id, "unknown"), message.text, call_id)
        else:
            part = UserPromptPart(_user_content(message, root))
        if model_messages and isinstance(model_messages[-1], ModelRequest):
            model_messages[-1] = ModelRequest([*model_messages[-1].parts, part])
        else:
            model_messages.append(ModelRequest([part]))
    return model_messages


def _user_content(message: ChatMessage, root: Path | None) -> str | list[UserContent]:
    """Return the message's text and pictures. A placeholder replaces a picture with a changed file."""
    if root is None or not message.parts:
        return message.text
    content: list[UserContent] = [message.text]
    for part in message.parts:
        raw = read_picture(root, part)
        placeholder = f"[the picture {part['path']} has changed]"
        content.append(placeholder if raw is None else BinaryContent(raw, media_type=part["kind"]))
    return content


def _model_response(message: ChatMessage, model: str) -> ModelResponse:
    """Return an answer as the library's response. The provider's opaque parts are sent only to the model that created them."""
    opaque = message.provider
    if opaque is not None and opaque.get("model") == model:
        stored_response = {"kind": "response", "parts": opaque["parts"]}
        with suppress(Unreadable), boundary("kept answer"):
            [response] = ModelMessagesTypeAdapter.validate_python([stored_response])
            if isinstance(response, ModelResponse):
                return _replace_calls(response, message.calls)
    text_parts = [TextPart(message.text or "(nothing)")] if message.text or not message.calls else []
    calls = [ToolCallPart(_accepted_name(call.tool), _call_arguments(call), call.id) for call in message.calls]
    return ModelResponse([*text_parts, *calls])


def _replace_calls(response: ModelResponse, calls: Sequence[ToolCall]) -> ModelResponse:
    """Return a stored response with its calls replaced by `calls`, because the results refer to the ids of these."""
    parts: list[Any] = list(response.parts)
    remaining_calls = iter(calls)
    for index, part in enumerate(parts):
        if isinstance(part, ToolCallPart):
            call = next(remaining_calls)
            parts[index] = replace(
                part, tool_name=_accepted_name(call.tool), args=_call_arguments(call), tool_call_id=call.id
            )
    return replace(response, parts=parts)


def _accepted_name(tool: str) -> str:
    """Return a tool's name without characters that providers refuse.

    A model may invent such a name, and the provider would then reject all later requests of the conversation.
    """
    return _FORBIDDEN_NAME_CHARS.sub("_", tool)[:_MAX_NAME_CHARS] or "unknown"


def _call_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call. Unreadable arguments are wrapped in an object: providers accept only JSON objects."""
    return dict(call.arguments) if call.raw is None else {"unreadable": call.raw}
