"""An agent's mind with a meter: usage is reserved before each request and booked after it.

Each request to a language model is metered. Before it is sent, its maximal usage is reserved and its line in the
conversation is written. For other minds that read conversations, the tokens of the messages are counted, once a turn. A
mind that works by rule is free.
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

from hivemind.agent.spending import Budget
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
from hivemind.minds.agents.mind import AgentMind
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

_log = logging.getLogger(__name__)
_MARGIN = 1.35  # a provider's tokens for one of ours, as a first estimate
_ABSURD = 20  # times our count, and _SERVER_TOKENS for what a server may add: no request has had more tokens
_SERVER_TOKENS = 200_000
_PARTS = 1024  # token counts in the cache: requests share all parts but the last
_MESSAGES = frozenset({"turn", "correction", "continuation", "mail"})
"""The causes of requests with answers that become messages of a conversation."""
_FRAME = 64  # tokens that a provider adds to a request


def open_agents_mind(config: AgentConfig, hive: HiveConfig, layout: Layout, patience: Patience | None = None) -> Mind:
    """Return the mind that an agent's file names, with the prices in hive.yaml. `patience` repeats failed requests.

    Raises UserError for an unknown mind, a missing key or extra, and for a budget of money without prices.
    """
    mind = open_mind(config.mind, root=layout.root, patience=patience, box=config.box)
    if not isinstance(mind, AgentMind | LanguageMind):
        return mind
    short_name = mind.config.name if isinstance(mind, AgentMind) else mind.config.model
    rates = config.prices or hive.prices.get(mind.name) or hive.prices.get(short_name)
    if rates is not None:
        mind.prices = Prices(rates.tokens_in, rates.tokens_out, rates.cached, rates.written)
    bounds = (config.budget.task, config.budget.day, hive.budget.day)
    if isinstance(mind, LanguageMind) and any(bound.money is not None for bound in bounds) and mind.prices is None:
        raise UserError(
            f"there is a budget of money, but the price of {mind.name} is not known",
            remedy="set prices: {in: …, out: …}, for a million tokens",
        )
    return mind


class MeteredMind:
    """An agent's mind with its accounts.

    `total` is the usage of this process; a coding agent's later report may replace the part in `estimates`. `request` is the id
    of the last request that was answered with a message, `last_usage` its usage.
    """

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
        """True if the mind reads conversations, False if it works by rule."""
        return not getattr(self.mind, "by_rule", False)

    def works_by_rule(self, focus: Focus) -> bool:
        """Return True if the mind works by rule, or if the turn is about a letter that asks to check quotes."""
        return not self.reads or focus.asks_review

    @cached_property
    def rule(self) -> Mind:
        """The mind for turns by rule: the agent's own, or the extractive mind (it uses no model), which checks quotes for every
        agent."""
        return ExtractiveMind() if self.reads else self.mind

    @property
    def program(self) -> AgentMind | None:
        """The mind if it is a coding agent, else None."""
        return self.mind if isinstance(self.mind, AgentMind) else None

    @property
    def takes_pictures(self) -> bool:
        return bool(getattr(self.mind, "takes_pictures", False))

    def summary_mind(self) -> Mind:
        """Return the mind that summarizes documents: the agent's own. If the agent's mind is a coding agent, return the
        extractive mind, which selects sentences without a model."""
        return self.rule if self.program is not None else self.mind_for(None, None)

    def max_turns(self, config: AgentConfig) -> int:
        """Return the number of turns after which the operator is asked whether a task should continue."""
        return (self.program and self.program.config.max_turns) or config.max_turns

    def mind_for(self, work: TaskRun | None, talk: Conversation | None) -> Mind:
        """Return the agent's mind. A language model notes its requests in `talk` and books them on the budget of `work` (None:
        only on the day's budgets)."""
        if not isinstance(self.mind, LanguageMind):
            return self.mind
        return self.mind.with_meter(lambda request: self._metered(work, talk, request))

    def think(self, turn: Turn, tools: Sequence[ToolSchema], work: TaskRun | None, talk: Conversation) -> Thought:
        """Return the mind's thought. `work` (None for a letter) and the day set the budgets. Raises Parking if one is used up,
        MindError."""
        self.request = None
        if isinstance(self.mind, LanguageMind):
            thought = self.mind_for(work, talk).think(turn, tools)
            return replace(thought, usage=self.last_usage)
        counted_tokens = sum(self.count(message.text) for message in turn.messages)
        key, usage = secrets.token_hex(8), Usage()
        settle = self.budget.hold(counted_tokens, 0.0, work, datetime.now(UTC))
        try:
            talk.note(_request_line(key, turn.cause, getattr(self.mind, "name", "mind"), counted_tokens, 0.0, talk))
            usage = Usage(counted_tokens)  # a lost answer has cost what was sent
            thought = self.mind.think(turn, tools)
            usage = replace(
                thought.usage,
                tokens_in=thought.usage.tokens_in or counted_tokens,
                tokens_out=thought.usage.tokens_out
                or self._count(json.dumps([thought.text, *(call.as_record() for call in thought.actions)])),
            )
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
        if isinstance(self.mind, LanguageMind):
            self.mind.close()

    # requests to a language model

    @contextmanager
    def _metered(
        self, work: TaskRun | None, talk: Conversation | None, request: MeteredRequest
    ) -> Iterator[MeteredExchange]:
        """Reserve the most that a request may use, note the request in the conversation, and book its usage at the end of the
        block.

        If a budget has no room for the request, raises Parking for a turn's thought, MindUnavailable for any other request.
        """
        counted_tokens = sum(map(self.count, request.parts)) + request.pictures * PICTURE_TOKENS
        with self._mutex:
            reserved = Usage(self._sent_tokens(counted_tokens), math.ceil(request.max_output * self._excess))
            money = (
                0.0
                if request.prices is None
                else request.prices.price_of(replace(reserved, written=reserved.tokens_in))
            )
            try:
                settle = self.budget.hold(reserved.tokens, money, work, datetime.now(UTC))
            except Parking as parking:
                if request.cause in _MESSAGES:
                    raise
                raise MindUnavailable(parking.reason) from None
            try:
                if talk is not None:
                    record = _request_line(request.id, request.cause, request.model, reserved.tokens, money, talk)
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
        """Return the usage of a request. Estimate it if the answer was lost, or if the provider reports more tokens than are
        possible.

        If the provider counts more than was reserved, later requests reserve more.
        """
        usage = exchange.usage or Usage()
        most_in, most_out = _ABSURD * counted_tokens + _SERVER_TOKENS, _ABSURD * request.max_output + _SERVER_TOKENS
        if is_absurd := usage.tokens_in > most_in or usage.tokens_out > most_out:
            warning = "%s: the answer to %s counts %d and %d tokens, more than it can have had: estimated instead"
            _log.warning(warning, request.model, request.id, usage.tokens_in, usage.tokens_out)
        if is_absurd or (usage.tokens_in == 0 and (exchange.lost or exchange.answer is not None)):
            answer_tokens = 0 if exchange.answer is None else self._count(json.dumps(exchange.answer))
            return with_price(Usage(self._sent_tokens(counted_tokens), answer_tokens), request.prices)
        self._margin = max(self._margin, usage.tokens_in / max(1, counted_tokens))
        if usage.tokens_out > request.max_output * self._excess:
            warning = "%s: an answer of %d tokens, but at most %d were allowed"
            _log.warning(warning, request.model, usage.tokens_out, request.max_output)
            self._excess = usage.tokens_out / request.max_output
        return usage

    def _book(
        self, request: MeteredRequest, exchange: MeteredExchange, usage: Usage, talk: Conversation | None
    ) -> None:
        """Book the usage of a request. A turn's answer becomes a message; any other answer is noted in the conversation."""
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
        """Return the most tokens that the provider may count for a request: its vocabulary differs from that of the local
        counter."""
        return math.ceil(counted_tokens * self._margin) + _FRAME


class RunAccount:
    """The account of one run of a coding agent. In the conversation, the run is one request.

    Until the program reports, the tokens of its prompt count as an estimate. A program that reports for its whole
    session (`usage_of: session`) includes runs that were killed: the report replaces their estimates.
    """

    def __init__(
        self,
        meter: MeteredMind,
        mind: AgentMind,
        work: TaskRun | None,
        talk: Conversation,
        prompt: str,
        session: str | None,
        cause: str = "turn",
    ) -> None:
        """Reserve the prompt's tokens. The run continues `session`, or begins one if that is None.

        Raises Parking if a budget is used up, TaskMoved if the task is gone, OSError if an account cannot be written."""
        self._cause = cause
        self._meter, self._budget = meter, meter.budget
        self._mind, self._work, self._talk = mind, work, talk
        self._counts_session, self._resumes = mind.counts_session, session is not None
        self._before = talk.totals.get(session or "", Usage())
        self._parts: dict[str, Usage] = {}
        self._reported: Usage | None = None
        self._key, self._prompt = secrets.token_hex(8), Usage(meter.count(prompt))
        self._settle = self._budget.hold(self._prompt.tokens, 0.0, work, datetime.now(UTC))

    def begin(self) -> None:
        """Note in the conversation that the prompt is about to be sent."""
        self._talk.note(_request_line(self._key, self._cause, self._mind.name, self._prompt.tokens, 0.0, self._talk))

    def add_prompt(self, prompt: str) -> None:
        """Count a further prompt of the run until its tokens are reported."""
        self._prompt += Usage(self._meter.count(prompt))

    def report(self, usage: Usage, part: str | None, session: str | None) -> None:
        """Book the usage that the program reports for a `part` of its run, or for the whole run (None). A later report of a part
        replaces the earlier one.

        With a `session` the figures are cumulative over that session. Raises Parking once a budget is used up. Usage is also
        booked after the task ended or its claim was lost.
        """
        fields: dict[str, Any] = {}
        if usage.tokens:
            self._prompt = Usage()  # it is in the report
        if session is not None:
            fields = {"session": session, "total": usage.as_record()}
            earlier = self._before
            has_restarted = usage.tokens_in < earlier.tokens_in or usage.tokens_out < earlier.tokens_out
            has_restarted = has_restarted or usage.money < earlier.money
            usage = usage if has_restarted else usage - earlier
        if part is not None:
            self._parts[part] = usage
            usage = sum(self._parts.values(), Usage())
        before = self._reported or Usage()
        if usage.tokens < before.tokens:
            return
        if self._reported is None:
            self._settle(0, 0.0, datetime.now(UTC))
            self._replace_estimates()
        self._reported = usage = usage if usage.money or not usage.tokens else with_price(usage, self._mind.prices)
        self._meter.total = self._meter.total + usage - before
        self._budget.book(usage.tokens - before.tokens, usage.money - before.money, self._work, datetime.now(UTC))
        _note_answer(self._talk, {"answered": self._key, "usage": usage.as_record(), **fields})
        with suppress(TaskMoved):  # the task has ended, and its limit with it
            self._budget.hold(0, 0.0, self._work, datetime.now(UTC))

    def close(self, *, was_heard: bool) -> None:
        """Close the account. Prompts whose tokens the program has not reported count as used if it has answered (`was_heard`),
        else as unused."""
        usage = self._prompt if was_heard else Usage()
        if self._reported is not None:
            if usage.tokens:
                with suppress(Parking):
                    self.report(usage, "unreported", None)
            return
        self._meter.total += usage
        if was_heard and self._counts_session:  # the request stays open until the session's next report
            self._meter.estimates[self._key] = usage
        else:
            self._settle(usage.tokens, 0.0, datetime.now(UTC))
            _note_answer(self._talk, {"answered": self._key, "usage": usage.as_record()})

    def _replace_estimates(self) -> None:
        """Release the reservations for earlier runs of the session, because the session's report covers those runs."""
        for key, request in [*self._talk.unanswered.items()] if self._counts_session and self._resumes else ():
            if key != self._key and request["model"] == self._mind.name:
                reservation = str(request["at"])[:10], request["reserved"]["tokens"], 0.0
                self._budget.book(0, 0.0, self._work, datetime.now(UTC), reservation=reservation)
                self._meter.total -= self._meter.estimates.pop(key, Usage())
                _note_answer(self._talk, {"answered": key, "usage": {}})


def _note_answer(talk: Conversation, record: dict[str, Any]) -> None:
    """Note the usage of a request in the conversation. If that fails, only the budgets have the usage."""
    try:
        talk.note(record, sync_now=False)
    except (HivemindError, OSError) as error:
        _log.warning("the usage of a request is not in its conversation: %s", error)


def _request_line(key: str, cause: str, model: str, tokens: int, money: float, talk: Conversation) -> dict[str, Any]:
    """Return the line that a conversation gets before a request is sent."""
    return {
        "request": key, "cause": cause, "epoch": None if talk.epoch is None else talk.epoch["epoch"],
        "through": talk.messages[-1].id if talk.messages else None, "model": model,
        "reserved": {"tokens": tokens, "money": money},
    }  # fmt: skip
