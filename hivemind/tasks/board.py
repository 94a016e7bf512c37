"""The board: the order in which waiting tasks are claimed, worked out once and shared by every process of the hive.

It is a cache (`.hive/tasks.board`) and never the truth. A claim is a rename in the inbox and nothing else; the board
only says which name to try next, so that a hundred agents need not each read a hundred thousand files, and so that
no two of them try the same one. It may be deleted, lost or stale at any time: then it is built again from the inbox.

Layout: 16 bytes (magic, length of the header, 1 byte "superseded"), the header (JSON), one slot of 16 bytes per entry
(1 byte "taken", length and offset of its line), the lines (JSON). Whoever is about to try a name sets its taken byte;
two who set it in the same microsecond both try, and the rename decides. Written whole and renamed into place; only
the single bytes are changed afterwards, which nobody relies on.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter

from hivemind.fs import write
from hivemind.tasks.entry import Entry

__all__ = ["Board", "Header", "lanes_of", "open_board", "write_board"]

_MAGIC = b"HVB1"
_HEAD = struct.Struct("<4sIB7x")
_SLOT = struct.Struct("<BxxxIQ")
_WINDOW = 64
_SUPERSEDED = 8
_by_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class Header:
    """When and of what a board was made.

    `inbox_ns` is the inbox's modification time when it was listed, `listed_ns` the wall clock then; `built` is the
    system's monotonic clock (seconds) when the board was ready, `cost` how many seconds it took, `swept` when each
    file was last looked at rather than the list of names only. `restless` counts the drops that may become claimable
    without the inbox changing: half-written ones and those that wait. `lanes` maps `assignee/role` to the first slot
    and the one past the last.
    """

    inbox_ns: int
    listed_ns: int
    built: float
    swept: float
    cost: float
    restless: int
    entries: int = 0
    lanes: dict[str, tuple[int, int]] = field(default_factory=dict)


def lanes_of(agent: str, role: str | None) -> tuple[str, ...]:
    """The lanes that an agent may claim from: for anyone, for it, for its role, for it in that role."""
    names = ("/", f"{agent}/")
    return names if role is None else (*names, f"/{role}", f"{agent}/{role}")


class Board:
    """An open board. `next` gives the entry to try; not for use by two threads at once."""

    __slots__ = ("_cursor", "_file", "_heads", "_slots", "header")

    def __init__(self, file: int, header: Header, slots: int) -> None:
        self.header = header
        self._file = file
        self._slots = slots
        self._cursor = {lane: start for lane, (start, _) in header.lanes.items()}
        self._heads: dict[str, tuple[int, Entry]] = {}

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    @property
    def superseded(self) -> bool:
        """True once a newer board was written, or somebody found that this one misleads."""
        return os.pread(self._file, 1, _SUPERSEDED) != b"\0"

    def supersede(self) -> None:
        os.pwrite(self._file, b"\1", _SUPERSEDED)

    def next(self, lanes: Iterable[str]) -> Entry | None:
        """The first entry of these lanes that nobody has taken, now marked as taken; None if there is none."""
        best: tuple[tuple[int, int, str], str, int, Entry] | None = None
        for lane in lanes:
            head = self._head(lane)
            if head is not None and (best is None or head[1].order < best[0]):
                best = (head[1].order, lane, *head)
        if best is None:
            return None
        _, lane, slot, entry = best
        os.pwrite(self._file, b"\1", self._slots + slot * _SLOT.size)
        self._cursor[lane] = slot + 1
        return entry

    def _head(self, lane: str) -> tuple[int, Entry] | None:
        """The first slot of a lane that is not taken, with its entry."""
        if lane not in self._cursor:
            return None
        _, end = self.header.lanes[lane]
        at = self._cursor[lane]
        while at < end:
            count = min(_WINDOW, end - at)
            window = os.pread(self._file, count * _SLOT.size, self._slots + at * _SLOT.size)
            free = window[:: _SLOT.size].find(b"\0")
            if free >= 0:
                self._cursor[lane] = at + free
                return at + free, self._entry(lane, at + free, window[free * _SLOT.size :])
            at += count
        self._cursor[lane] = end
        return None

    def _entry(self, lane: str, slot: int, window: bytes) -> Entry:
        known = self._heads.get(lane)
        if known is None or known[0] != slot:
            _, length, offset = _SLOT.unpack_from(window)
            known = (slot, _entry(json.loads(os.pread(self._file, length, offset))))
            self._heads[lane] = known
        return known[1]

    def entries(self) -> list[Entry]:
        """Every entry, also those taken and those that wait."""
        size = os.fstat(self._file).st_size
        start = self._slots + self.header.entries * _SLOT.size
        lines = os.pread(self._file, size - start, start).splitlines()
        return [_entry(fields) for fields in json.loads(b"[" + b",".join(lines) + b"]")]


def _entry(fields: list[object]) -> Entry:
    entry = Entry(*fields)  # type: ignore[arg-type]  # written by write_board, below
    return entry._replace(dependencies=tuple(entry.dependencies)) if entry.dependencies else entry


def open_board(path: str) -> Board | None:
    """The board at `path`; None if there is none, or none that this program can read: then it is made anew."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # gone, or not ours to write: it is only a cache
        return None
    try:
        magic, length, _ = _HEAD.unpack(os.pread(file, _HEAD.size, 0))
        header = Header(**json.loads(os.pread(file, length, _HEAD.size))) if magic == _MAGIC else None
        whole = header is not None and os.fstat(file).st_size >= _HEAD.size + length + header.entries * _SLOT.size
    except (struct.error, ValueError, TypeError):
        header, whole = None, False
    if header is None or not whole:
        os.close(file)
        return None
    return Board(file, header, _HEAD.size + length)


def write_board(path: str, header: Header, ready: Iterable[Entry], waiting: Sequence[Entry]) -> Board | None:
    """Write a board of the ready entries and open it; `waiting` are known and not to be claimed."""
    lanes: dict[str, list[Entry]] = {}
    for entry in ready:
        lanes.setdefault(entry.lane, []).append(entry)
    spans: dict[str, tuple[int, int]] = {}
    entries: list[Entry] = []
    for lane, members in lanes.items():
        spans[lane] = (len(entries), len(entries) + len(members))
        entries += sorted(members, key=_by_order)
    entries += waiting
    lines = [json.dumps(entry, separators=(",", ":")).encode() for entry in entries]
    fields = {**asdict(header), "entries": len(entries), "lanes": spans}
    head = json.dumps(fields, separators=(",", ":")).encode()
    offset = _HEAD.size + len(head) + len(lines) * _SLOT.size
    slots = bytearray()
    for line in lines:
        slots += _SLOT.pack(0, len(line), offset)
        offset += len(line) + 1
    body = b"".join((_HEAD.pack(_MAGIC, len(head), 0), head, bytes(slots), b"\n".join(lines), b"\n"))
    older = open_board(path)
    write(path, body, durable=False)
    if older is not None:
        older.supersede()
        older.close()
    return open_board(path)
