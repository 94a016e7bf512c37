"""A damaged database is kept, and a new one with what can be read of it takes its name. Nothing is ever deleted that may
be wanted; who stops anywhere in between leaves the damaged file, or the new one, and the next call goes on."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from hivemind.fs.atomic import fsync_folder, move, write
from hivemind.fs.crash import reached
from hivemind.fs.database import Database
from hivemind.fs.locks import Lock
from hivemind.fs.soundness import unsound

__all__ = ["REPORT", "Mendable", "mend"]

REPORT = ".what-was-saved.txt"
"""The end of the name of the file beside a damaged database that says what became of it."""

_WITH_IT = ("-wal", "-shm")


class Mendable(Protocol):
    """A room's database, as far as it is to be mended."""

    @property
    def database(self) -> Database: ...

    def problems(self) -> list[str]:
        """What is wrong within a file that SQLite finds sound; where it gives up in the middle, that."""
        ...

    def mend_in_place(self) -> list[str]:
        """Mend what needs no new file; gives what was done, one sentence each."""
        ...

    def save(self, damaged: Path, new: Path) -> str:
        """Make a sound database `new` of what can be read of a copy of the damaged file; says what that was."""
        ...


def mend(store: Mendable, aside: Path, tell: Callable[[str], None], *, locks: Sequence[str] = (".lock",)) -> list[str]:
    """Make a database sound again; gives what was done, one sentence each, nothing if it was sound.

    A damaged file goes, as it is, into a folder below `aside`, with a report beside it. Others may use the database
    meanwhile: they wait, and go on with the new one. `locks` are the endings of the locks that keep them away, in the order
    in which they are taken. Raises the room's errors, OSError, sqlite3.OperationalError; then nothing is lost.
    """
    path = Path(store.database.path)
    store.database.close()
    with _alone(path, locks):
        if (wrong := unsound(path)) is not None:
            return [_exchange(store, path, wrong, aside, tell)]
    done = store.mend_in_place()
    if left := store.problems():  # it only looked sound
        store.database.close()
        with _alone(path, locks):
            done.append(_exchange(store, path, left[0], aside, tell))
    return done


def _alone(path: Path, locks: Sequence[str]) -> ExitStack:
    """Nobody else writes meanwhile."""
    with ExitStack() as stack:
        for end in locks:
            stack.enter_context(Lock(f"{path}{end}"))
        return stack.pop_all()


def _exchange(store: Mendable, path: Path, wrong: str, aside: Path, tell: Callable[[str], None]) -> str:
    new, room = path.with_name(path.name + ".mended"), store.database.schema.room
    report = "a mending that was interrupted was brought to its end"
    if not new.exists():
        tell(f"{path.name} is damaged ({wrong}): saving what can be read")
        kept = _free(aside, path.name)
        _set_aside(path, kept)
        saved = _save(store, kept, new.with_name(new.name + ".tmp"))
        when, left = datetime.now(UTC), f"it is kept as {kept}" if kept.exists() else "nothing of it is left"
        report = f"{path.name} was damaged ({wrong}), on {when:%Y-%m-%d at %H:%M} UTC; {left}; {saved}"
        write(kept.with_name(kept.name + REPORT), report + "\n")
        move(new.with_name(new.name + ".tmp"), new)
    reached(f"{room}.mend.saved")
    for end in _WITH_IT:  # before the new one has the name: this log is not its own
        path.with_name(path.name + end).unlink(missing_ok=True)
    reached(f"{room}.mend.unlogged")
    os.replace(new, path)
    fsync_folder(path.parent)
    return report


def _free(aside: Path, name: str) -> Path:
    """A name below today's folder that nothing has."""
    folder = aside / datetime.now(UTC).strftime("%Y-%m-%d")
    names = (f"{name}.{number}" if number else name for number in itertools.count())
    return next(folder / one for one in names if not (folder / one).exists())


def _set_aside(path: Path, kept: Path) -> None:
    """Copies of the file and of its log, on the disk; the originals stay until the new database is there."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    for end in ("", "-wal"):
        source = path.with_name(path.name + end)
        if source.exists():
            part = kept.with_name(f"{kept.name}{end}.tmp")
            shutil.copyfile(source, part)
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            move(part, kept.with_name(kept.name + end))
    fsync_folder(kept.parent)


def _save(store: Mendable, kept: Path, new: Path) -> str:
    """Let the room read a copy of what is kept, and write what it gives; nothing but the new database is left of it."""
    work = new.with_name(new.name + ".read")
    for end in ("", ".lock", *_WITH_IT):  # of one that was interrupted
        new.with_name(new.name + end).unlink(missing_ok=True)
    try:
        for end in ("", "-wal"):
            source = kept.with_name(kept.name + end)
            if source.exists():
                shutil.copyfile(source, work.with_name(work.name + end))
        work.touch()  # it may be gone
        return store.save(work, new)
    finally:
        for end in ("", *_WITH_IT):
            work.with_name(work.name + end).unlink(missing_ok=True)
        new.with_name(new.name + ".lock").unlink(missing_ok=True)
