"""The first stage of a claim: one rename decides which agent has a drop (README.md, *A claim*).

`inbox/NAME` becomes `active/.claimed/AGENT/NAME`. A name can be renamed away once only, so that exactly one claimant
gets it, whoever else tries and on whatever file system; nothing is locked and nobody waits.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from hivemind.fs import fsync_folder, make_folder, move, reached
from hivemind.tasks.drop import UNTRUSTED_FLAGS, DropReader, QueuedDrop, Settings, read_open
from hivemind.tasks.folder import free_name
from hivemind.tasks.queue_cache import QueueCache, lanes_of
from hivemind.tasks.task import TaskProblem


class ClaimedDrop(NamedTuple):
    """A drop that an agent has claimed: stage 1. `raw` are the bytes of a file; None for a folder, and for a drop that
    is no text at all."""

    agent: str
    name: str
    path: str
    raw: bytes | None
    dependency_problem: str | None = None

    def is_folder(self) -> bool:
        return os.path.isdir(self.path) and not os.path.islink(self.path)


def rename(source: str, target: str) -> None:
    """Rename to a name that nothing has. Raises FileNotFoundError if the source is gone, FileExistsError."""
    move(source, target, durable=False)


class DropClaims:
    """The drops that agents have taken out of the inbox and made no task of yet."""

    def __init__(self, settings: Settings, reader: DropReader, queue: QueueCache) -> None:
        self._settings = settings
        self._layout = settings.layout
        self._inbox_path = os.fspath(settings.layout.inbox)
        self._reader = reader
        self._queue = queue
        self._durable = settings.durable
        self._agent_folders: dict[str, str] = {}
        self._claimed_paths: set[str] = set()  # what this process took and has not let go: not to be won twice

    def take(self, agent: str, role: str | None = None, lanes: Container[str] | None = None) -> ClaimedDrop | None:
        """Claim the next drop for an agent (or from certain lanes) and read it: exactly one caller gets it. None if there is
        nothing for it.

        Not durable before stage 2 (or `sync`): a power cut may undo it, and ends whoever made it.
        """
        lanes = lanes_of(agent, role, self._settings.local_hives()) if lanes is None else lanes
        returned: set[str] = set()
        while (queued := self._queue.next(lanes)) is not None:
            drop = self.take_drop(agent, queued, lanes)
            if drop is not None:
                return drop
            if queued.name in returned and os.path.lexists(f"{self._inbox_path}/{queued.name}"):
                return None  # put back twice: it is being changed this very moment
            returned.add(queued.name)
        return None

    def take_drop(self, agent: str, queued: QueuedDrop, lanes: Container[str] | None = None) -> ClaimedDrop | None:
        """Claim one certain drop; None if it is gone, half-written, or changed so that it left `lanes`."""
        target = f"{self.folder(agent)}/{queued.name}"
        if not self._rename_drop(f"{self._inbox_path}/{queued.name}", target, queued):
            return None
        reached("tasks.claim.taken")
        drop = ClaimedDrop(agent, queued.name, target, None, queued.dependency_problem)
        if queued.folder:
            return drop
        if queued.problem:
            current_drop = self._reader.drop(target)
            now = None if current_drop is None else current_drop.queued
            return self._confirm(drop, now is not None and (now.problem is not None or _fits(now, queued, lanes)))
        try:
            file = os.open(target, UNTRUSTED_FLAGS)
        except OSError:
            return drop  # a link by now; stage 2 says what is wrong
        try:
            return self._read(file, drop, queued, lanes)
        except TaskProblem:
            return drop
        finally:
            os.close(file)

    def _read(
        self, file: int, drop: ClaimedDrop, queued: QueuedDrop, lanes: Container[str] | None
    ) -> ClaimedDrop | None:
        """What was taken, with its bytes; put back if someone writes it, or has changed who may have it."""
        file_stat: os.stat_result | None = os.fstat(file)
        same = file_stat is not None and queued.is_from(file_stat)  # as it was at rest, and any change since would show
        if not same:
            file_stat = self._reader.at_rest(file)
        if file_stat is None:
            return self._confirm(drop, False)
        if not stat.S_ISREG(file_stat.st_mode):
            return drop
        raw = read_open(file, file_stat, queued.name, self._settings.reader.max_bytes)
        read = drop._replace(raw=raw)
        if same:
            return read
        return self._confirm(read, _fits(self._reader.parse(queued.name, file_stat, raw, queued.name), queued, lanes))

    def _confirm(self, drop: ClaimedDrop, is_fit: bool) -> ClaimedDrop | None:
        if not is_fit:
            self.put_back(drop.path)
        return drop if is_fit else None

    def _rename_drop(self, source: str, target: str, queued: QueuedDrop) -> bool:
        """Rename, and say whether it was this process that did."""
        try:
            self._settings.rename(source, target)
        except PermissionError:
            self._queue.forget(queued.name)  # not this user's to move, which a look at it says
            return False
        except FileNotFoundError:
            # Lost, or withdrawn; or done, and the answer got lost on its way from a file server: look.
            if os.path.lexists(target):
                return target not in self._claimed_paths and os.lstat(target).st_ino == queued.ino
            if not os.path.lexists(source):
                return False
            make_folder(os.path.dirname(target), durable=self._durable)  # someone tidied away the folder itself
            return self._rename_drop(source, target, queued)
        self._claimed_paths.add(target)
        return True

    def sync(self, agent: str) -> None:
        """Make what the agent took durable, and the folder that is to hold it, before anything is made of it: else the
        power could bring the drop back into the inbox beside its own task, or take it along with that folder."""
        if self._durable:
            fsync_folder(self.folder(agent))
            fsync_folder(self._inbox_path)

    def put_back(self, path: str | Path) -> Path:
        """Return a drop to the inbox, under another name if someone has dropped one of that name meanwhile."""
        inbox, name = self._layout.inbox, os.path.basename(path)
        stem, ending = (name, "") if os.path.isdir(path) else os.path.splitext(name)
        while True:
            target = inbox / (free_name(stem, lambda candidate: os.path.lexists(inbox / (candidate + ending))) + ending)
            try:
                move(path, target, durable=self._durable)
            except FileExistsError:
                continue  # dropped under that name this very moment
            self.let_go(path)
            self._queue.mislead()
            return target

    def let_go(self, path: str | Path) -> None:
        """Forget a drop that has left its agent's folder."""
        self._claimed_paths.discard(os.fspath(path))

    def folder(self, agent: str) -> str:
        """Where the agent's half-made claims lie."""
        folder = self._agent_folders.get(agent)
        if folder is None:
            folder = self._agent_folders[agent] = os.path.join(self._layout.claimed, agent)
            make_folder(folder, durable=self._durable)
        return folder


def _fits(now: QueuedDrop, queued: QueuedDrop, lanes: Container[str] | None) -> bool:
    """Whether a drop that may have been changed since the board was made is still for whoever takes it: what was
    judged are its dependencies, and its lane unless it was going to fail."""
    same = now.dependencies == queued.dependencies
    return lanes is None or (same and (queued.dependency_problem is not None or now.lane in lanes))
