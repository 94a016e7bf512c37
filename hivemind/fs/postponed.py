"""Postpone a thread's flushes of folders and shared logs, and its checks for new records in logs that it has just read.

A thread does so while it works by fixed rules. It flushes before any other durable write and before an act outside the hive.
After a power cut an event is therefore on disk whenever one of its consequences is. A reader in another process flushes what it
reads.
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
    """Postpone this thread's flushes and checks for new records, at most until the block ends.

    With `is_on=False`, flush now and postpone nothing in the block.
    """
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
    """Call `flush` at once or, within `postponing`, in the next `flush_postponed`. A folder's newer flush replaces its older one.

    Without `folder`, it is the flush of the log.
    """
    if _work.is_on:
        _work.flushes[folder] = flush
    else:
        flush()


def is_postponed(folder: Hashable) -> bool:
    return folder in _work.flushes


def flush_postponed() -> None:
    """Run the postponed flushes: first of the folders, then of the log, because an event may name a file.

    Called before each durable write and each act outside the hive. An error is raised; its flush and the later ones stay due.
    """
    _work.moment += 1
    for folder in sorted(_work.flushes, key=lambda folder: folder is None):
        _work.flushes[folder]()
        del _work.flushes[folder]


def current_moment() -> int | None:
    """Return a number that changes when the thread flushes or writes a log. While it is the same, no log need be read again.

    Return None outside of `postponing`.
    """
    return _work.moment if _work.is_on else None


def next_moment() -> int | None:
    """Change the current moment after the thread has written a log. Return the new number, None outside of `postponing`."""
    _work.moment += 1
    return current_moment()
