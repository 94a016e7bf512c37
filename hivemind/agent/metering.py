"""An agent's mind with its meter: what each request uses is held against the budgets before, and booked afterwards.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any

from hivemind.agent.budget import Budget
from hivemind.config import AgentConfig, HiveConfig
from hivemind.errors import HivemindError, UserError
from hivemind.layout import Layout
from hivemind.minds import (
    MeteredExchange,
    MeteredRequest,
    Mind,
    MindError,
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
from hivemind.minds.extractive import ExtractiveMind
from hivemind.minds.language import LanguageMind
from hivemind.minds.meter import with_price
from hivemind.minds.pictures import PICTURE_TOKENS
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.focus import Focus
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking
from hivemind.tasks import TaskMoved
from hivemind.tokens import TokenCounter

__all__ = ["MeteredMind", "RunAccount", "open_agents_mind"]

_log = logging.getLogger(__name__)
_MARGIN = 1.35  # a provider's tokens for one of ours, until it is known better
_PARTS = 1024  # of requests, whose tokens are remembered: all but the last are the same in the next
_MESSAGES = frozenset({"turn", "correction", "continuation", "mail"})
"""Causes of requests whose answers are messages of a conversation."""
_FRAME = 64  # tokens that a provider puts around a request


def open_agents_mind(config: AgentConfig, hive: HiveConfig, layout: Layout, patience: Patience | None = None) -> Mind:
    """The mind that an agent's file names, at the prices of its hive.

    Raises UserError for one that is not known, for a missing key or extra, and for a budget of money without prices.
    """
    mind = open_mind(config.mind, root=layout.root, patience=patience)
    if not isinstance(mind, AgentMind | LanguageMind):
        return mind
    short_name = mind.config.agent if isinstance(mind, AgentMind) else mind.config.model
    price_list = config.prices or hive.prices.get(mind.name) or hive.prices.get(short_name)
    prices = (
        None
        if price_list is None
        else Prices(price_list.tokens_in, price_list.tokens_out, price_list.cached, price_list.written)
    )
    if isinstance(mind, AgentMind):
        mind.prices = prices
    else:
        mind.hive_prices = prices
        bounds = (config.budget.task, config.budget.day, hive.budget.day)
        if any(bound is not None and bound.money is not None for bound in bounds) and mind.prices is None:
            raise UserError(
                f"there is a budget of money, and what {mind.name} costs is not known",
                remedy="say it with prices: {in: …, out: …}, for a million tokens",
            )
    return mind


class MeteredMind:
    """The account of one agent, whose mind is `base`; `total` is what its process has used so far, `request` the last
    request whose answer is a message. `estimates` are those in the total that a later report may replace."""

    def __init__(self, mind: Mind, budget: Budget, count: TokenCounter) -> None:
        self.mind, self.budget, self._count = mind, budget, count
        self.count = lru_cache(_PARTS)(count)
        self._mutex = threading.Lock()
        self._margin = _MARGIN
        self._excess = 1.0
        self.total = Usage()
        self.estimates: dict[str, Usage] = {}
        self.request: str | None = None
        self.last_usage = Usage()  # of the last answer that is a message

    @property
    def reads(self) -> bool:
        """Whether the mind reads conversations, and does not work by rule."""
        return not getattr(self.mind, "by_rule", False)

    def works_by_rule(self, focus: Focus) -> bool:
        """Whether a turn is taken by rule: because of the mind, or because a letter asks to check quotes."""
        return not self.reads or focus.asks_review

    @cached_property
    def rule(self) -> Mind:
        """The mind for turns by rule: the agent's own, or the one that checks quotes for any agent."""
        return ExtractiveMind() if self.reads else self.mind

    @property
    def program(self) -> AgentMind | None:
        """The coding agent that the agent runs, if its mind is one."""
        return self.mind if isinstance(self.mind, AgentMind) else None

    @property
    def takes_pictures(self) -> bool:
        return bool(getattr(self.mind, "takes_pictures", False))

    def max_turns(self, config: AgentConfig) -> int:
        """Return the turns that a task may take before the operator is asked."""
        return (self.program and self.program.config.max_turns) or config.max_turns

    def mind_for(self, work: TaskRun | None, talk: Conversation | None) -> Mind:
        """The agent's mind, its requests noted in a conversation and held against its task's budget."""
        if not isinstance(self.mind, LanguageMind):
            return self.mind
        return self.mind.with_meter(lambda request: self._metered(work, talk, request))

    def think(self, turn: Turn, tools: Sequence[ToolSchema], work: TaskRun | None, talk: Conversation) -> Thought:
        """Ask the mind, within the budget: of the day, and of the task if there is one. Raises Parking, MindError."""
        self.request = None
        if isinstance(self.mind, LanguageMind):
            thought = self.mind_for(work, talk).think(turn, tools)
            return replace(thought, usage=self.last_usage)
        counted_tokens = sum(self.count(message.text) for message in turn.messages)
        key, usage = secrets.token_hex(8), Usage()
        settle = self.budget.hold(counted_tokens, 0.0, work, datetime.now(UTC))
        try:
            talk.note(_request_line(key, turn.cause, getattr(self.mind, "name", "mind"), counted_tokens, 0.0, talk))
            usage = Usage(counted_tokens)  # an answer that is lost has cost what was sent
            thought = self.mind.think(turn, tools)
            usage = replace(thought.usage, tokens_in=thought.usage.tokens_in or counted_tokens)
        except MindError as error:
            if isinstance(error, MindUnavailable) and not error.lost:
                usage = Usage()
            _note_answer(talk, {"answered": key, "usage": usage.as_record(), "error": str(error)})
            raise
        finally:
            settle(usage.tokens, usage.money, datetime.now(UTC))
            self.total += usage
        self.request = key
        return replace(thought, usage=usage)

    def close(self) -> None:
        """Let go of the mind's connections, if it has any."""
        if isinstance(self.mind, LanguageMind):
            self.mind.close()

    # of requests to a language model

    @contextmanager
    def _metered(
        self, work: TaskRun | None, talk: Conversation | None, request: MeteredRequest
    ) -> Iterator[MeteredExchange]:
        """Reserve what a request may use, note that it is about to be sent, and book what it came to. Raises Parking where a
        budget has no room for a thought, MindUnavailable where it has none for a fold."""
        counted_tokens = sum(map(self.count, request.parts)) + request.pictures * PICTURE_TOKENS
        with self._mutex:
            sent_tokens, answer_tokens = self._sent_tokens(counted_tokens), math.ceil(request.max_output * self._excess)
            money = (
                0.0
                if request.prices is None
                else request.prices.price_of(Usage(sent_tokens, answer_tokens, written=sent_tokens))
            )
            try:
                settle = self.budget.hold(sent_tokens + answer_tokens, money, work, datetime.now(UTC))
            except Parking as parking:
                if request.cause in _MESSAGES:
                    raise
                raise MindUnavailable(parking.reason) from None
            try:
                if talk is not None:
                    record = _request_line(
                        request.id, request.cause, request.model, sent_tokens + answer_tokens, money, talk
                    )
                    talk.note({**record, "sha256": request.sha256})
            except (HivemindError, OSError):  # not sent, so not used
                settle(0, 0.0, datetime.now(UTC))
                raise
        exchange = MeteredExchange()
        try:
            yield exchange
        finally:
            with self._mutex:
                usage = self._usage_of(request, counted_tokens, exchange)
                settle(usage.tokens, usage.money, datetime.now(UTC))
                self._book(request, exchange, usage, talk)

    def _usage_of(self, request: MeteredRequest, counted_tokens: int, exchange: MeteredExchange) -> Usage:
        """What a request has used: an answer that was lost has cost what was sent. A provider that counts more than was held
        for it does so once: from now on as much is held."""
        usage = exchange.usage or Usage()
        if usage.tokens_in == 0 and (exchange.lost or exchange.answer is not None):
            answer_tokens = 0 if exchange.answer is None else self._count(json.dumps(exchange.answer))
            return with_price(Usage(self._sent_tokens(counted_tokens), answer_tokens), request.prices)
        self._margin = max(self._margin, usage.tokens_in / max(1, counted_tokens))
        if usage.tokens_out > request.max_output * self._excess:
            warning = "%s: an answer of %d tokens, where %d were asked for at most"
            _log.warning(warning, request.model, usage.tokens_out, request.max_output)
            self._excess = usage.tokens_out / request.max_output
        return usage

    def _book(
        self, request: MeteredRequest, exchange: MeteredExchange, usage: Usage, talk: Conversation | None
    ) -> None:
        """The answer of a turn stands in the conversation as a message; of any other request it is noted."""
        self.total += usage
        if exchange.answer is not None and request.cause in _MESSAGES:
            self.request, self.last_usage = request.id, usage
            return
        record: dict[str, Any] = {"answered": request.id, "usage": usage.as_record()}
        if exchange.error is not None:
            record["error"] = exchange.error
        if exchange.answer is not None:
            record["text"] = exchange.answer.get("text", "")
        if talk is not None:
            _note_answer(talk, record)

    def _sent_tokens(self, counted_tokens: int) -> int:
        """The tokens that a request has at most for its provider, which counts by another vocabulary."""
        return math.ceil(counted_tokens * self._margin) + _FRAME


class RunAccount:
    """The account of one run of a coding agent, which stands in the conversation as one request.

    Until the program reports anything its prompt counts, as an estimate. A program whose reports cover its whole session
    (`usage_of: session`) tells after a kill what the killed run has used: that takes the place of the estimate.
    """

    def __init__(
        self,
        metered_mind: MeteredMind,
        mind: AgentMind,
        work: TaskRun | None,
        talk: Conversation,
        prompt: str,
        session: str | None,
    ) -> None:
        """Hold the prompt's tokens against the budgets; a `session` is gone on with. Raises Parking, TaskMoved, OSError."""
        self._usages, self._budget, self._mind, self._work, self._talk = (
            metered_mind,
            metered_mind.budget,
            mind,
            work,
            talk,
        )
        self._counts_session, self._resumes = mind.profile.usage_of == "session", session is not None
        self._before = talk.totals.get(session or "", Usage())
        self._parts: dict[str, Usage] = {}
        self._reported: Usage | None = None
        self._key, self._prompt = secrets.token_hex(8), Usage(metered_mind.count(prompt))
        self._settle = self._budget.hold(self._prompt.tokens, 0.0, work, datetime.now(UTC))

    def begin(self) -> None:
        """Note that the prompt is about to be sent."""
        self._talk.note(_request_line(self._key, "turn", self._mind.name, self._prompt.tokens, 0.0, self._talk))

    def report(self, usage: Usage, part: str | None, session: str | None) -> None:
        """Book what the program says it has used: for a part of its run, for the run, or for its session. Raises Parking once a
        budget is used up. What is reported after the task's end, or after its claim was lost, is booked all the same."""
        fields: dict[str, Any] = {}
        if part is not None:
            self._parts[part] = usage
            usage = sum(self._parts.values(), Usage())
        elif self._counts_session and session is not None:
            fields = {"session": session, "total": usage.as_record()}
            has_restarted = usage.tokens_in < self._before.tokens_in or usage.tokens_out < self._before.tokens_out
            usage = usage if has_restarted else usage - self._before
        before = self._reported or Usage()
        if usage.tokens < before.tokens:
            return
        if self._reported is None:
            self._settle(0, 0.0, datetime.now(UTC))
            self._replace_estimates()
        self._reported = usage = usage if usage.money or not usage.tokens else with_price(usage, self._mind.prices)
        self._usages.total = self._usages.total + usage - before
        self._budget.book(usage.tokens - before.tokens, usage.money - before.money, self._work, datetime.now(UTC))
        _note_answer(self._talk, {"answered": self._key, "usage": usage.as_record(), **fields})
        with suppress(TaskMoved):  # it is over: nothing is left to be bounded
            self._budget.hold(0, 0.0, self._work, datetime.now(UTC))

    def close(self, *, was_heard: bool) -> None:
        """End the account. A program that reported nothing has sent its prompt if it was heard, and nothing if it was not."""
        if self._reported is not None:
            return
        usage = self._prompt if was_heard else Usage()
        self._usages.total += usage
        if was_heard and self._counts_session:  # the request stays open until the session's next report
            self._usages.estimates[self._key] = usage
        else:
            self._settle(usage.tokens, 0.0, datetime.now(UTC))
            _note_answer(self._talk, {"answered": self._key, "usage": usage.as_record()})

    def _replace_estimates(self) -> None:
        """Give back what is held for earlier runs of this session: its report covers them."""
        for key, request in [*self._talk.unanswered.items()] if self._counts_session and self._resumes else ():
            if key != self._key and request["model"] == self._mind.name:
                reservation = str(request["at"])[:10], request["reserved"]["tokens"], 0.0
                self._budget.book(0, 0.0, self._work, datetime.now(UTC), reservation=reservation)
                self._usages.total -= self._usages.estimates.pop(key, Usage())
                _note_answer(self._talk, {"answered": key, "usage": {}})


def _note_answer(talk: Conversation, record: dict[str, Any]) -> None:
    """Note what a request came to; where the task was moved away, or the disk is full, it is booked all the same."""
    try:
        talk.note(record, durable=False)
    except (HivemindError, OSError) as error:
        _log.warning("what a request came to is not in its conversation: %s", error)


def _request_line(key: str, cause: str, model: str, tokens: int, money: float, talk: Conversation) -> dict[str, Any]:
    """Return the line of a request that is about to be sent."""
    return {
        "request": key, "cause": cause, "epoch": None if talk.epoch is None else talk.epoch["epoch"],
        "through": talk.messages[-1].id if talk.messages else None, "model": model,
        "reserved": {"tokens": tokens, "money": money},
    }  # fmt: skip
