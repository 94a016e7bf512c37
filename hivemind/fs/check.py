"""What processes leave behind when they are killed: locks, doorbells, temporary files of writes."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hivemind.fs.atomic import TEMPORARY_PREFIX
from hivemind.fs.finding import Aside, Finding
from hivemind.fs.locks import Lock, is_here

__all__ = ["check_doorbells", "check_locks", "check_temporary", "listed"]

_WRITER = re.compile(re.escape(TEMPORARY_PREFIX) + r"(\d+)-\d+-\d+")
_OLD_S = 3600.0  # a write takes moments; an hour covers a machine that slept, and writers on other machines


def listed(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; nothing of one that cannot be read, which the check of folders tells."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def check_locks(folder: Path) -> Iterator[Finding]:
    """Locks held for a process of this machine that is not there: by a child that outlived it.

    A lock's file that nobody holds is ordinary: the system lets go of a lock when its holder dies, the file stays.
    """
    for path in listed(folder):
        if path.suffix != ".lock" or not path.is_file():
            continue
        record = Lock(path).holder() or {}
        pid = record.get("pid")
        if isinstance(pid, int) and pid > 0 and is_here(record) and not _lives(pid):
            what = f"is held for process {pid}, which does not live any more: a child of its has it"
            yield Finding(path, what, f"find who has it open with: fuser -v {path}; the lock ends with that process")


def check_doorbells(folder: Path) -> Iterator[Finding]:
    """Sockets that nobody listens at."""
    for path in listed(folder):
        if stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
            what = "is the doorbell of a process that was killed; nobody hears it, and it does no harm"
            yield Finding(path, what, "hivemind doctor --fix removes it", partial(_remove, path), note=True)


def check_temporary(path: Path, aside: Aside, now: float, *, shared: bool) -> Iterator[Finding]:
    """A file `.tmp-*` whose writer is gone, or that is an hour old; on a `shared` file system its writer may be elsewhere."""
    writer = _WRITER.fullmatch(path.name)
    try:
        if writer and (now - path.lstat().st_mtime > _OLD_S or (not shared and not _lives(int(writer[1])))):
            what = "is what a crash left of a file that was being written; the file itself is as it was before"
            yield aside.finding(path, what, note=True)
    except FileNotFoundError:  # its writer has just finished
        pass


def _lives(pid: int) -> bool:
    """Whether this machine has a process of that number now."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _answers(path: Path) -> bool:
    """Whether a process listens there; connecting rings no bell."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
        except OSError as error:
            return error.errno != errno.ENOENT
    return True


def _remove(path: Path) -> str:
    if _answers(path):
        return "left alone: somebody listens there again"
    path.unlink(missing_ok=True)
    return "removed"
