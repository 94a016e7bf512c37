"""Where a tool may read and write (spec 7, *Files*): named as a mind names it, opened so that nothing leads out meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hivemind import fs
from hivemind.coordination import Reservations
from hivemind.coordination.globs import escape
from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.runtime.tools.session import Session
from hivemind.runtime.tools.tool import ToolProblem
from hivemind.tasks import RESERVED

__all__ = ["Target", "is_readable", "read_bytes", "readable", "writable"]

MAX_READ_BYTES = 262_144
_MAX_PATH = 4096
_MAX_NAME = 255
_NEW = 0o644
_KEPT = RESERVED - {"artifacts"} | {"task.md", "task.yaml", "task.yml"}
_NOT_HERE = "is not where you may write: the task's folder, knowledge/, roots that say so"


def readable(session: Session, path: str) -> Path:
    """The path resolved, if a tool may read there. Raises UserError."""
    layout = session.hive.layout
    found = fs.inside(os.path.join(_base(session, _checked(path)), path), layout.root, _roots(session))
    if not is_readable(session, found):
        raise ToolProblem("is the program's own" if layout.state in _up(found) else "is another's mailbox", where=path)
    return found


def is_readable(session: Session, found: Path) -> bool:
    """Not what the program alone owns, and of the mailboxes only the agent's own."""
    layout, above = session.hive.layout, _up(found)
    if layout.state in above or found == layout.mailboxes:
        return False
    return layout.mailboxes not in above or layout.mailbox(session.agent) in above


def read_bytes(session: Session, path: str) -> bytes:
    """A regular file's bytes, 256 KiB at most. Raises UserError for anything else, in words."""
    found, layout = readable(session, path), session.hive.layout
    try:
        file = fs.open_inside(found, layout.root, _roots(session))
    except OSError as error:
        raise ToolProblem(f"cannot be read ({error.strerror})", where=path) from None
    with os.fdopen(file, "rb") as stream:
        # A message is one file with a name in each mailbox that got it; elsewhere in the hive a second name may lead out.
        if os.fstat(file).st_nlink > 1 and layout.root in _up(found) and layout.mailboxes not in _up(found):
            raise ToolProblem("has a second name (a hard link), which may lead out of the hive", where=path)
        raw = stream.read(MAX_READ_BYTES + 1)
    if len(raw) > MAX_READ_BYTES:
        raise ToolProblem(f"is larger than {MAX_READ_BYTES} bytes", where=path, mend="read some of its lines elsewhere")
    return raw


@dataclass(frozen=True, slots=True)
class Target:
    """A file that a tool may write. `shared` is what other agents may write as well: there its path is reserved first."""

    path: Path
    shared: bool

    @contextmanager
    def reserved(self, session: Session, reason: str) -> Iterator[None]:
        """Nobody else edits the file meanwhile. Raises ReservationHeld (code `RESERVATION_HELD`) if someone does."""
        if not self.shared:
            yield
            return
        held = Reservations(session.hive.journal)
        mine = held.reserve(session.agent, escape(_pattern(session.hive.layout, self.path)), reason=reason)
        try:
            yield
        finally:
            held.release(mine, session.agent)

    def write(self, session: Session, text: str) -> None:
        """Write the whole file, its folders made. What was there keeps its mode. Raises UserError."""
        layout = session.hive.layout
        try:
            folder = fs.folder_inside(self.path.parent, layout.root, _roots(session), make=True)
            try:
                mode = _mode(self.path.name, folder)
                fs.write_at(folder, self.path.name, text, durable=session.hive.config.durable, mode=mode)
            finally:
                os.close(folder)
        except UnicodeEncodeError:
            raise ToolProblem(
                "the text has a character that no file can hold", where=layout.relative(self.path)
            ) from None
        except OSError as error:
            shown = layout.relative(self.path)
            raise ToolProblem(f"cannot be written ({error.strerror})", where=shown) from None


def writable(session: Session, path: str) -> Target:
    """The file that a tool may write: in the task's folder unless the path says knowledge/… or a root open for writing.

    Raises UserError for every other place, and for what is no regular file.
    """
    layout = session.hive.layout
    folder = session.focus.work.task.path if session.focus.work is not None else None
    allowed = (*((folder,) if folder else ()), layout.knowledge, *session.hive.config.write_roots(layout))
    base = layout.root if folder is None or path.startswith("knowledge/") else folder
    try:
        found = fs.inside(os.path.join(base, _checked(path)), allowed[0], allowed[1:])
    except UserError:
        raise ToolProblem(_NOT_HERE, where=path) from None
    own = folder is not None and folder in _up(found)
    if not own and _is_protected(layout, found):
        raise ToolProblem(_NOT_HERE, where=path)
    if found in allowed or found.is_dir():
        raise ToolProblem("is a folder", where=path)
    if found.exists() and not found.is_file():
        raise ToolProblem("is no regular file", where=path)
    if own and folder is not None:
        top = found.relative_to(folder).parts[0]
        if top in _KEPT or top.startswith("."):
            raise ToolProblem("is the program's own record of the task", where=path, mend="write to artifacts/")
    return Target(found, shared=not own)


def _checked(path: str) -> str:
    """A path that can be one. Raises ToolProblem in words."""
    shown = repr(path[:80])
    if not path or any(not char.isprintable() for char in path):
        raise ToolProblem("a path has no control characters in it, and is not empty", where=shown)
    try:
        long = len(os.fsencode(path)) > _MAX_PATH or any(len(os.fsencode(part)) > _MAX_NAME for part in path.split("/"))
    except UnicodeEncodeError:
        raise ToolProblem("is no text that a file can be named with", where=shown) from None
    if long:
        raise ToolProblem(f"is too long: {_MAX_NAME} bytes a name, {_MAX_PATH} a path", where=shown)
    return path


def _base(session: Session, path: str) -> Path:
    """Relative paths are the hive's, but a task's own file goes first."""
    layout = session.hive.layout
    if session.focus.work is not None and (session.work.task.path / path).exists():
        return session.work.task.path
    return layout.root


def _is_protected(layout: Layout, found: Path) -> bool:
    """What no tool writes, even where a root that is open for writing holds the hive itself."""
    closed = {layout.rom, layout.agents, layout.mailboxes, layout.tasks, layout.state, layout.config}
    return not closed.isdisjoint(_up(found))


def _up(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)


def _roots(session: Session) -> tuple[Path, ...]:
    return session.hive.config.read_roots(session.hive.layout)


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
