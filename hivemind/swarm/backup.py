"""A copy of a hive in use, as it was at one moment, and the way back (README.md, *Backups*).

Passes bring the copy up to date until one finds nothing new: all that it saw had been so since the pass before, so the copy is
what the disk held in between, as if every process had been killed then. The last passes hold the journal, so that agents come
to rest at their next event.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import translate
from pathlib import Path

from hivemind.config import load_hive
from hivemind.errors import UserError
from hivemind.fs import copy_tree, fsync_folder, load_record, reached, remove_tree, save_record
from hivemind.fs.atomic import TEMPORARY_PREFIX
from hivemind.fs.backup import back_up
from hivemind.fs.locks import try_lock
from hivemind.fs.trees import is_too_deep
from hivemind.layout import Layout
from hivemind.presence.parts import Parts

RECORD = "backup.json"
_KIND, _VERSION = "backup", 1
_SHORT_S = 0.5
_PASSES = 5
_REST_S = 30.0
_DATABASES = ("memory.db", "documents.db")
_Look = tuple[int, ...]


def _paths(*globs: str) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, globs)))


_EMPTY = _paths(".hive/locks", ".hive/doorbells", ".hive/reading", ".hive/backups", "mailboxes/*/tmp")
_LEFT_OUT = _paths(
    ".hive/workspace.json", ".hive/tasks.queue", ".hive/graphs.db*", ".hive/web.db*", ".hive/prompt-*",
    f"*/{TEMPORARY_PREFIX}*",
    *(f".hive/{name}{end}" for name in _DATABASES for end in ("", "-wal", "-shm")),
)  # fmt: skip
_WHOLE = _paths("tasks/done/*", "tasks/failed/*", "tasks/archive/*/*/*")
"""Folders that are moved as they are: whose name and time are the same has not changed."""
_LETTERS = _paths("mailboxes/*/cur/*")
_RESTLESS = _paths(
    ".hive/logs/*", ".hive/heartbeat", ".hive/agents/*/heartbeat", ".hive/agents/*/status.json", ".hive/agents/*/log*.jsonl",
    "knowledge/*", "rom/*", "worktrees/*", "tasks/active/*/files/*", "tasks/active/*/artifacts/*",
)  # fmt: skip
"""What may be written at any time, and nothing rests on: no other pass is made because of it."""


def back_up_hive(hive: Parts, target: Path) -> Path:
    """Copy a hive, which others may use meanwhile, to a folder that is not there or is empty; returns its path.

    The folder is a hive itself, and has its name only once it is complete. Raises UserError, OSError.
    """
    root, target = hive.layout.root, Path(os.path.realpath(target))
    if target == root or root in target.parents:
        raise UserError("lies in the hive", location=target, remedy="name a folder outside of it")
    with _partial(target, durable=hive.config.durable) as part:
        copy = _Copy(root, part)
        for _ in range(_PASSES):  # what takes long is done while the others work
            began = time.monotonic()
            if not copy.bring_up_to_date() or time.monotonic() - began < _SHORT_S:
                break
        reached("backup.copied")
        began = time.monotonic()
        with hive.journal.locked(lambda _: None):
            while copy.bring_up_to_date():
                if time.monotonic() - began > _REST_S:
                    what = "is written to by something that does not wait for the journal"
                    raise UserError(what, location=root, remedy="try again, or end the swarm first: hivemind down")
        reached("backup.still")
        state = Layout(part).state
        for name in _DATABASES:
            _copy_database(hive.layout.state / name, state)
        told = {"at": datetime.now(UTC).isoformat(), "workspace": hive.config.workspace, "root": os.fspath(root)}
        save_record(state / RECORD, _KIND, _VERSION, told)
    return target


def restore_hive(backup: Path, target: Path) -> Path:
    """Put a backup back, to a folder that is not there or is empty; returns its path. Raises UserError, OSError."""
    backup, target = Path(os.path.realpath(backup)), Path(os.path.realpath(target))
    if load_record(Layout(backup).state / RECORD, _KIND, _VERSION) is None:
        raise UserError(
            "is no backup", location=backup, remedy="hivemind backup makes one; one that was cut short has no name"
        )
    if backup in target.parents:
        raise UserError("lies in the backup", location=target, remedy="name a folder outside of it")
    with _partial(target, durable=load_hive(Layout(backup)).durable) as part:
        take = _Copy(backup, part).take_file
        copy_tree(backup, part, take)
        reached("restore.copied")
        (Layout(part).state / RECORD).unlink()
    return target


@contextmanager
def _partial(target: Path, *, durable: bool) -> Iterator[Path]:
    """A folder to copy to, this process's alone, which gets the name `target` at the end, once it is on the disk."""
    if os.path.lexists(target) and (not target.is_dir() or os.listdir(target)):
        raise UserError(
            "is there already, and not empty", location=target, remedy="name another folder, or move it away"
        )
    part = target.with_name(f".{target.name}.partial")
    part.mkdir(parents=True, exist_ok=True)
    lock = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not try_lock(lock):
            raise UserError(
                "is being written by another process", location=part, remedy="wait for it, or name another folder"
            )
        for one in part.iterdir():  # what was left by one that was killed
            remove_tree(one)
        try:
            yield part
            if durable:
                os.sync()
            reached("backup.synced")
            os.rename(part, target)
        except BaseException:
            remove_tree(part)
            raise
        fsync_folder(target.parent)
    finally:
        os.close(lock)


class _Copy:
    """A copy of the tree `source` at `target`."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._known: dict[str, _Look] = {}
        self._letters: dict[int, str] = {}  # of each one a place in the copy: a letter has a name in several mailboxes

    def bring_up_to_date(self) -> bool:
        """One pass; returns whether something was new that others rest on."""
        now = dict(self._look())
        new = [path for path, look in now.items() if self._known.get(path) != look]
        gone = [path for path in self._known if path not in now]
        for path in new:
            try:
                self._take(path)
            except FileNotFoundError:  # moved on meanwhile: the next pass finds it where it is
                now[path] = ()
        for path in reversed(gone):
            remove_tree(self._target / path)
        self._known = now
        return any(not _RESTLESS.match(path) for path in (*new, *gone))

    def _look(self) -> Iterator[tuple[str, _Look]]:
        """What is there, parents first: relative paths, and how each looks."""
        todo = [""]
        while todo:
            below = todo.pop()
            letters = _LETTERS.match(f"{below}/x")
            with suppress(FileNotFoundError), os.scandir(self._source / below) as entries:
                for entry in entries:
                    path = f"{below}/{entry.name}".lstrip("/")
                    if _LEFT_OUT.match(path) or is_too_deep(path):
                        continue
                    if letters:
                        yield path, (entry.inode(),)
                        continue
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISDIR(found.st_mode):
                        whole = _WHOLE.match(path) is not None
                        yield path, (stat.S_IFDIR, found.st_ino, found.st_mtime_ns if whole else 0)
                        if not whole and not _EMPTY.match(path):
                            todo.append(path)
                    elif stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
                        yield path, (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns)

    def _take(self, path: str) -> None:
        source, target = self._source / path, self._target / path
        found = os.lstat(source)
        if stat.S_ISDIR(found.st_mode) and _WHOLE.match(path):
            remove_tree(target)
            copy_tree(source, target)
        elif stat.S_ISDIR(found.st_mode):
            if not target.is_dir() or target.is_symlink():
                remove_tree(target)
                target.mkdir()
            shutil.copymode(source, target)
        else:
            remove_tree(target)
            self.take_file(source, target)

    def take_file(self, source: str | Path, target: str | Path) -> None:
        """Copy a file or a link; a further name of a letter becomes one again."""
        found = os.lstat(source)
        twin = self._letters.get(found.st_ino) if found.st_nlink > 1 else None
        if twin is not None and os.path.lexists(twin):
            os.link(twin, target, follow_symlinks=False)
        else:
            shutil.copy2(source, target, follow_symlinks=False)
        if found.st_nlink > 1:
            self._letters[found.st_ino] = os.fspath(target)


def _copy_database(path: Path, state: Path) -> None:
    """A sound copy; of a damaged database all that there is, for the doctor to mend."""
    work = state / "backup.tmp"
    work.mkdir()
    if (found := back_up(path, work)) is not None:
        os.rename(found, state / path.name)
    else:
        for end in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copy2(f"{path}{end}", state / f"{path.name}{end}")
    remove_tree(work)
