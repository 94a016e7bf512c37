"""The tool that finds lines in files: by ripgrep where it is installed, else in a bounded process of its own."""

from __future__ import annotations

import marshal
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from pydantic import Field

from hivemind.guarded import GuardedCommand, bare_environment
from hivemind.masking import mask
from hivemind.tools import matcher
from hivemind.tools.files import MAX_FOUND, MAX_TEXT_BYTES, READING_S, named, path_filter, path_pattern, read_text, walk
from hivemind.tools.matcher import SHOWN_CHARS, Found, find
from hivemind.tools.path_access import ToolPath, is_readable, read_bytes, readable
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

LIMIT_S = 10.0
_MEMORY_BYTES = 1 << 30
_MOST_CHARS = 33_554_432
_SIGNS = frozenset(r"\.^$*+?{}[]|()")
_WORDS = (
    "rg", "--null", "--line-number", "--with-filename", "--no-heading", "--color=never", "--no-config", "--no-messages",
    "--sort=path", "--max-filesize=4M", "--max-count=1000", "--no-ignore-global",
)  # fmt: skip


class _NotByRipgrep(Exception):
    """Ripgrep cannot tell: it is not installed, or the expression is none of its own (it knows no lookaround)."""


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
        try:
            found = list(islice(_by_ripgrep(session, top, arguments), MAX_FOUND + 1))
            cut = len(found) > MAX_FOUND
        except _NotByRipgrep:
            found, cut = _search_lines(arguments.pattern, _texts(session, top, arguments), MAX_FOUND)
    return {"hits": [{"path": path, "line": line, "text": text} for path, line, text in found[:MAX_FOUND]], "cut": cut}


# by ripgrep


def _by_ripgrep(session: Session, top: ToolPath, arguments: SearchFiles) -> Iterator[tuple[str, int, str]]:
    """What ripgrep finds, as far as the agent may see it. Raises _NotByRipgrep before the first line.

    It is told where to look by an open folder, and what it found is read again as every tool reads: a link that somebody puts
    there meanwhile leads nowhere, and secrets are masked in the whole of a file.
    """
    if shutil.which(_WORDS[0]) is None:
        raise _NotByRipgrep
    is_file, fits = top.path.is_file(), path_filter(top, arguments.glob)
    base = ToolPath(top.base, top.names[:-1]) if is_file else top
    words = [
        *_WORDS,
        *(["--hidden"] if arguments.hidden else []),
        *(["--no-ignore"] if top.base == session.hive.layout.root else []),
        *([] if arguments.glob is None else [f"--glob=/{path_pattern(arguments.glob)}"]),
        *("--glob=!.git", f"--regexp={arguments.pattern}", "--", f"./{top.names[-1] if is_file else ''}"),
    ]
    try:
        folder = base.folder()
    except OSError as error:
        raise ToolProblem(f"is no folder that can be read ({error.strerror})", location=named(session, top)) from None
    try:
        lines = _printed_lines(words, Path(f"/proc/{os.getpid()}/fd/{folder}"), arguments.pattern)
        for path, group in groupby(lines, key=lambda line: line[0]):
            names = path.split("/")
            place = ToolPath(base.base, (*base.names, *names))
            shown = arguments.hidden or not any(name.startswith(".") for name in names)  # a glob brings them in
            if shown and fits(place) and is_readable(session, place.path):
                yield from _checked(session, place, group, arguments.pattern)
    finally:
        os.close(folder)


def _printed_lines(words: list[str], folder: Path, pattern: str) -> Iterator[tuple[str, int, bytes]]:
    """The lines that ripgrep prints: the file's path below the folder, the line's number from 1, the line."""
    late, is_any = threading.Event(), False
    with (
        open(os.devnull, "wb") as nowhere,
        GuardedCommand(words, folder=folder, environment=bare_environment(), stderr=nowhere) as process,
    ):

        def end() -> None:
            late.set()
            process.terminate()

        timer = threading.Timer(LIMIT_S, end)
        timer.start()
        try:
            for raw in process.output:
                path, nul, rest = raw.partition(b"\0")
                number, _, line = rest.partition(b":")
                if nul and number.isdigit():  # else it says that a binary file matches
                    is_any = True
                    yield os.fsdecode(path).removeprefix("./"), int(number), line.rstrip(b"\r\n")
            status = process.wait()
        finally:
            timer.cancel()
    if late.is_set():
        raise ToolProblem(
            f"the search took more than {LIMIT_S:g} s", location=repr(pattern), remedy="search fewer files"
        )
    if status not in (0, 1) and not is_any:
        raise _NotByRipgrep


def _checked(
    session: Session, place: ToolPath, lines: Iterable[tuple[str, int, bytes]], pattern: str
) -> Iterator[tuple[str, int, str]]:
    """The lines of one file as they may be shown: one that masking has changed must match as it is now."""
    try:
        raw = read_bytes(session, place, MAX_TEXT_BYTES)
    except ToolProblem:  # something else stands there by now
        return
    whole, shown = raw.split(b"\n"), mask(raw.decode("utf-8", "replace")).split("\n")
    name = named(session, place)
    for _, number, line in lines:
        if number <= len(whole) and line == whole[number - 1].rstrip(b"\r"):
            text = shown[number - 1].rstrip("\r")
            if text == line.decode("utf-8", "replace") or _search_lines(pattern, [(name, text)], 1)[0]:
                yield name, number, text[:SHOWN_CHARS]


# by Python


def _texts(session: Session, top: ToolPath, arguments: SearchFiles) -> Iterator[tuple[str, str]]:
    """The text files, each with its name; what is none, or over 4 MiB, is passed over."""
    fits = path_filter(top, arguments.glob)
    for place in walk(session, top, hidden=arguments.hidden):
        if fits(place):
            try:
                text = read_text(session, place)
            except ToolProblem:
                continue
            yield named(session, place), mask(text)


def _search_lines(pattern: str, texts: Iterable[tuple[str, str]], most: int) -> Found:
    """The first lines of named texts that match, and whether there may be more: over `most`, or beyond 32 Mi characters.

    Raises ToolProblem for what is no regular expression, and for one that takes more than ten seconds or 1 GiB.
    """
    bounded: list[tuple[str, str]] = []
    room = _MOST_CHARS
    for name, text in texts:
        room -= len(text)
        if room < 0:
            break
        bounded.append((name, text))
    found, cut = (
        find(lambda line: pattern in line, bounded, most)
        if _SIGNS.isdisjoint(pattern)
        else _find_elsewhere(pattern, bounded, most)
    )
    return found, cut or room < 0


def _find_elsewhere(pattern: str, texts: list[tuple[str, str]], most: int) -> Found:
    asked = marshal.dumps((pattern, texts, most))
    # Its own limits end it if we are killed; Python takes some of the time to start.
    words = [sys.executable, "-I", "-S", matcher.__file__, str(math.ceil(LIMIT_S) + 1), str(_MEMORY_BYTES)]
    try:
        done = subprocess.run(
            words, input=asked, capture_output=True, timeout=LIMIT_S, check=False, env=bare_environment()
        )
    except subprocess.TimeoutExpired:
        raise ToolProblem(
            f"the search took more than {LIMIT_S:g} s", location=repr(pattern),
            remedy="search fewer files, or without repeats within repeats such as (a+)+",
        ) from None  # fmt: skip
    except OSError as error:
        raise ToolProblem(f"the search can't be started ({error.strerror})") from None
    if done.returncode != 0:
        raise ToolProblem(
            "the search took too much time or memory", location=repr(pattern), remedy="a simpler expression"
        )
    answer: Found | str = marshal.loads(done.stdout)  # noqa: S302 - from the script beside us
    if isinstance(answer, str):
        raise ToolProblem(f"{pattern!r} is no regular expression: {answer}")
    return answer


SEARCH_TOOLS = (search_files,)
