"""The hive's watcher: when a new file appears in a mailbox or the inbox, it rings the doorbells of the agents concerned.

Agents that deliver mail ring the recipient's bell themselves; the watcher is for files from people and other programs.
Only one process of a hive watches (the supervisor, or else the first agent): a user has only 128 inotify instances.
"""

from __future__ import annotations

import os
from pathlib import Path

from hivemind.fs import Lock
from hivemind.fs.doorbell import ring
from hivemind.fs.watch import open_watcher
from hivemind.layout import EXCHANGE, LANDING
from hivemind.logger import logger
from hivemind.presence.parts import Parts

_log = logger(__name__)
SUPERVISOR = "_supervisor"  # not a valid agent name, which begins with a letter or digit


class HiveWatch:
    """Watches the mailboxes, the inbox, agents/ and tasks/schedule/ of a hive until it is closed.

    `agents_written` and `schedule_written` become True when a file in agents/ or tasks/schedule/ may have changed. The
    reader of these flags resets them.
    """

    def __init__(self, hive: Parts) -> None:
        self._hive = hive
        self._boxes = {hive.layout.mailbox(name) / "new": name for name in hive.agents}
        self.agents_written = self.schedule_written = False
        for folder in (*self._boxes, hive.layout.agents, hive.layout.schedule):
            folder.mkdir(parents=True, exist_ok=True)
        folders = [*self._boxes, hive.layout.inbox, hive.layout.agents, hive.layout.schedule]
        self._watcher = open_watcher(hive.config.watch, folders, [], self._ring_for)
        if self._watcher.reason is not None and hive.config.watch != "poll":
            _log.warning("watching: %s", self.described)

    @property
    def described(self) -> str:
        """The kind of watcher (inotify or polling), with the reason if polling is only a fallback."""
        reason = self._watcher.reason
        return f"{self._watcher.kind} ({reason})" if reason else self._watcher.kind

    def add(self, name: str) -> None:
        """Watch the mailbox of a new agent."""
        folder = self._hive.layout.mailbox(name) / "new"
        if folder not in self._boxes:
            folder.mkdir(parents=True, exist_ok=True)
            self._boxes[folder] = name
            self._watcher.add(folder)

    def close(self) -> None:
        self._watcher.close()

    def _ring_for(self, path: Path) -> None:
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
    """Return the lock that the hive's supervisor holds while it runs."""
    return Lock(locks / "supervisor.lock")


def agent_problems(locks: Path) -> dict[str, str]:
    """Return the problems that the supervisor noted, by agent: an invalid agent file, or a process that dies repeatedly."""
    problems = (supervisor_lock(locks).holder() or {}).get("problems")
    return {str(name): str(problem) for name, problem in problems.items()} if isinstance(problems, dict) else {}


def watch_lock(locks: Path) -> Lock:
    """Return the lock held by the agent's process that watches the hive while no supervisor does."""
    return Lock(locks / "watch.lock")


class SharedWatch:
    """A watcher for agents without a supervisor. One agent's process runs the watcher; another process can take over."""

    def __init__(self, hive: Parts) -> None:
        self._hive = hive
        self._lock = watch_lock(hive.layout.locks)
        self._watch: HiveWatch | None = None

    def take_over(self) -> None:
        """Start watching if no other process watches."""
        if self._watch is None and self._lock.acquire(wait=False):
            self._watch = HiveWatch(self._hive)
            self._lock.write_holder(watching=self._watch.described)

    def close(self) -> None:
        """Stop watching, and wake the other agents, one of which takes over."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
            self._lock.release()
            ring_all(self._hive)


def ring_all(hive: Parts) -> None:
    """Wake every agent, the exchange process and the lander, because there may be a new task for any of them."""
    for name in (*hive.agents, EXCHANGE, LANDING):
        ring(hive.layout.doorbells, name)
