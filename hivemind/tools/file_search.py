"""The tool that finds lines in files: by ripgrep where it is installed, else in a bounded process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import Field

from hivemind.masking import mask
from hivemind.tools.files import MAX_FOUND, MAX_TEXT_BYTES, READING_S, named, path_filter, path_pattern, read_text, walk
from hivemind.tools.matching import LIMIT_S, SHOWN_CHARS, search_lines
from hivemind.tools.path_access import Place, is_readable, read_bytes, readable
from hivemind.tools.ripgrep import Line, ripgrep
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

__all__ = ["SEARCH_TOOLS"]

Found = tuple[str, int, str]


class SearchFiles(Arguments):
    pattern: str = Field(min_length=1, description="a regular expression")
    path: str | None = Field(None, description="a folder or a file; default: your worktree, else knowledge")
    glob: str | None = Field(None, description="only files such as *.py or src/**/*.ts, from that folder")
    hidden: bool = Field(False, description="also files and folders whose names begin with a dot")


def _hits(result: Mapping[str, Any]) -> str:
    lines = [f"{one['path']}:{one['line']}: {one['text']}" for one in result["hits"]] or ["no line matches"]
    more = [f"… and more: search a smaller part, or with a glob ({MAX_FOUND} are shown)"] if result["cut"] else []
    return "\n".join([*lines, *more])


@tool(text=_hits, reads=True)
def search_files(session: Session, arguments: SearchFiles) -> dict[str, Any]:
    """Find the lines that match a regular expression, in the text files below a folder. In a repository
    outside the hive what git ignores is passed over."""
    top = readable(session, arguments.path or ("." if session.trees else "knowledge"))
    with session.pulse.busy(READING_S + LIMIT_S):
        lines = _by_ripgrep(session, top, arguments)
        if lines is None:
            found, cut = search_lines(arguments.pattern, _texts(session, top, arguments), MAX_FOUND)
        else:
            found = _first(lines, MAX_FOUND + 1)
            cut = len(found) > MAX_FOUND
    return {"hits": [{"path": path, "line": line, "text": text} for path, line, text in found[:MAX_FOUND]], "cut": cut}


def _first(lines: Iterator[Found], most: int) -> list[Found]:
    found = []
    for line in lines:
        found.append(line)
        if len(found) == most:
            break
    return found


def _by_ripgrep(session: Session, top: Place, arguments: SearchFiles) -> Iterator[Found] | None:
    """What ripgrep finds, as far as the agent may see it; None where it cannot tell.

    It is told where to look by an open folder, and what it found is read again as every tool reads: a link that somebody puts
    there meanwhile leads nowhere, and secrets are masked in the whole of a file.
    """
    is_file = top.path.is_file()
    base = Place(top.base, top.names[:-1]) if is_file else top
    try:
        folder = base.folder()
    except OSError as error:
        raise ToolProblem(f"is no folder that can be read ({error.strerror})", where=named(session, top)) from None
    glob = None if arguments.glob is None else path_pattern(arguments.glob)
    lines = ripgrep(
        Path(f"/proc/{os.getpid()}/fd/{folder}"), top.names[-1] if is_file else "", arguments.pattern,
        glob=glob, hidden=arguments.hidden, ignore=top.base != session.hive.layout.root, limit_s=LIMIT_S,
    )  # fmt: skip
    if lines is None:
        os.close(folder)
        return None
    return _seen(session, base, folder, lines, arguments)


def _seen(session: Session, base: Place, folder: int, lines: Iterable[Line], arguments: SearchFiles) -> Iterator[Found]:
    fits = path_filter(arguments.glob)
    try:
        for path, group in groupby(lines, key=lambda line: line.path):
            names = path.split("/")
            place = Place(base.base, (*base.names, *names))
            shown = arguments.hidden or not any(name.startswith(".") for name in names)  # a glob brings them in
            if shown and fits(path) and is_readable(session, place.path):
                yield from _checked(session, place, list(group), arguments.pattern)
    finally:
        os.close(folder)


def _checked(session: Session, place: Place, lines: list[Line], pattern: str) -> Iterator[Found]:
    """The lines of one file as they may be shown: one that masking has changed must match as it is now."""
    try:
        raw = read_bytes(session, place, MAX_TEXT_BYTES).decode("utf-8", "replace")
    except ToolProblem:  # something else stands there by now
        return
    whole, shown = raw.split("\n"), mask(raw).split("\n")
    name = named(session, place)
    for line in lines:
        if (
            line.text is None
            or line.number > len(whole)
            or line.text.rstrip("\r\n") != whole[line.number - 1].rstrip("\r")
        ):
            continue
        text = shown[line.number - 1].rstrip("\r")
        if text == whole[line.number - 1].rstrip("\r") or search_lines(pattern, [(name, text)], 1)[0]:
            yield name, line.number, text[:SHOWN_CHARS]


def _texts(session: Session, top: Place, arguments: SearchFiles) -> Iterator[tuple[str, str]]:
    """The text files, each with its name; what is none, or over 4 MiB, is passed over."""
    fits = path_filter(arguments.glob)
    for place in walk(session, top, hidden=arguments.hidden):
        if fits("/".join(place.names[len(top.names) :]) or place.names[-1]):
            try:
                text = read_text(session, place)
            except ToolProblem:
                continue
            yield named(session, place), mask(text)


SEARCH_TOOLS = (search_files,)
