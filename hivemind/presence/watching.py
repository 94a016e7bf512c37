"""The hive's watcher: a new file in a mailbox or the inbox rings the doorbell of the agents that it concerns.

Agents that deliver mail ring the recipient's bell themselves; the watcher is for files from people and other programs.
Only one process of a hive watches (the supervisor, or else the first agent): a user has only 128 inotify instances.
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
SUPERVISOR = "_supervisor"  # not a valid agent name, which begins with a letter or digit


class HiveWatch:
    """Watches the mailboxes, the inbox, agents/ and tasks/schedule/ of a hive until it is closed.

    `agents_written` and `schedule_written` are set when a file in these folders may have changed. The reader clears
    them. A removed file changes only the folder's time.
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
        """The kind of watcher, with the reason if it is a fallback."""
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
    """Return the supervisor's notes on agents by name: an invalid agent file, a process that dies repeatedly."""
    problems = (supervisor_lock(locks).holder() or {}).get("problems")
    return {str(name): str(problem) for name, problem in problems.items()} if isinstance(problems, dict) else {}


def watch_lock(locks: Path) -> Lock:
    """Return the lock of the process that watches without a supervisor."""
    return Lock(locks / "watch.lock")


class SharedWatch:
    """The watcher of agents without a supervisor: one of their processes runs it, and another can take it over."""

    def __init__(self, hive: Parts) -> None:
        self._hive = hive
        self._lock = watch_lock(hive.layout.locks)
        self._watch: HiveWatch | None = None

    def take_over(self) -> None:
        """Start watching if no other process does."""
        if self._watch is None and self._lock.acquire(wait=False):
            self._watch = HiveWatch(self._hive)
            self._lock.write_holder(watching=self._watch.described)

    def close(self) -> None:
        """Stop watching, and wake the other agents; one of them takes over."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
            self._lock.release()
            ring_all(self._hive)


def ring_all(hive: Parts) -> None:
    """Wake every agent and the exchange process: any of them may have a new task."""
    for name in (*hive.agents, EXCHANGE):
        ring(hive.layout.doorbells, name)
