"""A task's log: one JSON object a line, only ever appended to (README.md, *The log*)."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.fs import reached
from hivemind.fs.records import as_line

__all__ = ["LOG", "Version", "append", "read", "records_of", "version"]

LOG = "messages.jsonl"
_CHUNK = 1 << 16
Version = tuple[int, int, int]
"""Which file a log is, its size and its time: after this process's own append nothing else changes it."""


def append(folder: Path, record: Mapping[str, Any], *, durable: bool, name: str = LOG) -> Version:
    """Append one record with a single write; returns what the log is then. Raises OSError, and then it is as it was.

    What a crash left of a line is cut off first; a whole last line without its newline (a person's editor) is kept.
    """
    line = as_line(record)
    file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            size = _mend(file, size)
        written = os.write(file, line)
        if written != len(line):
            os.ftruncate(file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(folder / name))
        reached("tasks.log.appended")
        if durable:
            os.fdatasync(file)
        return _version(os.fstat(file))
    finally:
        os.close(file)


def version(folder: Path) -> Version | None:
    """What the log is now; None if there is none."""
    try:
        return _version(os.lstat(folder / LOG))
    except FileNotFoundError:
        return None


def _version(found: os.stat_result) -> Version:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _mend(file: int, size: int) -> int:
    """Close or cut off the last line; the size of the file then."""
    tail = b""
    start = size
    while start and b"\n" not in tail:
        start = max(0, start - _CHUNK)
        tail = os.pread(file, size - start, start)
    last = tail.rpartition(b"\n")[2]
    if _record(last) is None:
        os.ftruncate(file, size - len(last))
        return size - len(last)
    os.write(file, b"\n")
    return size + 1


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """The records, oldest first. A torn last line is left out; nothing if there is no log."""
    try:
        file = open(folder / LOG, "rb")  # noqa: SIM115 - closed below, and a missing log is no error
    except FileNotFoundError:
        return
    with file:
        yield from records_of(file)


def records_of(file: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The records among the lines; what is none is left out."""
    return (record for line in file if (record := _record(line)) is not None)


def _record(line: bytes) -> dict[str, Any] | None:
    with suppress(Unreadable), boundary("line of a log"):
        record = json.loads(line)
        return record if isinstance(record, dict) else None
    return None
