"""Whole-file locks of an open file, on file systems with BSD locks and on those with POSIX locks only (spec 3).

Both kinds here belong to the open file and end with it: flock, and where a file system knows none of that, Linux's open
file description locks, which a server of POSIX locks understands. Never lockf: it would end with any other descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

__all__ = ["lock", "try_lock", "unlock"]

_NO_FLOCK = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def lock(file: int) -> None:
    """Wait until this open file holds the lock. Raises OSError where there are no locks at all."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        _ofd(file, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK)


def try_lock(file: int) -> bool:
    """Take the lock if nobody holds it; says whether."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        try:
            _ofd(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)
        except (BlockingIOError, PermissionError):  # POSIX leaves either open
            return False
    return True


def unlock(file: int) -> None:
    """Let go of the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_UN)
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        _ofd(file, fcntl.F_OFD_SETLK, fcntl.F_UNLCK)


def _ofd(file: int, command: int, kind: int) -> None:
    fcntl.fcntl(file, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))  # struct flock of 64-bit Linux
