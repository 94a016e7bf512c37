"""Whose turn it is to write: one writer at a time, and nobody waits for ever (spec 3, *Journal*).

A bare flock is fast and unfair: who has just released it takes it again before a waiter has woken. Here a writer may
do so for half a millisecond only; then it queues behind a second lock, which the next in line holds while it waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from hivemind.fs import open_own
from hivemind.fs.flocks import lock, try_lock, unlock

__all__ = ["Turn"]

_QUANTUM_S = 0.0005


class Turn:
    """An exclusive lock between processes, released by the operating system when its holder dies. Not re-entrant."""

    __slots__ = ("_line", "_lock", "_since")

    def __init__(self, folder: str) -> None:
        self._lock = open_own(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT)
        self._line = open_own(os.path.join(folder, "line"), os.O_RDWR | os.O_CREAT)
        self._since = 0.0

    def acquire(self, meanwhile: Callable[[], object]) -> None:
        """Wait for the turn. `meanwhile` is called once where there is a wait: what it does need not be done later."""
        if time.monotonic() - self._since < _QUANTUM_S and try_lock(self._lock):
            return
        lock(self._line)
        try:
            if not try_lock(self._lock):
                meanwhile()
                lock(self._lock)
        finally:
            unlock(self._line)
        self._since = time.monotonic()

    def release(self) -> None:
        unlock(self._lock)

    def close(self) -> None:
        os.close(self._lock)
        os.close(self._line)
