"""Tools for files: reading inside the hive's roots, writing to the task's folder, knowledge/ and roots opened for it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from io import StringIO
from typing import Any

from pydantic import Field

from hivemind.masking import mask
from hivemind.tools.matching import LIMIT_S, search_lines
from hivemind.tools.path_access import MAX_READ_BYTES, Place, is_readable, read_bytes, readable, writable
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

__all__ = ["FILE_TOOLS"]

MAX_FOUND = 200
MAX_SEARCHED_BYTES = 4_194_304
_READING_S = 60


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
    place = readable(session, arguments.path)
    text, digest = _read(session, place)
    lines = list(StringIO(mask(text)))
    first, last = arguments.start_line or 1, arguments.end_line or len(lines)
    part = "".join(lines[first - 1 : last])
    shown: dict[str, Any] = {"path": _named(session, place), "digest": digest, "text": part}
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
    shown = _named(session, target.place)
    if arguments.step is not None:
        step = session.step(arguments.step)
        session.work.wrote(step, os.path.relpath(target.place.path, session.work.task.path), digest)
        receipt = {"kind": "LINK", "text": shown, "digest": digest}
        session.hive.steps.capture(step.id, receipt, **session.shown(step))
    return {"path": shown, "digest": digest, "bytes": len(text.encode())}


@tool
def edit_file(session: Session, arguments: EditFile) -> dict[str, Any]:
    """Replace one passage of a text file that you may write."""
    target = writable(session, arguments.path)
    with target.reserved(session, "edit_file"):  # from the look to the write
        text, _ = _read(session, target.place)
        count = text.count(arguments.old)
        if count != 1:
            raise ToolProblem(f"the text to replace stands there {count} times, not once", where=arguments.path)
        changed = text.replace(arguments.old, arguments.new)
        target.write(session, changed)
    digest = hashlib.sha256(changed.encode()).hexdigest()
    return {"path": _named(session, target.place), "digest": digest}


@tool
def list_files(session: Session, arguments: ListFiles) -> dict[str, Any]:
    """List the files below a folder of the hive, at most 200."""
    names = []
    for place in _walk(session, readable(session, arguments.path)):
        names.append(_named(session, place))
        if len(names) == MAX_FOUND:
            return {"files": names, "cut": True}
    return {"files": names, "cut": False}


@tool
def search_files(session: Session, arguments: SearchFiles) -> dict[str, Any]:
    """Find the lines that match a regular expression, in the text files below a folder (default: knowledge)."""
    passed_over: list[str] = []
    texts = _texts(session, readable(session, arguments.path), passed_over)
    with session.pulse.busy(_READING_S + LIMIT_S):
        found, cut = search_lines(arguments.pattern, texts, MAX_FOUND)
    hits = [{"path": path, "line": line, "text": text} for path, line, text in found]
    told: dict[str, Any] = {"hits": hits, "cut": cut}
    if passed_over:
        told["passed_over"] = passed_over[:MAX_FOUND]
    return told


def _texts(session: Session, top: Place, passed_over: list[str]) -> Iterator[tuple[str, str]]:
    """The text files, each with its name; those that are none, or over 4 MiB, are named in `passed_over`."""
    for place in _walk(session, top):
        try:
            text, _ = _read(session, place, MAX_SEARCHED_BYTES)
        except ToolProblem:
            passed_over.append(_named(session, place))
            continue
        yield _named(session, place), mask(text)


def _read(session: Session, place: Place, most: int = MAX_READ_BYTES) -> tuple[str, str]:
    """A text file's text, and the digest of its bytes."""
    raw = read_bytes(session, place, most)
    try:
        return raw.decode("utf-8"), hashlib.sha256(raw).hexdigest()
    except UnicodeDecodeError as error:
        raise ToolProblem(f"is no UTF-8 text (byte {error.start})", where=_named(session, place)) from None


def _named(session: Session, place: Place) -> str:
    return session.hive.layout.relative(place.path)


def _walk(session: Session, top: Place) -> Iterator[Place]:
    """The files below a folder that may be read, in order; links and names that begin with a dot are passed over."""
    if top.path.is_file():
        yield top
        return
    todo = [top]
    while todo:
        place = todo.pop()
        try:
            folder = place.folder()
        except OSError as error:
            if place is top:
                raise ToolProblem(
                    f"is no folder that can be read ({error.strerror})", where=_named(session, top)
                ) from None
            continue  # something else stands there by now
        try:
            with os.scandir(folder) as found:
                seen = sorted((one for one in found if not one.name.startswith(".")), key=lambda one: one.name)
            yield from (place / one.name for one in seen if one.is_file(follow_symlinks=False))
            folders = [place / one.name for one in seen if one.is_dir(follow_symlinks=False)]
        finally:
            os.close(folder)
        todo += [below for below in reversed(folders) if _may_enter(session, below)]


def _may_enter(session: Session, folder: Place) -> bool:
    return folder.path == session.hive.layout.mailboxes or is_readable(session, folder.path)


FILE_TOOLS = (read_file, write_file, edit_file, list_files, search_files)
