"""Notes on the branches of active tasks (`.hive/landing/ROOT/branches/TASK.json`): changed paths, and conflicts with others.

A note is written after a turn that has committed. For each conflict it names the commits of both branches. The conflict is out of
date when either branch has a newer commit.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hivemind.boundary import Unreadable
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import load_dataclass, make_folder, save_dataclass
from hivemind.fs.paths import names_in
from hivemind.layout import Layout

NOTES = "branches"
"""The folder of the notes in the folder of a root."""
_KIND, _VERSION, _SUFFIX = "branch note", 1, ".json"


@frozen
class BranchConflict:
    """The paths in which a branch conflicts with another branch at the commit `tip`.

    `task` is the task of that other branch. It is empty if the other branch is the target.
    """

    task: str
    tip: str
    paths: tuple[str, ...]


@frozen
class BranchNote:
    """The changed paths of a task's branch at the commit `tip`. `claimed` is the time of the task's claim (ISO 8601)."""

    task: str
    title: str
    agent: str
    claimed: str
    target: str
    tip: str
    paths: tuple[str, ...]
    conflicts: tuple[BranchConflict, ...] = ()

    def conflict_paths(self, other: BranchNote) -> tuple[str, ...]:
        """Return the paths in which the branches of two notes conflict, at the commits that both notes name."""
        pairs = [(conflict, other) for conflict in self.conflicts] + [(conflict, self) for conflict in other.conflicts]
        return next((c.paths for c, note in pairs if (c.task, c.tip) == (note.task, note.tip)), ())


@frozen
class BranchOverlap:
    """A conflict of a task's branch, to report to the task's agent. `task` is the other task, which was claimed earlier. It is
    empty if the branch conflicts with its target.
    """

    task: str
    paths: tuple[str, ...]
    text: str


def read_notes(folder: Path) -> dict[str, BranchNote]:
    """Return the notes in a folder by their tasks, except unreadable ones."""
    notes = {}
    for name in names_in(folder):
        with suppress(Unreadable, UserError):
            if name.endswith(_SUFFIX) and (note := load_dataclass(BranchNote, folder / name, _KIND, _VERSION)):
                notes[name.removesuffix(_SUFFIX)] = note
    return notes


def save_note(folder: Path, note: BranchNote) -> None:
    """Write a note to its task's file in the folder. Raises OSError."""
    make_folder(folder, durable=False)
    save_dataclass(folder / f"{note.task}{_SUFFIX}", _KIND, _VERSION, note, durable=False)


def is_open(layout: Layout, task: str) -> bool:
    """Check that a task is unfinished: in active/, or returned to the inbox."""
    return (layout.active / task).exists() or (layout.inbox / task).exists()


def branch_overlaps(layout: Layout, task: str) -> list[BranchOverlap]:
    """Return where a task's branches conflict with their targets, and with branches of tasks that were claimed earlier."""
    overlaps = []
    for name in sorted(names_in(layout.landing)):
        notes = read_notes(layout.landing / name / NOTES)
        note = notes.pop(task, None)
        if note is None:
            continue
        overlaps += [
            BranchOverlap("", conflict.paths, f"`{note.target}` has other changes in the same lines of {_names(conflict.paths)}")
            for conflict in note.conflicts if conflict.task == ""
        ]  # fmt: skip
        for other in sorted(notes.values(), key=lambda other: (other.claimed, other.task)):
            paths = note.conflict_paths(other)
            if paths and is_open(layout, other.task) and (other.claimed, other.task) < (note.claimed, note.task):
                text = f"`{other.agent}` has changed the same lines of {_names(paths)} for *{other.title}* (`{other.task}`)"
                overlaps.append(BranchOverlap(other.task, paths, text))
    return overlaps


def _names(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(f"`{path}`" for path in paths[:3]) + more
