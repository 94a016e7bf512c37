"""The first stage of a claim: one rename decides which agent gets a drop (README.md, *A claim*).

`inbox/NAME` becomes `active/.claimed/AGENT/NAME`. A name can be renamed away only once. So exactly one agent gets the
drop, on any file system, without a lock and without waiting.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from hivemind.fs import crash_point, make_folder, move
from hivemind.fs.atomic import fsync_names
from hivemind.tasks.drop import DropReader
from hivemind.tasks.folder import free_name
from hivemind.tasks.queue import QueuedDrop, partitions_of
from hivemind.tasks.queue_cache import QueueCache
from hivemind.tasks.settings import Settings


class ClaimedDrop(NamedTuple):
    """A drop after the first stage of its claim."""

    agent: str
    name: str
    path: str
    file_stat: os.stat_result
    dependency_problem: str | None = None

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.file_stat.st_mode)


def rename(source: str, target: str) -> None:
    """Rename `source` to `target`. Raises FileNotFoundError without the source, FileExistsError if the target exists."""
    move(source, target, durable=False)


class DropClaims:
    """The first stage of a claim: moves drops out of the inbox for agents. Can also move them back."""

    def __init__(self, settings: Settings, reader: DropReader, queue: QueueCache) -> None:
        self._settings = settings
        self._layout = settings.layout
        self._inbox_path, self._claimed_path = os.fspath(settings.layout.inbox), os.fspath(settings.layout.claimed)
        self._reader = reader
        self._queue = queue
        self._claimed_paths: set[str] = set()  # claimed by this process: not to be claimed twice

    def take(self, agent: str, role: str | None = None, partitions: Container[str] | None = None) -> ClaimedDrop | None:
        """Claim the next drop for an agent and read it. Exactly one caller gets each drop. Return None if no drop waits for the
        agent.

        `role` and `partitions` are as for `Claims.claim`. The second stage of the claim, or `sync`, makes it durable. Before
        that, a power cut may undo it.
        """
        partitions = partitions_of(agent, role, self._settings.local_hives()) if partitions is None else partitions
        returned: set[str] = set()
        while (queued := self._queue.next(partitions)) is not None:
            drop = self.take_drop(agent, queued, partitions)
            if drop is not None:
                return drop
            if queued.name in returned and os.path.lexists(f"{self._inbox_path}/{queued.name}"):
                return None  # put back twice: it is being changed
            returned.add(queued.name)
        return None

    def take_drop(self, agent: str, queued: QueuedDrop, partitions: Container[str] | None = None) -> ClaimedDrop | None:
        """Claim the drop `queued`. Return None if it is gone, half-written, or now in a part of the queue that is not in
        `partitions`.
        """
        target = f"{self._claimed_path}/{agent}/{queued.name}"
        if not self._rename_drop(f"{self._inbox_path}/{queued.name}", target, queued):
            return None
        crash_point("tasks.claim.taken")
        file_stat = os.lstat(target)
        if not queued.folder and (queued.problem or not queued.is_from(file_stat)):  # changed since it was at rest
            drop = self._reader.drop(target)
            now = None if drop is None else drop.queued
            if now is None or not (now.problem or _fits(now, queued, partitions)):
                self.put_back(target)
                return None
        return ClaimedDrop(agent, queued.name, target, file_stat, queued.dependency_problem)

    def _rename_drop(self, source: str, target: str, queued: QueuedDrop) -> bool:
        """Rename a drop. Return False if another process was faster, or if this user lacks the right to move the drop."""
        try:
            self._settings.rename(source, target)
        except PermissionError:
            self._queue.forget(queued.name)  # this user must not move it; reading it again reports that
            return False
        except FileNotFoundError:
            # Another process was faster, or the drop was deleted; or a file server's answer to a successful rename was lost.
            if os.path.lexists(target):
                return target not in self._claimed_paths and os.lstat(target).st_ino == queued.ino
            if not os.path.lexists(source):
                return False
            make_folder(os.path.dirname(target))  # the agent's first claim
            return self._rename_drop(source, target, queued)
        self._claimed_paths.add(target)
        return True

    def sync(self, agent: str) -> None:
        """Make the agent's claims and their folder durable before tasks are made of them.

        Without this, a power cut could return a drop to the inbox while its task exists, or lose the drop together with the
        agent's folder.
        """
        fsync_names(f"{self._claimed_path}/{agent}")

    def put_back(self, path: str | Path) -> Path:
        """Move a drop or a task back to the inbox and return its path. A number is added to a name that was taken meanwhile."""
        inbox, name = self._layout.inbox, os.path.basename(path)
        stem, ending = (name, "") if os.path.isdir(path) else os.path.splitext(name)
        while True:
            target = inbox / (free_name(stem, lambda candidate: os.path.lexists(inbox / (candidate + ending))) + ending)
            try:
                move(path, target)
            except FileExistsError:
                continue  # the name was taken meanwhile
            self.let_go(path)
            self._queue.invalidate()
            return target

    def let_go(self, path: str | Path) -> None:
        self._claimed_paths.discard(os.fspath(path))


def _fits(current: QueuedDrop, queued: QueuedDrop, partitions: Container[str] | None) -> bool:
    """Check that an agent may still claim a drop, which was `queued` when the queue was built and is `current` now.

    Its dependencies must be unchanged, and its partition must be in `partitions`. A drop whose dependencies cannot be met fails
    when it is claimed, so its partition does not matter.
    """
    same = current.dependencies == queued.dependencies
    return partitions is None or (same and (queued.dependency_problem is not None or current.partition in partitions))
