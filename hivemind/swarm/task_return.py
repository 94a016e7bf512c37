"""The return of tasks to the inbox: those of MCP clients that stay away, and those of agents whose file was removed.

`mcp: return_after` in hive.yaml says how long an MCP client may stay away. The supervisor returns the tasks. Without a
supervisor, an agent does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from hivemind.coordination import JournalState
from hivemind.errors import HivemindError
from hivemind.frozen import frozen
from hivemind.fs import LockBusy
from hivemind.layout import HUMAN, LANDING
from hivemind.logger import logger
from hivemind.presence.identity import agent_lock, holder_pid, lock_name
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.words import duration

_log = logger(__name__)


@frozen
class Absence:
    """A member without a process, and the tasks that it left. `away_s` is the time since it left, `remaining_s` the
    time until its tasks are returned (may be infinite)."""

    agent: str
    tasks: tuple[str, ...]
    away_s: float
    remaining_s: float

    def __str__(self) -> str:
        back = (
            "they wait until it returns"
            if math.isinf(self.remaining_s)
            else f"they are back in the inbox in {duration(self.remaining_s)}"
        )
        away = "long" if math.isinf(self.away_s) else duration(self.away_s)
        return f"{self.agent} left its tasks {away} ago; {back}"


def absences(hive: Parts) -> list[Absence]:
    """Return the absences of all members that left while they had tasks, sorted by name."""
    outside_members = [
        name for name, config in hive.agents.items() if config.outside and holder_pid(hive.layout, name) is None
    ]
    if not outside_members:
        return []

    def collect(state: JournalState) -> dict[str, list[str]]:
        tasks_by_member: dict[str, list[str]] = {}
        for entry in state.open_tasks():
            if entry.agent_id in outside_members and entry.state not in ("returned", "handed_over"):
                tasks_by_member.setdefault(entry.agent_id, []).append(entry.task)
        return tasks_by_member

    absent_members, now, limit = [], time.time(), hive.config.mcp.return_after
    for name, tasks in sorted(hive.journal.view(collect).items()):
        active_tasks = tuple(sorted(task for task in tasks if (hive.layout.active / task).is_dir()))
        # the member writes both
        paths = hive.layout.agent_state(name) / "heartbeat", Path(agent_lock(hive.layout, name).path)
        times = [path.stat().st_mtime for path in paths if path.exists()]
        away = now - max(times, default=-math.inf)
        if active_tasks:
            absent_members.append(
                Absence(name, active_tasks, max(0.0, away), math.inf if limit is None else max(0.0, limit - away))
            )
    return absent_members


def return_tasks(hive: Parts) -> list[str]:
    """Move tasks back to the inbox if their member is away for longer than hive.yaml allows. Return the tasks' ids.
    Failures are logged and tried again at the next call."""
    returned: list[str] = []
    for absence in absences(hive):
        if absence.remaining_s > 0:
            continue
        try:
            returned += _return(hive, absence.agent, absence.tasks, str(absence))
        except (HivemindError, OSError) as error:
            _log.warning("the tasks that %s left cannot be returned: %s", absence.agent, error)
    if returned:
        ring_all(hive)
    return returned


def return_removed(hive: Parts, has_agent: Callable[[str], bool]) -> list[str]:
    """Move the tasks of agents for which `has_agent` is False (their file was removed) back to the inbox. Return the
    tasks' ids.
    """
    tasks: dict[str, list[str]] = {}
    for orphan in hive.tasks.recovery.orphans((HUMAN,)):
        if orphan.agent is not None and orphan.agent != LANDING and not has_agent(orphan.agent):
            tasks.setdefault(orphan.agent, []).append(orphan.id)
    returned = [
        task for agent, names in tasks.items() for task in _return(hive, agent, names, f"the agent {agent} was removed")
    ]
    if returned:
        ring_all(hive)
    return returned


def _return(hive: Parts, agent: str, tasks: Iterable[str], reason: str) -> list[str]:
    """Move the tasks of an agent without a process back to the inbox, unless the agent runs again. Return the tasks' ids."""
    try:
        name_lock = lock_name(hive.layout, agent)  # the agent cannot start meanwhile
    except LockBusy:
        return []
    try:
        hive.tasks.recovery.reclaim(agent)
        for task in tasks:
            hive.journal.append("task.returned", task_id=task, agent_id=agent, reason=reason)
        return [*tasks]
    finally:
        name_lock.release()
