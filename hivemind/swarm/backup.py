"""A copy of a hive in use, as it was at one moment, and its restoration (README.md, *Backups*).

Passes update the copy until one pass finds no change. Then the hive was unchanged since the previous pass, so the copy
is a state of the disk between the two passes, as if every process had been killed at that moment. The last passes lock
the journal, which stops agents at their next event.
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
from hivemind.fs import copy_tree, crash_point, fsync_folder, is_durable, load_record, remove_tree, save_record
from hivemind.fs.atomic import TEMPORARY_PREFIX
from hivemind.fs.backup import back_up
from hivemind.fs.locks import try_lock
from hivemind.fs.trees import is_too_deep
from hivemind.layout import Layout
from hivemind.presence.parts import Parts

_KIND, _VERSION = "backup", 1
_SHORT_PASS_S = 0.5
_PASSES = 5
_QUIET_TIMEOUT_S = 30.0
_DATABASES = ("memory.db", "documents.db")
_Signature = tuple[int, ...]


def _paths(*globs: str) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, globs)))


_EMPTY = _paths(".hive/locks", ".hive/doorbells", ".hive/reading", ".hive/backups", "mailboxes/*/tmp")
_EXCLUDED = _paths(
    ".hive/workspace.json", ".hive/settings.json", ".hive/tasks.queue", ".hive/graphs.db*", ".hive/web.db*", ".hive/prompt-*",
    f"*/{TEMPORARY_PREFIX}*",
    *(f".hive/{name}{end}" for name in _DATABASES for end in ("", "-wal", "-shm")),
)  # fmt: skip
_ATOMIC_FOLDERS = _paths("tasks/done/*", "tasks/failed/*", "tasks/archive/*/*/*")
"""Folders that are only moved as a whole. If name and time are unchanged, so is the content."""
_LETTERS = _paths("mailboxes/*/cur/*")
_VOLATILE = _paths(
    ".hive/logs/*", ".hive/heartbeat", ".hive/agents/*/heartbeat", ".hive/agents/*/status.json", ".hive/agents/*/log*.jsonl",
    "knowledge/*", "rom/*", "worktrees/*", "tasks/active/*/files/*", "tasks/active/*/artifacts/*",
)  # fmt: skip
"""Files that may change at any time and that no other file depends on. Their changes cause no further pass."""


def back_up_hive(hive: Parts, target: Path) -> Path:
    """Copy a hive, which may be in use, to a new or empty folder. Return the folder's path.

    The copy is itself a hive, and gets its name only when it is complete. Raises UserError, OSError.
    """
    root, target = hive.layout.root, Path(os.path.realpath(target))
    if target == root or root in target.parents:
        raise UserError("is inside the hive", location=target, remedy="name a folder outside of it")
    with _partial(target, root) as part:
        copy = _TreeCopy(root, part)
        for _ in range(_PASSES):  # most of the copying, while the agents work
            start_time = time.monotonic()
            if not copy.bring_up_to_date() or time.monotonic() - start_time < _SHORT_PASS_S:
                break
        crash_point("backup.copied")
        start_time = time.monotonic()
        with hive.journal.locked(lambda _: None):
            while copy.bring_up_to_date():
                if time.monotonic() - start_time > _QUIET_TIMEOUT_S:
                    message = "is being written by a process that does not wait for the journal"
                    raise UserError(message, location=root, remedy="try again, or end the swarm first: hivemind down")
        crash_point("backup.still")
        state = Layout(part).state
        for name in _DATABASES:
            _copy_database(hive.layout.state / name, state)
        fields = {"at": datetime.now(UTC).isoformat(), "workspace": hive.config.workspace, "root": os.fspath(root)}
        save_record(Layout(part).backup_record, _KIND, _VERSION, fields)
    return target


def restore_hive(backup: Path, target: Path) -> Path:
    """Restore a backup to a new or empty folder and return the folder's path. Raises UserError, OSError."""
    backup, target = Path(os.path.realpath(backup)), Path(os.path.realpath(target))
    if load_record(Layout(backup).backup_record, _KIND, _VERSION) is None:
        raise UserError(
            "is not a backup", location=backup, remedy="hivemind backup makes one; an incomplete backup does not count"
        )
    if backup in target.parents:
        raise UserError("is inside the backup", location=target, remedy="name a folder outside of it")
    load_hive(Layout(backup, read_only=True))  # says whether its copy is synced
    with _partial(target, backup) as part:
        copy_file = _TreeCopy(backup, part).copy_file
        copy_tree(backup, part, copy_file)
        crash_point("restore.copied")
        Layout(part).backup_record.unlink()
    return target


@contextmanager
def _partial(target: Path, source: Path) -> Iterator[Path]:
    """Yield a new folder for a copy of the hive `source`, locked for this process. Once it is on disk, rename it to `target`."""
    if os.path.lexists(target) and (not target.is_dir() or os.listdir(target)):
        raise UserError(
            "already exists and is not empty", location=target, remedy="name another folder, or move it away"
        )
    part = target.with_name(f".{target.name}.partial")
    part.mkdir(parents=True, exist_ok=True)
    lock = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not try_lock(lock):
            raise UserError(
                "is being written by another process", location=part, remedy="wait for it, or name another folder"
            )
        for path in part.iterdir():  # left by a killed process
            remove_tree(path)
        try:
            yield part
            if is_durable(source):
                os.sync()
            crash_point("backup.synced")
            os.rename(part, target)
        except BaseException:
            remove_tree(part)
            raise
        fsync_folder(target.parent)
    finally:
        os.close(lock)


class _TreeCopy:
    """A copy of the tree `source` at `target`."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._signatures: dict[str, _Signature] = {}
        self._letters: dict[int, str] = {}  # a path in the copy for each inode: a letter has links in several mailboxes

    def bring_up_to_date(self) -> bool:
        """Make one pass: copy what has changed since the last one. Return True if a file changed that is not volatile
        (`_VOLATILE`).
        """
        signatures = dict(self._scan())
        new = [path for path, signature in signatures.items() if self._signatures.get(path) != signature]
        removed = [path for path in self._signatures if path not in signatures]
        for path in new:
            try:
                self._copy(path)
            except FileNotFoundError:  # moved meanwhile: the next pass finds it
                signatures[path] = ()
        for path in reversed(removed):
            remove_tree(self._target / path)
        self._signatures = signatures
        return any(not _VOLATILE.match(path) for path in (*new, *removed))

    def _scan(self) -> Iterator[tuple[str, _Signature]]:
        """Yield the relative path and the signature of each file and folder, parents first."""
        folders = [""]
        while folders:
            folder = folders.pop()
            letters = _LETTERS.match(f"{folder}/x")
            with suppress(FileNotFoundError), os.scandir(self._source / folder) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}".lstrip("/")
                    if _EXCLUDED.match(path) or is_too_deep(path):
                        continue
                    if letters:
                        yield path, (entry.inode(),)
                        continue
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISDIR(status.st_mode):
                        is_atomic = _ATOMIC_FOLDERS.match(path) is not None
                        yield path, (stat.S_IFDIR, status.st_ino, status.st_mtime_ns if is_atomic else 0)
                        if not is_atomic and not _EMPTY.match(path):
                            folders.append(path)
                    elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                        yield path, (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns)

    def _copy(self, path: str) -> None:
        source, target = self._source / path, self._target / path
        status = os.lstat(source)
        if stat.S_ISDIR(status.st_mode) and _ATOMIC_FOLDERS.match(path):
            remove_tree(target)
            copy_tree(source, target)
        elif stat.S_ISDIR(status.st_mode):
            if not target.is_dir() or target.is_symlink():
                remove_tree(target)
                target.mkdir()
            shutil.copymode(source, target)
        else:
            remove_tree(target)
            self.copy_file(source, target)

    def copy_file(self, source: str | Path, target: str | Path) -> None:
        """Copy a file or a link. If a letter has a hard link in the source, it gets one in the copy too."""
        status = os.lstat(source)
        link_source = self._letters.get(status.st_ino) if status.st_nlink > 1 else None
        if link_source is not None and os.path.lexists(link_source):
            os.link(link_source, target, follow_symlinks=False)
        else:
            shutil.copy2(source, target, follow_symlinks=False)
        if status.st_nlink > 1:
            self._letters[status.st_ino] = os.fspath(target)


def _copy_database(path: Path, state: Path) -> None:
    """Copy a database consistently into the folder `state`. A damaged database is copied unchanged, for the doctor to repair."""
    work = state / "backup.tmp"
    work.mkdir()
    if (snapshot := back_up(path, work)) is not None:
        os.rename(snapshot, state / path.name)
    else:
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copy2(f"{path}{suffix}", state / f"{path.name}{suffix}")
    remove_tree(work)
