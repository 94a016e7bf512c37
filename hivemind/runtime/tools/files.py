"""Tools for files: reading inside the hive's roots, writing to the task's folder, knowledge/ and roots opened for it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from hivemind import fs
from hivemind.errors import UserError
from hivemind.runtime.tools.session import Session
from hivemind.runtime.tools.tool import Arguments, ToolProblem, tool
from hivemind.tasks import RESERVED

__all__ = ["FILE_TOOLS"]

MAX_READ_BYTES = 262_144
MAX_FOUND = 200


class ReadFile(Arguments):
    path: str
    start_line: int | None = Field(None, ge=1, description="first line, counted from 1")
    end_line: int | None = Field(None, ge=1, description="last line, inclusive")


class WriteFile(Arguments):
    path: str = Field(description="relative to the task's folder, or knowledge/…, or a root that may be written")
    text: str | None = Field(None, description="the whole text; left out: the answers found so far")
    step: str | None = None


class EditFile(Arguments):
    path: str
    old: str = Field(min_length=1, description="the text to replace; must stand there exactly once")
    new: str


class ListFiles(Arguments):
    path: str = "."


class SearchFiles(Arguments):
    pattern: str = Field(min_length=1, description="a regular expression")
    path: str = "knowledge"


@tool
def read_file(session: Session, arguments: ReadFile) -> dict[str, Any]:
    """Read a text file of the hive, or some of its lines."""
    text, digest = _read(session, arguments.path)
    lines = text.splitlines(keepends=True)
    first, last = arguments.start_line or 1, arguments.end_line or len(lines)
    part = "".join(lines[first - 1 : last])
    shown: dict[str, Any] = {"path": _named(session, arguments.path), "digest": digest, "text": part}
    if arguments.start_line or arguments.end_line:
        shown |= {"start_line": first, "end_line": min(last, len(lines))}
    return shown


@tool
def write_file(session: Session, arguments: WriteFile) -> dict[str, Any]:
    """Write a whole text file, into the task's folder unless the path says knowledge/… or a root open for writing."""
    target = _writable(session, arguments.path)
    text = session.work.answers_so_far() if arguments.text is None else arguments.text
    target.parent.mkdir(parents=True, exist_ok=True)
    fs.write(target, text, durable=session.hive.config.durable)
    digest = hashlib.sha256(text.encode()).hexdigest()
    shown = session.hive.layout.relative(target)
    if arguments.step is not None:
        step = session.step(arguments.step)
        session.work.wrote(step, os.path.relpath(target, session.work.task.path), digest)
        receipt = {"kind": "LINK", "text": shown, "digest": digest}
        session.hive.steps.capture(step.id, receipt, **session.shown(step))
    return {"path": shown, "digest": digest, "bytes": len(text.encode())}


@tool
def edit_file(session: Session, arguments: EditFile) -> dict[str, Any]:
    """Replace one passage of a text file that you may write."""
    target = _writable(session, arguments.path)
    text, _ = _read(session, str(target))
    count = text.count(arguments.old)
    if count != 1:
        raise ToolProblem(f"the text to replace stands there {count} times, not once", where=arguments.path)
    changed = text.replace(arguments.old, arguments.new)
    fs.write(target, changed, durable=session.hive.config.durable)
    digest = hashlib.sha256(changed.encode()).hexdigest()
    return {"path": session.hive.layout.relative(target), "digest": digest}


@tool
def list_files(session: Session, arguments: ListFiles) -> dict[str, Any]:
    """List the files below a folder of the hive, at most 200."""
    names = []
    for path in _walk(_readable(session, arguments.path)):
        names.append(session.hive.layout.relative(path))
        if len(names) == MAX_FOUND:
            return {"files": names, "cut": True}
    return {"files": names, "cut": False}


@tool
def search_files(session: Session, arguments: SearchFiles) -> dict[str, Any]:
    """Find the lines that match a regular expression, in the text files below a folder (default: knowledge)."""
    try:
        pattern = re.compile(arguments.pattern)
    except re.error as error:
        raise ToolProblem(f"{arguments.pattern!r} is no regular expression: {error}") from None
    hits: list[dict[str, Any]] = []
    for path in _walk(_readable(session, arguments.path)):
        try:
            text, _ = _read(session, str(path))
        except ToolProblem:
            continue  # no text, or too large: nothing to find in it
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                hits.append({"path": session.hive.layout.relative(path), "line": number, "text": line[:300]})
                if len(hits) == MAX_FOUND:
                    return {"hits": hits, "cut": True}
    return {"hits": hits, "cut": False}


def _roots(session: Session) -> tuple[Path, ...]:
    return session.hive.config.read_roots(session.hive.layout)


def _base(session: Session, path: str) -> Path:
    """Relative paths are the hive's, but a task's own file goes first."""
    layout = session.hive.layout
    if session.focus.work is not None and (session.work.task.path / path).exists():
        return session.work.task.path
    return layout.root


def _readable(session: Session, path: str) -> Path:
    found = fs.inside(os.path.join(_base(session, path), path), session.hive.layout.root, _roots(session))
    if session.hive.layout.state in (found, *found.parents):
        raise ToolProblem("is the program's own", where=path)
    return found


def _read(session: Session, path: str) -> tuple[str, str]:
    found = _readable(session, path)
    try:
        file = fs.open_inside(found, session.hive.layout.root, _roots(session))
    except OSError as error:
        raise ToolProblem(f"cannot be read ({error.strerror})", where=path) from None
    with os.fdopen(file, "rb") as stream:
        raw = stream.read(MAX_READ_BYTES + 1)
    if len(raw) > MAX_READ_BYTES:
        raise ToolProblem(f"is larger than {MAX_READ_BYTES} bytes", where=path, mend="read some of its lines elsewhere")
    try:
        return raw.decode("utf-8"), hashlib.sha256(raw).hexdigest()
    except UnicodeDecodeError as error:
        raise ToolProblem(f"is no UTF-8 text (byte {error.start})", where=path) from None


def _named(session: Session, path: str) -> str:
    return session.hive.layout.relative(_readable(session, path))


def _writable(session: Session, path: str) -> Path:
    layout, folder = session.hive.layout, session.work.task.path
    base = layout.root if path.startswith("knowledge/") else folder
    allowed = (folder, layout.knowledge, *session.hive.config.write_roots(layout))
    try:
        found = fs.inside(os.path.join(base, path), folder, allowed[1:])
    except UserError:
        raise ToolProblem(
            "is not where you may write: the task's folder, knowledge/, roots that say so", where=path
        ) from None
    if found in allowed or found.is_dir():
        raise ToolProblem("is a folder", where=path)
    top = os.path.relpath(found, os.path.realpath(folder)).split(os.sep, 1)[0]
    if top in _KEPT or (top != ".." and top.startswith(".")):
        raise ToolProblem("is the program's own record of the task", where=path, mend="write to artifacts/")
    return found


_KEPT = RESERVED - {"artifacts"} | {"task.md", "task.yaml"}


def _walk(top: Path) -> Iterator[Path]:
    if top.is_file():
        yield top
        return
    for folder, names, files in os.walk(top):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


FILE_TOOLS = (read_file, write_file, edit_file, list_files, search_files)
