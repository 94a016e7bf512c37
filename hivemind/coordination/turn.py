"""Whose turn it is to write: one writer at a time, and nobody waits for ever (spec 3, *Journal*).

A bare flock is fast and unfair: who has just released it takes it again before a waiter has woken. Here a writer may
do so for half a millisecond only; then it queues behind a second lock, which the next in line holds while it waits.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable

__all__ = ["Turn"]

_QUANTUM_S = 0.0005
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Turn:
    """An exclusive lock between processes, released by the operating system when its holder dies. Not re-entrant."""

    __slots__ = ("_line", "_lock", "_since")

    def __init__(self, folder: str) -> None:
        self._lock = os.open(os.path.join(folder, "lock"), _FLAGS, 0o644)
        self._line = os.open(os.path.join(folder, "line"), _FLAGS, 0o644)
        self._since = 0.0

    def acquire(self, meanwhile: Callable[[], object]) -> None:
        """Wait for the turn. `meanwhile` is called once where there is a wait: what it does need not be done later."""
        if time.monotonic() - self._since < _QUANTUM_S:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass  # someone was faster: stand in line
        fcntl.flock(self._line, fcntl.LOCK_EX)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                meanwhile()
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._line, fcntl.LOCK_UN)
        self._since = time.monotonic()

    def release(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._lock)
        os.close(self._line)
