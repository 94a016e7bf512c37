"""What an agent has taken in: an append-only file of its own, one line for each message (spec 1, *Seen once*).

`+ KEY` taken in, `! KEY` its handler failed, `- KEY` moved to `.Dead`.
A line that a crash cut short is cut off; whatever is no such line is left out when the file is written anew.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection
from urllib.parse import quote, unquote_to_bytes

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import fsync_folder, open_own, reached, set_aside, write

__all__ = ["TakenRecord", "append_whole", "read_taken"]

_FIRST = "hivemind-taken 1"
_VERSION = re.compile(r"hivemind-taken \d+")
_log = logging.getLogger(__name__)
_KEPT = 4096  # names that are in no folder any more are remembered this long, should someone bring one back
_SAFE = "@,=+:#!$&'()*;[] "


class TakenRecord:
    """`taken` are the keys of messages that were taken in; `failures` counts for those that were not."""

    __slots__ = ("_durable", "_file", "_lines", "_path", "failures", "is_damaged", "last", "taken")

    def __init__(self, path: str, durable: bool) -> None:
        """Opens the file, or makes it. Raises UnknownVersion for one of another version, OSError."""
        self._path = path
        self._durable = durable
        self._file = -1
        self._lines = 0
        self.taken: dict[str, None] = {}
        self.failures: dict[str, int] = {}
        self.is_damaged = False  # what was there was no such record, and is kept beside: this one begins anew
        self.last: str | None = None  # the key of the last line, if that one was taken: its move may be unfinished
        self._open()

    def _open(self) -> None:
        try:
            self._file = open_own(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except UserError as error:
            return self._begin_anew(str(error))
        raw = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = raw[: raw.rfind(b"\n") + 1]
        lines = whole.decode("utf-8", "replace").split("\n")[:-1]
        if raw and lines[:1] != [_FIRST]:
            self.close()
            if lines and _VERSION.fullmatch(lines[0]):
                raise UnknownVersion(f"is no {_FIRST} record", where=self._path, mend="move the file away")
            return self._begin_anew(f"{self._path} is damaged")
        if len(whole) < len(raw):
            os.ftruncate(self._file, len(whole))
        if not lines:
            self._write(f"{_FIRST}\n", sync=self._durable)
            if self._durable:
                fsync_folder(os.path.dirname(self._path))
        for line in lines[1:]:
            self._apply(line[:2], os.fsdecode(unquote_to_bytes(line[2:])))
        self._lines = len(lines)
        return None

    def _apply(self, mark: str, key: str) -> None:
        self.last = key if mark == "+ " else None
        if mark == "+ ":
            self.taken[key] = None
        elif mark == "! ":
            self.failures[key] = self.failures.get(key, 0) + 1
        if mark in ("+ ", "- "):
            self.failures.pop(key, None)

    def add(self, mark: str, key: str) -> None:
        """Record one of `+ ! -`. Raises UserError if it cannot be written, and then nothing has changed."""
        try:
            self._write(_line(mark, key), sync=self._durable)
        except OSError as error:
            raise UserError(
                f"cannot be written ({error.strerror})", where=self._path, mend="free some space, then go on"
            ) from error
        self._apply(f"{mark} ", key)
        self._lines += 1

    def _write(self, text: str, sync: bool) -> None:
        append_whole(self._file, text.encode("ascii"))
        if sync:
            os.fdatasync(self._file)

    def overgrown(self, present: int) -> bool:
        """True if most of the file is about messages that are gone, when so many are `present`."""
        return self._lines > 4 * _KEPT + 2 * present

    def _begin_anew(self, why: str) -> None:
        _log.warning("%s: kept as %s", why, set_aside(self._path).name)
        self.is_damaged = True
        self._open()

    def compact(self, present: Collection[str]) -> None:
        """Forget all but the newest 4096 of the names that are not `present` in the folders."""
        gone = [key for key in self.taken if key not in present]
        for key in gone[: max(0, len(gone) - _KEPT)]:
            del self.taken[key]
        self.failures = {key: times for key, times in self.failures.items() if key in present}
        marks = [("+", key) for key in self.taken]
        marks += [("!", key) for key, times in self.failures.items() for _ in range(times)]
        lines = [f"{_FIRST}\n", *(_line(mark, key) for mark, key in marks)]
        write(self._path, "".join(lines), durable=self._durable)
        reached("mail.intake.compacted")
        os.close(self._file)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._lines = len(lines)

    def close(self) -> None:
        """Give the file back. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def append_whole(file: int, raw: bytes) -> None:
    """Append to a file that nobody else appends to just now. Raises OSError, and then nothing has changed."""
    size, written = os.fstat(file).st_size, 0
    try:
        while written < len(raw):  # a full disk shows as a short write first, and as an error then
            written += os.write(file, raw[written:])
    except OSError:
        os.ftruncate(file, size)
        raise


def _line(mark: str, key: str) -> str:
    return f"{mark} {quote(os.fsencode(key), safe=_SAFE)}\n"


def read_taken(path: str) -> set[str]:
    """The keys that a record says were taken in; for who only looks. None for a file that is not there or is no record."""
    try:
        with open(open_own(path, os.O_RDONLY), "rb") as file:
            lines = file.read().decode("utf-8", "replace").split("\n")[:-1]
    except (OSError, UserError):
        return set()
    if lines[:1] != [_FIRST]:
        return set()
    return {os.fsdecode(unquote_to_bytes(line[2:])) for line in lines[1:] if line[:2] == "+ "}
