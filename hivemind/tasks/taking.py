"""Stage 1 of a claim: one rename decides who has a task (spec 1, *Tasks*; README.md, *A claim*).

`inbox/NAME` becomes `active/.claimed/AGENT/NAME`. A name can be renamed away once only, so that exactly one claimant
gets it, whoever else tries and on whatever file system; nothing is locked and nobody waits.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from hivemind.fs import move, reached
from hivemind.layout import Layout
from hivemind.tasks.board import lanes_of
from hivemind.tasks.drops import read_open
from hivemind.tasks.entry import Entry, read_entry
from hivemind.tasks.ids import free_in_inbox
from hivemind.tasks.queue import Queue
from hivemind.tasks.task import TaskProblem

__all__ = ["Rename", "Taken", "Taking", "rename"]

Rename = Callable[[str, str], None]
_UNTRUSTED = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Taken:
    """A drop that an agent has claimed: stage 1. `raw` are the bytes of a file; None for a folder, and for a drop that
    is no text at all."""

    agent: str
    name: str
    path: Path
    raw: bytes | None
    doom: str | None = None


def rename(source: str, target: str) -> None:
    """Rename to a name that nothing has. Raises FileNotFoundError if the source is gone, FileExistsError."""
    move(source, target, durable=False)


class Taking:
    """Takes drops out of one inbox. `rename` is there for the test in which an answer gets lost."""

    def __init__(self, layout: Layout, queue: Queue, *, max_bytes: int, durable: bool, rename: Rename = rename) -> None:
        self._layout = layout
        self._queue = queue
        self._max_bytes = max_bytes
        self._durable = durable
        self._rename = rename
        self._made: dict[str, str] = {}

    def take(self, agent: str, role: str | None) -> Taken | None:
        """Claim the next drop for an agent and read it: exactly one caller gets it. None if there is nothing for it.

        Not durable by itself: a power cut puts an unfinished claim back, and ends whoever made it.
        """
        lanes = lanes_of(agent, role)
        returned: set[str] = set()
        while (entry := self._queue.next(agent, role)) is not None:
            taken = self.take_entry(agent, entry, lanes)
            if taken is None:
                if entry.name in returned:  # put back twice: it is being changed this very moment
                    return None
                returned.add(entry.name)
                continue
            return taken
        return None

    def take_entry(self, agent: str, entry: Entry, lanes: Collection[str] | None = None) -> Taken | None:
        """Claim one certain drop; None if it is gone, half-written, or changed so that it left `lanes`."""
        target = os.path.join(self.folder(agent), entry.name)
        if not self._won(os.path.join(self._layout.inbox, entry.name), target, entry):
            return None
        reached("tasks.claim.taken")
        path = Path(target)
        if entry.folder or entry.problem:
            return Taken(agent, entry.name, path, None, entry.doom)
        try:
            file = os.open(target, _UNTRUSTED)
        except OSError:
            return Taken(agent, entry.name, path, None)  # a link by now; stage 2 says what is wrong
        try:
            found = os.fstat(file)
            same = (found.st_ino, found.st_mtime_ns, found.st_size) == entry[1:4]
            regular = stat.S_ISREG(found.st_mode)
            if not self._queue.written(file, found) or not (same or lanes is None or self._fits(target, found, lanes)):
                self.put_back(path)
                return None
            raw = read_open(file, found, entry.name, self._max_bytes) if regular else None
        except TaskProblem:
            raw = None
        finally:
            os.close(file)
        return Taken(agent, entry.name, path, raw, entry.doom)

    def _won(self, source: str, target: str, entry: Entry) -> bool:
        """Rename, and say whether it was this process that did."""
        try:
            self._rename(source, target)
        except FileNotFoundError:
            # Lost, or withdrawn; or done, and the answer got lost on its way from a file server: look.
            if os.path.lexists(target):
                return os.lstat(target).st_ino == entry.ino
            if not os.path.lexists(source):
                return False
            os.makedirs(os.path.dirname(target), exist_ok=True)  # someone tidied away the folder itself
            return self._won(source, target, entry)
        return True

    def _fits(self, path: str, found: os.stat_result, lanes: Collection[str]) -> bool:
        """Whether a file that was changed since the board was made may still be claimed from these lanes."""
        entry = read_entry(path, os.path.basename(path), found, False, self._max_bytes)
        return entry.lane in lanes and not entry.dependencies

    def put_back(self, path: Path) -> Path:
        """Return a drop to the inbox, under another name if someone has dropped one of that name meanwhile."""
        target = self._layout.inbox / free_in_inbox(self._layout, path.name, path.is_dir())
        move(path, target, durable=self._durable)
        self._queue.mislead()
        return target

    def folder(self, agent: str) -> str:
        """Where the agent's half-made claims lie."""
        folder = self._made.get(agent)
        if folder is None:
            folder = self._made[agent] = os.path.join(self._layout.claimed, agent)
            os.makedirs(folder, exist_ok=True)
        return folder
