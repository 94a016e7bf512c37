"""What a crash leaves that nobody reads, and that takes up room: temporary files of writes, worktrees of tasks that are over."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient, lives
from hivemind.fs.atomic import TEMPORARY_PREFIX
from hivemind.layout import Layout
from hivemind.names import is_name
from hivemind.taskrun.worktree import put_away

__all__ = ["check_leftovers", "check_worktrees"]

_WRITER = re.compile(re.escape(TEMPORARY_PREFIX) + r"(\d+)-\d+-\d+")
_OLD_S = 3600.0  # a write takes moments; an hour covers a machine that slept, and writers on other machines
_ONCE_LOCKS = ("graph.lock",)  # what earlier versions left in the folders of tasks


def check_leftovers(patient: Patient) -> Iterator[Finding]:
    """Files `.tmp-*` whose writer is gone, or that are an hour old, below the hive's own folders."""
    layout = patient.layout
    for top in (layout.agents, layout.rom, layout.mailboxes, layout.knowledge, layout.tasks, layout.state):
        for folder, folders, names in os.walk(top):
            if Path(folder) == layout.state:
                folders[:] = [name for name in folders if name != "aside"]
            for name in names:
                path = Path(folder, name)
                writer = _WRITER.fullmatch(name)
                if writer is not None and _abandoned(path, int(writer[1]), patient):
                    what = "is what a crash left of a file that was being written; the file itself is as it was before"
                elif name in _ONCE_LOCKS and top == layout.tasks:
                    what = "is the lock of an earlier version of this program; nobody uses it"
                else:
                    continue
                fix = partial(patient.aside.take, path)
                yield Finding(
                    "leftovers", layout.relative(path), what, "hivemind doctor --fix sets it aside", fix, note=True
                )


def check_worktrees(patient: Patient) -> Iterator[Finding]:
    """Worktrees whose task is over or gone: their agent was killed before it could put them away."""
    layout = patient.layout
    roots = patient.config.worktree_roots(layout) if patient.config else ()
    for folder in layout.worktrees.iterdir() if layout.worktrees.is_dir() else ():
        if is_name(folder.name) and not patient.tasks.is_open(folder.name):
            what = "is left of a task that is over, or gone"
            mend = "hivemind doctor --fix commits what is in no commit yet to its branch, and takes it away"
            fix = partial(_put_away, layout, roots, folder.name)
            yield Finding("worktrees", layout.relative(folder), what, mend, fix, note=True)


def _put_away(layout: Layout, roots: Collection[Path], task: str) -> str:
    put_away(layout, roots, task)
    return "its branch is kept, if anything was done on it"


def _abandoned(path: Path, writer: int, patient: Patient) -> bool:
    """Whether nobody writes the file any more. On a network file system its writer may live on another machine."""
    try:
        if patient.now - path.lstat().st_mtime > _OLD_S:
            return True
        return not patient.shared and not lives(writer)
    except FileNotFoundError:  # its writer has just finished
        return False
