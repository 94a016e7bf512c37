"""What must be known of a waiting task to put it in order: its entry, read from the head of its file."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from hivemind.errors import UserError
from hivemind.tasks.drops import id_of
from hivemind.tasks.folder import dropped_text
from hivemind.tasks.form import DEFAULT_PRIORITY, TextReader, is_yaml
from hivemind.tasks.record import load

__all__ = ["Entry", "entry_of", "failing_entry", "folder_entry", "tick_of"]


class Entry(NamedTuple):
    """One waiting task. `ino`, `mtime_ns` and `size` say which file or folder this was read from; a size of UNKNOWN
    that it had been written so recently that another change might not show in its time: it is then read again.

    `given` is the id if its author wrote one. `problem` says what is wrong with the file, `doom` what is
    wrong with its dependencies as things stand; with either the task fails when it is claimed.
    """

    name: str
    ino: int
    mtime_ns: int
    size: int
    folder: bool
    given: str | None = None
    priority: int = DEFAULT_PRIORITY
    assignee: str | None = None
    role: str | None = None
    dependencies: tuple[str, ...] = ()
    problem: str | None = None
    doom: str | None = None

    def row(self) -> tuple[object, ...]:
        """The fields, without those at the end that have their default: what most tasks need not be told."""
        return self[:5] if self[5:] == _DEFAULTS else self

    def of(self, found: os.stat_result) -> bool:
        """Whether this was read from that file as it is now."""
        return (self.ino, self.mtime_ns, self.size) == (found.st_ino, found.st_mtime_ns, found.st_size)

    @property
    def id(self) -> str:
        """The id that the task will have if nothing else has it."""
        return self.given or id_of(self.name, self.folder)

    @property
    def lane(self) -> str:
        """Who may claim it: `assignee/role`; a task that is going to fail may be claimed by anyone."""
        return "/" if self.problem or self.doom else f"{self.assignee or ''}/{self.role or ''}"

    @property
    def order(self) -> tuple[int, int, str]:
        """Highest priority first, then oldest, then by name."""
        return (self.priority, self.mtime_ns, self.name)


UNKNOWN = -1
_DEFAULTS = Entry("", 0, 0, 0, False)[5:]


def entry_of(name: str, found: os.stat_result, raw: bytes, text: str, reader: TextReader) -> Entry:
    """The entry that a task's bytes give. `text` is the name of the file that they are from. Raises TaskProblem."""
    here = _here(name, found)
    if not is_yaml(text) and not raw.startswith((b"---", b"\xef\xbb\xbf")):
        return Entry(*here)  # no front matter: the rest is looked at when it is claimed
    form = reader.read(raw, text, found).form
    return Entry(*here, form.id, form.priority, form.assignee, form.role, form.dependencies)


def folder_entry(path: str, name: str, found: os.stat_result, reader: TextReader) -> Entry:
    """The entry of a dropped folder. Raises FileNotFoundError if it is gone."""
    try:
        record = load(Path(path))
        raw, text, _ = dropped_text(Path(path), record, reader.max_bytes)
        entry = entry_of(name, found, raw, text, reader)
        handed = None if record is None else record.handed
        return entry if handed is None else entry._replace(assignee=handed.to, role=handed.role)
    except UserError as problem:
        return failing_entry(name, found, str(problem))


def failing_entry(name: str, found: os.stat_result, problem: str = "is no regular file") -> Entry:
    """The entry of a drop that cannot become a task."""
    return Entry(*_here(name, found), problem=problem)


def tick_of(time_ns: int) -> int:
    """How far two changes lie apart, at most, that a file system gives the same time: nanoseconds."""
    return 2_000_000_000 if time_ns % 1_000_000_000 == 0 else 20_000_000


def _here(name: str, found: os.stat_result) -> tuple[str, int, int, int, bool]:
    time_ns = found.st_mtime_ns
    size = found.st_size if time.time_ns() - time_ns > tick_of(time_ns) else UNKNOWN
    return name, found.st_ino, time_ns, size, stat.S_ISDIR(found.st_mode)
