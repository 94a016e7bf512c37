"""Tools for files: reading inside the hive's roots, writing to the task's folder, knowledge/ and roots opened for it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from hivemind.runtime.tools.places import is_readable, read_bytes, readable, writable
from hivemind.runtime.tools.session import Session
from hivemind.runtime.tools.tool import Arguments, ToolProblem, tool

__all__ = ["FILE_TOOLS"]

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
    target = writable(session, arguments.path)
    text = session.work.answers_so_far() if arguments.text is None else arguments.text
    with target.reserved(session, "write_file"):
        target.write(session, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    shown = session.hive.layout.relative(target.path)
    if arguments.step is not None:
        step = session.step(arguments.step)
        session.work.wrote(step, os.path.relpath(target.path, session.work.task.path), digest)
        receipt = {"kind": "LINK", "text": shown, "digest": digest}
        session.hive.steps.capture(step.id, receipt, **session.shown(step))
    return {"path": shown, "digest": digest, "bytes": len(text.encode())}


@tool
def edit_file(session: Session, arguments: EditFile) -> dict[str, Any]:
    """Replace one passage of a text file that you may write."""
    target = writable(session, arguments.path)
    with target.reserved(session, "edit_file"):  # from the look to the write
        text, _ = _read(session, str(target.path))
        count = text.count(arguments.old)
        if count != 1:
            raise ToolProblem(f"the text to replace stands there {count} times, not once", where=arguments.path)
        changed = text.replace(arguments.old, arguments.new)
        target.write(session, changed)
    digest = hashlib.sha256(changed.encode()).hexdigest()
    return {"path": session.hive.layout.relative(target.path), "digest": digest}


@tool
def list_files(session: Session, arguments: ListFiles) -> dict[str, Any]:
    """List the files below a folder of the hive, at most 200."""
    names = []
    for path in _walk(session, readable(session, arguments.path)):
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
    for path in _walk(session, readable(session, arguments.path)):
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


def _read(session: Session, path: str) -> tuple[str, str]:
    """A text file's text, and the digest of its bytes."""
    raw = read_bytes(session, path)
    try:
        return raw.decode("utf-8"), hashlib.sha256(raw).hexdigest()
    except UnicodeDecodeError as error:
        raise ToolProblem(f"is no UTF-8 text (byte {error.start})", where=path) from None


def _named(session: Session, path: str) -> str:
    return session.hive.layout.relative(readable(session, path))


def _walk(session: Session, top: Path) -> Iterator[Path]:
    """The files below a folder that may be read, in order; links and names that begin with a dot are passed over."""
    if top.is_file():
        yield top
        return
    for folder, names, files in os.walk(top):
        names[:] = [
            name for name in sorted(names) if not name.startswith(".") and _may_enter(session, Path(folder, name))
        ]
        for name in sorted(files):
            path = Path(folder, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def _may_enter(session: Session, folder: Path) -> bool:
    return folder == session.hive.layout.mailboxes or is_readable(session, folder)


FILE_TOOLS = (read_file, write_file, edit_file, list_files, search_files)
