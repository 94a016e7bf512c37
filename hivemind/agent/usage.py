"""What an agent's mind uses up: asked of the budgets before, booked afterwards, by turn, by task and by agent (spec 7).

A language model is metered request by request, whoever asks it (a turn, the memory beside it): each is held against the
budgets with the most that it may use, and stands in the log of its task before it is sent and when it is over. Of any other
mind the tokens of its context are counted, once a turn.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from hivemind.agent.budget import Budget
from hivemind.config import AgentConfig, HiveConfig
from hivemind.errors import HivemindError, UserError
from hivemind.layout import Layout
from hivemind.masking import masked
from hivemind.minds import (
    Asked,
    Context,
    Exchange,
    Mind,
    MindUnavailable,
    Patience,
    Prices,
    Thought,
    ToolSchema,
    Usage,
    open_mind,
)
from hivemind.minds.language import LanguageMind
from hivemind.presence.agent_log import AgentLog
from hivemind.taskrun.parking import Parking
from hivemind.taskrun.task_run import TaskRun
from hivemind.tokens import TokenCounter

__all__ = ["Usages", "open_agents_mind"]

_MARGIN = 1.35  # a provider's tokens for one of ours, until it is known better
_PARTS = 8  # of requests, whose tokens are remembered: the rules and the tools are the same in each
_UNMETERED = "turn"
_FRAME = 64  # tokens that a provider puts around a request
_log = logging.getLogger(__name__)


def open_agents_mind(config: AgentConfig, hive: HiveConfig, layout: Layout, patience: Patience | None = None) -> Mind:
    """The mind that an agent's file names, at the prices of its hive.

    Raises UserError for one that is not known, for a missing key or extra, and for a budget of money without prices.
    """
    mind = open_mind(config.mind, root=layout.root, patience=patience)
    if isinstance(mind, LanguageMind):
        listed = config.prices or hive.prices.get(mind.name) or hive.prices.get(mind.config.model)
        if listed is not None:
            mind = open_mind(
                config.mind, root=layout.root, patience=patience, prices=Prices(listed.tokens_in, listed.tokens_out)
            )
            assert isinstance(mind, LanguageMind)
        bounds = (config.budget.task, config.budget.day, hive.shared_budget)
        if any(one is not None and one.money is not None for one in bounds) and mind.prices is None:
            raise UserError(
                f"there is a budget of money, and what {mind.name} costs is not known",
                mend="say it with prices: {in: …, out: …}, for a million tokens",
            )
    return mind


class Usages:
    """The account of one agent, whose mind is `base`; `total` is what its process has used so far."""

    def __init__(self, mind: Mind, budget: Budget, count: TokenCounter, mail_log: AgentLog) -> None:
        self.base, self._budget, self._count, self._mail_log = mind, budget, count, mail_log
        self._count_once = lru_cache(_PARTS)(count)
        self._mutex = threading.Lock()
        self._margin = _MARGIN
        self._excess = 1.0
        self._counted: dict[str, int] = {}
        self._turns: dict[str | None, Usage] = {}
        self.total = Usage()

    @property
    def metered(self) -> bool:
        """Whether requests are counted one by one."""
        return isinstance(self.base, LanguageMind)

    def mind_of(self, work: TaskRun | None) -> Mind:
        """The agent's mind, at the cost of a task, or of the agent's mail."""
        if not isinstance(self.base, LanguageMind):
            return self.base
        return self.base.with_meter(_TaskMeter(self, work))

    def think(self, work: TaskRun | None, context: Context, tools: Sequence[ToolSchema], counted: int) -> Thought:
        """Ask the mind, within the budget: of the day, and of the task if there is one. `counted` are the tokens of context
        and tools. Raises Parking, MindError."""
        if self.metered:
            return self.mind_of(work).think(context, tools)
        self._budget.hold(_UNMETERED, counted, 0.0, self._spent(work), datetime.now(UTC))
        used = Usage()
        try:
            thought = self.base.think(context, tools)
            used = Usage(counted, thought.usage.tokens_out, thought.usage.money, thought.usage.unpriced)
        finally:
            with self._mutex:
                self._budget.release(_UNMETERED, used.tokens, used.money, datetime.now(UTC))
                self._add(work, used)
        return thought

    def book(self, work: TaskRun | None, usage: Usage) -> None:
        """Count what an unmetered mind has used, for the turn about `work`."""
        with self._mutex:
            self._budget.use(usage.tokens, usage.money, datetime.now(UTC))
            self._add(work, usage)

    def take(self, work: TaskRun | None) -> Usage:
        """What was used for `work` (None: mail) since the last call."""
        with self._mutex:
            return self._turns.pop(_key(work), Usage())

    def close(self) -> None:
        """Let go of the mind's connections, if it has any."""
        if isinstance(self.base, LanguageMind):
            self.base.close()

    # of metered requests

    def hold(self, work: TaskRun | None, asked: Asked) -> None:
        """Reserve what a request may use, and log that it is about to be sent."""
        counted = sum(map(self._count_once, asked.parts))
        with self._mutex:
            sent, answered = self._sent(counted), math.ceil(asked.max_output * self._excess)
            money = 0.0 if asked.prices is None else asked.prices.of(sent, answered)
            self._budget.hold(asked.id, sent + answered, money, self._spent(work), datetime.now(UTC))
            self._counted[asked.id] = counted
            record = {"kind": "asking", "id": asked.id, "tokens": sent + answered, "money": money}
            try:
                self._log(work, record)
            except (HivemindError, OSError):  # not sent, so not used
                self._budget.release(asked.id, 0, 0.0, datetime.now(UTC))
                del self._counted[asked.id]
                raise

    def release(self, work: TaskRun | None, exchange: Exchange) -> None:
        """Book what a request has used, and log what came of it. An answer that was lost has cost what was sent."""
        asked = exchange.asked
        counted = self._counted.pop(asked.id)
        with self._mutex:
            used = exchange.usage or Usage()
            if used.tokens_in == 0 and (exchange.lost or exchange.answer is not None):
                used = _estimated(asked, self._sent(counted), exchange, self._count)
            else:
                self._learn(asked, counted, used)
            self._budget.release(asked.id, used.tokens, used.money, datetime.now(UTC))
            self._add(work, used)
            try:
                self._log(work, _record(exchange, used))
            except (
                HivemindError,
                OSError,
            ) as error:  # the task was moved away, the disk is full: what came still counts
                _log.warning("an exchange with %s is not in the log: %s", asked.model, error)

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

    def _add(self, work: TaskRun | None, usage: Usage) -> None:
        self._turns[_key(work)] = self._turns.get(_key(work), Usage()) + usage
        self.total += usage

    def _spent(self, work: TaskRun | None) -> Any:
        return work.spent() if work is not None and self._budget.bounds_tasks else None

    def _log(self, work: TaskRun | None, record: Mapping[str, Any]) -> None:
        whole = masked({"time": round(time.time(), 3), **record})
        if work is not None:
            work.log(whole)
            return
        self._mail_log.note(whole)


class _TaskMeter:
    """Holds and releases for one task, or for mail."""

    def __init__(self, usages: Usages, work: TaskRun | None) -> None:
        self._usages, self._work = usages, work

    def before(self, asked: Asked) -> None:
        """Raises Parking where a budget has no room for a thought, MindUnavailable where it has none for the memory."""
        try:
            self._usages.hold(self._work, asked)
        except Parking as parking:
            if asked.purpose == "think":
                raise
            raise MindUnavailable(parking.reason) from None

    def after(self, exchange: Exchange) -> None:
        self._usages.release(self._work, exchange)


def _key(work: TaskRun | None) -> str | None:
    return None if work is None else work.task.id


def _estimated(asked: Asked, sent: int, exchange: Exchange, count: TokenCounter) -> Usage:
    """The usage of a request for which nothing was reported."""
    came = 0 if exchange.answer is None else count(json.dumps(exchange.answer))
    if asked.prices is None:
        return Usage(sent, came, 0.0, sent + came)
    return Usage(sent, came, asked.prices.of(sent, came))


def _record(exchange: Exchange, used: Usage) -> dict[str, Any]:
    asked = exchange.asked
    record: dict[str, Any] = {
        "kind": "exchange",
        "id": asked.id,
        "purpose": asked.purpose,
        "model": asked.model,
        "request_sha256": asked.sha256,
        "tokens_in": used.tokens_in,
        "tokens_out": used.tokens_out,
        "tokens": used.tokens,
        "money": used.money,
    }
    if used.unpriced:
        record["unpriced"] = used.unpriced
    if used.tokens and (exchange.usage is None or exchange.usage.tokens_in == 0):
        record["estimated"] = True
    if exchange.error is not None:
        record["error"] = exchange.error
    if exchange.answer is not None:
        record["answer"] = exchange.answer
    return record
