"""The hive's one watcher: what appears in a mailbox or the inbox rings the doorbell of who it concerns.

Agents that deliver mail ring the recipient's bell themselves; this is for what people and foreign programs put there. One
process of a hive watches (the supervisor, or else the first agent): a user has 128 inotify instances, a swarm may be larger.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from hivemind.fs import Lock
from hivemind.fs.doorbell import ring
from hivemind.fs.watch import open_watcher
from hivemind.layout import EXCHANGE
from hivemind.presence.parts import Parts

_log = logging.getLogger(__name__)
SUPERVISOR = "_supervisor"  # no agent can have that name: it begins with no letter or digit


class HiveWatch:
    """Watches the mailboxes, the inbox, agents/ and tasks/schedule/ of a hive until it is closed.

    `agents_written` and `schedule_written` are set once a file there may have changed, and are for who reads them to clear;
    what is taken away shows in the folder's time only.
    """

    def __init__(self, hive: Parts) -> None:
        self._hive = hive
        self._boxes = {hive.layout.mailbox(name) / "new": name for name in hive.agents}
        self.agents_written = self.schedule_written = False
        for folder in (*self._boxes, hive.layout.agents, hive.layout.schedule):
            folder.mkdir(parents=True, exist_ok=True)
        flat = [*self._boxes, hive.layout.inbox, hive.layout.agents, hive.layout.schedule]
        self._watcher = open_watcher(hive.config.watch, flat, [], self._changed)
        if self._watcher.reason is not None and hive.config.watch != "poll":
            _log.warning("watching: %s", self.described)

    @property
    def described(self) -> str:
        """How it watches, and if it had to fall back, why."""
        reason = self._watcher.reason
        return f"{self._watcher.kind} ({reason})" if reason else self._watcher.kind

    def add(self, name: str) -> None:
        """Watch the mailbox of a new agent, too."""
        folder = self._hive.layout.mailbox(name) / "new"
        if folder not in self._boxes:
            folder.mkdir(parents=True, exist_ok=True)
            self._boxes[folder] = name
            self._watcher.add(folder)

    def close(self) -> None:
        self._watcher.close()

    def _changed(self, path: Path) -> None:
        bells = self._hive.layout.doorbells
        if path in (self._hive.layout.agents, self._hive.layout.schedule):
            self.agents_written |= path == self._hive.layout.agents
            self.schedule_written |= path == self._hive.layout.schedule and bool(os.listdir(path))
            ring(bells, SUPERVISOR)
            return
        name = self._boxes.get(path) or self._boxes.get(path.parent)
        if name is not None:
            ring(bells, name)
        else:
            ring_all(self._hive)


def supervisor_lock(locks: Path) -> Lock:
    """The lock that the hive's one supervisor holds while it lives."""
    return Lock(locks / "supervisor.lock")


def agent_problems(locks: Path) -> dict[str, str]:
    """What the supervisor says of agents by their names: a file that it does not follow, a process that dies again and again."""
    problems = (supervisor_lock(locks).holder() or {}).get("problems")
    return {str(name): str(problem) for name, problem in problems.items()} if isinstance(problems, dict) else {}


def watch_lock(locks: Path) -> Lock:
    """The lock of the process that watches where no supervisor does it."""
    return Lock(locks / "watch.lock")


class Watchman:
    """Keeps the hive's watcher for agents without a supervisor: one of their processes does, and when it ends another."""

    def __init__(self, hive: Parts) -> None:
        self._hive = hive
        self._lock = watch_lock(hive.layout.locks)
        self._watch: HiveWatch | None = None

    def take_over(self) -> None:
        """Watch, if no other process does."""
        if self._watch is None and self._lock.acquire(wait=False):
            self._watch = HiveWatch(self._hive)
            self._lock.note(watching=self._watch.described)

    def close(self) -> None:
        """Watch no longer, and wake the others, one of whom takes over."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
            self._lock.release()
            ring_all(self._hive)


def ring_all(hive: Parts) -> None:
    """Wake every agent, and the process that links hives: there may be a task for any of them."""
    for name in (*hive.agents, EXCHANGE):
        ring(hive.layout.doorbells, name)
