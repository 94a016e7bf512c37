"""What an agent may use up, per task and per day: counted before a thought, so that it stops before a bound is passed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hivemind.config import BudgetConfig
from hivemind.fs import load_record, save_record
from hivemind.runtime.parking import Parking
from hivemind.runtime.report import Spent

__all__ = ["Budget"]

VERSION = 1


class Budget:
    """One agent's account; a day is a UTC day. Kept in the agent's state folder, so that a restart forgets nothing."""

    def __init__(self, limits: BudgetConfig, folder: Path) -> None:
        self._limits = limits
        self._path = folder / "budget.json"
        record = load_record(self._path, "budget", VERSION) or {"day": "", "tokens": 0, "money": 0.0}
        self._day: str = record["day"]
        self._tokens: int = record["tokens"]
        self._money: float = record["money"]

    @property
    def of_day(self) -> int | None:
        """The tokens of a day, or None if they are not bounded."""
        return self._limits.day.tokens

    def used_today(self, now: datetime) -> int:
        return self._tokens if self._day == now.date().isoformat() else 0

    def check(self, tokens: int, spent: Spent, now: datetime) -> None:
        """Raise Parking if a thought of `tokens` would pass a bound of the day or, after `spent`, of the task."""
        if self._day != now.date().isoformat():
            self._day, self._tokens, self._money = now.date().isoformat(), 0, 0.0
        day, task = self._limits.day, self._limits.task
        if day.tokens is not None and self._tokens + tokens > day.tokens:
            raise Parking(f"the day's budget of {day.tokens} tokens is used up", _tomorrow(now))
        if day.money is not None and self._money >= day.money:
            raise Parking(f"the day's budget of {day.money:g} is used up", _tomorrow(now))
        if task.tokens is not None and spent.tokens + tokens > task.tokens:
            raise Parking(f"the task's budget of {task.tokens} tokens is used up")
        if task.money is not None and spent.money >= task.money:
            raise Parking(f"the task's budget of {task.money:g} is used up")

    @property
    def bounds_tasks(self) -> bool:
        return self._limits.task.tokens is not None or self._limits.task.money is not None

    def use(self, tokens: int, money: float) -> None:
        """Book what a thought has used. Written only where the day is bounded; without fsync: a cycle may be lost."""
        self._tokens += tokens
        self._money += money
        if self._limits.day.tokens is not None or self._limits.day.money is not None:
            fields = {"day": self._day, "tokens": self._tokens, "money": self._money}
            save_record(self._path, "budget", VERSION, fields, durable=False)


def _tomorrow(now: datetime) -> datetime:
    return datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), UTC)
