"""A log in several files, for many writers: records numbered over all of them, one flush for many (README.md, *Segments*).

The files are kept open, and a lock beside them says whose turn it is, so that an append is a few system calls.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise, zip_longest
from typing import NamedTuple

from hivemind.boundary import boundary
from hivemind.errors import HivemindError, UserError, mend_of
from hivemind.fs.atomic import create, fsync_folder, make_folder, move, open_own
from hivemind.fs.crash import reached
from hivemind.fs.lines import (
    LogDamaged,
    Record,
    damaged,
    keep_torn,
    look_at,
    put,
    read_records,
    records_of,
    take,
)
from hivemind.fs.locks import lock, try_lock, unlock
from hivemind.fs.records import load_record
from hivemind.layout import month_of

__all__ = ["LogMoved", "Place", "Segments"]

_DIGITS = 12
_WIDTH = 20
_QUANTUM_S = 0.0005


class LogMoved(Exception):
    """The file that was read is another one now (restored, or saved by an editor): read the log from its beginning."""


class Place(NamedTuple):
    """A place in the log: number of the last record, first number of its segment, where its line begins and ends in there."""

    seq: int
    first: int
    start: int
    end: int


class Segments:
    """The log in `folder`. `place` is up to where it has been read; who appends has read to the end, under the lock.

    A segment of `limit` bytes or more is closed: the log goes on in the file that is named by the next number. Each
    record MUST have a text `kind`. With `read_only` nothing is made, locked or written.
    """

    def __init__(self, folder: str, kind: str, version: int, *, limit: int, durable: bool, read_only: bool) -> None:
        self.folder, self.kind, self.version, self.limit = folder, kind, version, limit
        self.durable, self.read_only = durable, read_only
        self.place = Place(0, 1, 0, 0)
        self.torn = False
        """Whether more stood after the last whole record than was read."""
        self.taken = 0
        """Bytes that were read since `go_to`."""
        self._pid = 0
        self._held = False
        self._since = 0.0
        self._turn = self._line = -1
        self._synced: int | None = None
        self._mutex = threading.Lock()  # flock does not part the threads of one process
        self._file: int | None = None
        self._inode: int | None = None  # of the file that `let_go` closed
        self._flushed: tuple[int, int] | None = None  # first number and descriptor of the segment that was flushed last

    # opening

    def open(self) -> None:
        """Make or open what lies beside the segments; in a fork anew, as descriptors share their parent's locks."""
        if self._pid == os.getpid():
            return
        if self._pid:
            self._close_locks()
        else:
            if not self.read_only:
                make_folder(self.folder, durable=self.durable)
            self.limit = self._format()
        self._synced = self._open_beside("synced")
        if not self.read_only:
            self._turn, self._line = self._beside("lock"), self._beside("line")
        self._pid = os.getpid()

    def _beside(self, name: str) -> int:
        return open_own(os.path.join(self.folder, name), os.O_RDWR | os.O_CREAT)

    def _open_beside(self, name: str) -> int | None:
        """The file; for an onlooker None where there is none."""
        if not self.read_only:
            return self._beside(name)
        try:
            return open_own(os.path.join(self.folder, name), os.O_RDONLY)
        except FileNotFoundError:
            return None

    def _format(self) -> int:
        path = os.path.join(self.folder, "format.json")
        found = load_record(path, self.kind, self.version)
        if found is None and not self.read_only:
            record = f'{{"kind":"{self.kind}","version":{self.version},"segment_bytes":{self.limit}}}\n'
            try:
                create(path, record)
            except FileExistsError:
                pass  # another process was first
            found = load_record(path, self.kind, self.version)
        with boundary("record", path, mend="move it away: it is made again"):
            return int((found or {}).get("segment_bytes", self.limit))

    def let_go(self) -> None:
        """Close the files; the next use opens them again, in whichever process, and goes on if they are still the same."""
        self._close_locks()
        if self._file is not None:
            self._inode = os.fstat(self._file).st_ino
            os.close(self._file)
            self._file = None
        self._pid = 0

    def _close_locks(self) -> None:
        if self._pid:
            for file in (self._turn, self._line, self._synced, self._flushed and self._flushed[1]):
                if file is not None and file >= 0:
                    os.close(file)
            self._turn = self._line = -1
            self._synced = self._flushed = None

    def go_to(self, place: Place) -> None:
        """Read from there on."""
        if self._file is not None:
            os.close(self._file)
        self._file = self._inode = None
        self.place, self.torn, self.taken = place, False, 0

    # reading

    def pull(self) -> list[Record]:
        """The records that are new since the last pull, whole lines only; then `torn` says whether more stands there.

        Raises LogDamaged for a line that is not what was written while whole ones follow it, LogMoved.
        """
        found: list[Record] = []
        while self._is_open():
            assert self._file is not None
            size, links = look_at(self._file, truly=self._held)
            if links == 0 or size < self.place.end:
                raise LogMoved
            if size > self.place.end:
                self._take(found, self._file)
            self.torn = size > self.place.end
            if self.torn or self.place.end < self.limit or not self._follow():
                break
        return found

    def pull_all(self) -> list[Record]:
        """The first pull: also makes sure that this is where the log ends. Raises LogDamaged if a segment is missing."""
        found = self.pull()
        while (later := [first for first in self.segments() if first > self.place.first]) and (
            self.place.end < self.limit or later[0] != self.place.seq + 1
        ):
            more = self.pull()  # someone may just have filled this segment
            if not more:
                what = f"is missing: the log ends here, and goes on with event {later[0]}"
                raise damaged(self.path_of(self.place.first), self.place.end, what)
            found += more
        return found

    def _is_open(self) -> bool:
        if self._file is None:
            try:
                self._file = self._open_segment(self.place.first)
            except FileNotFoundError:
                return False
            if self._inode not in (None, os.fstat(self._file).st_ino):
                raise LogMoved
        return True

    def _open_segment(self, first: int) -> int:
        return self.open_segment(first, os.O_RDONLY if self.read_only else os.O_RDWR)

    def open_segment(self, first: int, flags: int = os.O_RDONLY) -> int:
        """The segment, open, wherever it lies. Raises FileNotFoundError."""
        path = self.path_of(first)
        try:
            return open_own(path, flags)
        except FileNotFoundError:
            if (place := next((one for one in self._archives() if first in _segments_in(one)), None)) is None:
                raise
            return open_own(os.path.join(place, os.path.basename(path)), flags)

    def _follow(self) -> bool:
        """Go on to the next segment, if it is there."""
        try:
            self._use(self._open_segment(self.place.seq + 1))
        except FileNotFoundError:
            return False
        return True

    def _use(self, file: int) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self.place = file, Place(self.place.seq, self.place.seq + 1, 0, 0)

    def _take(self, found: list[Record], file: int) -> None:
        first, begun = self.place.first, self.place.end
        path, ends = self.path_of(first), self.segments()[-1:] <= [first]
        for records, start, end in read_records(path, file, begun, self.place.seq + 1, needs="kind", ends=ends):
            if records:
                self.place = Place(records[-1]["seq"], first, start, end)
                found += records
        self.taken += self.place.end - begun

    def records(self, since: int, is_beyond: Callable[[int], bool]) -> Iterator[Record]:
        """The records after the number `since`, one by one; `is_beyond` says of a number whether nobody was told of it."""
        there = self.segments()
        if there and there[0] > since + 1:
            there = self.all_segments()
        for first, following in zip_longest(there, there[1:]):
            if following is None or following > since + 1:
                yield from self._records(first, following, since, is_beyond)

    def _records(
        self, first: int, following: int | None, since: int, is_beyond: Callable[[int], bool]
    ) -> Iterator[Record]:
        path = self.path_of(first)
        file = self.open_segment(first)
        try:
            due, start = _after(file, first, since)
            try:
                for records, _, _ in read_records(path, file, start, due, needs="kind", ends=False):
                    yield from (record for record in records if record["seq"] > since)
                    due = records[-1]["seq"] + 1 if records else due
            except LogDamaged:
                if following is not None or not is_beyond(due):
                    raise
            if following is not None and due and due != following:
                raise LogDamaged(
                    f"the log ends with event {due - 1} there, and goes on with {following}",
                    where=path,
                    mend="put the missing lines or segment back from a copy",
                )
        finally:
            os.close(file)

    def path_of(self, first: int) -> str:
        """The file whose first record has the number `first`."""
        return os.path.join(self.folder, f"{first:0{_DIGITS}d}.jsonl")

    def segments(self) -> list[int]:
        """The first number of each segment that is not archived, oldest first; none where there is no folder (yet)."""
        return _segments_in(self.folder)

    def all_segments(self) -> list[int]:
        """The same, with the archived ones."""
        return sorted({first for place in (self.folder, *self._archives()) for first in _segments_in(place)})

    def _archives(self) -> list[str]:
        """The folders for a month each below `archive`, the newest first."""
        archive = os.path.join(self.folder, "archive")
        try:
            return [os.path.join(archive, month) for month in sorted(os.listdir(archive), reverse=True)]
        except FileNotFoundError:
            return []

    def archive(self, until: int, before: float) -> list[str]:
        """Move closed segments that begin before the record `until`, and were last written to `before` a time (seconds since
        1970), to `archive/<month>/`; where they lie now. Readers look there too."""
        moved: list[str] = []
        there = self.segments()
        for first, following in pairwise(there):
            path = self.path_of(first)
            try:
                written = os.stat(path).st_mtime
                if following > until or written >= before:
                    break
                target = os.path.join(self.folder, "archive", month_of(written))
                make_folder(target, durable=self.durable)
                move(path, os.path.join(target, os.path.basename(path)), durable=self.durable)
            except FileNotFoundError:  # another process was first
                continue
            reached("journal.archive.moved")
            moved.append(os.path.join(target, os.path.basename(path)))
        return moved

    def last_line(self) -> bytes:
        """The line that ends at `place`."""
        assert self._file is not None
        return os.pread(self._file, self.place.end - self.place.start, self.place.start)

    # whose turn it is to write: a bare flock is unfair, as who has just released it takes it again before a waiter has
    # woken. Here a writer may do so for half a millisecond only; then it queues behind a second lock, which the next in
    # line holds while it waits.

    def acquire(self, meanwhile: Callable[[], object]) -> None:
        """Wait for the turn. `meanwhile` is called once where there is a wait: what it does need not be done later."""
        if self._held:  # a second flock on the same descriptor would end the first one
            raise HivemindError(f"nothing can be appended to the {self.kind} while it is held")
        if time.monotonic() - self._since >= _QUANTUM_S or not try_lock(self._turn):
            lock(self._line)
            try:
                if not try_lock(self._turn):
                    meanwhile()
                    lock(self._turn)
            finally:
                unlock(self._line)
            self._since = time.monotonic()
        self._held = True

    def release(self) -> None:
        """Let the others write."""
        self._held = False
        unlock(self._turn)

    @property
    def held(self) -> bool:
        return self._held

    # writing

    def mend(self) -> bool:
        """Move what a crash left after the last whole record to `SEGMENT.torn`, under the lock, after a pull.

        False if another machine had just written it: pull again.
        """
        path, place = self.path_of(self.place.first), self.place
        fresh = open_own(path, os.O_RDONLY)  # what was cached while others wrote is not believed
        try:
            size, _ = look_at(fresh, truly=True)
            torn = os.pread(fresh, size - place.end, place.end)
        finally:
            os.close(fresh)
        if take(torn[: torn.rfind(b"\n") + 1], place.seq + 1, "kind")[0]:
            return False
        try:
            keep_torn(path, torn, place.end, place.seq)
        except OSError as error:  # then it stays where it is
            self._refuse("cannot be written", error, f"{path}.torn")
        reached("journal.repair.noted")
        self._cut(place.end)
        reached("journal.repair.cut")
        self.torn = False
        return True

    def push(self, line: bytes, count: int) -> None:
        """Append a line of that many records, under the lock, after a pull. Raises UserError, and nothing is written."""
        try:
            if self._file is None or self.place.end >= self.limit:
                self._begin()
            reached("journal.append.locked")
            assert self._file is not None
            try:
                put(self._file, line, self.place.end)
            except OSError:
                self._cut(self.place.end)
                raise
        except OSError as error:
            self._refuse("cannot be written", error, self.path_of(self.place.first))
        reached("journal.append.written")
        seq, first, _, end = self.place
        self.place = Place(seq + count, first, end, end + len(line))

    def _begin(self) -> None:
        """Close this segment and begin the next. The old one is made durable first: no gap can be before the end."""
        if self._file is not None:
            self._flush(self.place)
            reached("journal.rotate.synced")
        path = self.path_of(self.place.seq + 1)
        file = open_own(path, os.O_RDWR | os.O_CREAT)
        reached("journal.rotate.created")
        if look_at(file, truly=True)[0]:
            os.close(file)
            raise LogDamaged("is there before the segment ahead of it is full", where=path, mend="restore a copy")
        self._use(file)
        fsync_folder(self.folder)

    # The file `synced` says, for every process, how far the log is known to be on disk: the segment (everything in older
    # ones is) and the offset in it. It is written after the fdatasync and may be lost or old: then one more is done. Who
    # waits for the lock on it mostly finds, when it gets it, that the one before has done its work as well.

    def cover(self, place: Place) -> None:
        """Return once the log is on disk up to there. Raises UserError. An onlooker flushes and notes nothing."""
        try:
            self._flush(place)
        except OSError as error:
            what = "cannot be made durable; whether its last events are there is not known"
            self._refuse(what, error, self.path_of(place.first))

    def _flush(self, place: Place) -> None:
        wanted = place.first, place.end
        if self._known() >= wanted:
            return
        with self._mutex:
            if self.read_only:
                os.fdatasync(self._segment(place.first))
                return
            assert self._synced is not None
            lock(self._synced)
            try:
                if self._known() >= wanted:
                    return
                file = self._segment(place.first)
                size = os.fstat(file).st_size  # what others have written by now comes along
                os.fdatasync(file)
                reached("journal.commit.synced")
                self._note(place.first, size)
            finally:
                unlock(self._synced)

    def _known(self) -> tuple[int, int]:
        """(segment, offset) up to which the log is on disk."""
        if self._synced is None:
            return 0, 0
        try:
            first, offset = os.pread(self._synced, 2 * _WIDTH + 2, 0).split()
            return int(first), int(offset)
        except ValueError:
            return 0, 0

    def _cut(self, offset: int) -> None:
        """Cut the segment back: what is written there next is not on disk before it is flushed anew."""
        assert self._synced is not None
        assert self._file is not None
        with self._mutex:
            lock(self._synced)
            try:
                self._note(0, 0)
                os.ftruncate(self._file, offset)
            finally:
                unlock(self._synced)

    def _note(self, first: int, offset: int) -> None:
        assert self._synced is not None
        os.pwrite(self._synced, f"{first:0{_WIDTH}d} {offset:0{_WIDTH}d}\n".encode(), 0)

    def _segment(self, first: int) -> int:
        """The segment, open to be flushed: it may be an older one than that which is read."""
        if self._flushed is None or self._flushed[0] != first or os.fstat(self._flushed[1]).st_nlink == 0:
            if self._flushed is not None:
                os.close(self._flushed[1])
                self._flushed = None
            self._flushed = first, self.open_segment(first)
        return self._flushed[1]

    def _refuse(self, what: str, error: OSError, where: str) -> None:
        raise UserError(f"{what} ({error.strerror})", where=where, mend=mend_of(error)) from error


def _segments_in(folder: str) -> list[int]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    stems = (name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl"))
    return sorted(int(stem) for stem in stems if len(stem) >= _DIGITS and stem.isascii() and stem.isdigit())


def _after(file: int, first: int, since: int) -> tuple[int, int]:
    """The number of a record not far before those after `since`, and where its line begins in a segment: by bisection."""
    low, high, due = 0, os.fstat(file).st_size if since >= first else 0, first
    while high - low > 4096:
        middle = (low + high) // 2
        begin = middle + len(_line_at(file, middle))
        found = records_of(_line_at(file, begin)) if begin < high else []
        numbers = [one.get("seq") for one in found]
        if numbers and isinstance(numbers[0], int) and isinstance(numbers[-1], int) and numbers[-1] <= since:
            low, due = begin, numbers[0]
        else:  # a damaged line, too: whoever reads it from before on will say so
            high = middle
    return due, low


def _line_at(file: int, offset: int) -> bytes:
    """What stands from `offset` to the next newline, with it; empty if there is no newline any more."""
    size = 4096
    while True:
        piece = os.pread(file, size, offset)
        cut = piece.find(b"\n") + 1
        if cut or len(piece) < size:
            return piece[:cut]
        size *= 4
