"""What an agent may use up, per task and per day: held before a thought, so that it stops before a bound is passed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from hivemind.agent.shared_account import Held, SharedAccount
from hivemind.config import BudgetConfig, TokenBudget
from hivemind.layout import Layout
from hivemind.taskrun.parking import Parking
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks import TaskMoved

__all__ = ["Budget"]

_NOTHING = Held("", 0, 0.0)


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
        self._held: dict[str, list[tuple[SharedAccount, Held]]] = {}

    def hold(self, key: str, tokens: int, money: float, work: TaskRun | None, now: datetime) -> None:
        """Reserve what a request may use up at most, before it is sent; `release` says what it was.

        What is held counts as used, here and, if the process ends before its release, ever after. Raises Parking if a
        bound would be passed, TaskMoved if the task, or the one that it is a part of, is gone, OSError if an account can't
        be written.
        """
        accounts = [*self._accounts]
        if work is not None:
            _check_own(work, tokens, money)
            accounts.append(self._account_of(work.root))
        held = self._held[key] = []
        try:
            for account in accounts:
                held.append((account, account.hold(tokens, money, now)))  # noqa: PERF401 - what the first gave is needed if the second raises
        except (Parking, OSError) as error:
            self.release(key, 0, 0.0, now)
            if work is not None and isinstance(error, FileNotFoundError):
                raise TaskMoved("is gone", where=work.root) from None
            raise

    def holds(self, key: str) -> bool:
        """Whether something is held under that key."""
        return key in self._held

    def release(self, key: str, tokens: int, money: float, now: datetime) -> None:
        """Book what a request has used up, instead of what was held for it."""
        for account, held in self._held.pop(key):
            account.settle(held, tokens, money, now)

    def _account_of(self, root: Path) -> SharedAccount:
        path = root / "account.json"
        return SharedAccount(path, self._task, "the task's", self._lock, durable=self._durable, daily=False)


def _check_own(work: TaskRun, tokens: int, money: float) -> None:
    """Raises Parking if the task would use up more than its own `budget:` says."""
    most, dearest = work.task.budget.tokens, work.task.budget.money
    if most is None and dearest is None:
        return
    spent = work.spent()
    if most is not None and spent.tokens + tokens > most:
        raise Parking(f"the task's own budget of {most} tokens is used up")
    if dearest is not None and spent.money + money > dearest:
        raise Parking(f"the task's own budget of {dearest:g} is used up")
