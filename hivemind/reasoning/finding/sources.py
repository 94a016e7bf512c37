"""Where the graphs of tasks lie, and how their files look: without opening one."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from hivemind.layout import Layout
from hivemind.reasoning.history import LOG_NAME

__all__ = ["Source", "source_of", "sources"]


@dataclass(frozen=True, slots=True)
class Source:
    """The log of a task's graph: whose it is, the folder it lies in, and how it looks (`stamp` changes with each write)."""

    task: str
    place: str
    folder: str
    inode: int
    stamp: str

    def is_current(self) -> bool:
        """Whether the file still looks so."""
        return _source(os.path.dirname(self.folder), self.task) == self


def sources(layout: Layout) -> dict[str, Source]:
    """The graph of every task that has one, by task. Costs a stat for each task.

    A task that is moved on meanwhile may be missed: `source_of` tells whether one is really gone.
    """
    found = {}
    for place in _places(layout):
        for name in sorted(_listed(place)):
            source = _source(place, name)
            if source is not None:
                found[name] = source
    return found


def source_of(layout: Layout, task: str) -> Source | None:
    """The graph of one task, wherever that lies; None if it has none."""
    found = [source for place in _places(layout) if (source := _source(place, task)) is not None]
    return found[-1] if found else None


def _places(layout: Layout) -> list[str]:
    """Where tasks lie, in the order of their lives: who moves on while we look is seen further on."""
    return [os.fspath(place) for place in (layout.inbox, layout.active, layout.done, layout.failed)]


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _source(place: str, name: str) -> Source | None:
    """The graph in the folder of that name; None where there is none, or nothing was ever written to it."""
    if name.startswith(".") or "/" in name or "\0" in name or not _is_text(name):
        return None
    folder = f"{place}/{name}"
    try:
        found = os.lstat(f"{folder}/{LOG_NAME}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    stamp = f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"
    return Source(name, os.path.basename(place), folder, found.st_ino, stamp)


def _is_text(name: str) -> bool:
    """Whether a name can be told: no task of that name can be asked for, if its bytes are no UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
