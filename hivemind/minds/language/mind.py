"""A language model as a mind (spec 8): asked through pydantic-ai, counted by its meter."""

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
from hivemind.errors import HivemindError
from hivemind.json_text import fault_in, find_json
from hivemind.minds.language.answer import (
    Answer,
    BoundTooHigh,
    Refused,
    answer_schema,
    completion_messages,
    in_words,
    thought_in,
)
from hivemind.minds.language.config import ModelConfig
from hivemind.minds.meter import Asked, Meter, Pricing, priced, unmetered
from hivemind.minds.mind import ChatMessage, MindError, MindUnavailable, Thought, ToolSchema, Turn
from hivemind.minds.patience import Patience

if TYPE_CHECKING:
    from hivemind.minds.language.client import Client

T = TypeVar("T")


CORRECTIONS = 3
_log = logging.getLogger(__name__)
_PATCHES = frozenset({"EpisodePatches", "MemoryPatch"})
"""What the reasoning graph's schemas of patches are called."""


class _Line:
    """The client of a mind and of all that are counted by other meters; opened with the first question, so that an agent that
    asks nothing has neither connections nor their thread. (It brings asyncio and ssl, a tenth of what a swarm without a model
    would import.)"""

    def __init__(self, config: ModelConfig, root: Path | None, waiting: Callable[[], object]) -> None:
        self._config, self._root, self._waiting = config, root, waiting
        self.max_output = config.max_output
        """The most tokens of an answer: as the config says, or fewer once the provider has said so."""
        self._mutex = threading.Lock()
        self._client: Client | None = None

    def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema], schema: Mapping[str, Any] | None
    ) -> Answer:
        """The answer to a conversation. Raises as `Client.ask` does."""
        from hivemind.minds.language.client import Client

        with self._mutex:
            client = self._client = self._client or Client(self._config, self._root, self._waiting)
        return client.ask(messages, tools, schema, self.max_output)

    def close(self) -> None:
        """Let go of the connections and end the thread. A later question opens others."""
        with self._mutex:
            client, self._client = self._client, None
            if client is not None:
                client.close()


class LanguageMind:
    """Thinks and completes with one model. Nothing is imported, opened or asked before the first question.

    A thought is one request. What a provider turns away for the moment is asked again (`patience`); a completion that can't
    be used goes back with the reason, at most three times. Every request goes past `meter`, before and after.
    """

    by_rule = False

    def __init__(self, config: ModelConfig, *, patience: Patience | None = None, root: Path | None = None) -> None:
        """`root` is where the paths of pictures begin. Raises UserError if the key or the client library is missing."""
        config.check()
        self.config = config
        self.own_prices: Pricing | None = None  # the hive's; else those that are published count
        self.meter: Meter = unmetered
        self.patience = patience or Patience()
        self.takes_pictures = root is not None and config.takes_pictures
        self._line = _Line(config, root if self.takes_pictures else None, self.patience.waiting)
        self._by_schema = True

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def prices(self) -> Pricing | None:
        """What its tokens cost, or None if nobody knows."""
        return self.own_prices or self._published

    @cached_property
    def _published(self) -> Pricing | None:
        from hivemind.minds.language.connection import published_prices

        return published_prices(self.config)

    def with_meter(self, meter: Meter) -> LanguageMind:
        """The same mind on the same connections, its requests counted by another meter."""
        other = copy(self)
        other.meter = meter
        return other

    def close(self) -> None:
        """Let go of the connections. A later question opens others."""
        self._line.close()

    # the Mind protocol

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:
        """What to do next: one request with the turn's messages. Raises MindUnavailable, ContextTooLong, Refused, MindError,
        and what the meter raises."""
        prompted = self.config.tools == "prompted"
        messages = in_words(turn.messages, tools) if prompted else turn.messages
        schema = answer_schema(tools) if prompted else None
        answer = self._ask(turn.cause, messages, [] if prompted else tools, schema)
        return thought_in(answer, model=self.name, prompted=prompted)

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """An answer to a plain prompt, JSON by the schema if one is given. Raises as `think` does."""
        cause = "patch" if (schema or {}).get("title") in _PATCHES else "fold"
        messages = completion_messages(text, schema)
        for _ in range(1 + CORRECTIONS):
            answer = self._ask(cause, messages, [], schema)
            found, fault = _completion(answer, schema, self._line.max_output)
            if fault is None:
                return found
            told = f"This cannot be used: {fault}. Answer again, as a whole."
            messages = [*messages, ChatMessage("assistant", answer.text), ChatMessage("user", told)]
        raise MindError(f"no answer of {self.name} could be used: {fault}")

    # asking

    def _ask(
        self,
        cause: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
        schema: Mapping[str, Any] | None,
    ) -> Answer:
        whole = [*(_counted(one) for one in messages), *([list(tools)] if tools else []), *([schema] if schema else [])]
        parts = tuple(json.dumps(one, ensure_ascii=False) for one in whole)
        digest = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

        def once() -> Answer:
            by_schema = schema if self._by_schema else None
            pictures = sum(len(one.parts) for one in messages)
            asked = Asked(cause, self.name, parts, digest, self._line.max_output, self.prices, pictures)
            return self._metered(asked, lambda: self._line.ask(messages, tools, by_schema))

        try:
            return self.patience.call(once)
        except BoundTooHigh as error:
            if error.most >= self._line.max_output:
                raise
            _log.warning("%s: %s; %d from now on", self.name, error, error.most)
            self._line.max_output = error.most
            return self._ask(cause, messages, tools, schema)
        except MindError as error:
            if schema is None or not self._by_schema or type(error) is not MindError:
                raise
            self._by_schema = False  # a server that knows no JSON by schema is told the form in words, as it was anyway
            return self.patience.call(once)

    def _metered(self, asked: Asked, ask: Callable[[], Answer]) -> Answer:
        with self.meter(asked) as exchange:
            try:
                answer = ask()
            except HivemindError as error:
                came = error.answer if isinstance(error, Refused) else None
                exchange.error, exchange.usage = str(error), None if came is None else priced(came.usage, self.prices)
                waited = isinstance(error, MindError)  # else what `waiting` raises
                exchange.lost = came is not None or not waited or (isinstance(error, MindUnavailable) and error.lost)
                raise
            answer = replace(answer, usage=priced(answer.usage, self.prices))
            exchange.answer, exchange.usage = answer.as_dict(), answer.usage
            return answer


def warm(config: ModelConfig) -> None:
    """Import what asking the model needs. Opens nothing and starts no thread."""
    import_module("hivemind.minds.language.client")
    import_module("jsonschema")
    kind = {"openai-compatible": "openai"}.get(config.provider, config.provider)
    import_module(f"pydantic_ai.models.{kind}")


def _counted(message: ChatMessage) -> dict[str, Any]:
    """What of a message is sent: as it counts, and as its digest is made."""
    calls = [{"tool": one.tool, "arguments": dict(one.arguments)} for one in message.calls]
    pictures = {"parts": list(message.parts)} if message.parts else {}
    return {"role": message.role, "text": message.text, **pictures, **({"calls": calls} if calls else {})}


def _completion(answer: Answer, schema: Mapping[str, Any] | None, max_output: int) -> tuple[str, str | None]:
    """The text of a completion, and what is wrong with it."""
    if answer.cut:
        return "", f"it was cut off after {max_output} tokens; be shorter"
    if schema is None:
        return (answer.text, None) if answer.text.strip() else ("", "the answer was empty")
    try:
        value = find_json(answer.text)
    except Unreadable as error:
        return "", str(error)
    return json.dumps(value, ensure_ascii=False), fault_in(value, schema)
