"""Whole lines of JSON at the end of a file: how they are read, judged, written, and what a crash left of one is kept."""

from __future__ import annotations

import ctypes
import json
import logging
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs.atomic import open_own

Record = dict[str, Any]
_CHUNK = 1 << 20
_TAIL = 1 << 16
_decode = json.JSONDecoder().decode
_log = logging.getLogger(__name__)


class LogDamaged(UserError):
    """A log in which a line is not what was written: refused and kept as it is. `where` names file and line."""


def _damaged(path: str, offset: int, what: str) -> LogDamaged:
    """The error for a line that is not what was written; `offset` is where it begins."""
    with open(open_own(path, os.O_RDONLY), "rb") as file:
        line = file.read(offset).count(b"\n") + 1
    return LogDamaged(
        what,
        where=f"{path}:{line}",
        mend="put the line back as it was, from a copy, or see hivemind doctor; nothing is read past it",
    )


def _whole_lines(file: int, offset: int, *, holes: bool = True) -> Iterator[tuple[int, bytes]]:
    """The whole lines from `offset` on, many at a time: (where they begin, the lines). Where there may
    be `holes` they end at one: a line with zeros in it, as a power cut leaves them of what was not synced."""
    size = _CHUNK
    while True:
        lines = os.pread(file, size, offset)
        hole = lines.find(b"\0") if holes else -1
        cut = lines.rfind(b"\n", 0, len(lines) if hole < 0 else hole) + 1
        if cut:
            yield offset, lines[:cut]
            offset += cut
            size = _CHUNK
        if hole >= 0 or (not cut and len(lines) < size):  # the end, or a line that is not whole
            return
        size = size if cut else size * 2


def read_records(
    path: str,
    file: int,
    offset: int,
    due: int | None,
    *,
    skip: int = 0,
    ends: bool = True,
    holes: bool = True,
) -> Iterator[tuple[list[Record], int]]:
    """The records from `offset` on, many at a time: (records, where the line of the last ends), numbered from `due` on; without
    it, a line that holds no record is left out. The first line has `skip` bytes of another kind before it.

    Stops at a line that is not what was written: a torn end. Raises LogDamaged if it can be none, as whole lines follow it,
    or the log goes on elsewhere (`ends` is false).
    """
    for at, lines in _whole_lines(file, offset, holes=holes):
        records, used, wrong = _take(lines[skip:], due)
        end, skip = at + skip + used, 0
        if records and due is not None:
            due = records[-1]["seq"] + 1
        yield records, end
        if wrong is not None:
            if not ends or _followed(file, end, holes=holes):
                raise _damaged(path, end, wrong)
            return


def _take(lines: bytes, due: int | None) -> tuple[list[Record], int, str | None]:
    """The records of whole lines: (records, bytes they take, what is wrong with the next line)."""
    found = _all_at_once(lines)
    if found is not None and (due is None or all(_is_numbered(one, seq) for seq, one in enumerate(found, due))):
        return found, len(lines), None
    found, used = [], 0
    for line in lines.split(b"\n")[:-1]:
        records = records_of(line)
        if due is not None:
            if not records:
                return found, used, "is no record"
            for seq, record in enumerate(records, due):
                if not _is_numbered(record, seq):
                    return found, used, f"has the seq {str(record.get('seq'))[:40]} where {seq} follows"
            due += len(records)
        found += records
        used += len(line) + 1
    return found, used, None


def _is_numbered(record: Record, seq: int) -> bool:
    return type(record.get("seq")) is int and record["seq"] == seq


def _all_at_once(lines: bytes) -> list[Record] | None:
    """The records of many lines, or None if they have to be looked at line by line.

    One call of the decoder for all of them costs a third of one call for each.
    """
    found: list[Any] = []
    with suppress(Unreadable), boundary("lines of a log"):
        found = _decode(f"[{lines.decode()[:-1]}]".replace("\n", ","))
    if len(found) != lines.count(b"\n"):  # two values on one line, or none
        return None
    flat: list[Record] = []
    for one in found:
        if type(one) is dict:
            flat.append(one)
        elif type(one) is list and one and all(type(record) is dict for record in one):
            flat += one
        else:
            return None
    return flat


def records_of(line: bytes) -> list[Record]:
    """The records of one line; none if it is not one that a log writes."""
    found: object = None
    with suppress(Unreadable), boundary("line of a log"):
        found = _decode(line.decode())
    if isinstance(found, dict):
        return [found]
    return found if isinstance(found, list) and all(isinstance(one, dict) for one in found) else []


def ascending(lines: Iterable[bytes], due: int, most: int) -> Iterator[tuple[int, int, bytes]]:
    """The lines whose records are numbered and follow each other, from `due` to `most`, the most of them that do: (first number,
    how many, line). One with a number that is too high or too low for its place is none."""
    found: list[tuple[int, int, bytes]] = []
    for line in lines:
        records = records_of(line)
        first = records[0].get("seq") if records else None
        if type(first) is int and due <= first <= most and all(map(_is_numbered, records, count(first))):
            found.append((first, len(records), line))
    ends: list[int] = []  # for each length the chain that ends lowest, and of each line the one before it in its chain
    before: list[int] = []
    for at, (first, _, _) in enumerate(found):
        length = bisect_left(ends, first, key=lambda end: found[end][0])
        before.append(ends[length - 1] if length else -1)
        ends[length : length + 1] = [at]
    chain, at = list[int](), ends[-1] if ends else -1
    while at >= 0:
        chain.append(at)
        at = before[at]
    for at in reversed(chain):
        if found[at][0] >= due:
            yield found[at]
            due = found[at][0] + found[at][1]


def _followed(file: int, offset: int, *, holes: bool) -> bool:
    """Whether a record stands at `offset` or after it: then the line there is no torn end, it was changed."""
    lines = _whole_lines(file, offset, holes=holes)
    return any(records_of(line) for _, many in lines for line in many.split(b"\n")[:-1])


def whole_end(file: int, size: int, *, holes: bool = True) -> tuple[int, bytes]:
    """Where the last line that holds records ends, with its newline, and what is torn after it, from a hole on all of it where
    there may be `holes`.

    An end beyond `size` says that only the newline is missing.
    """
    whole = _before_hole(file, size) if holes else size
    width = _TAIL
    while True:
        start = max(0, whole - width)
        tail = os.pread(file, size - start, start)
        lines, end = tail[: whole - start].split(b"\n"), whole
        for at in range(len(lines) - 1, -1 if start == 0 else 0, -1):
            if records_of(lines[at]):
                return end + 1, tail[end + 1 - start :]
            end -= len(lines[at]) + 1
        if start == 0:
            return 0, tail
        width *= 4


def _before_hole(file: int, size: int) -> int:
    """Where the first line begins that has zeros in it; `size` if none has: no line that was written has any."""
    offset = begin = 0
    while offset < size and (chunk := os.pread(file, min(_CHUNK, size - offset), offset)):
        hole = chunk.find(b"\0")
        newline = chunk.rfind(b"\n", 0, len(chunk) if hole < 0 else hole)
        begin = begin if newline < 0 else offset + newline + 1
        if hole >= 0:
            return begin
        offset += len(chunk)
    return size


def put(file: int, line: bytes, at: int) -> None:
    """Write all of a line. Raises OSError; part of it may stand there then."""
    written = 0
    while written < len(line):  # more than once only where the disk is all but full
        written += os.pwrite(file, line[written:], at + written)


def keep_torn(path: str, torn: bytes, at: int, seq: int) -> None:
    """Add what stands after the last whole record to `PATH.torn`, on the disk, before it is cut off. Raises OSError."""
    _log.warning("%s: %d torn bytes at its end are moved to %s.torn", path, len(torn), os.path.basename(path))
    note = {"offset": at, "after": seq, "torn": torn.decode("utf-8", "surrogateescape")}
    with open(f"{path}.torn", "ab") as file:
        file.write(json.dumps(note).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def line_at(file: int, offset: int) -> bytes:
    """What stands from `offset` to the next newline, with it; to the end where there is none."""
    size = 4096
    while b"\n" not in (piece := os.pread(file, size, offset)) and len(piece) == size:
        size *= 4
    return piece[: piece.find(b"\n") + 1] or piece


def true_size(file: int) -> int:
    """How long a file is, as its file system knows. Of one that other machines have mounted too, the kernel may otherwise tell
    an older size."""
    found = _Statx()
    if _statx(file, b"", _AT_EMPTY_PATH | _AT_STATX_FORCE_SYNC, _STATX_SIZE, ctypes.byref(found)) == 0:
        return int(found.size)
    return os.fstat(file).st_size  # a kernel before 4.11


class _Statx(ctypes.Structure):
    _fields_ = (
        ("_to_size", ctypes.c_uint32 * 10),
        ("size", ctypes.c_uint64),
        ("_rest", ctypes.c_uint64 * 26),
    )


_statx = ctypes.CDLL(None).statx
_AT_EMPTY_PATH, _AT_STATX_FORCE_SYNC, _STATX_SIZE = 0x1000, 0x2000, 0x200
