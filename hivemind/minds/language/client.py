"""One request to a model, through pydantic-ai's direct requests, with its errors in our words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from hivemind.boundary import Unreadable, boundary
from hivemind.minds.language.answer import Answer, Call
from hivemind.minds.language.config import ModelConfig
from hivemind.minds.language.connection import http_client
from hivemind.minds.language.errors import Refused, in_our_words
from hivemind.minds.language.prompt import Prompt
from hivemind.minds.language.provider import open_model
from hivemind.minds.mind import MindError, ToolSchema, Usage
from hivemind.minds.plain import fault_of, whole_text

__all__ = ["Client"]


class Client:
    """The model of a config, and the connections to it. Its own library never asks twice: patience is the mind's."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._key = config.key()
        self._http = http_client(config)
        self._model = open_model(config, self._http)

    async def ask(
        self,
        prompt: Prompt,
        past: Sequence[tuple[Answer, str]],
        tools: Sequence[ToolSchema],
        schema: Mapping[str, Any] | None,
    ) -> Answer:
        """The answer to a prompt, after what was answered before and refused. Raises MindError and its kinds."""
        settings = ModelSettings(
            max_tokens=self._config.max_output, timeout=self._config.timeout_s, request_timeout=self._config.timeout_s,
            max_retries=0,
        )  # fmt: skip
        messages, parameters = _messages(prompt, past), self._parameters(tools, schema)
        try:
            response = await model_request(
                self._model, messages, model_settings=settings, model_request_parameters=parameters
            )
        except Exception as error:  # the boundary of the network: whatever a client library raises is said in our words
            raise in_our_words(error, self._key) from None
        return self._answer(response)

    async def close(self) -> None:
        await self._http.aclose()

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
        text, used, cost = whole_text(response.text or ""), _usage(response), _cost(response)
        if response.finish_reason == "content_filter":
            reason = f"the provider refused to answer{': ' + text if text else ''}"
            raise Refused(reason, Answer(text, usage=used, cost=cost))
        calls = tuple(
            Call(whole_text(part.tool_name), _given(part.args), part.tool_call_id)
            for part in response.parts
            if isinstance(part, ToolCallPart)
        )
        return Answer(text, calls, response.finish_reason == "length", used, cost)


def _given(arguments: str | Mapping[str, Any] | None) -> str | Mapping[str, Any] | None:
    """Arguments as they came, if a log can hold them."""
    fault = fault_of(arguments)
    return arguments if fault is None else f"(arguments that can't be used: {fault})"


def _usage(response: ModelResponse) -> Usage:
    """The tokens as reported; none for a report that can't be one, which is estimated like one that is missing."""
    try:
        return Usage(response.usage.input_tokens, response.usage.output_tokens)
    except MindError:
        return Usage()


def _cost(response: ModelResponse) -> float | None:
    """What the library's price list makes of a response, or None if it does not know."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


def _messages(prompt: Prompt, past: Sequence[tuple[Answer, str]]) -> list[ModelMessage]:
    messages: list[ModelMessage] = [ModelRequest([SystemPromptPart(prompt.system), UserPromptPart(prompt.user)])]
    for answer, fault in past:
        said = [TextPart(answer.text or "(nothing)")] if answer.text or not answer.calls else []
        calls = [ToolCallPart(call.tool, _sent_back(call), call.key) for call in answer.calls]
        messages.append(ModelResponse([*said, *calls]))
        told = f"None of this was done. {fault}. Answer again, as a whole."
        if calls:
            messages.append(ModelRequest([ToolReturnPart(call.tool_name, told, call.tool_call_id) for call in calls]))
        else:
            messages.append(ModelRequest([UserPromptPart(told)]))
    return messages


def _sent_back(call: Call) -> dict[str, Any]:
    """The arguments as they came; what is no JSON object is wrapped in one, since providers refuse to read it."""
    if isinstance(call.arguments, Mapping):
        return dict(call.arguments)
    value: Any = call.arguments
    with suppress(Unreadable), boundary("object of arguments"):
        value = json.loads(call.arguments or "{}")
    if fault_of(value):
        value = call.arguments
    return value if isinstance(value, dict) else {"unreadable": value}
