"""Drops: which names in the inbox are tasks, what a drop holds, and the order of drops (README.md, *What a task is*).

Anyone may have put a drop into the inbox, so the code follows no link, opens no device and waits for no FIFO.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.fs import is_timestamp_reliable
from hivemind.fs.leftovers import is_leftover
from hivemind.fs.paths import OutsideError, resolve_inside
from hivemind.fs.trees import walk_entries
from hivemind.layout import LANDING
from hivemind.pattern import pattern
from hivemind.tasks.form import has_front_matter
from hivemind.tasks.ids import id_of, is_task_name
from hivemind.tasks.queue import UNKNOWN_SIZE, QueuedDrop
from hivemind.tasks.record import RECORD, TaskRecord, has_ended, is_made_whole, load
from hivemind.tasks.settings import Settings
from hivemind.tasks.task import BEING_WRITTEN, TaskProblem

UNTRUSTED_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a file that anyone may have created: no link is followed, and a FIFO does not block."""


NOT_MOVABLE = "it may not be read and moved by the user of the hive"
"""The reason reported for a dropped folder that its owner, or the owner of a file in it, has closed to this user."""

_NOT_MOVED = "only its owner may move it out of a sticky folder: chmod -t tasks/inbox"
_HEAD = 4096
_NO_TEXTS = frozenset({"attempts", "error.md", "result.md", RECORD})
"""Names in a dropped folder that are never its text, because the program may have written them."""
_TEXT = pattern(r".*\.(?:md|markdown|txt|text|rst|org|ya?ml)|[^.]+", re.IGNORECASE)
_KNOWN_TEXTS = ("task.md", "task.yaml", "task.yml", "readme.md")


# names


# reading


def is_movable(folder: str | os.PathLike[str]) -> bool:
    """Check that this process may read a dropped folder and write to it, which moving it requires."""
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def _may_be_moved(path: str, file_stat: os.stat_result) -> bool:
    """Check that this process may move a drop. In a sticky folder of another user, only the drop's owner may."""
    folder = os.stat(os.path.dirname(path))
    if not folder.st_mode & stat.S_ISVTX or os.geteuid() in (file_stat.st_uid, folder.st_uid):
        return True
    try:
        os.close(os.open(path, os.O_NOATIME | UNTRUSTED_FLAGS))  # refused to all but the owner and root
    except OSError:
        return False
    return True


def read_regular(
    path: str, label: str, max_bytes: int, file_stat: os.stat_result | None = None
) -> tuple[bytes, os.stat_result]:
    """Return a regular file's bytes and its stat. Error messages call the file `label`.

    Raises TaskProblem if the file is not regular or has more than `max_bytes`, Unreadable, FileNotFoundError.
    """
    with boundary("task's text", label, remedy=f"chmod a+r {os.path.basename(path)}"):
        _check_regular(file_stat or os.lstat(path), label)  # before it is opened
        file = os.open(path, UNTRUSTED_FLAGS)
        try:
            file_stat = os.fstat(file)
            _check_regular(file_stat, label)  # it may have become a FIFO meanwhile
            return read_open(file, file_stat, label, max_bytes), file_stat
        finally:
            os.close(file)


def read_open(file: int, file_stat: os.stat_result, label: str, max_bytes: int) -> bytes:
    """Return all bytes of an open regular file. Raises TaskProblem if there are more than `max_bytes`."""
    raw = os.read(file, file_stat.st_size + 1) if file_stat.st_size <= max_bytes else None
    if raw is None or len(raw) > max_bytes:
        mend = "drop a folder with a short task.md and the long file, or raise max_task_bytes in hive.yaml"
        message = f"has {file_stat.st_size:,} bytes, a task's text at most {max_bytes:,}"
        raise TaskProblem(message, location=label, remedy=mend)
    return raw


def _check_regular(file_stat: os.stat_result, label: str) -> None:
    if stat.S_ISLNK(file_stat.st_mode):
        message = "is a symbolic link, and none is followed here"
        raise TaskProblem(message, location=label, remedy="copy the file itself")
    if not stat.S_ISREG(file_stat.st_mode):
        mend = "a task is a text file, or a folder with one in it"
        raise TaskProblem("is not a regular file", location=label, remedy=mend)


def dropped_text(folder: Path, record: TaskRecord | None, max_bytes: int) -> tuple[bytes, str, os.stat_result]:
    """Return the text of a task in the inbox, the name of the text's file, and a stat of it.

    If the task was claimed before and its attempt has not ended, the text comes from the record. In all other cases it comes from
    the file. Raises TaskProblem, FileNotFoundError.
    """
    if record is not None and record.text is not None and not has_ended(folder):
        return record.raw, record.name, os.lstat(folder / RECORD)
    name = _text_name(folder)
    raw, file_stat = read_regular(os.path.join(folder, name), name, max_bytes)
    return raw, name, file_stat


def _text_name(folder: Path) -> str:
    """Return the name of the text file in a dropped folder: task.md (.yaml), README.md, or the only text file.

    Raises TaskProblem if there is no such file, or more than one text file and none of those names.
    """
    names = sorted(name for name in os.listdir(folder) if name not in _NO_TEXTS and not is_leftover(name))
    for text_name in _KNOWN_TEXTS:
        for name in names:
            if name.lower() == text_name:
                return name
    texts = [name for name in names if _TEXT.fullmatch(name) and not os.path.isdir(folder / name)]
    if len(texts) == 1:
        return texts[0]
    message = "has no task.md" if not texts else f"has {len(texts)} texts ({', '.join(texts[:4])}) and no task.md"
    raise TaskProblem(message, location=folder.name, remedy="name the text of the task 'task.md'")


def attachments(
    folder: Path, text: str, root: Path, roots: Collection[Path] = ()
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the files next to the text, sorted, and a note for each file that was skipped.

    A link is an attachment only if it leads to a file in `root` or `roots`. Links to folders are skipped, and so are
    FIFOs, devices and sockets, which are never opened.
    """
    paths: list[Path] = []
    notes: list[str] = []
    for dir_entry in walk_entries(folder, skip=_NO_TEXTS | {text}) if folder.is_dir() else ():
        problem = None
        if dir_entry.is_symlink():
            try:
                target = resolve_inside(dir_entry.path, root, tuple(roots))
                problem = None if target.is_file() else "is a symbolic link to no file"
            except OutsideError:
                problem = "is a symbolic link that leads out of the hive"
        elif dir_entry.is_dir():
            continue
        elif not dir_entry.is_file(follow_symlinks=False):
            problem = "is not a regular file"
        if problem is None:
            paths.append(Path(dir_entry.path))
        else:
            notes.append(f"{os.path.relpath(dir_entry.path, folder)} {problem} and was passed over")
    return tuple(sorted(paths)), tuple(sorted(notes))


# half-written drops: whether a program may still be writing them (README.md, *Half-written*)


def _stat_at_rest(file: int, settings: Settings) -> os.stat_result | None:
    """Return an open file's stat, or None if a program may still be writing the file."""
    now = settings.clock()
    if not settings.settled(file, settings.settle_ms, now):
        return None
    file_stat = os.fstat(file)
    if file_stat.st_size == 0 and 0 <= now.timestamp() - file_stat.st_ctime < settings.grace_s:
        return None  # an empty file gets more time: `touch`, then the editor
    return file_stat


def _is_folder_whole(folder: str, settings: Settings) -> bool:
    """Check that a dropped folder is complete: no file in it was changed lately or is open for writing."""
    if is_made_whole(folder):
        return True
    now, settle_ms = settings.clock(), settings.settle_ms
    newest, files = _newest_change(folder)
    if now.timestamp() < newest:  # a clock set back: wait and compare
        time.sleep(settle_ms / 1000)
        if _newest_change(folder)[0] != newest:
            return False
    elif now.timestamp() - newest < settle_ms / 1000:
        return False
    return all(settings.settled(file, settle_ms, now) for file in files)


def _newest_change(folder: str) -> tuple[float, list[str]]:
    """Return the time of the newest change in a folder, in seconds since 1970, and the paths of its regular files.

    The folder's own change time is left out, because moving the folder changes it.
    """
    newest = os.stat(folder, follow_symlinks=False).st_mtime
    files: list[str] = []
    for dir_entry in walk_entries(folder):
        newest = max(newest, dir_entry.stat(follow_symlinks=False).st_ctime)
        if dir_entry.is_file(follow_symlinks=False):
            files.append(dir_entry.path)
    return newest, files


# queued drops


class Drop(NamedTuple):
    """An entry of the inbox. `queued` is the drop as the queue knows it. If it cannot be claimed yet, `queued` is None and
    `waits` is the reason.

    `head` is the beginning of a file, or all of it if there is front matter.
    """

    name: str
    file_stat: os.stat_result
    queued: QueuedDrop | None
    head: bytes = b""
    waits: str = BEING_WRITTEN

    @property
    def id(self) -> str:
        """The id that the task will get, unless another task has it."""
        return self.queued.id if self.queued is not None else id_of(self.name, stat.S_ISDIR(self.file_stat.st_mode))


class DropReader:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._path = os.fspath(settings.layout.inbox)

    def drops(self, previous_drops: Mapping[str, QueuedDrop] | None = None) -> Iterator[Drop]:
        """Yield all drops. Files unchanged since `previous_drops` are not read again. Raises UserError if the inbox is
        missing."""
        previous_drops = previous_drops or {}
        try:
            listing = os.scandir(self._path)
        except FileNotFoundError:
            raise UserError("is gone", location=self._path, remedy="hivemind doctor --fix creates it") from None
        with listing:
            for dir_entry in listing:
                queued = previous_drops.get(dir_entry.name)
                if queued is None and not is_task_name(dir_entry.name):
                    continue
                try:
                    if queued is not None and queued.is_from(file_stat := dir_entry.stat(follow_symlinks=False)):
                        yield Drop(dir_entry.name, file_stat, queued)
                    else:
                        yield self._drop(dir_entry.path, dir_entry.name, dir_entry.is_file(follow_symlinks=False))
                except FileNotFoundError:
                    continue

    def drop(self, path: str, *, is_whole: bool = False) -> Drop | None:
        """Read one drop, in the inbox or claimed. Return None if it is gone.

        `is_whole` says that a dropped folder is known to be complete; without it, this is checked.
        """
        try:
            return self._drop(path, os.path.basename(path), stat.S_ISREG(os.lstat(path).st_mode), is_whole)
        except FileNotFoundError:
            return None

    def _drop(self, path: str, name: str, is_file: bool, is_whole: bool = False) -> Drop:
        drop = self._look(path, name, is_file, is_whole)
        if drop.file_stat.st_uid == os.geteuid() or _may_be_moved(path, drop.file_stat):
            return drop
        return drop._replace(queued=None, waits=_NOT_MOVED)

    def _look(self, path: str, name: str, is_file: bool, is_whole: bool) -> Drop:
        if is_file:
            try:
                file = os.open(path, UNTRUSTED_FLAGS)
            except PermissionError:
                return _failing(name, os.lstat(path), "cannot be read; chmod a+r it")
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link or a socket by now
                    raise
            else:
                try:
                    return self._file(file, name)
                finally:
                    os.close(file)
        file_stat = os.lstat(path)
        if not stat.S_ISDIR(file_stat.st_mode):
            return _failing(name, file_stat)
        with suppress(PermissionError):  # for something in it
            if is_movable(path):
                is_whole = is_whole or _is_folder_whole(path, self._settings)
                return Drop(name, file_stat, self.queued_folder(path, file_stat) if is_whole else None)
        return Drop(name, file_stat, None, waits=f"{NOT_MOVABLE}: chmod -R a+rwX {name}")

    def _file(self, file: int, name: str) -> Drop:
        file_stat = _stat_at_rest(file, self._settings)
        if file_stat is None:
            return Drop(name, os.fstat(file), None)
        if not stat.S_ISREG(file_stat.st_mode):
            return _failing(name, file_stat)
        try:
            head = os.read(file, _HEAD)
            if len(head) < file_stat.st_size and has_front_matter(head, name):
                os.lseek(file, 0, os.SEEK_SET)
                head = read_open(file, file_stat, name, self._settings.reader.max_bytes)
            return Drop(name, file_stat, self.parse(name, file_stat, head, name), head)
        except TaskProblem as problem:
            return _failing(name, file_stat, str(problem))

    def queued_folder(self, path: str, file_stat: os.stat_result) -> QueuedDrop:
        """Read a folder in the inbox as a queued drop. Raises FileNotFoundError if the folder is gone."""
        name, folder = os.path.basename(path), Path(path)
        try:
            record = load(folder)
            raw, text, _ = dropped_text(folder, record, self._settings.reader.max_bytes)
            queued = self.parse(name, file_stat, raw, text)
        except UserError as problem:
            return QueuedDrop(*_identity(name, file_stat), problem=str(problem))
        handed = None if record is None or has_ended(folder) else record.handed  # a retry begins anew
        entry = {} if record is None else record.kept.get(LANDING, {})
        if queued.assignee == LANDING and entry.get("state") == "returned":  # the chosen candidate did not land
            queued = queued._replace(assignee=None, role=entry["role"])
        if record is not None and record.kept.get("here"):
            queued = queued._replace(target_hive=None)
        return queued if handed is None else queued._replace(assignee=handed.to, role=handed.role)

    def parse(self, name: str, file_stat: os.stat_result, raw: bytes, text_name: str) -> QueuedDrop:
        """Return the queued drop for the text `raw`, which may be only the beginning of the text. `text_name` is the name of its
        file.

        Raises TaskProblem for invalid front matter.
        """
        if not has_front_matter(raw, text_name):
            return QueuedDrop(*_identity(name, file_stat))  # the rest is read when it is claimed
        form = self._settings.reader.read(raw, text_name, file_stat).form
        claimant = (LANDING, None) if form.candidates else (form.assignee, form.role)
        fields = form.id, form.priority, *claimant, form.dependencies
        return QueuedDrop(*_identity(name, file_stat), *fields, target_hive=form.where)


def _identity(name: str, file_stat: os.stat_result) -> tuple[str, int, int, int, bool]:
    time_ns = file_stat.st_mtime_ns
    size = file_stat.st_size if is_timestamp_reliable(time_ns) else UNKNOWN_SIZE
    return name, file_stat.st_ino, time_ns, size, stat.S_ISDIR(file_stat.st_mode)


def _failing(name: str, file_stat: os.stat_result, problem: str = "is not a regular file") -> Drop:
    return Drop(name, file_stat, QueuedDrop(*_identity(name, file_stat), problem=problem))
