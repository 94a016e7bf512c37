"""The doctor's findings and their fixes, the folder for files that are set aside, and checks that all rooms share.

The checks are of the locks and temporary files that killed processes leave behind.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from hivemind.frozen import frozen
from hivemind.fs.atomic import TEMPORARY_PREFIX, move
from hivemind.fs.locks import Lock, is_on_this_machine
from hivemind.fs.paths import unused_path
from hivemind.layout import Layout

_WRITER = re.compile(re.escape(TEMPORARY_PREFIX) + r"(\d+)-\d+")
_OLD_S = 3600.0  # a write takes moments; an hour allows for a suspended machine and for writers on other machines

Fix = Callable[[], str]
"""Fixes one finding and returns a sentence about it. Raises UserError or OSError, and then leaves everything unchanged."""


@frozen
class DoctorFinding:
    """A problem in a hive, found by the check named `check`.

    * `location`: the file; `message`: the problem and its consequence; `remedy`: how a person can fix it.
    * `fix`: fixes the problem; None if only a person can.
    * `quiet`: no process of the hive may run during the fix.
    * `note`: True for a mere remark: the hive is healthy. The `fix` of a note removes harmless litter.
    """

    location: Path | str
    message: str
    remedy: str = ""
    fix: Fix | None = field(default=None, compare=False)
    quiet: bool = False
    note: bool = False
    check: str = ""


class Aside:
    """The folder `.hive/aside/<date>/`. Fixes move files there, under their path in the hive, instead of deleting them."""

    __slots__ = ("_folder", "_layout")

    def __init__(self, layout: Layout, now: float) -> None:
        self._layout = layout
        self._folder = layout.aside / datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")

    def finding(
        self, path: Path, message: str, remedy: str = "hivemind doctor --fix sets it aside", **fields: Any
    ) -> DoctorFinding:
        """Return a finding about a file or folder, with a fix that sets it aside. `fields` are other fields of the finding."""
        return DoctorFinding(path, message, remedy, partial(self.set_aside, path), **fields)

    def set_aside(self, path: Path) -> str:
        """Move a file or folder aside. Return a sentence with its new path. Raises OSError."""
        target = self._target(path)
        move(path, target)
        return f"set aside as {self._layout.relative(target)}"

    def copy(self, path: Path) -> str:
        """Copy a file aside. Return a sentence with the copy's path. Raises OSError."""
        target = self._target(path)
        shutil.copy2(path, target)
        return f"the previous version is kept as {self._layout.relative(target)}"

    def _target(self, path: Path) -> Path:
        target = unused_path(self._folder / self._layout.relative(path).lstrip("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def list_folder(folder: Path) -> list[Path]:
    """Return the paths in a folder, sorted; [] if it is unreadable, which the check of folders reports."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def check_locks(folder: Path) -> Iterator[DoctorFinding]:
    """Find locks of a dead holder on this machine that a child of the holder still keeps.

    An unlocked lock file is normal: the system releases a lock when its holder dies, and the file stays.
    """
    for path in list_folder(folder):
        if path.suffix != ".lock" or not path.is_file():
            continue
        holder = Lock(path).holder() or {}
        pid = holder.get("pid")
        if isinstance(pid, int) and pid > 0 and is_on_this_machine(holder) and not _is_running(pid):
            message = f"belongs to process {pid}, which has died; a child process still has the lock"
            yield DoctorFinding(path, message, f"find that process with fuser -v {path}; the lock ends with it")


def check_temporary(path: Path, aside: Aside, now: float, *, on_shared_filesystem: bool) -> Iterator[DoctorFinding]:
    """Yield a finding if the `.tmp-*` file `path` is an hour old, or if its writer on this machine has died.

    With `on_shared_filesystem` the writer may be on another machine, so only the age counts.
    """
    writer = _WRITER.fullmatch(path.name)
    try:
        if writer and (
            now - path.lstat().st_mtime > _OLD_S or (not on_shared_filesystem and not _is_running(int(writer[1])))
        ):
            message = "is a partial file, left by a crash; the file that was to be replaced is unchanged"
            yield aside.finding(path, message, note=True)
    except FileNotFoundError:  # its writer has just finished
        pass


def _is_running(pid: int) -> bool:
    """Check whether a process of this machine has that PID."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
