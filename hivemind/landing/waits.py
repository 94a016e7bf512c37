"""Waits: the reason why a task does not land now, and the time of the next try."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hivemind.errors import HivemindError
from hivemind.landing.checkout import checkout_signature
from hivemind.landing.queue import Queue, QueuedTask
from hivemind.landing.target import Target
from hivemind.taskrun.landing_entry import LandingEntry

_log = logging.getLogger(__name__)
_LOOK_S = 2.0  # between two looks at a checkout that an entry waits for


@dataclass(slots=True)
class _Wait:
    """A task's wait to land. It ends when the `signature` changes or, without a signature, at the monotonic time `again`. It ends
    at once if somebody changes the `entry`."""

    entry: LandingEntry
    signature: object
    path: Path | None
    again: float

    def is_over(self, targets: Sequence[Target]) -> bool:
        """Check whether the task may be tried again: a checkout has changed, or the time has come. Checkouts are looked at every
        two seconds at most."""
        if (now := time.monotonic()) < self.again:
            return False
        self.again = now + _LOOK_S
        return self.signature is None or self.signature != signatures(targets, self.path)


class Waits:
    """The tasks of a queue that were tried, and wait for a change or a time."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waits: dict[str, _Wait] = {}

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._waits

    @property
    def next_look(self) -> float:
        """The monotonic time of the next look; may be infinite."""
        return min((wait.again for wait in self._waits.values()), default=float("inf"))

    def prune(self, ids: Collection[str]) -> None:
        """Forget the tasks that are not in the queue any more."""
        self._waits = {task_id: wait for task_id, wait in self._waits.items() if task_id in ids}

    def add(
        self,
        queued: QueuedTask,
        reason: str,
        *,
        signature: object = None,
        path: Path | None = None,
        retry_s: float = _LOOK_S,
    ) -> None:
        """Record that a task waits for `reason`. It waits until the `signature` of its targets' checkouts (and of the file
        `path`) changes or, without a signature, for `retry_s` seconds."""
        try:
            queued = self._queue.wait(queued, reason)
        except (HivemindError, OSError) as error:
            _log.warning("task %s waits to land (%s), and its record cannot be written: %s", queued.id, reason, error)
        self._waits[queued.id] = _Wait(queued.entry, signature, path, time.monotonic() + retry_s)

    def is_waiting(self, queued: QueuedTask, targets: Sequence[Target]) -> bool:
        """Check whether a task still waits. The wait is over early if a person has changed the task's entry."""
        wait = self._waits.get(queued.id)
        if wait is not None and wait.entry == queued.entry and not wait.is_over(targets):
            return True
        self._waits.pop(queued.id, None)
        return False


def signatures(targets: Sequence[Target], path: Path | None) -> list[object]:
    """Return a value that changes with the targets' checkouts, and with the file that a landing waits for."""
    return [checkout_signature(target.repository, path) for target in targets]
