"""The tool that searches files for lines: with ripgrep if it is installed, else with Python in a separate bounded process."""

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

from hivemind.masking import mask
from hivemind.reaped_command import ReapedCommand, bare_environment
from hivemind.tools import matcher
from hivemind.tools.files import (
    MAX_RESULTS,
    MAX_TEXT_BYTES,
    READING_S,
    display_path,
    path_filter,
    path_pattern,
    read_text,
    walk,
)
from hivemind.tools.matcher import SHOWN_CHARS, LineMatches, find_lines
from hivemind.tools.path_access import ToolPath, is_readable, read_bytes, readable
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext

LIMIT_S = 10.0
_MEMORY_BYTES = 1 << 30
_MAX_CHARS = 33_554_432
_SPECIAL_CHARS = frozenset(r"\.^$*+?{}[]|()")
_RIPGREP = (
    "rg", "--null", "--line-number", "--with-filename", "--no-heading", "--color=never", "--no-config", "--no-messages",
    "--sort=path", "--max-filesize=4M", "--max-count=1000", "--no-ignore-global",
)  # fmt: skip


class _RipgrepFailed(Exception):
    """Ripgrep cannot run the search: it is not installed, or does not support the expression (for example lookaround)."""


class SearchFiles(Arguments):
    pattern: str = Field(min_length=1, description="a regular expression")
    path: str | None = Field(None, description="a folder or a file; default: your worktree, else knowledge")
    glob: str | None = Field(None, description="only these files, like *.py or src/**/*.ts below the folder")
    hidden: bool = Field(False, description="include files and folders with a leading dot in their names")


def _hits_text(result: Mapping[str, Any]) -> str:
    lines = [f"{hit['path']}:{hit['line']}: {hit['text']}" for hit in result["hits"]] or ["no line matches"]
    more = [f"… and more: search a smaller folder, or use a glob ({MAX_RESULTS} are shown)"] if result["cut"] else []
    return "\n".join([*lines, *more])


@tool(text=_hits_text, is_read_only=True)
def search_files(context: ToolContext, arguments: SearchFiles) -> dict[str, Any]:
    """Find the lines that match a regular expression in the text files below a folder. In a repository outside the hive, files
    that git ignores are skipped."""
    top = readable(context, arguments.path or ("." if context.worktrees else "knowledge"))
    with context.pulse.busy(READING_S + LIMIT_S):
        try:
            hits = list(islice(_ripgrep_hits(context, top, arguments), MAX_RESULTS + 1))
            cut = len(hits) > MAX_RESULTS
        except _RipgrepFailed:
            hits, cut = _search_lines(arguments.pattern, _named_texts(context, top, arguments), MAX_RESULTS)
    return {"hits": [{"path": path, "line": line, "text": text} for path, line, text in hits[:MAX_RESULTS]], "cut": cut}


# With ripgrep


def _ripgrep_hits(context: ToolContext, top: ToolPath, arguments: SearchFiles) -> Iterator[tuple[str, int, str]]:
    """Yield the hits of ripgrep in files that the agent may read. Raises _RipgrepFailed before the first hit.

    Ripgrep searches an open folder. Each file with hits is then read again in the way in which all tools read files. So a link
    that appears during the search is not followed, and secrets that span several lines are masked.
    """
    if shutil.which(_RIPGREP[0]) is None:
        raise _RipgrepFailed
    is_file, matches_glob = top.path.is_file(), path_filter(top, arguments.glob)
    base = ToolPath(top.base, top.names[:-1]) if is_file else top
    words = [
        *_RIPGREP,
        *(["--hidden"] if arguments.hidden else []),
        *(["--no-ignore"] if top.base == context.hive.layout.root else []),
        *([] if arguments.glob is None else [f"--glob=/{path_pattern(arguments.glob)}"]),
        *("--glob=!.git", f"--regexp={arguments.pattern}", "--", f"./{top.names[-1] if is_file else ''}"),
    ]
    try:
        folder = base.folder()
    except OSError as error:
        raise ToolProblem(
            f"cannot be read as a folder ({error.strerror})", location=display_path(context, top)
        ) from None
    try:
        lines = _printed_lines(words, Path(f"/proc/{os.getpid()}/fd/{folder}"), arguments.pattern)
        for path, group in groupby(lines, key=lambda line: line[0]):
            names = path.split("/")
            place = ToolPath(base.base, (*base.names, *names))
            # Ripgrep includes hidden files that match a glob.
            is_visible = arguments.hidden or not any(name.startswith(".") for name in names)
            if is_visible and matches_glob(place) and is_readable(context, place.path):
                yield from _masked_hits(context, place, group, arguments.pattern)
    finally:
        os.close(folder)


def _printed_lines(words: list[str], folder: Path, pattern: str) -> Iterator[tuple[str, int, bytes]]:
    """Run ripgrep and yield its hits as (the file's path below the folder, the line's number from 1, the line)."""
    timed_out, has_match = threading.Event(), False
    with (
        open(os.devnull, "wb") as null_device,
        ReapedCommand(words, folder=folder, environment=bare_environment(), stderr=null_device) as process,
    ):

        def stop_search() -> None:
            timed_out.set()
            process.terminate()

        timer = threading.Timer(LIMIT_S, stop_search)
        timer.start()
        try:
            for raw in process.output:
                path, separator, numbered_line = raw.partition(b"\0")
                number, _, line = numbered_line.partition(b":")
                if separator and number.isdigit():  # any other output says that a binary file matches
                    has_match = True
                    yield os.fsdecode(path).removeprefix("./"), int(number), line.rstrip(b"\r\n")
            status = process.wait()
        finally:
            timer.cancel()
    if timed_out.is_set():
        raise ToolProblem(
            f"the search took more than {LIMIT_S:g} s", location=repr(pattern), remedy="search fewer files"
        )
    if status not in (0, 1) and not has_match:
        raise _RipgrepFailed


def _masked_hits(
    context: ToolContext, place: ToolPath, lines: Iterable[tuple[str, int, bytes]], pattern: str
) -> Iterator[tuple[str, int, str]]:
    """Yield the hits in one file with secrets masked. Skip a line that no longer matches after masking."""
    try:
        raw = read_bytes(context, place, MAX_TEXT_BYTES)
    except ToolProblem:  # the file was replaced during the search
        return
    raw_lines, masked_lines = raw.split(b"\n"), mask(raw.decode("utf-8", "replace")).split("\n")
    name = display_path(context, place)
    for _, number, line in lines:
        if number <= len(raw_lines) and line == raw_lines[number - 1].rstrip(b"\r"):
            text = masked_lines[number - 1].rstrip("\r")
            if text == line.decode("utf-8", "replace") or _search_lines(pattern, [(name, text)], 1)[0]:
                yield name, number, text[:SHOWN_CHARS]


# With Python


def _named_texts(context: ToolContext, top: ToolPath, arguments: SearchFiles) -> Iterator[tuple[str, str]]:
    """Yield the name and the masked text of each text file below `top`; skip files over 4 MiB and other files."""
    matches_glob = path_filter(top, arguments.glob)
    for place in walk(context, top, include_hidden=arguments.hidden):
        if matches_glob(place):
            try:
                text = read_text(context, place)
            except ToolProblem:
                continue
            yield display_path(context, place), mask(text)


def _search_lines(pattern: str, texts: Iterable[tuple[str, str]], limit: int) -> LineMatches:
    """Return the first `limit` matching lines in the first 32 Mi characters of named texts, and True if there may be more.

    Raises ToolProblem for an invalid regular expression, or if the search needs more than ten seconds or 1 GiB of memory.
    """
    bounded: list[tuple[str, str]] = []
    room = _MAX_CHARS
    for name, text in texts:
        room -= len(text)
        if room < 0:
            break
        bounded.append((name, text))
    hits, cut = (
        find_lines(lambda line: pattern in line, bounded, limit)
        if _SPECIAL_CHARS.isdisjoint(pattern)
        else _find_in_process(pattern, bounded, limit)
    )
    return hits, cut or room < 0


def _find_in_process(pattern: str, texts: list[tuple[str, str]], limit: int) -> LineMatches:
    request = marshal.dumps((pattern, texts, limit))
    # The extra second is for the start of Python. The limits end the child process if this process is killed.
    words = [sys.executable, "-I", "-S", matcher.__file__, str(math.ceil(LIMIT_S) + 1), str(_MEMORY_BYTES)]
    try:
        process = subprocess.run(
            words, input=request, capture_output=True, timeout=LIMIT_S, check=False, env=bare_environment()
        )
    except subprocess.TimeoutExpired:
        raise ToolProblem(
            f"the search took more than {LIMIT_S:g} s", location=repr(pattern),
            remedy="search fewer files, or avoid nested repeats like (a+)+",
        ) from None  # fmt: skip
    except OSError as error:
        raise ToolProblem(f"the search can't be started ({error.strerror})") from None
    if process.returncode != 0:
        raise ToolProblem(
            "the search took too much time or memory", location=repr(pattern), remedy="use a simpler expression"
        )
    answer: LineMatches | str = marshal.loads(process.stdout)  # noqa: S302 - from our own script
    if isinstance(answer, str):
        raise ToolProblem(f"{pattern!r} is not a regular expression: {answer}")
    return answer


SEARCH_TOOLS = (search_files,)
