"""What an agent may use up, per task and per day: held before a thought, so that it stops before a bound is passed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from hivemind.agent.day_account import DayAccount, Held
from hivemind.config import BudgetConfig, TokenBudget
from hivemind.layout import Layout
from hivemind.taskrun.parking import Parking
from hivemind.taskrun.report import Spent

__all__ = ["Budget", "hives_account"]

_NOTHING = Held("", 0, 0.0)


def hives_account(layout: Layout, limit: TokenBudget | None, *, durable: bool = False) -> DayAccount | None:
    """The account of a day that all agents of a hive share; None where nothing bounds it."""
    if limit is None:
        return None
    return DayAccount(layout.budget_record, limit, "the hive's daily", layout.locks / "budget.lock", durable=durable)


class Budget:
    """The bounds of one agent: of each task, of its own day (kept in its state `folder`, so that a restart forgets nothing)
    and, with `shared`, of the day of the whole hive. `durable`: what is held is on the disk before it is used up."""

    def __init__(
        self, limits: BudgetConfig, folder: Path, shared: DayAccount | None = None, *, durable: bool = False
    ) -> None:
        self._task = limits.task
        own = DayAccount(folder / "budget.json", limits.day, "the day's", durable=durable)
        self._accounts = [own] if shared is None else [own, shared]
        self._held: dict[str, list[Held]] = {}

    def hold(self, key: str, tokens: int, money: float, spent: Spent | None, now: datetime) -> None:
        """Reserve what a request may use up at most, before it is sent; `release` says what it was.

        What is held counts as used, here and, if the process ends before its release, ever after. Raises Parking if a
        bound would be passed, OSError if an account can't be written.
        """
        self._check_task(tokens, money, spent)
        held: list[Held] = []
        try:
            for account in self._accounts:
                held.append(account.hold(tokens, money, now))  # noqa: PERF401 - what the first gave is needed if the second raises
        except (Parking, OSError):
            for account, one in zip(self._accounts, held, strict=False):
                account.settle(one, 0, 0.0, now)
            raise
        self._held[key] = held

    def release(self, key: str, tokens: int, money: float, now: datetime) -> None:
        """Book what a request has used up, instead of what was held for it."""
        for account, held in zip(self._accounts, self._held.pop(key), strict=True):
            account.settle(held, tokens, money, now)

    def use(self, tokens: int, money: float, now: datetime) -> None:
        """Book what was used without having been held."""
        for account in self._accounts:
            account.settle(_NOTHING, tokens, money, now)

    @property
    def bounds_tasks(self) -> bool:
        return self._task.tokens is not None or self._task.money is not None

    def _check_task(self, tokens: int, money: float, spent: Spent | None) -> None:
        most, dearest = self._task.tokens, self._task.money
        if spent is None:
            return
        if most is not None and spent.tokens + tokens > most:
            raise Parking(f"the task's budget of {most} tokens is used up")
        if dearest is not None and spent.money >= dearest:
            raise Parking(f"the task's budget of {dearest:g} is used up")
        if dearest is not None and spent.money + money > dearest:
            raise Parking(f"the task's budget of {dearest:g} has no room for another question")
