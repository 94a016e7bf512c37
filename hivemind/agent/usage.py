"""What an agent's mind uses up: asked of the budgets before, booked afterwards, by task and by agent (spec 7).

A language model is metered request by request, whoever asks it: each is held against the budgets with the most that it may
use, and stands in the conversation that it belongs to before it is sent. Of any other mind that reads, the tokens of its
messages are counted, once a turn; one that works by rule costs nothing.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from hivemind.agent.budget import Budget
from hivemind.config import AgentConfig, HiveConfig
from hivemind.errors import HivemindError, UserError
from hivemind.layout import Layout
from hivemind.minds import (
    Asked,
    Exchange,
    Mind,
    MindUnavailable,
    Patience,
    Prices,
    Thought,
    ToolSchema,
    Turn,
    Usage,
    open_mind,
)
from hivemind.minds.agents import AgentMind
from hivemind.minds.language import LanguageMind
from hivemind.minds.pictures import PICTURE_TOKENS
from hivemind.minds.prices import priced
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.parking import Parking
from hivemind.taskrun.task_run import TaskRun
from hivemind.tokens import TokenCounter

__all__ = ["Usages", "open_agents_mind"]

_MARGIN = 1.35  # a provider's tokens for one of ours, until it is known better
_PARTS = 1024  # of requests, whose tokens are remembered: all but the last are the same in the next
_MESSAGES = frozenset({"turn", "correction", "continuation", "mail"})
"""Causes of requests whose answers are messages of a conversation."""
_FRAME = 64  # tokens that a provider puts around a request
_log = logging.getLogger(__name__)


def open_agents_mind(config: AgentConfig, hive: HiveConfig, layout: Layout, patience: Patience | None = None) -> Mind:
    """The mind that an agent's file names, at the prices of its hive.

    Raises UserError for one that is not known, for a missing key or extra, and for a budget of money without prices.
    """
    mind = open_mind(config.mind, root=layout.root, patience=patience)
    if not isinstance(mind, AgentMind | LanguageMind):
        return mind
    short = mind.config.agent if isinstance(mind, AgentMind) else mind.config.model
    listed = config.prices or hive.prices.get(mind.name) or hive.prices.get(short)
    prices = None if listed is None else Prices(listed.tokens_in, listed.tokens_out, listed.cached, listed.written)
    if isinstance(mind, AgentMind):
        mind.prices = prices
    else:
        mind.own_prices = prices
        bounds = (config.budget.task, config.budget.day, hive.budget.day)
        if any(one is not None and one.money is not None for one in bounds) and mind.prices is None:
            raise UserError(
                f"there is a budget of money, and what {mind.name} costs is not known",
                mend="say it with prices: {in: …, out: …}, for a million tokens",
            )
    return mind


class Usages:
    """The account of one agent, whose mind is `base`; `total` is what its process has used so far, `request` the last
    request whose answer is a message."""

    def __init__(self, mind: Mind, budget: Budget, count: TokenCounter) -> None:
        self.base, self._budget, self._count = mind, budget, count
        self.count = lru_cache(_PARTS)(count)
        self._mutex = threading.Lock()
        self._margin = _MARGIN
        self._excess = 1.0
        self.total = Usage()
        self.request: str | None = None
        self.used = Usage()  # of the last answer that is a message

    def mind_for(self, work: TaskRun | None, talk: Conversation | None) -> Mind:
        """The agent's mind, its requests noted in a conversation and held against its task's budget."""
        if not isinstance(self.base, LanguageMind):
            return self.base
        return self.base.with_meter(lambda asked: self._metered(work, talk, asked))

    def think(self, turn: Turn, tools: Sequence[ToolSchema], work: TaskRun | None, talk: Conversation) -> Thought:
        """Ask the mind, within the budget: of the day, and of the task if there is one. Raises Parking, MindError."""
        self.request = None
        if isinstance(self.base, LanguageMind):
            thought = self.mind_for(work, talk).think(turn, tools)
            return replace(thought, usage=self.used)
        counted = sum(self.count(message.text) for message in turn.messages)
        settle, used = self._budget.hold(counted, 0.0, work, datetime.now(UTC)), Usage()
        try:
            thought = self.base.think(turn, tools)
            used = replace(thought.usage, tokens_in=thought.usage.tokens_in or counted)
        finally:
            settle(used.tokens, used.money, datetime.now(UTC))
            self.total += used
        return replace(thought, usage=used)

    @contextmanager
    def booked(
        self, tokens: int, work: TaskRun | None, talk: Conversation, model: str
    ) -> Iterator[Callable[[Usage], None]]:
        """Book the run of a program whose prompt has so many tokens. What is yielded is told what the run has used so far, and
        raises Parking once a budget is used up, as the beginning does.

        A run of which nothing is told has used its prompt.
        """
        key, used = secrets.token_hex(8), Usage()
        settle = self._budget.hold(tokens, 0.0, work, datetime.now(UTC))

        def book(so_far: Usage) -> None:
            nonlocal used, settle
            before, used = used, so_far
            settle(max(0, used.tokens - before.tokens), max(0.0, used.money - before.money), datetime.now(UTC))
            settle = self._budget.hold(0, 0.0, work, datetime.now(UTC))

        try:
            talk.note(_request(key, "turn", model, tokens, 0.0, talk))
            yield book
        finally:
            left, used = (0, used) if used.tokens else (tokens, Usage(tokens))
            settle(left, 0.0, datetime.now(UTC))
            self.total += used
            # Where the task was moved away, or the disk is full, it is booked all the same.
            with suppress(HivemindError, OSError):
                talk.note({"answered": key, "usage": used.as_record()}, durable=False)

    def close(self) -> None:
        """Let go of the mind's connections, if it has any."""
        if isinstance(self.base, LanguageMind):
            self.base.close()

    # of requests to a language model

    @contextmanager
    def _metered(self, work: TaskRun | None, talk: Conversation | None, asked: Asked) -> Iterator[Exchange]:
        """Reserve what a request may use, note that it is about to be sent, and book what it came to. Raises Parking where a
        budget has no room for a thought, MindUnavailable where it has none for a fold."""
        counted = sum(map(self.count, asked.parts)) + asked.pictures * PICTURE_TOKENS
        with self._mutex:
            sent, answered = self._sent(counted), math.ceil(asked.max_output * self._excess)
            money = 0.0 if asked.prices is None else asked.prices.of(Usage(sent, answered, written=sent))
            try:
                settle = self._budget.hold(sent + answered, money, work, datetime.now(UTC))
            except Parking as parking:
                if asked.cause in _MESSAGES:
                    raise
                raise MindUnavailable(parking.reason) from None
            try:
                if talk is not None:
                    record = _request(asked.id, asked.cause, asked.model, sent + answered, money, talk)
                    talk.note({**record, "sha256": asked.sha256})
            except (HivemindError, OSError):  # not sent, so not used
                settle(0, 0.0, datetime.now(UTC))
                raise
        exchange = Exchange()
        try:
            yield exchange
        finally:
            with self._mutex:
                used = self._came_to(asked, counted, exchange)
                settle(used.tokens, used.money, datetime.now(UTC))
                self._book(asked, exchange, used, talk)

    def _came_to(self, asked: Asked, counted: int, exchange: Exchange) -> Usage:
        """What a request has used: an answer that was lost has cost what was sent. A provider that counts more than was held
        for it does so once: from now on as much is held."""
        used = exchange.usage or Usage()
        if used.tokens_in == 0 and (exchange.lost or exchange.answer is not None):
            came = 0 if exchange.answer is None else self._count(json.dumps(exchange.answer))
            return priced(Usage(self._sent(counted), came), asked.prices)
        self._margin = max(self._margin, used.tokens_in / max(1, counted))
        if used.tokens_out > asked.max_output * self._excess:
            told = "%s: an answer of %d tokens, where %d were asked for at most"
            _log.warning(told, asked.model, used.tokens_out, asked.max_output)
            self._excess = used.tokens_out / asked.max_output
        return used

    def _book(self, asked: Asked, exchange: Exchange, used: Usage, talk: Conversation | None) -> None:
        """The answer of a turn stands in the conversation as a message; of any other request it is noted."""
        self.total += used
        if exchange.answer is not None and asked.cause in _MESSAGES:
            self.request, self.used = asked.id, used
            return
        record: dict[str, Any] = {"answered": asked.id, "usage": used.as_record()}
        if exchange.error is not None:
            record["error"] = exchange.error
        if exchange.answer is not None:
            record["text"] = exchange.answer.get("text", "")
        try:
            if talk is not None:
                talk.note(record, durable=False)
        except (HivemindError, OSError) as error:  # the task was moved away, the disk is full: what came still counts
            _log.warning("what %s answered is not in the conversation: %s", asked.model, error)

    def _sent(self, counted: int) -> int:
        """The tokens that a request has at most for its provider, which counts by another vocabulary."""
        return math.ceil(counted * self._margin) + _FRAME


def _request(key: str, cause: str, model: str, tokens: int, money: float, talk: Conversation) -> dict[str, Any]:
    """The line of a request that is about to be sent."""
    return {
        "request": key, "cause": cause, "epoch": None if talk.epoch is None else talk.epoch["epoch"],
        "through": talk.messages[-1].id if talk.messages else None, "model": model,
        "reserved": {"tokens": tokens, "money": money},
    }  # fmt: skip
