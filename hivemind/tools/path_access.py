"""The paths that tools may read and write.

A relative path is in the task's first worktree, in the task's folder, or below the hive's folder: the first place that has it. A
worktree is made when a path in it is needed. An absolute path must be in a folder that hive.yaml lists under `roots:`. `..`,
other absolute paths and symbolic links are refused wherever they lead. Files are opened name by name without following links, so
a path cannot lead out of its folder even if others move files meanwhile.
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
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext

MAX_READ_BYTES = 262_144
_NEW_FILE_MODE = 0o666
_PUBLIC_NAMES = frozenset({FILES, "artifacts", "attempts", "error.md", "result.md", "task.md", "task.yaml"})
_GIT_NAMES = frozenset({".git", "git~1", "head"})
_NOT_WRITABLE = (
    "is outside the folders that you may write: your worktree, the task's folder, knowledge/, roots open for writing"
)


@frozen
class ToolPath:
    """A path in a tool's arguments: names below a permitted base folder, none of them `..`."""

    base: Path
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.base.joinpath(*self.names)

    def open(self) -> int:
        """Open the file for reading and return its descriptor. Raises UserError if it is not a regular file, OSError."""
        return fs.file_below(self.base, self.names)

    def folder(self) -> int:
        """Open the path as a folder and return its descriptor. Raises OSError."""
        return fs.folder_below(self.base, self.names)

    def __truediv__(self, name: str) -> ToolPath:
        return ToolPath(self.base, (*self.names, name))


def readable(context: ToolContext, path: str) -> ToolPath:
    """Return where a path leads, for reading. Raises UserError for a path that no tool of this agent may read."""
    layout = context.hive.layout
    place = _resolve(context, path)
    place = _archived_place(layout, place) or place
    worktree_place = _worktree_place(context, path, place)
    if worktree_place is not None and _exists(context, worktree_place):
        place = worktree_place
    elif context.focus.work is not None and not os.path.isabs(path) and place.names:
        task = context.work.task
        task_places = (ToolPath(task.path, (FILES, *place.names)), ToolPath(task.path, place.names))
        # The work folder comes first, then the outputs of commands. Relative paths cannot name the task's records.
        candidates = task_places[: 1 + (place.names[0] == "artifacts")]
        place = next(
            (candidate for candidate in candidates if os.path.lexists(candidate.path)), worktree_place or place
        )
    if place is worktree_place:
        _ensure_worktree(context, place)
    if not is_readable(context, place.path):
        raise ToolProblem(
            "is the mailbox of another agent"
            if layout.mailboxes in _with_parents(place.path)
            else "belongs to the runtime",
            location=path,
        )
    _refuse_links(context, place, path)
    return place


def _archived_place(layout: Layout, place: ToolPath) -> ToolPath | None:
    """Return the current path of a file in tasks/done or tasks/failed if its task was archived, else None."""
    if (
        place.base != layout.root
        or place.names[:2] not in (("tasks", "done"), ("tasks", "failed"))
        or len(place.names) < 3
    ):
        return None
    folder = None if os.path.lexists(place.path) else ended_folder(layout, place.names[2])
    return None if folder is None else ToolPath(layout.root, (*folder.relative_to(layout.root).parts, *place.names[3:]))


def is_readable(context: ToolContext, path: Path) -> bool:
    """Check whether tools may read a path. They may not read the runtime's own files, like a task's records, and the mailboxes of
    other agents."""
    layout, ancestors = context.hive.layout, _with_parents(path)
    if layout.state in ancestors or path == layout.mailboxes or _is_record(layout, path):
        return False
    return layout.mailboxes not in ancestors or layout.mailbox(context.agent) in ancestors


def read_bytes(context: ToolContext, place: ToolPath, max_bytes: int = MAX_READ_BYTES) -> bytes:
    """Return the bytes of a regular file. Raises UserError if it is longer than `max_bytes` or cannot be read."""
    with open_place(context, place) as stream:
        raw = stream.read(max_bytes + 1)
    if len(raw) > max_bytes:
        relative_path = context.hive.layout.relative(place.path)
        raise ToolProblem(
            f"is larger than {max_bytes} bytes", location=relative_path, remedy="read_file shows the file in parts"
        )
    return raw


def open_place(context: ToolContext, place: ToolPath) -> BufferedReader:
    """Return a regular file, open for reading; the caller closes it. Raises ToolProblem if the path is anything else.

    The text file of an active task is read as it was when the task was claimed, even if the file has been changed.
    """
    layout = context.hive.layout
    relative_path = layout.relative(place.path)
    try:
        if (text := _claimed_text(layout, place.path)) is not None:
            return BufferedReader(BytesIO(text))
        file = place.open()
    except UserError as error:
        raise ToolProblem(error.message, location=relative_path) from None
    except OSError as error:
        raise ToolProblem(f"cannot be read ({error.strerror})", location=relative_path) from None
    # A message has a hard link in each mailbox that got it. Elsewhere a second hard link may lead out of the hive.
    ancestors = _with_parents(place.path)
    if os.fstat(file).st_nlink > 1 and layout.root in ancestors and layout.mailboxes not in ancestors:
        os.close(file)
        raise ToolProblem("has a second name (a hard link), which may lead out of the hive", location=relative_path)
    return open(file, "rb")


def _claimed_text(layout: Layout, path: Path) -> bytes | None:
    """If the path is the text file of an active task, return the text with which the task was dropped, else None."""
    if path.parent.parent != layout.active or path.name not in ("task.md", "task.yaml"):
        return None
    record = load(path.parent)
    return record.raw if record is not None and record.text is not None and path.name == text_file(record) else None


@frozen
class WritableFile:
    """A file that a tool may write. If `is_shared`, other agents may write it too, and its path is reserved first."""

    place: ToolPath
    is_shared: bool

    @contextmanager
    def reserved(self, context: ToolContext, reason: str) -> Iterator[None]:
        """Reserve a shared file while the block runs. Raises ReservationHeld (code `RESERVATION_HELD`) if another agent has
        reserved it."""
        if not self.is_shared:
            yield
            return
        reservations = Reservations(context.hive.journal)
        pattern = escape(_reservation_path(context.hive.layout, self.place.path))
        reservation = reservations.reserve(context.agent, pattern, reason=reason)
        try:
            yield
        finally:
            reservations.release(reservation, context.agent)

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.place.path)

    def write(self, context: ToolContext, text: str, like: WritableFile | None = None) -> None:
        """Write the whole file, and create its folders. An existing file keeps its mode, limited by `access:` of hive.yaml; a new
        file gets the mode of `like`. Raises UserError."""
        with self.folder(context, make=True) as (folder, name):
            mode = _mode(name, folder)
            if like is not None:
                with like.folder(context) as (like_folder, like_name):
                    mode = _mode(like_name, like_folder)
            fs.write(self.place.path, text, mode=mode, folder_fd=folder)

    def delete(self, context: ToolContext) -> None:
        """Delete the file. Raises UserError."""
        with self.folder(context) as (folder, name):
            fs.flush_postponed()
            os.unlink(name, dir_fd=folder)
            if fs.is_durable(self.place.path):
                os.fsync(folder)

    @contextmanager
    def folder(self, context: ToolContext, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the file's folder (with `make`, create it), and yield its descriptor and the file's name. An OSError in the block
        becomes a ToolProblem."""
        *folders, name = self.place.names
        relative_path = context.hive.layout.relative(self.place.path)
        try:
            folder = fs.folder_below(self.place.base, folders, create=make)
            try:
                yield folder, name
            finally:
                os.close(folder)
        except UnicodeEncodeError:
            raise ToolProblem("the text has a character that no file can hold", location=relative_path) from None
        except OSError as error:
            raise ToolProblem(f"cannot be written ({error.strerror})", location=relative_path) from None


def writable(context: ToolContext, path: str) -> WritableFile:
    """Return where a path leads, for writing: in knowledge/ or a root open for writing, if the path names one, else in the task's
    worktree or folder.

    Raises UserError for any other path, and for a path that exists and is not a regular file.
    """
    layout = context.hive.layout
    task = context.focus.work.task if context.focus.work is not None else None
    roots = context.hive.config.writable_folders(layout)
    place = _resolve(context, path)
    if any(_comparable(name) in _GIT_NAMES for name in place.names):
        raise ToolProblem("is a name that git treats as a repository, from which it may run commands", location=path)
    worktree_place = _worktree_place(context, path, place)
    enclosing_roots = [root for root in _with_parents(place.path) if root in roots]
    is_explicit = worktree_place is None and (os.path.isabs(path) or enclosing_roots[0] != layout.root)
    if worktree_place is not None:
        place = worktree_place
        _ensure_worktree(context, place)
        if any(worktree.path == worktree_place.base and worktree.branch is None for worktree in context.worktrees):
            raise ToolProblem(
                "is part of the work that you review, which you may only read",
                location=path,
                remedy="write to tasks/active/ID/files",
            )
    elif not is_explicit and task is not None and layout.worktrees not in _with_parents(place.path):
        ancestors = _with_parents(place.path)
        if layout.tasks in ancestors and task.files not in ancestors:
            raise ToolProblem(
                "is a task's record, which belongs to the runtime",
                location=path,
                remedy=f"write to {layout.relative(task.files)}",
            )
        if (
            _is_protected(layout, place.path)
            and task.files not in ancestors
            and not (task.files / place.names[0]).exists()
        ):
            raise ToolProblem(
                "belongs to the hive, and no tool may write it",
                location=path,
                remedy=f"write to {layout.relative(task.files)}/{path}",
            )
        names = place.path.relative_to(task.files).parts if task.files in ancestors else place.names
        place = ToolPath(task.path, (FILES, *names))
    elif not is_explicit or not roots[enclosing_roots[0]] or _is_protected(layout, place.path):
        raise ToolProblem(_NOT_WRITABLE, location=path)
    _refuse_links(context, place, path)
    if not place.names or place.path in roots or place.path.is_dir() or place.path == (task and task.files):
        raise ToolProblem("is a folder", location=path)
    if place.path.exists() and not place.path.is_file():
        raise ToolProblem("is not a regular file", location=path)
    return WritableFile(place, is_shared=is_explicit)


def _worktree_place(context: ToolContext, path: str, place: ToolPath) -> ToolPath | None:
    """Return the path as a path in a worktree of the task, or None if it is in none.

    A relative path is in the first worktree, unless its first name does not exist there. Then that name decides: if it names
    another root, the path is in that root's worktree; if it is a folder of the hive, the path is in none."""
    worktrees = context.worktrees
    for worktree in worktrees:
        if worktree.path in _with_parents(place.path):
            return ToolPath(worktree.path, place.path.relative_to(worktree.path).parts)
    if not worktrees or os.path.isabs(path) or context.work.task.path in _with_parents(place.path):
        return None
    first = ToolPath(worktrees[0].path, place.names[:1])
    other = next((worktree for worktree in worktrees[1:] if place.names[:1] == (worktree.root.name,)), None)
    if other is not None and not _exists(context, first):
        return ToolPath(other.path, place.names[1:])
    layout = context.hive.layout
    is_in_hive = layout.worktrees in _with_parents(place.path) or (layout.root.joinpath(*first.names)).is_dir()
    if first.names and is_in_hive and not _exists(context, first):
        return None
    return ToolPath(first.base, place.names)


def _exists(context: ToolContext, place: ToolPath) -> bool:
    """Check whether a path exists in its worktree or, before the task has used the root, in the person's checkout."""
    worktree = next(worktree for worktree in context.worktrees if worktree.path == place.base)
    if worktree.base:
        _ensure_worktree(context, place)
    return os.path.lexists((worktree.path if worktree.base else worktree.root).joinpath(*place.names))


def _ensure_worktree(context: ToolContext, place: ToolPath) -> None:
    """Make the worktree that contains the place, if it is missing."""
    context.enter(next(worktree.root for worktree in context.worktrees if worktree.path == place.base))


def _resolve(context: ToolContext, path: str) -> ToolPath:
    """Return the base folder and the names of a path. Raises ToolProblem for a path that is not permitted."""
    layout = context.hive.layout
    names = [name for name in _check_syntax(path).split("/") if name not in ("", ".")]
    if ".." in names:
        raise ToolProblem(
            "contains `..`", location=path, remedy="name it from the hive's folder, for example knowledge/boats.md"
        )
    if not os.path.isabs(path):
        return ToolPath(layout.root, tuple(names))
    absolute_path = Path("/", *names)
    enclosing_roots = [root for root in context.hive.config.read_roots(layout) if root in _with_parents(absolute_path)]
    if enclosing_roots:
        base = max(enclosing_roots, key=lambda root: len(root.parts))
        return ToolPath(base, absolute_path.relative_to(base).parts)
    relative_path = layout.relative(absolute_path)
    remedy = (
        f"use {relative_path}"
        if not os.path.isabs(relative_path)
        else "a person can add the file's folder under roots: in hive.yaml"
    )
    raise ToolProblem("is an absolute path", location=path, remedy=remedy)


def _refuse_links(context: ToolContext, place: ToolPath, path: str) -> None:
    """Raise ToolProblem if a symbolic link is on the path, and name it. Opening the file refuses links that appear later."""
    layout, at = context.hive.layout, place.base
    for name in place.names:
        at /= name
        if not at.is_symlink():
            continue
        real = Path(os.path.realpath(at))
        inside = any(root in _with_parents(real) for root in (layout.root, *context.hive.config.read_roots(layout)))
        remedy = f"name its target: {layout.relative(real)}" if inside else None
        raise ToolProblem(f"contains a symbolic link ({layout.relative(at)})", location=path, remedy=remedy)


def _check_syntax(path: str) -> str:
    """Check that a path is well-formed, and return it. Raises ToolProblem."""
    excerpt = repr(path[:80])
    if not path or any(not char.isprintable() for char in path):
        raise ToolProblem("a path must not be empty or contain control characters", location=excerpt)
    try:
        is_too_long = len(os.fsencode(path)) > MAX_PATH or any(
            len(os.fsencode(part)) > MAX_NAME for part in path.split("/")
        )
    except UnicodeEncodeError:
        raise ToolProblem("cannot be the name of a file", location=excerpt) from None
    if is_too_long:
        raise ToolProblem(f"is too long: {MAX_NAME} bytes a name, {MAX_PATH} a path", location=excerpt)
    return path


def _is_protected(layout: Layout, path: Path) -> bool:
    """Return True if the path is in a folder that no tool may write, even if a root open for writing covers the path."""
    protected = {layout.rom, layout.agents, layout.mailboxes, layout.tasks, layout.state, layout.config, layout.lessons}
    return not protected.isdisjoint(_with_parents(path))


def _comparable(name: str) -> str:
    """Return a name normalised as case-insensitive file systems compare it: case, Unicode form, dots and blanks at the end."""
    return unicodedata.normalize("NFKC", name).casefold().rstrip(". ")


def _is_record(layout: Layout, path: Path) -> bool:
    """Return True for the runtime's records in a task's folder: all files except the ones for people (`_PUBLIC_NAMES`)."""
    names = path.relative_to(layout.tasks).parts if layout.tasks in path.parents else ()
    if names[:1] == (layout.archive.name,):
        names = names[2:]
    while names[2:3] == ("attempts",) and len(names) > 4:
        names = (*names[:2], *names[4:])
    return len(names) > 2 and names[0] != "inbox" and names[2] not in _PUBLIC_NAMES


def _with_parents(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)


def _reservation_path(layout: Layout, path: Path) -> str:
    """Return the path as reservations name it: relative to the hive's folder, or `outside` and the absolute path."""
    relative_path = layout.relative(path)
    return f"outside{relative_path}" if os.path.isabs(relative_path) else relative_path


def _mode(name: str, folder: int) -> int:
    """Return the mode of the file `name` in the open `folder`, without special bits. If no regular file has the name, return the
    mode for a new file."""
    try:
        status = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return _NEW_FILE_MODE
    return status.st_mode & 0o777 if stat.S_ISREG(status.st_mode) else _NEW_FILE_MODE


class Reserve(Arguments):
    paths: list[str] = Field(min_length=1, max_length=64, description="globs from the hive's root: knowledge/boats/**")
    shared: bool = Field(False, description="other agents may also reserve the paths as shared")
    reason: str = ""


class Release(Arguments):
    reservation: int | None = Field(None, description="the reservation's number; default: all your reservations")


@tool()
def reserve(context: ToolContext, arguments: Reserve) -> dict[str, Any]:
    """Reserve paths before you edit them. Refused if any of them may match a path that another agent has reserved."""
    reservations = Reservations(context.hive.journal)
    reservation = reservations.reserve(
        context.agent, arguments.paths, shared=arguments.shared, reason=arguments.reason or None
    )
    return {"reservation": reservation.id, "paths": list(reservation.patterns), "shared": reservation.shared}


@tool()
def release(context: ToolContext, arguments: Release) -> dict[str, Any]:
    """Release reserved paths. Your reservations also end with your process."""
    reservations = Reservations(context.hive.journal)
    if arguments.reservation is None:
        return {"released": reservations.release_all(context.agent)}
    if not reservations.release(arguments.reservation, context.agent):
        raise ToolProblem(f"you have no reservation {arguments.reservation}")
    return {"released": 1}


PATH_TOOLS = (reserve, release)
