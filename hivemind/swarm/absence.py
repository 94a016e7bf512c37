"""Absence: members from outside that have left with tasks in hand, and when these go back to the inbox (`mcp:` in hive.yaml).

Whatever process keeps the hive up returns them, and so does the next one that comes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from hivemind.coordination import JournalState
from hivemind.errors import HivemindError
from hivemind.frozen import frozen
from hivemind.fs import HeldLock
from hivemind.layout import HUMAN, Layout
from hivemind.presence.identity import agent_lock, holder_of, take_name
from hivemind.presence.parts import Parts
from hivemind.presence.watching import ring_all
from hivemind.words import duration

_log = logging.getLogger(__name__)


@frozen
class Absence:
    """A member that no process is, the tasks that it left, for how long it has been away, and what is left until they are
    returned; both in seconds, the latter may be infinite."""

    agent: str
    tasks: tuple[str, ...]
    away_s: float
    left_s: float

    def __str__(self) -> str:
        back = "until it comes again" if math.isinf(self.left_s) else f"back in the inbox in {duration(self.left_s)}"
        away = "long" if math.isinf(self.away_s) else duration(self.away_s)
        return f"{self.agent} left {away} ago; {back}"


def absences(hive: Parts) -> list[Absence]:
    """The members that have left with tasks in hand, by name."""
    outside = [name for name, config in hive.agents.items() if config.outside and holder_of(hive.layout, name) is None]
    if not outside:
        return []

    def look(state: JournalState) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for entry in state.open_tasks():
            if entry.agent_id in outside and entry.state not in ("returned", "handed_over"):
                found.setdefault(entry.agent_id, []).append(entry.task)
        return found

    found, now, limit = [], time.time(), hive.config.mcp.return_after
    for name, tasks in sorted(hive.journal.view(look).items()):
        there = tuple(sorted(task for task in tasks if (hive.layout.active / task).is_dir()))
        seen = [path.stat().st_mtime for path in _signs(hive.layout, name) if path.exists()]
        away = now - max(seen, default=-math.inf)
        if there:
            found.append(Absence(name, there, max(0.0, away), math.inf if limit is None else max(0.0, limit - away)))
    return found


def _signs(layout: Layout, name: str) -> tuple[Path, Path]:
    """Files whose time says when the member was last there: its heartbeat, and the lock that it took."""
    return layout.agent_state(name) / "heartbeat", Path(agent_lock(layout, name).path)


def return_tasks(hive: Parts) -> list[str]:
    """Return what members have left for longer than hive.yaml says; gives the tasks. What cannot be now is tried again."""
    back: list[str] = []
    for absence in absences(hive):
        if absence.left_s > 0:
            continue
        try:
            back += _return(hive, absence.agent, absence.tasks, str(absence))
        except (HivemindError, OSError) as error:
            _log.warning("what %s left is not returned: %s", absence.agent, error)
    if back:
        ring_all(hive)
    return back


def return_removed(hive: Parts, is_there: Callable[[str], bool]) -> list[str]:
    """Return the tasks of agents that are not there any more, because their file was taken away; gives the tasks."""
    tasks: dict[str, list[str]] = {}
    for orphan in hive.tasks.claims.orphans((HUMAN,)):
        if orphan.agent is not None and not is_there(orphan.agent):
            tasks.setdefault(orphan.agent, []).append(orphan.id)
    back = [
        task
        for agent, names in tasks.items()
        for task in _return(hive, agent, names, f"there is no agent {agent} any more")
    ]
    if back:
        ring_all(hive)
    return back


def _return(hive: Parts, agent: str, tasks: Iterable[str], why: str) -> list[str]:
    """Put back what a process has in hand that is gone; nothing if it is there (again)."""
    try:
        name = take_name(hive.layout, agent)  # so that it cannot come meanwhile
    except HeldLock:
        return []
    try:
        hive.tasks.claims.reclaim(agent)
        for task in tasks:
            hive.journal.append("task.returned", task_id=task, agent_id=agent, reason=why)
        return [*tasks]
    finally:
        name.release()
