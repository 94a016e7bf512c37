"""The tool that finds lines in files: by ripgrep where it is installed, else in a bounded process of its own."""

from __future__ import annotations

import base64
import json
import marshal
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import Field

from hivemind.guarded import Guarded, bare_environment
from hivemind.masking import mask
from hivemind.tools import matcher
from hivemind.tools.files import MAX_FOUND, MAX_TEXT_BYTES, READING_S, named, path_filter, path_pattern, read_text, walk
from hivemind.tools.matcher import SHOWN_CHARS, Found, find
from hivemind.tools.path_access import Place, is_readable, read_bytes, readable
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool

__all__ = ["LIMIT_S", "SEARCH_TOOLS", "SHOWN_CHARS", "Line", "ripgrep", "search_lines"]

LIMIT_S = 10.0
_MEMORY_BYTES = 1 << 30
_MOST_CHARS = 33_554_432
_SIGNS = frozenset(r"\.^$*+?{}[]|()")
FoundLine = tuple[str, int, str]

_WORDS = (
    "rg", "--json", "--no-config", "--no-messages", "--sort=path", "--max-filesize=4M", "--max-count=1000",
    "--no-ignore-global",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """A line that matches: its file, from the folder that was searched, its number from 1, its text if that is UTF-8."""

    path: str
    number: int
    text: str | None


def ripgrep(
    folder: Path, what: str, pattern: str, *, glob: str | None, hidden: bool, ignore: bool, limit_s: float
) -> Iterator[Line] | None:
    """The lines below a folder that match, by path; `what` is one file in it, or empty. None where ripgrep cannot tell: it is not
    installed, or the expression is none of its own (it knows no lookaround).

    `ignore`: what `.gitignore` names is passed over. Raises ToolProblem, when the lines are read, after `limit_s`.
    """
    program = shutil.which("rg")
    if program is None:
        return None
    words = [program, *_WORDS[1:], *(["--hidden"] if hidden else []), *([] if ignore else ["--no-ignore"])]
    words += [*([f"--glob=/{glob}"] if glob else []), "--glob=!.git", f"--regexp={pattern}", "--", f"./{what}"]
    if subprocess.run(
        [program, "--no-config", f"--regexp={pattern}", "-"], input=b"", capture_output=True, check=False,
        env=bare_environment(), timeout=limit_s,
    ).returncode not in (0, 1):  # fmt: skip
        return None
    return _lines(words, folder, pattern, limit_s)


def _lines(words: list[str], folder: Path, pattern: str, limit_s: float) -> Iterator[Line]:
    late = threading.Event()
    with (
        open(os.devnull, "wb") as nowhere,
        Guarded(words, folder=folder, environment=bare_environment(), stderr=nowhere) as process,
    ):

        def end() -> None:
            late.set()
            process.terminate()

        timer = threading.Timer(limit_s, end)
        timer.start()
        try:
            for raw in process.output:
                record = json.loads(raw)
                if record["type"] == "match":
                    found = record["data"]
                    yield Line(_path(found["path"]), found["line_number"], found["lines"].get("text"))
        finally:
            timer.cancel()
    if late.is_set():
        raise ToolProblem(f"the search took more than {limit_s:g} s", where=repr(pattern), mend="search fewer files")


def _path(told: dict[str, str]) -> str:
    """The path as the system has it: one that is no UTF-8 comes in base64."""
    raw = told["text"].encode() if "text" in told else base64.b64decode(told["bytes"])
    return os.fsdecode(raw).removeprefix("./")


def search_lines(pattern: str, texts: Iterable[tuple[str, str]], most: int) -> Found:
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
            f"the search took more than {LIMIT_S:g} s", where=repr(pattern),
            mend="search fewer files, or without repeats within repeats such as (a+)+",
        ) from None  # fmt: skip
    except OSError as error:
        raise ToolProblem(f"the search can't be started ({error.strerror})") from None
    if done.returncode != 0:
        raise ToolProblem("the search took too much time or memory", where=repr(pattern), mend="a simpler expression")
    answer: Found | str = marshal.loads(done.stdout)  # noqa: S302 - from the script beside us
    if isinstance(answer, str):
        raise ToolProblem(f"{pattern!r} is no regular expression: {answer}")
    return answer


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


def _first(lines: Iterator[FoundLine], most: int) -> list[FoundLine]:
    found = []
    for line in lines:
        found.append(line)
        if len(found) == most:
            break
    return found


def _by_ripgrep(session: Session, top: Place, arguments: SearchFiles) -> Iterator[FoundLine] | None:
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


def _seen(
    session: Session, base: Place, folder: int, lines: Iterable[Line], arguments: SearchFiles
) -> Iterator[FoundLine]:
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


def _checked(session: Session, place: Place, lines: list[Line], pattern: str) -> Iterator[FoundLine]:
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
