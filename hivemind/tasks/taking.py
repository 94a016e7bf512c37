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

from hivemind.fs import fsync_folder, make_folder, move, reached
from hivemind.layout import Layout
from hivemind.tasks.board import lanes_of
from hivemind.tasks.drops import UNTRUSTED, read_open
from hivemind.tasks.entry import Entry, entry_of
from hivemind.tasks.ids import free_in_inbox
from hivemind.tasks.inbox import Inbox
from hivemind.tasks.queue import Queue
from hivemind.tasks.task import TaskProblem

__all__ = ["Rename", "Taken", "Taking", "rename"]

Rename = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """A drop that an agent has claimed: stage 1. `raw` are the bytes of a file; None for a folder, and for a drop that
    is no text at all."""

    agent: str
    name: str
    path: str
    raw: bytes | None
    doom: str | None = None

    def is_folder(self) -> bool:
        return os.path.isdir(self.path) and not os.path.islink(self.path)


def rename(source: str, target: str) -> None:
    """Rename to a name that nothing has. Raises FileNotFoundError if the source is gone, FileExistsError."""
    move(source, target, durable=False)


class Taking:
    """Takes drops out of one inbox. `rename` is there for the test in which an answer gets lost."""

    def __init__(
        self, layout: Layout, inbox: Inbox, queue: Queue, *, max_bytes: int, durable: bool, rename: Rename = rename
    ) -> None:
        self._layout = layout
        self._inbox_path = os.fspath(layout.inbox)
        self._inbox = inbox
        self._queue = queue
        self._max_bytes = max_bytes
        self._durable = durable
        self._rename = rename
        self._made: dict[str, str] = {}
        self._held: set[str] = set()  # what this process took and has not let go: not to be won twice

    def take(self, agent: str, role: str | None) -> Taken | None:
        """Claim the next drop for an agent and read it: exactly one caller gets it. None if there is nothing for it.

        Not durable before stage 2 (or `sync`): a power cut may undo it, and ends whoever made it.
        """
        lanes = lanes_of(agent, role)
        returned: set[str] = set()
        while (entry := self._queue.next(lanes)) is not None:
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
        target = f"{self.folder(agent)}/{entry.name}"
        if not self._won(f"{self._inbox_path}/{entry.name}", target, entry):
            return None
        reached("tasks.claim.taken")
        taken = Taken(agent, entry.name, target, None, entry.doom)
        if entry.folder:
            return taken
        if entry.problem:
            again = self._inbox.entry(target)
            return self._kept(taken, again is not None and (again.problem is not None or _fits(again, entry, lanes)))
        try:
            file = os.open(target, UNTRUSTED)
        except OSError:
            return taken  # a link by now; stage 2 says what is wrong
        try:
            return self._read(file, taken, entry, lanes)
        except TaskProblem:
            return taken
        finally:
            os.close(file)

    def _read(self, file: int, taken: Taken, entry: Entry, lanes: Collection[str] | None) -> Taken | None:
        """What was taken, with its bytes; put back if someone writes it, or has changed who may have it."""
        found: os.stat_result | None = os.fstat(file)
        same = found is not None and entry.of(found)  # as it was at rest, and any change since would show
        if not same:
            found = self._inbox.at_rest(file)
        if found is None:
            return self._kept(taken, False)
        if not stat.S_ISREG(found.st_mode):
            return taken
        raw = read_open(file, found, entry.name, self._max_bytes)
        read = Taken(taken.agent, taken.name, taken.path, raw, taken.doom)
        return read if same else self._kept(read, _fits(entry_of(entry.name, found, raw, entry.name), entry, lanes))

    def _kept(self, taken: Taken, fits: bool) -> Taken | None:
        if not fits:
            self.put_back(taken.path)
        return taken if fits else None

    def _won(self, source: str, target: str, entry: Entry) -> bool:
        """Rename, and say whether it was this process that did."""
        try:
            self._rename(source, target)
        except FileNotFoundError:
            # Lost, or withdrawn; or done, and the answer got lost on its way from a file server: look.
            if os.path.lexists(target):
                return target not in self._held and os.lstat(target).st_ino == entry.ino
            if not os.path.lexists(source):
                return False
            make_folder(os.path.dirname(target), durable=self._durable)  # someone tidied away the folder itself
            return self._won(source, target, entry)
        self._held.add(target)
        return True

    def let_go(self, taken: Taken) -> None:
        """The drop has left the agent's folder."""
        self._held.discard(taken.path)

    def sync(self, agent: str) -> None:
        """Make what the agent took durable. A rename is one transaction wherever a file system has a journal, so that
        the folder it went to says it all."""
        fsync_folder(self.folder(agent))

    def put_back(self, path: str | Path) -> Path:
        """Return a drop to the inbox, under another name if someone has dropped one of that name meanwhile."""
        while True:
            name = free_in_inbox(self._layout, os.path.basename(path), os.path.isdir(path))
            try:
                move(path, self._layout.inbox / name, durable=self._durable)
            except FileExistsError:
                continue  # dropped under that name this very moment
            self._held.discard(os.fspath(path))
            self._queue.mislead()
            return self._layout.inbox / name

    def folder(self, agent: str) -> str:
        """Where the agent's half-made claims lie."""
        folder = self._made.get(agent)
        if folder is None:
            folder = self._made[agent] = os.path.join(self._layout.claimed, agent)
            make_folder(folder, durable=self._durable)
        return folder


def _fits(now: Entry, entry: Entry, lanes: Collection[str] | None) -> bool:
    """Whether a drop that may have been changed since the board was made is still for whoever takes it: what was
    judged are its dependencies, and its lane unless it was going to fail."""
    same = now.dependencies == entry.dependencies
    return lanes is None or (same and (entry.doom is not None or now.lane in lanes))
