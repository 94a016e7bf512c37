"""Find out which files are open for writing, how exact time stamps are, and which file systems hide changes by other machines."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import time
from contextlib import suppress
from datetime import datetime

from hivemind.pattern import pattern


def is_timestamp_reliable(changed_ns: int, now_ns: int | None = None) -> bool:
    """Check that a file changed from now on would get another time stamp than `changed_ns`, because the clock has ticked since.

    `now_ns` defaults to the current time. Both are in nanoseconds since 1970.
    """
    tick_ns = 2_000_000_000 if changed_ns % 1_000_000_000 == 0 else 20_000_000
    return (time.time_ns() if now_ns is None else now_ns) - changed_ns > tick_ns


def is_settled(path: str | os.PathLike[str] | int, settle_ms: float, now: datetime | float) -> bool:
    """Check that no process has the file open for writing or, if that is unknown, that it is unchanged for `settle_ms`.

    `path` may be an open file descriptor, which stays open. `now` is the wall clock (an aware datetime, or seconds since the
    epoch). Return False for a missing file. An empty file must always be unchanged for `settle_ms`: its writer may have created
    it and not opened it yet. For a time stamp in the future (a clock set back, or a server's clock ahead), sleep `settle_ms`
    and check that the file stayed the same.
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
    status = os.fstat(path)
    if stat.S_ISREG(status.st_mode):
        has_no_writer = _has_no_writer(path)
        if has_no_writer is False or (has_no_writer and status.st_size):
            return has_no_writer
    return _is_at_rest(path, status, settle_ms / 1000, now.timestamp() if isinstance(now, datetime) else now)


def _has_no_writer(file: int) -> bool | None:
    """Check, by a read lease, that no process has the file open for writing. Return None if leases are not supported."""
    try:
        _take_lease(file)
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def _take_lease(file: int) -> None:
    # If a writer opens the file in the next microseconds, the kernel sends a signal. The default, SIGIO, would end the
    # process; SIGURG is ignored by default.
    fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)


def _is_at_rest(file: int, status: os.stat_result, settle_s: float, now: float) -> bool:
    age = now - status.st_mtime
    if age >= 0:
        return age >= settle_s
    time.sleep(settle_s)
    later_status = os.fstat(file)
    return (later_status.st_size, later_status.st_mtime_ns) == (status.st_size, status.st_mtime_ns)


# On these file systems another machine (or the host) can make changes, which inotify does not report.
_REMOTE = pattern(
    r"nfs\d*|cifs|smb\d*|smbfs|fuse(?:\..+)?|9p|afs|ceph|glusterfs|lustre|gpfs|beegfs|ocfs2|gfs2|ncpfs|virtiofs|"
    r"vboxsf|vmhgfs|drvfs|davfs|coda|orangefs"
)
_ESCAPE = pattern(r"\\([0-7]{3})")


def mounts(table_path: str = "/proc/self/mountinfo") -> list[tuple[str, str]]:
    """Return (mount point, file system type) of all mounts; [] if the table is unreadable."""
    mount_types = []
    with suppress(OSError), open(table_path, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            mount_fields, _, type_fields = line.partition(" - ")
            point = _ESCAPE.sub(lambda octal: chr(int(octal.group(1), 8)), mount_fields.split(" ")[4])
            mount_types.append((point, type_fields.split(" ")[0]))
    return mount_types


def needs_polling(folder: str | os.PathLike[str], mount_types: list[tuple[str, str]]) -> str | None:
    """Return the type of the remote file system that contains `folder`, or None if it is local or unknown."""
    real = os.path.realpath(folder)
    best_point, best_type = "", ""
    for point, filesystem_type in mount_types:
        if len(point) >= len(best_point) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best_point, best_type = point, filesystem_type
    return best_type if _REMOTE.fullmatch(best_type) else None
