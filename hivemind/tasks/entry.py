"""What must be known of a waiting task to put it in order: its entry, read from the head of its file."""

from __future__ import annotations

import os
from typing import NamedTuple

from hivemind.tasks.drops import id_of, read_regular, text_name
from hivemind.tasks.form import DEFAULT_PRIORITY, TaskForm, read_text
from hivemind.tasks.task import TaskProblem

__all__ = ["Entry", "entry_of", "read_entry"]


class Entry(NamedTuple):
    """One waiting task. `ino`, `mtime_ns` and `size` say which file or folder this was read from.

    `given` is True if the id was written by the author. `problem` says what is wrong with the file, `doom` what is
    wrong with its dependencies as things stand; with either the task fails when it is claimed.
    """

    name: str
    ino: int
    mtime_ns: int
    size: int
    folder: bool
    id: str
    given: bool = False
    priority: int = DEFAULT_PRIORITY
    assignee: str | None = None
    role: str | None = None
    dependencies: tuple[str, ...] = ()
    problem: str | None = None
    doom: str | None = None

    @property
    def lane(self) -> str:
        """Who may claim it: `assignee/role`; a task that is going to fail may be claimed by anyone."""
        return "/" if self.problem or self.doom else f"{self.assignee or ''}/{self.role or ''}"

    @property
    def order(self) -> tuple[int, int, str]:
        """Highest priority first, then oldest, then by name."""
        return (self.priority, self.mtime_ns, self.name)


def read_entry(path: str, name: str, found: os.stat_result, folder: bool, max_bytes: int) -> Entry:
    """The entry of the drop at `path`. A drop that cannot become a task gets an entry with the problem in it.

    Raises FileNotFoundError if it is gone.
    """
    here = (name, found.st_ino, found.st_mtime_ns, found.st_size, folder)
    try:
        if folder:
            text = text_name(path, name)
            raw, _ = read_regular(os.path.join(path, text), f"{name}/{text}", max_bytes)
        else:
            text = name
            raw, _ = read_regular(path, name, max_bytes)
        return entry_of(here, raw, text)
    except TaskProblem as problem:
        return Entry(*here, id_of(name, folder), problem=str(problem))


def entry_of(here: tuple[str, int, int, int, bool], raw: bytes, text: str) -> Entry:
    """The entry that a task's bytes give. Raises TaskProblem."""
    if not text.lower().endswith((".yaml", ".yml")) and not raw.startswith((b"---", b"\xef\xbb\xbf")):
        return Entry(*here, id_of(here[0], here[4]))  # no front matter: the rest is looked at when it is claimed
    form: TaskForm = read_text(raw, text).form
    return Entry(
        *here,
        form.id or id_of(here[0], here[4]),
        form.id is not None,
        form.priority,
        form.assignee,
        form.role,
        form.dependencies,
    )
