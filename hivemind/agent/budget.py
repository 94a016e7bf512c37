"""What an agent may use up, per task and per day, and what its mind uses: held before a thought, so that it stops before a bound
is passed, and booked afterwards (spec 7).

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
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from hivemind.boundary import Unreadable, as_dataclass
from hivemind.config import AgentConfig, BudgetConfig, HiveConfig, TokenBudget
from hivemind.errors import HivemindError, UserError
from hivemind.fs import DamagedRecord, Lock, load_record, save_record, set_aside
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
from hivemind.minds.language import LanguageMind
from hivemind.minds.meter import with_price
from hivemind.minds.pictures import PICTURE_TOKENS
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking
from hivemind.tasks import TaskMoved
from hivemind.tokens import TokenCounter

__all__ = ["Budget", "RunAccount", "Settle", "Usages", "open_agents_mind"]

VERSION = 1
_AGAIN_S = 30.0
Held = tuple[str, int, float]
"""What was reserved: the day (UTC), tokens, money."""
Settle = Callable[[int, float, datetime], object]
"""Books what a request has used, tokens and money, in the place of what was held for it."""
_log = logging.getLogger(__name__)
_MARGIN = 1.35  # a provider's tokens for one of ours, until it is known better
_PARTS = 1024  # of requests, whose tokens are remembered: all but the last are the same in the next
_MESSAGES = frozenset({"turn", "correction", "continuation", "mail"})
"""Causes of requests whose answers are messages of a conversation."""
_FRAME = 64  # tokens that a provider puts around a request


@dataclass(slots=True)
class _TokenUse:
    """The account as it stands in the record; `day` is empty in one that is not of a day."""

    day: str
    tokens: Annotated[int, Field(ge=0)]
    money: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def turn_over(self, now: datetime) -> None:
        """Begin a new day's account, if it is one. A clock that is set back by hours gives no second budget."""
        today = now.date()
        if not today.isoformat() <= self.day <= (today + timedelta(days=1)).isoformat():
            self.day, self.tokens, self.money = today.isoformat(), 0, 0.0


class SharedAccount:
    """The account at `path`, bounded by `limit`, begun anew each day if it is `daily`. With a `lock` several processes share
    it: each change is one reading and one writing under it, so that what they hold together never passes the bound.
    `durable`: a power cut forgets nothing of it either, at two flushes a change, beside which a thought takes seconds.

    What is held counts as used, and stays so if the process ends before it says what was. A damaged account is set aside
    and a new one begun. One that can't be read, or is another version's, is left as it is, and nothing more is thought
    until a person has seen to it: what was used up is not known.
    """

    def __init__(
        self,
        path: Path,
        limit: TokenBudget,
        whose: str,
        lock: Path | None = None,
        *,
        durable: bool = False,
        daily: bool = True,
    ) -> None:
        self._path, self._limit, self._whose, self._durable, self._daily = path, limit, whose, durable, daily
        self._lock = nullcontext() if lock is None else Lock(lock)

    def hold(self, tokens: int, money: float, now: datetime) -> Settle:
        """Reserve what a request may use up at most. Raises Parking if that would pass the bound, or if what was used up is
        not known; OSError if it can't be written. Booking raises nothing: where it can't be written, what was held counts."""
        if self._limit.tokens is None and self._limit.money is None:
            return lambda *_: None
        with self._known(now) as account:
            self._has_room(account, tokens, money, now)
            self._add(account, tokens, money)
            return partial(self.settle, (account.day, tokens, money))

    def settle(self, held: Held, tokens: int, money: float, now: datetime) -> None:
        """Book what was used in the place of what was held."""
        if self._limit.tokens is None and self._limit.money is None:
            return
        try:
            with self._known(now) as account:
                if account.day == held[0] or not self._daily:  # else it was the old day's, and went with it
                    account.tokens = max(0, account.tokens - held[1])
                    account.money = max(0.0, account.money - held[2])
                self._add(account, tokens, money)
        except FileNotFoundError:  # the task is over: what is used up after its end is the day's
            return
        except (Parking, OSError) as error:
            _log.warning("%s: %d tokens are not booked: %s", self._path, tokens, error)

    @contextmanager
    def _known(self, now: datetime) -> Iterator[_TokenUse]:
        """The account as it is today, under the lock. Raises Parking if it can't be read."""
        with self._lock:
            try:
                record = load_record(self._path, "budget", VERSION)
                account = _TokenUse("", 0, 0.0) if record is None else _checked(record, self._path)
            except DamagedRecord as error:
                kept = set_aside(self._path).name
                _log.warning("%s; a new account is begun, this one is kept as %s", error, kept)
                account = _TokenUse("", 0, 0.0)
            except UserError as error:
                raise Parking(f"its budget is not known: {error}", again_s=_AGAIN_S) from None
            if self._daily:
                account.turn_over(now)
            yield account

    def _has_room(self, account: _TokenUse, tokens: int, money: float, now: datetime) -> None:
        most, dearest = self._limit.tokens, self._limit.money
        until = _tomorrow(now) if self._daily else None
        if most is not None and account.tokens + tokens > most:
            raise Parking(f"{self._whose} budget of {most} tokens is used up", until)
        if dearest is not None and account.money >= dearest:
            raise Parking(f"{self._whose} budget of {dearest:g} is used up", until)
        if dearest is not None and account.money + money > dearest:
            raise Parking(f"{self._whose} budget of {dearest:g} has no room for another question", until)

    def _add(self, account: _TokenUse, tokens: int, money: float) -> None:
        used = (
            max(0, account.tokens + tokens),
            max(0.0, account.money + money),
        )  # a report may take some of the last one back
        fields = {"day": account.day, "tokens": used[0], "money": used[1]}
        save_record(self._path, "budget", VERSION, fields, durable=self._durable)


def _checked(record: dict[str, Any], path: Path) -> _TokenUse:
    """The account of a record. Raises DamagedRecord if it is none: edited by hand, or half of one."""
    with suppress(Unreadable):
        return as_dataclass(
            _TokenUse, {key: record[key] for key in ("day", "tokens", "money") if key in record}, "account", path
        )
    raise DamagedRecord(
        "is no account of what was used up", location=path, remedy="hivemind doctor --fix sets it aside"
    )


def _tomorrow(now: datetime) -> datetime:
    return datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), UTC)


class Budget:
    """The bounds of one agent: of each task with its subtasks (kept in the folder of the task that they are all a part of),
    of its own day (kept in its state, so that a restart forgets nothing) and of the day of the whole hive. `durable`: what
    is held is on the disk before it is used up."""

    def __init__(
        self, limits: BudgetConfig, layout: Layout, name: str, shared: TokenBudget, *, durable: bool = False
    ) -> None:
        self._task, self._durable = limits.task, durable
        self._lock = layout.locks / "budget.lock"
        record = layout.agent_state(name) / "budget.json"
        self._accounts = [
            SharedAccount(record, limits.day, "the day's", durable=durable),
            SharedAccount(layout.budget_record, shared, "the hive's daily", self._lock, durable=durable),
        ]

    def hold(self, tokens: int, money: float, work: TaskRun | None, now: datetime) -> Settle:
        """Reserve what a request may use up at most, before it is sent; what is returned books, once, what it was.

        What is held counts as used, here and, if the process ends before that, ever after. Raises Parking if a bound would
        be passed, TaskMoved if the task, or the one that it is a part of, is gone, OSError if an account can't be written.
        """
        if work is not None:
            _check_own(work, tokens, money)
        held: list[Settle] = []

        def settle(tokens: int, money: float, now: datetime) -> None:
            while held:
                held.pop()(tokens, money, now)

        try:
            for account in self._accounts_of(work):
                held.append(account.hold(tokens, money, now))  # noqa: PERF401 - what the first gave is needed if the second raises
        except (Parking, OSError) as error:
            settle(0, 0.0, now)
            if work is not None and isinstance(error, FileNotFoundError):
                raise TaskMoved("is gone", location=work.root) from None
            raise
        return settle

    def book(self, tokens: int, money: float, work: TaskRun | None, now: datetime, held: Held = ("", 0, 0.0)) -> None:
        """Book what was used, whatever the bounds are, in the place of what was `held`; below zero it is taken back."""
        for account in self._accounts_of(work):
            account.settle(held, tokens, money, now)

    def _accounts_of(self, work: TaskRun | None) -> list[SharedAccount]:
        if work is None:
            return self._accounts
        path = work.root / "account.json"
        task = SharedAccount(path, self._task, "the task's", self._lock, durable=self._durable, daily=False)
        return [*self._accounts, task]


def _check_own(work: TaskRun, tokens: int, money: float) -> None:
    """Raises Parking if the task would use up more than its own `budget:` says."""
    most, dearest = work.task.budget.tokens, work.task.budget.money
    if most is None and dearest is None:
        return
    spent = work.total_usage()
    if most is not None and spent.tokens + tokens > most:
        raise Parking(f"the task's own budget of {most} tokens is used up")
    if dearest is not None and spent.money + money > dearest:
        raise Parking(f"the task's own budget of {dearest:g} is used up")


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
        mind.hive_prices = prices
        bounds = (config.budget.task, config.budget.day, hive.budget.day)
        if any(one is not None and one.money is not None for one in bounds) and mind.prices is None:
            raise UserError(
                f"there is a budget of money, and what {mind.name} costs is not known",
                remedy="say it with prices: {in: …, out: …}, for a million tokens",
            )
    return mind


class Usages:
    """The account of one agent, whose mind is `base`; `total` is what its process has used so far, `request` the last
    request whose answer is a message. `estimates` are those in the total that a later report may replace."""

    def __init__(self, mind: Mind, budget: Budget, count: TokenCounter) -> None:
        self.base, self.budget, self._count = mind, budget, count
        self.count = lru_cache(_PARTS)(count)
        self._mutex = threading.Lock()
        self._margin = _MARGIN
        self._excess = 1.0
        self.total = Usage()
        self.estimates: dict[str, Usage] = {}
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
        key, used = secrets.token_hex(8), Usage()
        settle = self.budget.hold(counted, 0.0, work, datetime.now(UTC))
        try:
            talk.note(_request_line(key, turn.cause, getattr(self.base, "name", "mind"), counted, 0.0, talk))
            used = Usage(counted)  # an answer that is lost has cost what was sent
            thought = self.base.think(turn, tools)
            used = replace(thought.usage, tokens_in=thought.usage.tokens_in or counted)
        except MindError as error:
            if isinstance(error, MindUnavailable) and not error.lost:
                used = Usage()
            _note_end(talk, {"answered": key, "usage": used.as_record(), "error": str(error)})
            raise
        finally:
            settle(used.tokens, used.money, datetime.now(UTC))
            self.total += used
        self.request = key
        return replace(thought, usage=used)

    def close(self) -> None:
        """Let go of the mind's connections, if it has any."""
        if isinstance(self.base, LanguageMind):
            self.base.close()

    # of requests to a language model

    @contextmanager
    def _metered(
        self, work: TaskRun | None, talk: Conversation | None, asked: MeteredRequest
    ) -> Iterator[MeteredExchange]:
        """Reserve what a request may use, note that it is about to be sent, and book what it came to. Raises Parking where a
        budget has no room for a thought, MindUnavailable where it has none for a fold."""
        counted = sum(map(self.count, asked.parts)) + asked.pictures * PICTURE_TOKENS
        with self._mutex:
            sent, answered = self._sent(counted), math.ceil(asked.max_output * self._excess)
            money = 0.0 if asked.prices is None else asked.prices.price_of(Usage(sent, answered, written=sent))
            try:
                settle = self.budget.hold(sent + answered, money, work, datetime.now(UTC))
            except Parking as parking:
                if asked.cause in _MESSAGES:
                    raise
                raise MindUnavailable(parking.reason) from None
            try:
                if talk is not None:
                    record = _request_line(asked.id, asked.cause, asked.model, sent + answered, money, talk)
                    talk.note({**record, "sha256": asked.sha256})
            except (HivemindError, OSError):  # not sent, so not used
                settle(0, 0.0, datetime.now(UTC))
                raise
        exchange = MeteredExchange()
        try:
            yield exchange
        finally:
            with self._mutex:
                used = self._came_to(asked, counted, exchange)
                settle(used.tokens, used.money, datetime.now(UTC))
                self._book(asked, exchange, used, talk)

    def _came_to(self, asked: MeteredRequest, counted: int, exchange: MeteredExchange) -> Usage:
        """What a request has used: an answer that was lost has cost what was sent. A provider that counts more than was held
        for it does so once: from now on as much is held."""
        used = exchange.usage or Usage()
        if used.tokens_in == 0 and (exchange.lost or exchange.answer is not None):
            came = 0 if exchange.answer is None else self._count(json.dumps(exchange.answer))
            return with_price(Usage(self._sent(counted), came), asked.prices)
        self._margin = max(self._margin, used.tokens_in / max(1, counted))
        if used.tokens_out > asked.max_output * self._excess:
            told = "%s: an answer of %d tokens, where %d were asked for at most"
            _log.warning(told, asked.model, used.tokens_out, asked.max_output)
            self._excess = used.tokens_out / asked.max_output
        return used

    def _book(self, asked: MeteredRequest, exchange: MeteredExchange, used: Usage, talk: Conversation | None) -> None:
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
        if talk is not None:
            _note_end(talk, record)

    def _sent(self, counted: int) -> int:
        """The tokens that a request has at most for its provider, which counts by another vocabulary."""
        return math.ceil(counted * self._margin) + _FRAME


class RunAccount:
    """The account of one run of a coding agent, which stands in the conversation as one request.

    Until the program reports anything its prompt counts, as an estimate. A program whose reports cover its whole session
    (`usage_of: session`) tells after a kill what the killed run has used: that takes the place of the estimate.
    """

    def __init__(
        self,
        usages: Usages,
        mind: AgentMind,
        work: TaskRun | None,
        talk: Conversation,
        prompt: str,
        session: str | None,
    ) -> None:
        """Hold the prompt's tokens against the budgets; a `session` is gone on with. Raises Parking, TaskMoved, OSError."""
        self._usages, self._budget, self._mind, self._work, self._talk = usages, usages.budget, mind, work, talk
        self._counts_session, self._resumes = mind.profile.usage_of == "session", session is not None
        self._before = talk.totals.get(session or "", Usage())
        self._parts: dict[str, Usage] = {}
        self._reported: Usage | None = None
        self._key, self._prompt = secrets.token_hex(8), Usage(usages.count(prompt))
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
            begun_anew = usage.tokens_in < self._before.tokens_in or usage.tokens_out < self._before.tokens_out
            usage = usage if begun_anew else usage - self._before
        before = self._reported or Usage()
        if usage.tokens < before.tokens:
            return
        if self._reported is None:
            self._settle(0, 0.0, datetime.now(UTC))
            self._replace_estimates()
        self._reported = usage = usage if usage.money or not usage.tokens else with_price(usage, self._mind.prices)
        self._usages.total = self._usages.total + usage - before
        self._budget.book(usage.tokens - before.tokens, usage.money - before.money, self._work, datetime.now(UTC))
        _note_end(self._talk, {"answered": self._key, "usage": usage.as_record(), **fields})
        with suppress(TaskMoved):  # it is over: nothing is left to be bounded
            self._budget.hold(0, 0.0, self._work, datetime.now(UTC))

    def close(self, *, was_heard: bool) -> None:
        """End the account. A program that reported nothing has sent its prompt if it was heard, and nothing if it was not."""
        if self._reported is not None:
            return
        used = self._prompt if was_heard else Usage()
        self._usages.total += used
        if was_heard and self._counts_session:  # the request stays open until the session's next report
            self._usages.estimates[self._key] = used
        else:
            self._settle(used.tokens, 0.0, datetime.now(UTC))
            _note_end(self._talk, {"answered": self._key, "usage": used.as_record()})

    def _replace_estimates(self) -> None:
        """Give back what is held for earlier runs of this session: its report covers them."""
        for key, request in [*self._talk.unanswered.items()] if self._counts_session and self._resumes else ():
            if key != self._key and request["model"] == self._mind.name:
                held = str(request["at"])[:10], request["reserved"]["tokens"], 0.0
                self._budget.book(0, 0.0, self._work, datetime.now(UTC), held=held)
                self._usages.total -= self._usages.estimates.pop(key, Usage())
                _note_end(self._talk, {"answered": key, "usage": {}})


def _note_end(talk: Conversation, record: dict[str, Any]) -> None:
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
