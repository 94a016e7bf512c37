"""The lines of a log file: read and write whole JSON lines, find the last whole one, save torn bytes."""

from __future__ import annotations

import ctypes
import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs.atomic import open_regular
from hivemind.logger import logger

Record = dict[str, Any]
_CHUNK = 1 << 20
_TAIL = 1 << 16
_decode = json.JSONDecoder().decode
_log = logger(__name__)


class LogDamaged(UserError):
    """A log has a line that was changed after it was written. The file is kept; `location` names file and line."""


def _damaged(path: str, offset: int, message: str) -> LogDamaged:
    """Return the error for the damaged line that begins at `offset`."""
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        line = file.read(offset).count(b"\n") + 1
    return LogDamaged(
        message,
        location=f"{path}:{line}",
        remedy="restore the line from a copy, or run hivemind doctor; later lines are not read",
    )


def _whole_lines(file: int, offset: int, *, may_have_holes: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines from `offset` on, many at a time, as (offset, lines).

    With `may_have_holes`, stops before a line that contains zeros, which a power cut leaves in place of unsynced data.
    """
    size = _CHUNK
    while True:
        lines = os.pread(file, size, offset)
        hole = lines.find(b"\0") if may_have_holes else -1
        length = lines.rfind(b"\n", 0, len(lines) if hole < 0 else hole) + 1
        if length:
            yield offset, lines[:length]
            offset += length
            size = _CHUNK
        if hole >= 0 or (not length and len(lines) < size):  # the end, or a partial line
            return
        size = size if length else size * 2


def read_records(
    path: str,
    file: int,
    offset: int,
    next_seq: int | None,
    *,
    skip_bytes: int = 0,
    is_last_file: bool = True,
    may_have_holes: bool = True,
) -> Iterator[tuple[list[Record], int]]:
    """Yield the records from `offset` on, many at a time, as (records, end of the last record's line).

    Records must be numbered from `next_seq` on. If `next_seq` is None, lines without a record are skipped. The first record
    comes `skip_bytes` after `offset`. Stops at an invalid line at the end of the log, which a crash may leave. Raises
    LogDamaged at an invalid line that records follow, and at any invalid line if `is_last_file` is False.
    """
    for start, lines in _whole_lines(file, offset, may_have_holes=may_have_holes):
        records, length, problem = _parse_lines(lines[skip_bytes:], next_seq)
        end, skip_bytes = start + skip_bytes + length, 0
        if records and next_seq is not None:
            next_seq = records[-1]["seq"] + 1
        yield records, end
        if problem is not None:
            later_lines = _whole_lines(file, end, may_have_holes=may_have_holes)  # with records, this is not a torn end
            if not is_last_file or any(
                records_of(line) for _, chunk in later_lines for line in chunk.split(b"\n")[:-1]
            ):
                raise _damaged(path, end, problem)
            return


def _parse_lines(lines: bytes, next_seq: int | None) -> tuple[list[Record], int, str | None]:
    """Parse whole lines into (records, their length in bytes, the problem of the next line or None)."""
    accepted_records = _parse_together(lines)
    if accepted_records is not None and (
        next_seq is None
        or all(_is_numbered(candidate, seq) for seq, candidate in enumerate(accepted_records, next_seq))
    ):
        return accepted_records, len(lines), None
    accepted_records, length = [], 0
    for line in lines.split(b"\n")[:-1]:
        records = records_of(line)
        if next_seq is not None:
            if not records:
                return accepted_records, length, "is not a record"
            for seq, record in enumerate(records, next_seq):
                if not _is_numbered(record, seq):
                    return accepted_records, length, f"has seq {str(record.get('seq'))[:40]} instead of {seq}"
            next_seq += len(records)
        accepted_records += records
        length += len(line) + 1
    return accepted_records, length, None


def _is_numbered(record: Record, seq: int) -> bool:
    return type(record.get("seq")) is int and record["seq"] == seq


def _parse_together(lines: bytes) -> list[Record] | None:
    """Return the records of many lines, or None if they must be parsed one by one.

    One decoder call for all lines takes a third of the time of one call per line.
    """
    line_values: list[Any] = []
    with suppress(Unreadable), boundary("lines of a log"):
        line_values = _decode(f"[{lines.decode()[:-1]}]".replace("\n", ","))
    if len(line_values) != lines.count(b"\n"):  # two values on one line, or none
        return None
    records: list[Record] = []
    for line_value in line_values:
        if type(line_value) is dict:
            records.append(line_value)
        elif type(line_value) is list and line_value and all(type(record) is dict for record in line_value):
            records += line_value
        else:
            return None
    return records


def records_of(line: bytes) -> list[Record]:
    """Return the records of one line: one object, or an array of objects. Return [] for any other line."""
    json_value: object = None
    with suppress(Unreadable), boundary("line of a log"):
        json_value = _decode(line.decode())
    if isinstance(json_value, dict):
        return [json_value]
    return json_value if isinstance(json_value, list) and all(isinstance(record, dict) for record in json_value) else []


def consecutive_lines(lines: Iterable[bytes], next_seq: int, max_seq: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the longest run of lines whose numbers rise from `next_seq` to at most `max_seq`: (first number, record count, line).

    Leaves out lines without records, and those with a number too high or too low for their position.
    """
    candidates: list[tuple[int, int, bytes]] = []
    for line in lines:
        records = records_of(line)
        first_seq = records[0].get("seq") if records else None
        if (
            type(first_seq) is int
            and next_seq <= first_seq <= max_seq
            and all(map(_is_numbered, records, count(first_seq)))
        ):
            candidates.append((first_seq, len(records), line))
    chain_ends: list[int] = []  # for each chain length, the lowest candidate that ends one
    predecessors: list[int] = []
    for index, (first_seq, _, _) in enumerate(candidates):
        length = bisect_left(chain_ends, first_seq, key=lambda end: candidates[end][0])
        predecessors.append(chain_ends[length - 1] if length else -1)
        chain_ends[length : length + 1] = [index]
    chain, index = list[int](), chain_ends[-1] if chain_ends else -1
    while index >= 0:
        chain.append(index)
        index = predecessors[index]
    for index in reversed(chain):
        if candidates[index][0] >= next_seq:
            yield candidates[index]
            next_seq = candidates[index][0] + candidates[index][1]


def last_record_end(file: int, size: int, *, may_have_holes: bool = True) -> tuple[int, bytes]:
    """Return (end of the last line with records, torn bytes after it). The end includes the newline.

    With `may_have_holes`, all bytes from the first zeros on count as torn: a power cut leaves zeros in place of unsynced data. An
    end beyond `size` means that only the newline is missing.
    """
    limit = _hole_line_start(file, size) if may_have_holes else size
    width = _TAIL
    while True:
        start = max(0, limit - width)
        tail = os.pread(file, size - start, start)
        lines, end = tail[: limit - start].split(b"\n"), limit
        for index in range(len(lines) - 1, -1 if start == 0 else 0, -1):
            if records_of(lines[index]):
                return end + 1, tail[end + 1 - start :]
            end -= len(lines[index]) + 1
        if start == 0:
            return 0, tail
        width *= 4


def _hole_line_start(file: int, size: int) -> int:
    """Return the offset of the first line that contains zeros, or `size`. No writer writes zeros."""
    offset = line_start = 0
    while offset < size and (chunk := os.pread(file, min(_CHUNK, size - offset), offset)):
        hole = chunk.find(b"\0")
        newline = chunk.rfind(b"\n", 0, len(chunk) if hole < 0 else hole)
        line_start = line_start if newline < 0 else offset + newline + 1
        if hole >= 0:
            return line_start
        offset += len(chunk)
    return size


def write_line(file: int, line: bytes, offset: int) -> None:
    """Write a whole line at `offset`. Raises OSError, and may then leave part of the line in the file."""
    byte_count = 0
    while byte_count < len(line):  # repeats only if the disk is almost full
        byte_count += os.pwrite(file, line[byte_count:], offset + byte_count)


def save_torn_bytes(path: str, torn: bytes, offset: int, seq: int) -> None:
    """Append the torn bytes to `PATH.torn` and sync them, before the log is truncated. Raises OSError.

    They began at `offset`, after the record number `seq`.
    """
    _log.warning("%s: moving %d torn bytes from its end to %s.torn", path, len(torn), os.path.basename(path))
    torn_record = {"offset": offset, "after": seq, "torn": torn.decode("utf-8", "surrogateescape")}
    with open(f"{path}.torn", "ab") as file:
        file.write(json.dumps(torn_record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def line_at(file: int, offset: int) -> bytes:
    """Return the bytes from `offset` to the next newline, included, or to the end of the file."""
    size = 4096
    while b"\n" not in (chunk := os.pread(file, size, offset)) and len(chunk) == size:
        size *= 4
    return chunk[: chunk.find(b"\n") + 1] or chunk


def current_status(path: str) -> tuple[int, int, int]:
    """Return a file's device, inode and size, or zeros for a missing file.

    Asks a network file system's server, because lstat may return older values there.
    """
    answer = _Statx()
    if _statx(_AT_FDCWD, os.fsencode(path), _NO_FOLLOW | _FORCE_SYNC, _INODE_AND_SIZE, ctypes.byref(answer)) == 0:
        return os.makedev(answer.major, answer.minor), answer.inode, answer.size
    try:
        status = os.lstat(path)  # a kernel before 4.11
    except FileNotFoundError:
        return 0, 0, 0
    return status.st_dev, status.st_ino, status.st_size


class _Statx(ctypes.Structure):
    """The fields of Linux' `struct statx` that are used, at their offsets."""

    _fields_ = (
        ("before", ctypes.c_char * 32), ("inode", ctypes.c_uint64), ("size", ctypes.c_uint64),
        ("between", ctypes.c_char * 88), ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
        ("after", ctypes.c_char * 112),
    )  # fmt: skip


_statx = ctypes.CDLL(None).statx
_AT_FDCWD, _NO_FOLLOW, _FORCE_SYNC, _INODE_AND_SIZE = -100, 0x100, 0x2000, 0x300
