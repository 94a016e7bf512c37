"""Where the columns of an index live: in this process's memory, or in files that many processes map.

Three columns stand side by side, row by row: what the row is called (`keys`: key and group), the signs of its vector
(`bits`) and the vector itself (`rows`). Rows are only added; one that no longer counts has the key `DEAD`.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["DEAD", "KEY", "Columns", "FileColumns", "MemoryColumns", "View", "sums"]

DEAD = -1
KEY = struct.Struct("<qq")
SUFFIXES = ("keys", "bits", "rows")


def widths(dimension: int) -> tuple[int, int, int]:
    """Bytes a row in each column, for vectors of one dimension; signs fill whole words of 64."""
    return KEY.size, -(-dimension // 64) * 8, dimension * 4


@dataclass(frozen=True, slots=True)
class View:
    """The first `count` rows, as buffers that may be longer than that."""

    count: int
    keys: memoryview
    bits: memoryview
    rows: memoryview


def sums(view: View, dimension: int) -> tuple[int, int, int]:
    """The CRC-32 of the rows of a view in each column."""
    keys, bits, rows = (
        zlib.crc32(column[: view.count * width])
        for column, width in zip((view.keys, view.bits, view.rows), widths(dimension), strict=True)
    )
    return keys, bits, rows


class Columns(Protocol):
    """Rows that are added at the end, or declared dead."""

    def view(self, count: int) -> View: ...
    def write(self, at: int, columns: tuple[bytes, bytes, bytes]) -> None: ...
    def kill(self, places: Iterable[int]) -> None: ...
    def close(self) -> None: ...


class MemoryColumns:
    """Columns that nobody else sees. Buffers are replaced when they grow: a view stays what it was."""

    def __init__(self, dimension: int) -> None:
        self._widths = widths(dimension)
        self._buffers = [bytearray() for _ in self._widths]

    def view(self, count: int) -> View:
        keys, bits, rows = (memoryview(buffer) for buffer in self._buffers)
        return View(count, keys, bits, rows)

    def write(self, at: int, columns: tuple[bytes, bytes, bytes]) -> None:
        for number, (width, column) in enumerate(zip(self._widths, columns, strict=True)):
            start, buffer = at * width, self._buffers[number]
            if len(buffer) < start + len(column):
                grown = bytearray(max(2 * len(buffer), start + len(column)))
                grown[:start] = buffer[:start]
                self._buffers[number] = buffer = grown
            buffer[start : start + len(column)] = column

    def kill(self, places: Iterable[int]) -> None:
        for place in places:
            KEY.pack_into(self._buffers[0], place * KEY.size, DEAD, 0)

    def close(self) -> None:
        """Nothing to give back."""


class FileColumns:
    """Columns in three files `<stem>.keys`, `.bits` and `.rows`, mapped for reading and written by pwrite.

    Writing through the map would end the process with SIGBUS on a full disk; pwrite raises OSError. Files are never made
    shorter, for the same reason. Who writes holds the index's lock.
    """

    def __init__(self, stem: str, dimension: int, *, create: bool = False) -> None:
        self._widths = widths(dimension)
        self._files: list[int] = []
        self._maps: list[mmap.mmap | None] = [None, None, None]
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        try:
            for suffix in SUFFIXES:
                self._files.append(os.open(f"{stem}.{suffix}", flags, 0o666))
        except OSError:
            self.close()
            raise

    def view(self, count: int) -> View:
        """Raises ValueError if the files are shorter than `count` rows."""
        if not count:
            return View(0, *(memoryview(b"") for _ in SUFFIXES))
        keys, bits, rows = (memoryview(self._mapped(number, count)) for number in range(len(SUFFIXES)))
        return View(count, keys, bits, rows)

    def _mapped(self, number: int, count: int) -> mmap.mmap:
        needed, found = count * self._widths[number], self._maps[number]
        if found is None or len(found) < needed:  # an old map goes when the last view of it does
            if os.fstat(self._files[number]).st_size < needed:
                raise ValueError(f"the column of {SUFFIXES[number]} is cut off")
            found = self._maps[number] = mmap.mmap(self._files[number], 0, access=mmap.ACCESS_READ)
        return found

    def write(self, at: int, columns: tuple[bytes, bytes, bytes]) -> None:
        for file, width, column in zip(self._files, self._widths, columns, strict=True):
            left, offset = memoryview(column), at * width
            _make_room(file, offset + len(column))
            while left:
                written = os.pwrite(file, left, offset)
                left, offset = left[written:], offset + written

    def kill(self, places: Iterable[int]) -> None:
        for place in places:
            os.pwrite(self._files[0], KEY.pack(DEAD, 0), place * KEY.size)

    def close(self) -> None:
        self._maps = [None, None, None]
        while self._files:
            os.close(self._files.pop())

    def __del__(self) -> None:
        self.close()


def _make_room(file: int, size: int) -> None:
    """Let a file be an eighth longer than what is to stand in it (nothing is stored for that), so that the next rows lie
    within what is mapped: a new map finds none of its pages at hand."""
    if os.fstat(file).st_size < size:
        os.ftruncate(file, -(-(size + size // 8) // mmap.PAGESIZE) * mmap.PAGESIZE)
