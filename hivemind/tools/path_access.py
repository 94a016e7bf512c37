"""Where a tool may read and write (spec 7, *Files*): named as a mind names it, reached so that nothing leads out meanwhile.

A path is names below the task's worktree, if it has one, or below the hive's folder (a task's own file goes first), or
below a folder that hive.yaml lists under `roots:` with that folder's own path before them. `..`, other absolute paths
and links are refused, wherever they would lead: what a path says is where it goes, also if someone moves things about
while it is followed.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

from pydantic import Field

from hivemind import fs
from hivemind.coordination import Reservations
from hivemind.coordination.reservations import escape
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs.trees import MAX_NAME, MAX_PATH
from hivemind.layout import Layout
from hivemind.tasks import FILES
from hivemind.tasks.folder import ended_folder, text_file
from hivemind.tasks.record import load
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

__all__ = ["PATH_TOOLS", "ToolPath", "WritableFile", "is_readable", "open_place", "read_bytes", "readable", "writable"]

MAX_READ_BYTES = 262_144
_NEW = 0o666
_FOR_PEOPLE = frozenset({FILES, "artifacts", "attempts", "error.md", "result.md", "task.md", "task.yaml"})
_GITS = frozenset({".git", "git~1", "head"})
_NOT_HERE = "is not where you may write: your worktree, the task's folder, knowledge/, roots that say so"


@frozen
class ToolPath:
    """A place that a tool was told of: names below a folder that it may be in, none of them `..`."""

    base: Path
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.base.joinpath(*self.names)

    def open(self) -> int:
        """A descriptor to read a regular file with. Raises UserError, OSError."""
        return fs.file_below(self.base, self.names)

    def folder(self) -> int:
        """A descriptor of a folder. Raises OSError."""
        return fs.folder_below(self.base, self.names)

    def __truediv__(self, name: str) -> ToolPath:
        return ToolPath(self.base, (*self.names, name))


def readable(session: Session, path: str) -> ToolPath:
    """The place, if a tool may read there. Raises UserError."""
    layout = session.hive.layout
    found = _place(session, path)
    found = _archived(layout, found) or found
    tree = _in_worktree(session, path, found)
    if tree is not None and os.path.lexists(tree.path):
        found = tree
    elif session.focus.work is not None and not os.path.isabs(path) and found.names:
        task = session.work.task
        own = (ToolPath(task.path, (FILES, *found.names)), ToolPath(task.path, found.names))
        # What lies in the work folder goes first, then what commands have printed; the records beside it are not named so.
        own_first = own[: 1 + (found.names[0] == "artifacts")]
        found = next((one for one in own_first if os.path.lexists(one.path)), tree or found)
    if not is_readable(session, found.path):
        raise ToolProblem(
            "is another's mailbox" if layout.mailboxes in _up(found.path) else "is the program's own", location=path
        )
    _refuse_links(session, found, path)
    return found


def _archived(layout: Layout, named: ToolPath) -> ToolPath | None:
    """Where a file of a task that was in done or failed lies by now, if that was archived."""
    if (
        named.base != layout.root
        or named.names[:2] not in (("tasks", "done"), ("tasks", "failed"))
        or len(named.names) < 3
    ):
        return None
    folder = None if os.path.lexists(named.path) else ended_folder(layout, named.names[2])
    return None if folder is None else ToolPath(layout.root, (*folder.relative_to(layout.root).parts, *named.names[3:]))


def is_readable(session: Session, found: Path) -> bool:
    """Not what the program alone owns, such as a task's records, and of the mailboxes only the agent's own."""
    layout, above = session.hive.layout, _up(found)
    if layout.state in above or found == layout.mailboxes or _is_record(layout, found):
        return False
    return layout.mailboxes not in above or layout.mailbox(session.agent) in above


def read_bytes(session: Session, place: ToolPath, most: int = MAX_READ_BYTES) -> bytes:
    """A regular file's bytes, `most` of them. Raises UserError for a longer one and for anything else, in words."""
    with open_place(session, place) as stream:
        raw = stream.read(most + 1)
    if len(raw) > most:
        shown = session.hive.layout.relative(place.path)
        raise ToolProblem(f"is larger than {most} bytes", location=shown, remedy="read_file shows it in parts")
    return raw


def open_place(session: Session, place: ToolPath) -> BufferedReader:
    """A regular file, open for reading; the caller closes it. Raises ToolProblem, in words, for anything else.

    The text of a task under way is read as it was when the task was claimed, whatever lies there by now.
    """
    layout = session.hive.layout
    shown = layout.relative(place.path)
    try:
        if (text := _claimed_text(layout, place.path)) is not None:
            return BufferedReader(BytesIO(text))
        file = place.open()
    except UserError as error:
        raise ToolProblem(error.message, location=shown) from None
    except OSError as error:
        raise ToolProblem(f"cannot be read ({error.strerror})", location=shown) from None
    # A message is one file with a name in each mailbox that got it; elsewhere in the hive a second name may lead out.
    above = _up(place.path)
    if os.fstat(file).st_nlink > 1 and layout.root in above and layout.mailboxes not in above:
        os.close(file)
        raise ToolProblem("has a second name (a hard link), which may lead out of the hive", location=shown)
    return open(file, "rb")


def _claimed_text(layout: Layout, path: Path) -> bytes | None:
    """What was dropped, if the path is the copy of it that lies in an active task's folder for people to read."""
    if path.parent.parent != layout.active or path.name not in ("task.md", "task.yaml"):
        return None
    record = load(path.parent)
    return record.raw if record is not None and record.text is not None and path.name == text_file(record) else None


@frozen
class WritableFile:
    """A file that a tool may write. `shared` is what other agents may write as well: there its path is reserved first."""

    place: ToolPath
    shared: bool

    @contextmanager
    def reserved(self, session: Session, reason: str) -> Iterator[None]:
        """Nobody else edits the file meanwhile. Raises ReservationHeld (code `RESERVATION_HELD`) if someone does."""
        if not self.shared:
            yield
            return
        held = Reservations(session.hive.journal)
        pattern = escape(_pattern(session.hive.layout, self.place.path))
        mine = held.reserve(session.agent, pattern, reason=reason)
        try:
            yield
        finally:
            held.release(mine, session.agent)

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.place.path)

    def write(self, session: Session, text: str, like: WritableFile | None = None) -> None:
        """Write the whole file, its folders made. What was there keeps its mode, within `access:`; a new file gets that of
        `like`. Raises UserError."""
        with self.folder(session, make=True) as (folder, name):
            mode = _mode(name, folder)
            if like is not None:
                with like.folder(session) as (other, its_name):
                    mode = _mode(its_name, other)
            fs.write_at(folder, name, text, durable=session.hive.config.durable, mode=mode)

    def delete(self, session: Session) -> None:
        """Take the file away. Raises UserError."""
        with self.folder(session) as (folder, name):
            os.unlink(name, dir_fd=folder)
            if session.hive.config.durable:
                os.fsync(folder)

    @contextmanager
    def folder(self, session: Session, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder of the file, open, and its name there; what the system refuses is said in words."""
        *folders, name = self.place.names
        shown = session.hive.layout.relative(self.place.path)
        try:
            folder = fs.folder_below(self.place.base, folders, make=make)
            try:
                yield folder, name
            finally:
                os.close(folder)
        except UnicodeEncodeError:
            raise ToolProblem("the text has a character that no file can hold", location=shown) from None
        except OSError as error:
            raise ToolProblem(f"cannot be written ({error.strerror})", location=shown) from None


def writable(session: Session, path: str) -> WritableFile:
    """The file that a tool may write: in the task's folder unless the path says knowledge/… or a root open for writing.

    Raises UserError for every other place, and for what is no regular file.
    """
    layout = session.hive.layout
    task = session.focus.work.task if session.focus.work is not None else None
    written = session.hive.config.written(layout)
    found = _place(session, path)
    if any(_folded(name) in _GITS for name in found.names):
        raise ToolProblem("is what git may take for a repository of its own, and run commands of", location=path)
    tree = _in_worktree(session, path, found)
    around = [one for one in _up(found.path) if one in written]
    is_named = tree is None and (os.path.isabs(path) or around[0] != layout.root)
    if tree is not None:
        found = tree
        if any(one.path == tree.base and one.branch is None for one in session.trees):
            raise ToolProblem(
                "is the work that you review, which you only read",
                location=path,
                remedy="tasks/active/ID/files is yours",
            )
    elif not is_named and task is not None and layout.worktrees not in _up(found.path):
        above = _up(found.path)
        if layout.tasks in above and task.files not in above:
            raise ToolProblem(
                "is the program's own record of a task", location=path, remedy=f"write to {layout.relative(task.files)}"
            )
        if _is_protected(layout, found.path) and task.files not in above and not (task.files / found.names[0]).exists():
            raise ToolProblem(
                "is the hive's own, which no tool writes",
                location=path,
                remedy=f"{layout.relative(task.files)}/{path} is yours",
            )
        within = found.path.relative_to(task.files).parts if task.files in above else found.names
        found = ToolPath(task.path, (FILES, *within))
    elif not is_named or not written[around[0]] or _is_protected(layout, found.path):
        raise ToolProblem(_NOT_HERE, location=path)
    _refuse_links(session, found, path)
    if not found.names or found.path in written or found.path.is_dir() or found.path == (task and task.files):
        raise ToolProblem("is a folder", location=path)
    if found.path.exists() and not found.path.is_file():
        raise ToolProblem("is no regular file", location=path)
    return WritableFile(found, shared=is_named)


def _in_worktree(session: Session, path: str, found: ToolPath) -> ToolPath | None:
    """The place in a worktree of the task's: named in whole, or relative to the first, unless its first name is that of a
    folder of the hive and of nothing in the worktree. None for any other place."""
    trees = session.trees
    for tree in trees:
        if tree.path in _up(found.path):
            return ToolPath(tree.path, found.path.relative_to(tree.path).parts)
    if not trees or os.path.isabs(path) or session.work.task.path in _up(found.path):
        return None
    top = found.names[:1]
    if top and (session.hive.layout.root / top[0]).is_dir() and not os.path.lexists(trees[0].path / top[0]):
        return None
    return ToolPath(trees[0].path, found.names)


def _place(session: Session, path: str) -> ToolPath:
    """Where a path begins, and the names in it. Raises ToolProblem that says how to name the place instead."""
    layout = session.hive.layout
    names = [name for name in _checked(path).split("/") if name not in ("", ".")]
    if ".." in names:
        raise ToolProblem(
            "has `..` in it", location=path, remedy="name it from the hive's folder, such as knowledge/boats.md"
        )
    if not os.path.isabs(path):
        return ToolPath(layout.root, tuple(names))
    whole = Path("/", *names)
    above = [one for one in session.hive.config.read_roots(layout) if one in _up(whole)]
    if above:
        base = max(above, key=lambda one: len(one.parts))
        return ToolPath(base, whole.relative_to(base).parts)
    shown = layout.relative(whole)
    mend = f"say {shown}" if not os.path.isabs(shown) else "a person can open its folder, under roots: in hive.yaml"
    raise ToolProblem("is an absolute path", location=path, remedy=mend)


def _refuse_links(session: Session, place: ToolPath, path: str) -> None:
    """Tell a link on the way by its name. (One that is put there later is refused when the file is opened.)"""
    layout, at = session.hive.layout, place.base
    for name in place.names:
        at /= name
        if not at.is_symlink():
            continue
        real = Path(os.path.realpath(at))
        inside = any(root in _up(real) for root in (layout.root, *session.hive.config.read_roots(layout)))
        mend = f"name the place that it leads to: {layout.relative(real)}" if inside else None
        raise ToolProblem(f"has a symbolic link in it ({layout.relative(at)})", location=path, remedy=mend)


def _checked(path: str) -> str:
    """A path that can be one. Raises ToolProblem in words."""
    shown = repr(path[:80])
    if not path or any(not char.isprintable() for char in path):
        raise ToolProblem("a path has no control characters in it, and is not empty", location=shown)
    try:
        long = len(os.fsencode(path)) > MAX_PATH or any(len(os.fsencode(part)) > MAX_NAME for part in path.split("/"))
    except UnicodeEncodeError:
        raise ToolProblem("is no text that a file can be named with", location=shown) from None
    if long:
        raise ToolProblem(f"is too long: {MAX_NAME} bytes a name, {MAX_PATH} a path", location=shown)
    return path


def _is_protected(layout: Layout, found: Path) -> bool:
    """What no tool writes, even where a root that is open for writing is in it or holds the hive itself."""
    closed = {layout.rom, layout.agents, layout.mailboxes, layout.tasks, layout.state, layout.config}
    return not closed.isdisjoint(_up(found))


def _folded(name: str) -> str:
    """The name as the file systems of other systems compare it: no case, no form of a letter, no dot or blank at its end."""
    return unicodedata.normalize("NFKC", name).casefold().rstrip(". ")


def _is_record(layout: Layout, found: Path) -> bool:
    """Whether it is one of the program's records beside a task's files: all but what it writes for people to read."""
    names = found.relative_to(layout.tasks).parts if layout.tasks in found.parents else ()
    if names[:1] == (layout.archive.name,):
        names = names[2:]
    while names[2:3] == ("attempts",) and len(names) > 4:
        names = (*names[:2], *names[4:])
    return len(names) > 2 and names[0] != "inbox" and names[2] not in _FOR_PEOPLE


def _up(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)


def _pattern(layout: Layout, path: Path) -> str:
    """The path as reservations name it: from the hive's root; outside of it `outside/` and the whole path."""
    shown = layout.relative(path)
    return f"outside{shown}" if os.path.isabs(shown) else shown


def _mode(name: str, folder: int) -> int:
    """The mode that the file has, without its special bits; that of a new one if there is none."""
    try:
        found = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return _NEW
    return found.st_mode & 0o777 if stat.S_ISREG(found.st_mode) else _NEW


class Reserve(Arguments):
    paths: list[str] = Field(min_length=1, max_length=64, description="globs from the hive's root: knowledge/boats/**")
    shared: bool = Field(False, description="others may reserve them as shared, too")
    reason: str = ""


class Release(Arguments):
    reservation: int | None = Field(None, description="its number; default: all of yours")


@tool()
def reserve(session: Session, arguments: Reserve) -> dict[str, Any]:
    """Reserve paths before you edit them: refused if any path could be one that another agent has reserved."""
    held = Reservations(session.hive.journal)
    made = held.reserve(session.agent, arguments.paths, shared=arguments.shared, reason=arguments.reason or None)
    return {"reservation": made.id, "paths": list(made.patterns), "shared": made.shared}


@tool()
def release(session: Session, arguments: Release) -> dict[str, Any]:
    """Give reserved paths back. What you do not give back ends with you."""
    held = Reservations(session.hive.journal)
    if arguments.reservation is None:
        return {"released": held.release_all(session.agent)}
    if not held.release(arguments.reservation, session.agent):
        raise ToolProblem(f"you hold no reservation {arguments.reservation}")
    return {"released": 1}


PATH_TOOLS = (reserve, release)
