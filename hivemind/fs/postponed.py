"""Flushes of folders and shared logs, and looks at logs just read, that a thread postpones while it works by rule.

The thread flushes before it makes anything else durable and before it acts outside. After a power cut an event is therefore
on disk whenever one of its consequences is. A reader in another process flushes what it reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager


class _Work(threading.local):
    is_on = False
    moment = 0  # rises when others may have written

    def __init__(self) -> None:
        self.flushes: dict[Hashable, Callable[[], object]] = {}  # by folder; that of the log has the key None


_work = _Work()


@contextmanager
def postponing(*, is_on: bool = True) -> Iterator[None]:
    """Postpone this thread's flushes and looks at logs, at most until the block ends. With `is_on=False`, do not postpone
    them in the block."""
    outer, _work.is_on = _work.is_on, is_on
    try:
        if is_on:
            _work.moment += 1
        else:
            flush_postponed()
        yield
    finally:
        _work.is_on = outer
        if not outer:
            flush_postponed()


def postpone(flush: Callable[[], object], folder: Hashable = None) -> None:
    """Call `flush` at once or, within `postponing`, in the next `flush_postponed`. It replaces a postponed flush of the
    same folder."""
    if _work.is_on:
        _work.flushes[folder] = flush
    else:
        flush()


def is_postponed(folder: Hashable) -> bool:
    return folder in _work.flushes


def flush_postponed() -> None:
    """Flush the folders, then the log: an event may name a file. An error is raised, and the flush stays due.

    Called before each durable write and outside act.
    """
    _work.moment += 1
    for folder in sorted(_work.flushes, key=lambda folder: folder is None):
        _work.flushes[folder]()
        del _work.flushes[folder]


def current_moment() -> int | None:
    """Return a number that changes when the thread flushes, waits or writes a log; None outside of `postponing`."""
    return _work.moment if _work.is_on else None


def next_moment() -> int | None:
    """Return the number of a new moment, for a log that the thread has just written."""
    _work.moment += 1
    return current_moment()
