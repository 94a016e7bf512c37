"""The board: the order in which waiting tasks are claimed, worked out once and shared by every process of the hive.

It is a cache (`.hive/tasks.board`) and never the truth. A claim is a rename in the inbox and nothing else; the board
only says which name to try next, so that a hundred agents need not each read a hundred thousand files, and so that
no two of them try the same one. It may be deleted, lost or stale at any time: then it is built again from the inbox.

Layout: 24 bytes (magic, length of the header, 1 byte "superseded", CRC-32 of all but that byte and the bytes "taken", size
of the file), the header (JSON), a byte "taken" for each entry, the offset of each block of 64 entries and of the end, the
blocks (a line of JSON each). Whoever is about to try a name sets its byte; two who set it in the same microsecond both try,
and the rename decides. Written whole and renamed into place; only single bytes are changed afterwards, and nobody relies on
them. A board whose checksum does not match (a power cut) is no board.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from operator import attrgetter
from zlib import crc32

from hivemind.boundary import Unreadable, boundary
from hivemind.fs import set_aside, write
from hivemind.tasks.entry import Entry

__all__ = ["Board", "Header", "lanes_of", "open_board", "write_board"]

_MAGIC = b"HVB2"
_HEAD = struct.Struct("<4sIB3xIQ")
_OFFSET = struct.Struct("<Q")
_BLOCK = 64
_WINDOW = 256
_SUPERSEDED = 8
_by_order = attrgetter("order")
_encode = json.JSONEncoder(separators=(",", ":")).encode


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

    __slots__ = ("_blocks", "_cursor", "_file", "_index", "_taken", "header")

    def __init__(self, file: int, header: Header, taken: int) -> None:
        self.header = header
        self._file = file
        self._taken = taken
        self._index = taken + header.entries
        self._cursor = {lane: start for lane, (start, _) in header.lanes.items()}
        self._blocks: dict[str, tuple[int, list[list[object]]]] = {}

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

    def has(self, lanes: Iterable[str]) -> bool:
        """Whether these lanes have an entry that nobody has taken."""
        return bool(self._heads(lanes))

    def _heads(self, lanes: Iterable[str]) -> list[tuple[int, str, Entry]]:
        return [head for lane in lanes if lane in self._cursor and (head := self._head(lane)) is not None]

    def next(self, lanes: Iterable[str]) -> Entry | None:
        """The first entry of these lanes that nobody has taken, now marked as taken; None if there is none."""
        heads = self._heads(lanes)
        if not heads:
            return None
        slot, lane, entry = heads[0] if len(heads) == 1 else min(heads, key=lambda head: head[2].order)
        os.pwrite(self._file, b"\1", self._taken + slot)
        self._cursor[lane] = slot + 1
        return entry

    def _head(self, lane: str) -> tuple[int, str, Entry] | None:
        """(slot, lane, entry) of the first in a lane that is not taken."""
        end = self.header.lanes[lane][1]
        at = self._cursor[lane]
        while at < end:
            free = os.pread(self._file, min(_WINDOW, end - at), self._taken + at).find(b"\0")
            if free >= 0:
                self._cursor[lane] = at + free
                return at + free, lane, self._entry(lane, at + free)
            at += _WINDOW
        self._cursor[lane] = end
        return None

    def _entry(self, lane: str, slot: int) -> Entry:
        number, at = divmod(slot, _BLOCK)
        block = self._blocks.get(lane)
        if block is None or block[0] != number:
            index = os.pread(self._file, 2 * _OFFSET.size, self._index + number * _OFFSET.size)
            (start,), (end,) = _OFFSET.iter_unpack(index)
            block = self._blocks[lane] = (number, json.loads(os.pread(self._file, end - start, start)))
        return _entry(block[1][at])

    def entries(self) -> list[Entry]:
        """Every entry, also those taken and those that wait."""
        start = self._index + (_blocks(self.header.entries) + 1) * _OFFSET.size
        blocks = os.pread(self._file, os.fstat(self._file).st_size - start, start).splitlines()
        return [_entry(fields) for block in json.loads(b"[" + b",".join(blocks) + b"]") for fields in block]


def _blocks(entries: int) -> int:
    return -(-entries // _BLOCK)


def _entry(fields: list[object]) -> Entry:
    entry = Entry(*fields)  # type: ignore[arg-type]  # written by write_board, below
    return entry if entry.dependencies == () else entry._replace(dependencies=tuple(entry.dependencies))


def open_board(path: str) -> Board | None:
    """The board at `path`; None if there is none, or none that this program can read: then it is made anew."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # gone, or not ours to write: it is only a cache
        return None
    try:
        with boundary("cache", path):
            return Board(file, *_checked(os.pread(file, os.fstat(file).st_size, 0)))
    except Unreadable:
        os.close(file)
        return None


def _checked(raw: bytes) -> tuple[Header, int]:
    """A board's header, and where its bytes "taken" begin. Raises whatever a damaged one provokes."""
    magic, length, _, checksum, size = _HEAD.unpack_from(raw)
    taken = _HEAD.size + length
    header = Header(**json.loads(raw[_HEAD.size : taken])) if magic == _MAGIC and len(raw) == size else None
    if header is None or _checksum(raw[_HEAD.size : taken], raw[taken + header.entries :]) != checksum:
        raise ValueError("checksum")
    return header, taken


def _checksum(head: bytes, rest: bytes) -> int:
    return crc32(rest, crc32(head))


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
    body = _body(replace(header, entries=len(entries), lanes=spans), entries)
    older = open_board(path)
    try:
        write(path, body, durable=False)
    except IsADirectoryError:
        set_aside(path)
        write(path, body, durable=False)
    if older is not None:
        older.supersede()
        older.close()
    return open_board(path)


def _body(header: Header, entries: Sequence[Entry]) -> bytes:
    head = _encode(asdict(header)).encode()
    rows = [entry.row() for entry in entries]
    blocks = [_encode(rows[at : at + _BLOCK]).encode() + b"\n" for at in range(0, len(entries), _BLOCK)]
    offset = _HEAD.size + len(head) + len(entries) + (len(blocks) + 1) * _OFFSET.size
    offsets = list(accumulate(map(len, blocks), initial=offset))
    index = b"".join(map(_OFFSET.pack, offsets))
    rest = b"".join((index, *blocks))
    first = _HEAD.pack(_MAGIC, len(head), 0, _checksum(head, rest), offsets[-1])
    return b"".join((first, head, bytes(len(entries)), rest))
