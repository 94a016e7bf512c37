"""Postpone a thread's flushes (of folders and of the journal), and its checks whether a log that it has just read has grown.

Within `postponing`, these wait until the thread makes another durable write or has an effect outside the hive. So after a power
cut each event is on disk if any consequence of it is. A reader in another process flushes what it reads.
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
    """Call `flush` at once or, within `postponing`, in the next `flush_postponed`.

    `folder` identifies the folder that it flushes; None means the journal. A newer flush replaces the older one of that folder.
    """
    if _work.is_on:
        _work.flushes[folder] = flush
    else:
        flush()


def is_postponed(folder: Hashable) -> bool:
    return folder in _work.flushes


def flush_postponed() -> None:
    """Run the postponed flushes: first of the folders, then of the journal, because an event may name a file.

    Called before each durable write and each effect outside the hive. After an error, that flush and the later ones stay due.
    """
    _work.moment += 1
    for folder in sorted(_work.flushes, key=lambda folder: folder is None):
        _work.flushes[folder]()
        del _work.flushes[folder]


def current_moment() -> int | None:
    """Return a number that changes when this thread flushes or writes a log, or None outside of `postponing`.

    While the number is the same, a log that was read need not be read again.
    """
    return _work.moment if _work.is_on else None


def next_moment() -> int | None:
    """Note that this thread has written a log. Return the new `current_moment`, None outside of `postponing`."""
    _work.moment += 1
    return current_moment()
