"""A language model as a mind: requests go through pydantic-ai and are counted by a meter."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hivemind.boundary import Unreadable
from hivemind.errors import HivemindError, UserError
from hivemind.json_text import find_json, schema_fault
from hivemind.minds.language.answer import (
    AnswerRefused,
    Completion,
    OutputLimitTooHigh,
    answer_schema,
    completion_messages,
    thought_of_answer,
    without_tools,
)
from hivemind.minds.language.config import ModelConfig
from hivemind.minds.meter import Meter, MeteredRequest, Pricing, unmetered, with_price
from hivemind.minds.mind import ChatMessage, MindError, MindUnavailable, Thought, ToolSchema, Turn
from hivemind.minds.patience import Patience

if TYPE_CHECKING:
    from hivemind.minds.language.client import Client

T = TypeVar("T")


CORRECTIONS = 3
_log = logging.getLogger(__name__)
_PATCHES = frozenset({"EpisodePatches", "MemoryPatch"})
"""The titles of the reasoning graph's patch schemas."""


class _LazyClient:
    """A client that opens with the first request, shared by a mind and its copies with other meters.

    An agent that never calls its model has no connections and no thread for them, and does not import asyncio and ssl.
    """

    def __init__(self, config: ModelConfig, root: Path | None, on_wait: Callable[[], object]) -> None:
        self._config, self._root, self._on_wait = config, root, on_wait
        self.max_output = config.max_output
        """The maximum length of an answer in tokens: the config's, or the provider's limit once it is known."""
        self._mutex = threading.Lock()
        self._client: Client | None = None

    def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema], schema: Mapping[str, Any] | None
    ) -> Completion:
        """Return the answer to a conversation. Raises as `Client.ask` does."""
        from hivemind.minds.language.client import Client

        with self._mutex:
            client = self._client = self._client or Client(self._config, self._root, self._on_wait)
        return client.ask(messages, tools, schema, self.max_output)

    def close(self) -> None:
        """Close the connections and end the thread. A later request opens new ones."""
        with self._mutex:
            client, self._client = self._client, None
            if client is not None:
                client.close()


class LanguageMind:
    """A mind that thinks with one model. The client is imported and opened at the first request.

    A thought is one request. `patience` repeats requests that fail for a passing reason. An unusable completion is sent
    back to the model with the reason, at most three times. Every request passes `meter`.
    """

    by_rule = False

    def __init__(self, config: ModelConfig, *, patience: Patience | None = None, root: Path | None = None) -> None:
        """Open the mind without a connection. `patience` repeats failed requests, `root` is the folder that contains the
        pictures. Raises UserError if the key or the client library is missing."""
        config.check()
        self.config = config
        self.meter: Meter = unmetered
        self.patience = patience or Patience()
        self.takes_pictures = root is not None and config.takes_pictures
        self._client = _LazyClient(config, root if self.takes_pictures else None, self.patience.on_wait)
        self._sends_schema = True

    @property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def prices(self) -> Pricing | None:
        """The prices of the model's tokens, by default the published ones; None if they are unknown."""
        from hivemind.minds.language.connection import published_prices

        return published_prices(self.config)

    def with_meter(self, meter: Meter) -> LanguageMind:
        """Return a copy of the mind with another meter and the same connections."""
        clone = copy(self)
        clone.meter = meter
        return clone

    def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        self._client.close()

    # the Mind protocol

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:
        """Send the turn's messages in one request and return the model's decision.

        Raises MindUnavailable, ContextTooLong, AnswerRefused, MindError, and the meter's exceptions.
        """
        is_prompted = self.config.tools == "prompted"
        messages = without_tools(turn.messages, tools) if is_prompted else turn.messages
        schema = answer_schema(tools) if is_prompted else None
        answer = self._ask(turn.cause, messages, [] if is_prompted else tools, schema)
        return thought_of_answer(answer, model=self.name, prompted=is_prompted)

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """Return the answer to a plain prompt, as JSON by the schema if one is given. Raises as `think` does."""
        cause = "patch" if (schema or {}).get("title") in _PATCHES else "fold"
        messages = completion_messages(text, schema)
        for _ in range(1 + CORRECTIONS):
            answer = self._ask(cause, messages, [], schema)
            completion, fault = _check_completion(answer, schema, self._client.max_output)
            if fault is None:
                return completion
            correction = f"This cannot be used: {fault}. Write the complete answer again."
            messages = [*messages, ChatMessage("assistant", answer.text), ChatMessage("user", correction)]
        raise MindError(f"no answer of {self.name} could be used: {fault}")

    # requests

    def _ask(
        self, cause: str, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema], schema: Mapping[str, Any] | None
    ) -> Completion:
        counted_parts = [
            *(_counted_fields(message) for message in messages),
            *([list(tools)] if tools else []),
            *([schema] if schema else []),
        ]
        parts = tuple(json.dumps(part, ensure_ascii=False) for part in counted_parts)
        digest = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

        def send_once() -> Completion:
            sent_schema = schema if self._sends_schema else None
            pictures = sum(len(message.parts) for message in messages)
            request = MeteredRequest(cause, self.name, parts, digest, self._client.max_output, self.prices, pictures)
            return self._send_metered(request, lambda: self._client.ask(messages, tools, sent_schema))

        try:
            return self.patience.call(send_once)
        except OutputLimitTooHigh as error:
            if error.max_output >= self._client.max_output:
                raise
            _log.warning("%s: %s; %d from now on", self.name, error, error.max_output)
            self._client.max_output = error.max_output
            return self._ask(cause, messages, tools, schema)
        except MindError as error:
            if schema is None or not self._sends_schema or type(error) is not MindError:
                raise
            self._sends_schema = False  # the server may not support schemas: the messages describe the form as well
            return self.patience.call(send_once)

    def _send_metered(self, request: MeteredRequest, send: Callable[[], Completion]) -> Completion:
        with self.meter(request) as exchange:
            try:
                answer = send()
            except HivemindError as error:
                refused_answer = error.answer if isinstance(error, AnswerRefused) else None
                exchange.error, exchange.usage = (
                    str(error),
                    None if refused_answer is None else with_price(refused_answer.usage, self.prices),
                )
                is_mind_error = isinstance(error, MindError)  # else `on_wait` raised it
                exchange.lost = (
                    refused_answer is not None
                    or not is_mind_error
                    or (isinstance(error, MindUnavailable) and error.lost)
                )
                raise
            answer = replace(answer, usage=with_price(answer.usage, self.prices))
            exchange.answer, exchange.usage = answer.as_dict(), answer.usage
            return answer


def import_client(config: ModelConfig) -> None:
    """Import the modules that a request needs. Open no connection and start no thread. Raises UserError."""
    kind = {"openai-compatible": "openai"}.get(config.provider, config.provider)
    try:
        for module in ("hivemind.minds.language.client", "jsonschema", f"pydantic_ai.models.{kind}"):
            import_module(module)
    except Exception as error:  # a package is missing or broken, or does not fit another
        reason = f"the client of {config.name} cannot be imported ({type(error).__name__}: {error})"
        raise UserError(reason, remedy="pip install 'hivemind-swarm[models]'") from error


def _counted_fields(message: ChatMessage) -> dict[str, Any]:
    """Return the fields of a message that are sent to the provider, to count their tokens and make a digest."""
    calls = [{"tool": call.tool, "arguments": dict(call.arguments)} for call in message.calls]
    pictures = {"parts": list(message.parts)} if message.parts else {}
    return {"role": message.role, "text": message.text, **pictures, **({"calls": calls} if calls else {})}


def _check_completion(answer: Completion, schema: Mapping[str, Any] | None, max_output: int) -> tuple[str, str | None]:
    """Return the text of a completion and None if the text can be used. Else return what there is of it and the reason why it
    cannot be used."""
    if answer.cut:
        return "", f"it was cut off after {max_output} tokens; be shorter"
    if schema is None:
        return (answer.text, None) if answer.text.strip() else ("", "the answer was empty")
    try:
        value = find_json(answer.text)
    except Unreadable as error:
        return "", str(error)
    return json.dumps(value, ensure_ascii=False), schema_fault(value, schema)
