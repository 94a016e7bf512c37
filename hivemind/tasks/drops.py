"""What lies in the inbox: which names are tasks, which are droppings, and how a drop is looked at without following
links, opening devices or blocking on a FIFO (spec 1, *Tasks* and *Layout*; README.md, *What a task is*)."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from hivemind.fs.paths import OutsideError, inside
from hivemind.names import slug
from hivemind.tasks.task import TaskProblem

__all__ = ["attachments", "id_of", "ignored_why", "is_dropping", "newest_change", "read_regular", "text_name"]

_NO_TEXTS = frozenset({"attempts", "error.md", "result.md", "task.json"})
"""What the program itself may have put into a folder in the inbox."""

UNTRUSTED = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a file is opened that anyone may have put there: never through a link, never waiting for a FIFO's writer."""

_DROPPINGS = re.compile(
    r"\..*|.*~|#.*#|.*\.(?:sw[a-z]|tmp|bak|orig|rej|part|filepart|crdownload|download)|4913", re.IGNORECASE
)
_TEXT = re.compile(r".*\.(?:md|markdown|txt|text|rst|org|ya?ml)|[^.]+", re.IGNORECASE)
_KNOWN_TEXTS = ("task.md", "task.yaml", "task.yml", "readme.md")


def is_dropping(name: str) -> bool:
    """True for what editors and downloads leave about: `.x`, `x~`, `#x#`, `x.swp`, `x.tmp`, `x.part`, `4913` …"""
    return _DROPPINGS.fullmatch(name) is not None


def is_task_name(name: str) -> bool:
    """True if a name in the inbox itself may be a task: no dropping, and not the folder's own README.md."""
    return not is_dropping(name) and name.lower() != "readme.md"


def ignored_why(name: str) -> str | None:
    """Why a name in the inbox is not taken for a task; None if it is one."""
    if is_task_name(name):
        return None
    if name.lower() == "readme.md":
        return "the folder's own README.md"
    return "a hidden file" if name.startswith(".") else "what editors and downloads leave about"


def id_of(name: str, folder: bool) -> str:
    """The id that a drop has if its text gives none."""
    return slug(name if folder else os.path.splitext(name)[0])


def read_regular(path: str, shown: str, max_bytes: int) -> tuple[bytes, os.stat_result]:
    """A regular file's bytes and what it was when they were read.

    `shown` is how errors call it. Raises TaskProblem for a link, FIFO, device, socket or folder and for a file of more
    than `max_bytes`; FileNotFoundError if it is gone.
    """
    check_regular(os.lstat(path).st_mode, shown)
    # O_NONBLOCK and the second look: what was a file a moment ago may be a FIFO by now.
    file = os.open(path, UNTRUSTED)
    try:
        found = os.fstat(file)
        check_regular(found.st_mode, shown)
        return read_open(file, found, shown, max_bytes), found
    finally:
        os.close(file)


def read_open(file: int, found: os.stat_result, shown: str, max_bytes: int) -> bytes:
    """All bytes of an open regular file. Raises TaskProblem if they are more than `max_bytes`."""
    raw = os.read(file, found.st_size + 1) if found.st_size <= max_bytes else None
    if raw is None or len(raw) > max_bytes:
        raise TaskProblem(
            f"has {found.st_size:,} bytes, a task's text at most {max_bytes:,}",
            where=shown,
            mend="drop a folder with a short task.md and the long file beside it, or raise max_task_bytes in hive.yaml",
        )
    return raw


def check_regular(mode: int, shown: str) -> None:
    """Raises TaskProblem for a link, FIFO, device, socket or folder."""
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        raise TaskProblem("is a symbolic link, and none is followed here", where=shown, mend="copy the file itself")
    raise TaskProblem("is no regular file", where=shown, mend="a task is a text file, or a folder with one in it")


def text_name(folder: str, shown: str) -> str:
    """The name of the file in a dropped folder that is the task's text: task.md (.yaml), README.md or the only text.

    Raises TaskProblem if there is none, or more than one to choose from.
    """
    names = sorted(name for name in os.listdir(folder) if name not in _NO_TEXTS and not is_dropping(name))
    for known in _KNOWN_TEXTS:
        for name in names:
            if name.lower() == known:
                return name
    texts = [name for name in names if _TEXT.fullmatch(name) and not os.path.isdir(os.path.join(folder, name))]
    if len(texts) == 1:
        return texts[0]
    what = "has no task.md" if not texts else f"has {len(texts)} texts ({', '.join(texts[:4])}) and no task.md"
    raise TaskProblem(what, where=shown, mend="name the file that says what is to be done task.md")


def attachments(
    folder: Path, text: str, root: Path, roots: Collection[Path] = ()
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """(the files beside the text, sorted; a note for each that was passed over).

    Links are attachments only if they lead to a file within `root` or one of `roots`; links to folders, FIFOs, devices
    and sockets are passed over and never opened.
    """
    found: list[Path] = []
    notes: list[str] = []
    if not folder.is_dir():
        return (), ()
    for entry in _walk(folder, skip=_NO_TEXTS | {text}):
        shown = os.path.relpath(entry.path, folder)
        if entry.is_file(follow_symlinks=False):
            found.append(Path(entry.path))
        elif not entry.is_symlink():
            notes.append(f"{shown} is no regular file and was passed over")
        elif (problem := _bad_link(entry.path, root, tuple(roots))) is None:
            found.append(Path(entry.path))
        else:
            notes.append(f"{shown} {problem} and was passed over")
    return tuple(sorted(found)), tuple(sorted(notes))


def _bad_link(path: str, root: Path, roots: Sequence[Path]) -> str | None:
    try:
        target = inside(path, root, roots)
    except OutsideError:
        return "is a symbolic link that leads out of the hive"
    return None if target.is_file() else "is a symbolic link to no file"


def newest_change(folder: str) -> tuple[float, list[str]]:
    """(when the newest change within a folder was, seconds since the epoch; its regular files).

    The folder's own inode change time is left out: moving it is no change within.
    """
    newest = os.stat(folder, follow_symlinks=False).st_mtime
    files: list[str] = []
    for entry in _walk(Path(folder), folders=True):
        newest = max(newest, entry.stat(follow_symlinks=False).st_ctime)
        if entry.is_file(follow_symlinks=False):
            files.append(entry.path)
    return newest, files


def _walk(folder: Path, skip: Collection[str] = (), folders: bool = False) -> Iterator[os.DirEntry[str]]:
    """Everything in a folder that is no dropping; `skip` names what is left out at its top."""
    todo = [os.fspath(folder)]
    while todo:
        here = todo.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                if is_dropping(entry.name) or (entry.name in skip and here == os.fspath(folder)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                    if not folders:
                        continue
                yield entry
