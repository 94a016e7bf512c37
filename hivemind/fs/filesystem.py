"""What file systems tell of changes: whether a writer is done, what a time stamp says, whether one elsewhere is seen."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import stat
import time
from contextlib import suppress
from datetime import datetime


def time_tells(changed_ns: int, now_ns: int | None = None) -> bool:
    """Whether a change after this one shows in the time stamp: within a tick of the file system's clock it would not."""
    tick_ns = 2_000_000_000 if changed_ns % 1_000_000_000 == 0 else 20_000_000
    return (time.time_ns() if now_ns is None else now_ns) - changed_ns > tick_ns


def is_settled(path: str | os.PathLike[str] | int, settle_ms: float, now: datetime | float) -> bool:
    """True if no writer has the file open, or, where that cannot be known, if it has rested for `settle_ms`.

    `path` may be an open file descriptor, which stays open. `now` is the wall clock (aware datetime, or seconds since
    the epoch). False for a file that is gone. An empty file
    must rest even if a lease is granted: it was made a moment before it will be opened for writing.
    A time stamp in the future (a clock set back, a server whose clock is ahead) cannot keep a file unread for ever:
    this call then waits `settle_ms` itself and compares.
    """
    if not isinstance(path, int):
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return is_settled(file, settle_ms, now)
        finally:
            os.close(file)
    found = os.fstat(path)
    if stat.S_ISREG(found.st_mode):
        free = _nobody_writes(path)
        if free is False or (free and found.st_size):
            return free
    return _rests(path, found, settle_ms / 1000, now.timestamp() if isinstance(now, datetime) else now)


def _nobody_writes(file: int) -> bool | None:
    """Whether the kernel grants a read lease; None where it has no leases for this file."""
    try:
        _take_lease(file)
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def _take_lease(file: int) -> None:
    # Should a writer open the file in the next microseconds, the kernel signals us: by default with SIGIO, which would
    # end the process. SIGURG is ignored unless someone asks for it.
    fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)


def _rests(file: int, found: os.stat_result, settle_s: float, now: float) -> bool:
    age = now - found.st_mtime
    if age >= 0:
        return age >= settle_s
    time.sleep(settle_s)
    again = os.fstat(file)
    return (again.st_size, again.st_mtime_ns) == (found.st_size, found.st_mtime_ns)


# A mount by one of these shows changes that another machine (or the host) made, and inotify does not report them.
_REMOTE = re.compile(
    r"nfs\d*|cifs|smb\d*|smbfs|fuse(?:\..+)?|9p|afs|ceph|glusterfs|lustre|gpfs|beegfs|ocfs2|gfs2|ncpfs|virtiofs|"
    r"vboxsf|vmhgfs|drvfs|davfs|coda|orangefs"
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def mounts(table: str = "/proc/self/mountinfo") -> list[tuple[str, str]]:
    """(mount point, type of file system) of all that is mounted; empty where no descriptor is left to read it with."""
    found = []
    with suppress(OSError), open(table, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            point = _ESCAPE.sub(lambda octal: chr(int(octal.group(1), 8)), left.split(" ")[4])
            found.append((point, right.split(" ")[0]))
    return found


def needs_polling(folder: str | os.PathLike[str], mounted: list[tuple[str, str]]) -> str | None:
    """The type of the remote file system that `folder` lies on, or None if it is local (or cannot be told)."""
    real = os.path.realpath(folder)
    best, kind = "", ""
    for point, found in mounted:
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, kind = point, found
    return kind if _REMOTE.fullmatch(kind) else None
