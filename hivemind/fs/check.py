"""What a check of a store found, how it is put right, and where the doctor puts what is in the way; and the checks of what
processes leave behind when they are killed: locks, doorbells, temporary files of writes."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from hivemind.frozen import frozen
from hivemind.fs.atomic import TEMPORARY_PREFIX, move
from hivemind.fs.locks import Lock, is_here
from hivemind.fs.paths import free_place
from hivemind.layout import Layout

_WRITER = re.compile(re.escape(TEMPORARY_PREFIX) + r"(\d+)-\d+-\d+")
_OLD_S = 3600.0  # a write takes moments; an hour covers a machine that slept, and writers on other machines

Fix = Callable[[], str]
"""Puts one thing right and says what was done. Raises UserError or OSError, and then the thing is as it was."""


@frozen
class Finding:
    """`where` is the file, `what` says what is wrong and what follows from it, `mend` how to mend it.

    `fix` mends it (None: only a person can). `quiet` says that nothing of the hive may be running meanwhile. A `note` is
    worth knowing and need not be mended: with notes alone a hive is healthy. One with a `fix` is litter, which does no harm
    and can be tidied away. `check` is the name of the check that found it.
    """

    where: Path | str
    what: str
    mend: str = ""
    fix: Fix | None = field(default=None, compare=False)
    quiet: bool = False
    note: bool = False
    check: str = ""


class Aside:
    """`.hive/aside/<date>/`: each file set aside keeps the path that it had in the hive. Nothing is deleted."""

    __slots__ = ("_folder", "_layout")

    def __init__(self, layout: Layout, now: float) -> None:
        self._layout = layout
        self._folder = layout.aside / datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")

    def finding(self, path: Path, what: str, mend: str = "hivemind doctor --fix sets it aside", **more: Any) -> Finding:
        """A finding whose fix sets the file or folder aside."""
        return Finding(path, what, mend, partial(self.take, path), **more)

    def take(self, path: Path) -> str:
        """Move a file or folder there; returns the sentence that says so. Raises OSError."""
        target = self._place(path)
        move(path, target)
        return f"set aside as {self._layout.relative(target)}"

    def copy(self, path: Path) -> str:
        """Put a copy of a file there; returns the sentence that says so. Raises OSError."""
        target = self._place(path)
        shutil.copy2(path, target)
        return f"as it was it is kept as {self._layout.relative(target)}"

    def _place(self, path: Path) -> Path:
        place = free_place(self._folder / self._layout.relative(path).lstrip("/"))
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


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
