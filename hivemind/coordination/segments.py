"""The files that the log consists of: `000000000001.jsonl`, named by the seq of their first event."""

from __future__ import annotations

import os
from collections.abc import Iterator

from hivemind.coordination.errors import JournalDamaged
from hivemind.coordination.event import Record, records, text_of

__all__ = ["Place", "damaged", "first_of", "offset_after", "path_of", "read_lines", "segments", "whole_lines"]

Place = tuple[int, int, int, int]
"""A place in the log: seq of the last event, first seq of its segment, where its line begins and ends in there."""
_DIGITS = 12
_CHUNK = 1 << 20


def path_of(folder: str, first: int) -> str:
    """The file whose first event has the seq `first`."""
    return os.path.join(folder, f"{first:0{_DIGITS}d}.jsonl")


def first_of(name: str) -> int | None:
    """The seq in a segment's name, or None for any other file."""
    stem, dot, suffix = name.partition(".")
    return (
        int(stem) if dot and suffix == "jsonl" and len(stem) >= _DIGITS and stem.isascii() and stem.isdigit() else None
    )


def segments(folder: str) -> list[int]:
    """The first seq of each segment there is, oldest first; none where there is no folder (yet)."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(first for name in names if (first := first_of(name)) is not None)


def damaged(folder: str, first: int, offset: int, what: str) -> JournalDamaged:
    """The error for a line that is not what was written; `offset` is where it begins."""
    path = path_of(folder, first)
    with open(path, "rb") as file:
        line = file.read(offset).count(b"\n") + 1
    return JournalDamaged(
        what, where=f"{path}:{line}", mend="put the line back as it was, from a copy; nothing is read past it"
    )


def whole_lines(lines: bytes, expected: int) -> tuple[list[Record], int, str | None]:
    """The events of `lines` from seq `expected` on: (events, bytes they take, what is wrong with the next line)."""
    found = records(lines)
    if found is not None and all(record["seq"] == seq for seq, record in enumerate(found, expected)):
        return found, len(lines), None
    found, used = [], 0
    for line in lines.split(b"\n")[:-1]:
        try:
            events = text_of(line)
        except ValueError as error:
            return found, used, f"is no event ({error})"
        for record in events:
            if record["seq"] != expected:
                return found, used, f"has the seq {record['seq']} where {expected} follows"
            expected += 1
        found += events
        used += len(line) + 1
    return found, used, None


def read_lines(file: int, offset: int, end: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a segment from `offset` on, many at a time: (where they begin, the lines)."""
    size = _CHUNK
    while True:
        lines = os.pread(file, size if end is None else min(size, end - offset), offset)
        cut = lines.rfind(b"\n") + 1
        if cut:
            yield offset, lines[:cut]
            offset += cut
            size = _CHUNK
        elif len(lines) < size:  # the end, or a line that is not whole
            return
        else:
            size *= 2


def offset_after(file: int, since: int) -> int:
    """Where to begin reading a segment for the events after `since`: a line not far before them, found by bisection."""
    low, high = 0, os.fstat(file).st_size
    while high - low > 4096:
        middle = (low + high) // 2
        begin = middle + len(_line_at(file, middle))
        line = _line_at(file, begin) if begin < high else b""
        if line and _last_seq(line) <= since:
            low = begin
        else:
            high = middle
    return low


def _last_seq(line: bytes) -> float:
    try:
        last: int = text_of(line)[-1]["seq"]
        return last
    except ValueError:  # damaged: whoever reads it from before on will say so
        return float("inf")


def _line_at(file: int, offset: int) -> bytes:
    """What stands from `offset` to the next newline, with it; empty if there is no newline any more."""
    size = 4096
    while True:
        piece = os.pread(file, size, offset)
        cut = piece.find(b"\n") + 1
        if cut or len(piece) < size:
            return piece[:cut]
        size *= 4
