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
_UNMETERED = "turn"
_FRAME = 64  # tokens that a provider puts around a request
_log = logging.getLogger(__name__)


def open_agents_mind(config: AgentConfig, hive: HiveConfig, layout: Layout, patience: Patience | None = None) -> Mind:
    """The mind that an agent's file names, at the prices of its hive.

    Raises UserError for one that is not known, for a missing key or extra, and for a budget of money without prices.
    """
    mind = open_mind(config.mind, root=layout.root, patience=patience)
    if isinstance(mind, AgentMind):
        listed = config.prices or hive.prices.get(mind.name) or hive.prices.get(mind.config.agent)
        if listed is not None:
            mind.prices = Prices(listed.tokens_in, listed.tokens_out, listed.cached, listed.written)
    if isinstance(mind, LanguageMind):
        listed = config.prices or hive.prices.get(mind.name) or hive.prices.get(mind.config.model)
        if listed is not None:
            mind = open_mind(
                config.mind,
                root=layout.root,
                patience=patience,
                prices=Prices(listed.tokens_in, listed.tokens_out, listed.cached, listed.written),
            )
            assert isinstance(mind, LanguageMind)
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
        self._counted: dict[str, int] = {}
        self.total = Usage()
        self.request: str | None = None
        self.used = Usage()  # of the last answer that is a message

    def mind_for(self, work: TaskRun | None, talk: Conversation | None) -> Mind:
        """The agent's mind, its requests noted in a conversation and held against its task's budget."""
        if not isinstance(self.base, LanguageMind):
            return self.base
        return self.base.with_meter(_Meter(self, work, talk))

    def think(self, turn: Turn, tools: Sequence[ToolSchema], work: TaskRun | None, talk: Conversation) -> Thought:
        """Ask the mind, within the budget: of the day, and of the task if there is one. Raises Parking, MindError."""
        self.request = None
        if isinstance(self.base, LanguageMind):
            thought = self.mind_for(work, talk).think(turn, tools)
            return replace(thought, usage=self.used)
        counted = sum(self.count(message.text) for message in turn.messages)
        self._budget.hold(_UNMETERED, counted, 0.0, work, datetime.now(UTC))
        used = Usage()
        try:
            thought = self.base.think(turn, tools)
            used = replace(thought.usage, tokens_in=thought.usage.tokens_in or counted)
        finally:
            with self._mutex:
                self._budget.release(_UNMETERED, used.tokens, used.money, datetime.now(UTC))
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
        self._budget.hold(_UNMETERED, tokens, 0.0, work, datetime.now(UTC))

        def settle(so_far: Usage) -> None:
            nonlocal used
            before, used = used, so_far
            with self._mutex:
                more, dearer = max(0, used.tokens - before.tokens), max(0.0, used.money - before.money)
                self._budget.release(_UNMETERED, more, dearer, datetime.now(UTC))

        def book(so_far: Usage) -> None:
            settle(so_far)
            self._budget.hold(_UNMETERED, 0, 0.0, work, datetime.now(UTC))

        through = talk.messages[-1].id if talk.messages else None
        epoch = None if talk.epoch is None else talk.epoch["epoch"]
        record = {"request": key, "cause": "turn", "epoch": epoch, "through": through, "model": model}
        try:
            talk.note({**record, "reserved": {"tokens": tokens, "money": 0.0}})
            yield book
        finally:
            if self._budget.holds(_UNMETERED):
                settle(used if used.tokens else Usage(tokens))
            self.total += used
            # Where the task was moved away, or the disk is full, it is booked all the same.
            with suppress(HivemindError, OSError):
                talk.note({"answered": key, "usage": used.as_record()}, durable=False)

    def close(self) -> None:
        """Let go of the mind's connections, if it has any."""
        if isinstance(self.base, LanguageMind):
            self.base.close()

    # of metered requests

    def hold(self, work: TaskRun | None, talk: Conversation | None, asked: Asked) -> None:
        """Reserve what a request may use, and note that it is about to be sent."""
        counted = sum(map(self.count, asked.parts)) + asked.pictures * PICTURE_TOKENS
        with self._mutex:
            sent, answered = self._sent(counted), math.ceil(asked.max_output * self._excess)
            money = 0.0 if asked.prices is None else asked.prices.of(Usage(sent, answered, written=sent))
            self._budget.hold(asked.id, sent + answered, money, work, datetime.now(UTC))
            self._counted[asked.id] = counted
            through = talk.messages[-1].id if talk is not None and talk.messages else None
            record = {
                "request": asked.id, "cause": asked.cause, "epoch": talk.epoch["epoch"] if talk and talk.epoch else None,
                "through": through, "reserved": {"tokens": sent + answered, "money": money}, "model": asked.model,
                "sha256": asked.sha256,
            }  # fmt: skip
            try:
                if talk is not None:
                    talk.note(record)
            except (HivemindError, OSError):  # not sent, so not used
                self._budget.release(asked.id, 0, 0.0, datetime.now(UTC))
                del self._counted[asked.id]
                raise

    def release(self, talk: Conversation | None, exchange: Exchange) -> None:
        """Book what a request has used. An answer that was lost has cost what was sent. The answer of a turn stands in the
        conversation as a message; of any other request it is noted."""
        asked = exchange.asked
        counted = self._counted.pop(asked.id)
        with self._mutex:
            used = exchange.usage or Usage()
            if used.tokens_in == 0 and (exchange.lost or exchange.answer is not None):
                used = _estimated(asked, self._sent(counted), exchange, self._count)
            else:
                self._learn(asked, counted, used)
            self._budget.release(asked.id, used.tokens, used.money, datetime.now(UTC))
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
            except (
                HivemindError,
                OSError,
            ) as error:  # the task was moved away, the disk is full: what came still counts
                _log.warning("what %s answered is not in the conversation: %s", asked.model, error)

    def _sent(self, counted: int) -> int:
        """The tokens that a request has at most for its provider, which counts by another vocabulary."""
        return math.ceil(counted * self._margin) + _FRAME

    def _learn(self, asked: Asked, counted: int, used: Usage) -> None:
        """A provider that counts more than was held for it does so once: from now on as much is held."""
        self._margin = max(self._margin, used.tokens_in / max(1, counted))
        if used.tokens_out > asked.max_output * self._excess:
            _log.warning(
                "%s: an answer of %d tokens, where %d were asked for at most",
                asked.model,
                used.tokens_out,
                asked.max_output,
            )
            self._excess = used.tokens_out / asked.max_output


class _Meter:
    """Holds and releases for one task, or for mail."""

    def __init__(self, usages: Usages, work: TaskRun | None, talk: Conversation | None) -> None:
        self._usages, self._work, self._talk = usages, work, talk

    def before(self, asked: Asked) -> None:
        """Raises Parking where a budget has no room for a thought, MindUnavailable where it has none for a fold."""
        try:
            self._usages.hold(self._work, self._talk, asked)
        except Parking as parking:
            if asked.cause in _MESSAGES:
                raise
            raise MindUnavailable(parking.reason) from None

    def after(self, exchange: Exchange) -> None:
        self._usages.release(self._talk, exchange)


def _estimated(asked: Asked, sent: int, exchange: Exchange, count: TokenCounter) -> Usage:
    """The usage of a request for which nothing was reported."""
    came = 0 if exchange.answer is None else count(json.dumps(exchange.answer))
    return priced(Usage(sent, came), asked.prices)
