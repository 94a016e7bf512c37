"""Budgets per task and per day. Usage is reserved before a request and booked after it, so a limit is never passed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hivemind.boundary import Unreadable
from hivemind.config import BudgetConfig, TokenBudget
from hivemind.errors import UserError
from hivemind.fs import DamagedRecord, Lock, load_dataclass, save_dataclass, set_aside
from hivemind.layout import Layout
from hivemind.taskrun.task_run import TaskRun
from hivemind.taskrun.waits import Parking
from hivemind.tasks import TaskMoved
from hivemind.tasks.task import TaskBudget

VERSION = 1
_RETRY_S = 30.0
Reservation = tuple[str, int, float]
"""The day (UTC), tokens and money of a reservation."""
Settle = Callable[[int, float, datetime], object]
"""A function that books the tokens and money that a request has used, and removes the reservation for that request."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _TokenUse:
    """The usage that an account has booked and reserved. `day` is empty in the account of a task."""

    day: str
    tokens: Annotated[int, Field(ge=0)]
    money: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def start_day(self, now: datetime) -> None:
        """Start the account of a new day. No day starts if the clock is set back by a few hours."""
        today = now.date()
        if not today.isoformat() <= self.day <= (today + timedelta(days=1)).isoformat():
            self.day, self.tokens, self.money = today.isoformat(), 0, 0.0


class SharedAccount:
    """The account at `path` with its `limit`. If it is `daily`, it starts again each day.

    With a `lock` several processes share the account: each change is one read and one write under the lock, so their reservations
    together never pass the limit. In a durable hive an account survives a power cut, which costs two flushes per change.

    A reservation counts as used, even if the process ends before it settles. A damaged account is set aside and a new account
    started. An account that cannot be read, or has another version, is kept. Its usage is unknown, so no request is made until a
    person repairs it.
    """

    def __init__(
        self, path: Path, limit: TokenBudget, owner: str, lock: Path | None = None, *, daily: bool = True
    ) -> None:
        self._path, self._limit, self._whose, self._daily = path, limit, owner, daily
        self._lock = nullcontext() if lock is None else Lock(lock)

    def hold(self, tokens: int, money: float, now: datetime) -> Settle:
        """Reserve the tokens and money that a request may use at most. Return the function that books the actual usage instead.

        Raises Parking if the request would pass the limit, or if the account cannot be read; OSError if it cannot be written. The
        returned function never raises: if it cannot write, the reservation counts as used.
        """
        if self._limit.tokens is None and self._limit.money is None:
            return lambda *_: None
        with self._open_account(now) as account:
            self._check_room(account, tokens, money, now)
            self._add(account, tokens, money)
            return partial(self.settle, (account.day, tokens, money))

    def settle(self, reservation: Reservation, tokens: int, money: float, now: datetime) -> None:
        """Book the actual usage of a request and remove its reservation."""
        if self._limit.tokens is None and self._limit.money is None:
            return
        try:
            with self._open_account(now) as account:
                if account.day == reservation[0] or not self._daily:  # an earlier day's reservation ended with the day
                    account.tokens = max(0, account.tokens - reservation[1])
                    account.money = max(0.0, account.money - reservation[2])
                self._add(account, tokens, money)
        except FileNotFoundError:  # the task has ended: only the day's account counts later usage
            return
        except (Parking, OSError) as error:
            _log.warning("%s: %d tokens are not booked: %s", self._path, tokens, error)

    @contextmanager
    def _open_account(self, now: datetime) -> Iterator[_TokenUse]:
        """Yield today's account under the lock. Raises Parking if the account cannot be read."""
        with self._lock:
            try:
                account = load_dataclass(_TokenUse, self._path, "budget", VERSION) or _TokenUse("", 0, 0.0)
            except (DamagedRecord, Unreadable) as error:  # incomplete, or edited by hand
                damaged_name = set_aside(self._path).name
                _log.warning("%s; a new account is begun, the damaged one is kept as %s", error, damaged_name)
                account = _TokenUse("", 0, 0.0)
            except UserError as error:
                raise Parking(f"the usage so far is not known: {error}", again_s=_RETRY_S) from None
            if self._daily:
                account.start_day(now)
            yield account

    def _check_room(self, account: _TokenUse, tokens: int, money: float, now: datetime) -> None:
        max_tokens, max_money = self._limit.tokens, self._limit.money
        tomorrow = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), UTC)
        until = tomorrow if self._daily else None
        if max_tokens is not None and account.tokens + tokens > max_tokens:
            raise Parking(f"{self._whose} budget of {max_tokens} tokens is used up", until)
        if max_money is not None and account.money >= max_money:
            raise Parking(f"{self._whose} budget of {max_money:g} is used up", until)
        if max_money is not None and account.money + money > max_money:
            raise Parking(f"{self._whose} budget of {max_money:g} has no room for another question", until)

    def _add(self, account: _TokenUse, tokens: int, money: float) -> None:
        # A report may lower the amounts of the last report.
        account.tokens, account.money = max(0, account.tokens + tokens), max(0.0, account.money + money)
        save_dataclass(self._path, "budget", VERSION, account)


class Budget:
    """The limits of one agent: for each task with its subtasks, for the agent's day, and for the hive's day.

    A task's account is in the folder of its topmost task, the agent's account in its state folder. A reservation is on
    disk before the request is sent.
    """

    def __init__(self, limits: BudgetConfig, layout: Layout, name: str, hive_limit: TokenBudget) -> None:
        self._task = limits.task
        self._lock = layout.locks / "budget.lock"
        record = layout.agent_state(name) / "budget.json"
        self._accounts = [
            SharedAccount(record, limits.day, "the day's"),
            SharedAccount(layout.budget_record, hive_limit, "the hive's daily", self._lock),
        ]

    def hold(self, tokens: int, money: float, work: TaskRun | None, now: datetime) -> Settle:
        """Reserve the tokens and money that a request may use at most. Return a function that books the actual usage, once.

        If it is never called, the reservation counts as used. Raises Parking if a limit would be passed, TaskMoved if the task or
        its topmost task is gone, OSError if an account cannot be written.
        """
        if work is not None:
            _check_task_budget(work, tokens, money)
        settlements: list[Settle] = []

        def settle(tokens: int, money: float, now: datetime) -> None:
            while settlements:
                settlements.pop()(tokens, money, now)

        try:
            for account in self._accounts_of(work):
                settlements.append(account.hold(tokens, money, now))  # noqa: PERF401 - if one raises, the others are settled
        except (Parking, OSError) as error:
            settle(0, 0.0, now)
            if work is not None and isinstance(error, FileNotFoundError):
                raise TaskMoved("is gone", location=work.root) from None
            raise
        return settle

    def book(
        self, tokens: int, money: float, work: TaskRun | None, now: datetime, reservation: Reservation = ("", 0, 0.0)
    ) -> None:
        """Book usage and remove `reservation`, without a check of the limits. Negative amounts are credited."""
        for account in self._accounts_of(work):
            account.settle(reservation, tokens, money, now)

    def _accounts_of(self, work: TaskRun | None) -> list[SharedAccount]:
        if work is None:
            return self._accounts
        path, topmost_task = work.root / "account.json", [work.task, *work.ancestors][-1]
        limit = _lower(self._task, topmost_task.budget) if topmost_task.candidates else self._task
        task = SharedAccount(path, limit, "the task's", self._lock, daily=False)
        return [*self._accounts, task]


def _lower(limit: TokenBudget, budget: TaskBudget) -> TokenBudget:
    """Return the limit with each bound lowered to that of `budget`, because all candidates of a task share this budget."""
    tokens = [bound for bound in (limit.tokens, budget.tokens) if bound is not None]
    money = [bound for bound in (limit.money, budget.money) if bound is not None]
    return TokenBudget(tokens=min(tokens, default=None), money=min(money, default=None))


def _check_task_budget(work: TaskRun, tokens: int, money: float) -> None:
    """Raise Parking if the task would use more than its own `budget:` allows."""
    max_tokens, max_money = work.task.budget.tokens, work.task.budget.money
    if max_tokens is None and max_money is None:
        return
    usage, task_id = work.total_usage(), work.task.id
    remedy = f"hivemind task cancel {task_id}, raise budget: in its task.md, hivemind task retry {task_id}"
    if max_tokens is not None and usage.tokens + tokens > max_tokens:
        raise Parking(f"the task's own budget of {max_tokens} tokens is used up; {remedy}")
    if max_money is not None and usage.money + money > max_money:
        raise Parking(f"the task's own budget of {max_money:g} is used up; {remedy}")
