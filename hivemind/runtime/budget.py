"""What an agent may use up, per task and per day: counted before a thought, so that it stops before a bound is passed."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hivemind.config import BudgetConfig
from hivemind.errors import UserError
from hivemind.fs import DamagedRecord, load_record, save_record, set_aside
from hivemind.runtime.parking import Parking
from hivemind.runtime.report import Spent

__all__ = ["Budget"]

VERSION = 1
_AGAIN_S = 30.0
_log = logging.getLogger(__name__)


class Budget:
    """One agent's account; a day is a UTC day. Kept in the agent's state folder, so that a restart forgets nothing.

    A damaged account is set aside and a new one begun. One that can't be read, or is another version's, is left as it is,
    and nothing more is thought until a person has seen to it: what was used up is not known.
    """

    def __init__(self, limits: BudgetConfig, folder: Path) -> None:
        self._limits = limits
        self._path = folder / "budget.json"
        self._day, self._tokens, self._money = "", 0, 0.0
        self._held: dict[str, tuple[int, float]] = {}
        self._unread = False
        self._open()

    def _open(self) -> None:
        """Read the account. Nothing is raised: where it can't be read `check` says so, and looks again."""
        try:
            record = load_record(self._path, "budget", VERSION)
            if record is not None:
                self._day, self._tokens, self._money = _checked(record, self._path)
            self._unread = False
        except DamagedRecord as error:
            _log.warning("%s; a new account is begun, this one is kept as %s", error, set_aside(self._path).name)
            self._unread = False
        except UserError as error:
            self._unread, self._why = True, str(error)

    def _turn_over(self, now: datetime) -> None:
        """Begin a new day's account, if it is one."""
        if self._day != now.date().isoformat():
            self._day, self._tokens, self._money = now.date().isoformat(), 0, 0.0

    def check(self, tokens: int, spent: Spent | None, now: datetime) -> None:
        """Raise Parking if a thought of `tokens` would pass a bound of the day or, after `spent`, of the task (if there is
        one in focus), or if what was used up is not known."""
        if not self._bounded:
            return
        if self._unread:
            self._open()
            if self._unread:
                raise Parking(f"its budget is not known: {self._why}", again_s=_AGAIN_S)
        self._turn_over(now)
        day, task = self._limits.day, self._limits.task
        if day.tokens is not None and self._tokens + tokens > day.tokens:
            raise Parking(f"the day's budget of {day.tokens} tokens is used up", _tomorrow(now))
        if day.money is not None and self._money >= day.money:
            raise Parking(f"the day's budget of {day.money:g} is used up", _tomorrow(now))
        if spent is not None and task.tokens is not None and spent.tokens + tokens > task.tokens:
            raise Parking(f"the task's budget of {task.tokens} tokens is used up")
        if spent is not None and task.money is not None and spent.money >= task.money:
            raise Parking(f"the task's budget of {task.money:g} is used up")

    def hold(self, key: str, tokens: int, money: float, spent: Spent | None, now: datetime) -> None:
        """Reserve what a request may use up at most, before it is sent; `release` says what it was.

        What is held counts as used, here and, if the process ends before its release, ever after. Raises Parking as
        `check` does, if a bound would be passed.
        """
        self.check(tokens, spent, now)
        day, task = self._limits.day, self._limits.task
        if self._unread is False and day.money is not None and self._money + money > day.money:
            raise Parking(f"the day's budget of {day.money:g} has no room for another question", _tomorrow(now))
        if spent is not None and task.money is not None and spent.money + money > task.money:
            raise Parking(f"the task's budget of {task.money:g} has no room for another question")
        self._held[key] = (tokens, money)
        self.use(tokens, money, now)

    def release(self, key: str, tokens: int, money: float, now: datetime) -> None:
        """Book what a request has used up, instead of what was held for it."""
        held_tokens, held_money = self._held.pop(key)
        day = self._day
        self._turn_over(now)
        if self._day == day:  # else it was the old day's, and went with it
            self._tokens -= held_tokens
            self._money = max(0.0, self._money - held_money)
        self.use(tokens, money, now)

    @property
    def bounds_money(self) -> bool:
        return self._limits.task.money is not None or self._limits.day.money is not None

    @property
    def bounds_tasks(self) -> bool:
        return self._limits.task.tokens is not None or self._limits.task.money is not None

    @property
    def _bounded(self) -> bool:
        return self.bounds_tasks or self._bounds_days

    @property
    def _bounds_days(self) -> bool:
        return self._limits.day.tokens is not None or self._limits.day.money is not None

    def use(self, tokens: int, money: float, now: datetime) -> None:
        """Book what a thought has used. Written only where the day is bounded; without fsync: a cycle may be lost."""
        self._turn_over(now)
        self._tokens += tokens
        self._money += money
        if self._bounds_days and not self._unread:
            fields = {"day": self._day, "tokens": self._tokens, "money": self._money}
            save_record(self._path, "budget", VERSION, fields, durable=False)


def _checked(record: dict[str, Any], path: Path) -> tuple[str, int, float]:
    """The account of a record. Raises DamagedRecord if it is none: edited by hand, or half of one."""
    day, tokens, money = record.get("day"), record.get("tokens"), record.get("money")
    if (
        isinstance(day, str)
        and isinstance(tokens, int)
        and isinstance(money, int | float)
        and tokens >= 0
        and money >= 0
    ):
        return day, tokens, float(money)
    raise DamagedRecord("is no account of a day", where=path, mend="hivemind doctor --fix sets it aside")


def _tomorrow(now: datetime) -> datetime:
    return datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), UTC)
