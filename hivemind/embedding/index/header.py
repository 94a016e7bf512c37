"""What an index in files is of, which files those are, and how much of them counts.

The header is a record that is replaced when the index is begun anew; how many rows count stands in a small file that is
written in place, since replacing a file for each new row makes the file system allocate and flush one.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from dataclasses import dataclass

from hivemind.boundary import boundary
from hivemind.embedding.index.columns import SUFFIXES
from hivemind.errors import UserError
from hivemind.fs import load_record, save_record

__all__ = ["Header", "State"]

KIND, VERSION = "vector-index", 3
_MADE_HERE = re.compile(r"index-\d+\.json|v\d+-[0-9a-f]+\.(?:keys|bits|rows|count)")
_COUNTS = struct.Struct("<qqqIIII")  # the last is the CRC-32 of what stands before it
_SUMMED = 36
_TRIES = 5  # a header may name files that its successor has removed, and counts may be read while they are written


@dataclass(frozen=True, slots=True)
class State:
    """Which files, how many rows of them count (and how many of those are dead), up to which change of the source, and the
    CRC-32 of these rows in each column."""

    files: str
    count: int
    dead: int
    seen: int
    sums: tuple[int, int, int] = (0, 0, 0)


class Header:
    """The header in a folder, as far as it is of a source. Whoever writes holds the index's lock."""

    def __init__(self, folder: str, source: str) -> None:
        self._folder, self._source = folder, source
        self._path = os.path.join(folder, f"index-{VERSION}.json")
        self._stamp: tuple[int, int] | None = None
        self._files = ""
        self._counts: int | None = None

    def stem(self, files: str) -> str:
        """How the names of an index's files begin."""
        return os.path.join(self._folder, f"v{VERSION}-{files}")

    def read(self) -> State | None:
        """What stands there now; None if there is no index of our source, or nothing that can be made sense of."""
        for _ in range(_TRIES):
            try:
                found = os.stat(self._path)
            except FileNotFoundError:
                return None
            stamp = (found.st_ino, found.st_mtime_ns)
            if stamp != self._stamp and not self._open(stamp):
                continue
            if not self._files:
                return None
            counts = self._read_counts()
            if counts is not None:
                return State(self._files, *counts)
        return None

    def begin(self, state: State) -> None:
        """Let the index be these files from now on. Raises OSError."""
        counts = os.open(f"{self.stem(state.files)}.count", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self.close()
        self._counts = counts
        self.write(state)
        save_record(self._path, KIND, VERSION, {"source": self._source, "files": state.files}, durable=False)
        found = os.stat(self._path)
        self._stamp, self._files = (found.st_ino, found.st_mtime_ns), state.files

    def write(self, state: State) -> None:
        """Say how much counts now. Raises OSError."""
        assert self._counts is not None
        told = _COUNTS.pack(state.count, state.dead, state.seen, *state.sums, 0)[:_SUMMED]
        os.pwrite(self._counts, told + zlib.crc32(told).to_bytes(4, "little"), 0)

    def sweep(self) -> None:
        """Remove the files of indexes that nobody opens any more; who has them mapped keeps them."""
        ours = {os.path.basename(self._path)}
        ours |= {f"{os.path.basename(self.stem(self._files))}.{suffix}" for suffix in (*SUFFIXES, "count")}
        for name in os.listdir(self._folder):
            if _MADE_HERE.fullmatch(name) and name not in ours:
                os.unlink(os.path.join(self._folder, name))

    def close(self) -> None:
        """Give the file back; the next reading opens it again."""
        self._stamp, self._files = None, ""
        if self._counts is not None:
            os.close(self._counts)
            self._counts = None

    def __del__(self) -> None:
        self.close()

    def _open(self, stamp: tuple[int, int]) -> bool:
        """Know which files the header names, if it is of our source. False if they are gone by now."""
        self.close()
        try:
            record = load_record(self._path, KIND, VERSION)
            if record is not None and record.get("source") == self._source:
                files = str(record.get("files"))
                self._counts = os.open(f"{self.stem(files)}.count", os.O_RDWR | os.O_CLOEXEC)
                self._files = files
        except FileNotFoundError:
            return False
        except UserError:
            pass  # it is a cache: what cannot be read is made anew
        self._stamp = stamp
        return True

    def _read_counts(self) -> tuple[int, int, int, tuple[int, int, int]] | None:
        assert self._counts is not None
        raw = os.pread(self._counts, _COUNTS.size, 0)
        if len(raw) < _COUNTS.size:
            return None
        with boundary("index of vectors", self._path):
            count, dead, seen, keys, bits, rows, checked = _COUNTS.unpack(raw)
        return (count, dead, seen, (keys, bits, rows)) if checked == zlib.crc32(raw[:_SUMMED]) else None
