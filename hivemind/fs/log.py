"""The append-only log: JSON lines in one file, or in several, written and read by several processes (README.md, *A log*).

Readers take no lock and never see half a line. Writers take turns by a lock on the file itself. What a crash left of a
line is set aside by the next writer; what a disk did not take is not there.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, NoReturn

from hivemind.errors import UnknownVersion, UserError, mend_of
from hivemind.fs.atomic import fsync_folder, make_folder, move, open_own, write
from hivemind.fs.crash import reached
from hivemind.fs.lines import (
    LogDamaged,
    Record,
    ascending,
    keep_torn,
    line_at,
    put,
    read_records,
    records_of,
    true_size,
    whole_end,
)
from hivemind.fs.locks import lock, try_lock, unlock
from hivemind.fs.paths import names_in
from hivemind.fs.records import as_line
from hivemind.layout import month_of

_ARCHIVE = "archive"
_AWAY = "move the file away"
_QUANTUM_S = 0.0005
_DIGESTED = 4096
_NOTE_BYTES = 63
_LEAST_BYTES = 16  # of a record: no file holds more of them, nor has lost more
_log = logging.getLogger(__name__)
_Identity = tuple[int, int]


class Place(NamedTuple):
    """Up to where a log was read: of which file (device and inode), how many bytes."""

    file: _Identity | None = None
    end: int = 0


class Mark(NamedTuple):
    """A place in a numbered log that can be found again later: the last number, its line's end, a digest of what is before."""

    seq: int
    end: int
    digest: str


class Log:
    """Appends records to the file `path`, and reads what is new in it. Not safe between threads; holds no file open.

    `numbered`: records have a `seq`, 1, 2, 3 …, and damage between them is refused. `durable`: a record is on the disk
    when `append` returns; if `lazy`, only when one is appended `now`, or after `sync`. `segment_bytes`: a file of that size
    is renamed, and a new one begun. `shared` (numbered): for many writers, who take turns in a queue; a record is on the disk
    after `cover`, of which one serves all that was written before it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str,
        version: int,
        *,
        numbered: bool = False,
        durable: bool = True,
        lazy: bool = False,
        segment_bytes: int | None = None,
        shared: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        self.kind = kind
        self.version = version
        self.numbered = numbered
        self.durable = durable
        self.lazy = lazy
        self.segment_bytes = segment_bytes
        self.shared = shared
        self._holes = numbered or lazy  # lines build on one another, or rest unsynced: after a hole none counts
        self.epoch = 0
        """Rises when `read` begins anew, as the file is another one, or shorter than it was."""
        self.seq = 0
        """The number of the last record that was read; 0 in a log that is not numbered."""
        self.taken = 0
        """Bytes that were read or written so far."""
        self.has_header = False
        """Whether `read` has found what the file is: else it is not there, empty, or torn from its first line on."""
        self.place = Place()
        self._pending: list[Record] = []  # what was read under the lock, for the next `read`
        self._file: int | None = None
        self._queue: int | None = None
        self._identity: _Identity = (0, 0)  # of the open file
        self._pid = 0  # which has opened it
        self.held = False
        """Whether this object holds the lock."""
        self._whole = Place()  # known to be whole
        # What a process before this one wrote, and the file's name, may not be on the disk either.
        self._unsynced = self._unnamed = lazy
        self._flushes = _Flushes(self.path, kind)
        self._turn = self._last = 0.0  # since when this object takes the lock without queueing, and when it last did

    # reading

    def read(self) -> list[Record]:
        """The records that are new since the last call, oldest first; all of them where `epoch` rose.

        What this object appended itself counts as read, unless something before it was not. No file is an empty log.
        Costs a stat if nothing is new. Raises LogDamaged naming file and line, UnknownVersion, OSError.
        """
        if not self._is_read():
            self._catch_up()
        found, self._pending = self._pending, []
        return found

    def batches(self) -> Iterator[list[Record]]:
        """The same, many records at a time, for a log that is long; where `epoch` rises, all of them are from there on."""
        found, self._pending = self._pending, []
        if found:
            yield found
        if not self._is_read():
            try:
                yield from self._new()
            except BaseException:
                self.rewind()
                raise

    def _is_read(self) -> bool:
        if self.held:
            return self.place == self._whole
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return self.place.file is None and self.segment_bytes is None
        return self.place == (_identity(found), found.st_size)

    def _catch_up(self) -> None:
        try:
            for found in self._new():
                self._pending += found
        except BaseException:
            self.rewind()
            raise

    def rewind(self) -> None:
        """Begin anew at the next `read`."""
        self.epoch += 1
        self.seq = 0
        self.has_header = False
        self.place = Place()
        self._pending = []

    def records(self, since: int = 0) -> Iterator[Record]:
        """All records, in a numbered log those after the number `since`, oldest first, whatever `read` has read. Raises as
        `read` does."""
        whole = Log(self.path, self.kind, self.version, numbered=self.numbered, segment_bytes=self.segment_bytes)
        if since:
            whole._skip_to(since)
        for records in whole._new():
            yield from (record for record in records if not since or record["seq"] > since)

    def _new(self) -> Iterator[list[Record]]:
        """What is new, many records at a time, beginning with the file that was read last."""
        newest = self._open(self.path)
        try:
            if newest is None or not self._goes_on(os.fstat(newest)):
                full = [path for _, path in self._full()]
                begun = [at for at, path in enumerate(full) if self._goes_on(_status(path))]
                if self.place.file is not None and not begun:
                    self.rewind()
                for path in full[begun[0] if begun else 0 :]:
                    with self._opened(path) as file:
                        if newest is not None and os.path.sameopenfile(file, newest):
                            break  # it was renamed just now
                        yield from self._pull(path, file, ends=False)
            if newest is not None:
                yield from self._pull(self.path, newest)
        finally:
            if newest is not None:
                os.close(newest)

    def _open(self, path: str) -> int | None:
        try:
            return open_own(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """A full file, where it lies or was archived to this very moment."""
        file = self._open(path)
        if file is None:
            name = os.path.basename(path)
            path = next((one for _, one in self._full() if os.path.basename(one) == name), path)
            file = open_own(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            yield file
        finally:
            os.close(file)

    def _goes_on(self, status: os.stat_result | None) -> bool:
        """Whether this is the file that was read last, and all that was read of it is still there."""
        return status is not None and self.place.file == _identity(status) and status.st_size >= self.place.end

    def _pull(self, path: str, file: int, *, ends: bool = True) -> Iterator[list[Record]]:
        status = os.fstat(file)
        if self.place.file != _identity(status):
            self.place = Place(_identity(status), 0)
        skip = 0
        if not self.place.end:
            head = line_at(file, 0)
            if not head.endswith(
                b"\n"
            ):  # a header that is not there yet is none of the records that follow it meanwhile
                return
            skip = self._header_of(head, path)
        due = self.seq + 1 if self.numbered else None
        for found, end in read_records(path, file, self.place.end, due, skip=skip, ends=ends, holes=self._holes):
            self.taken += end - self.place.end
            self.place = self.place._replace(end=end)
            if found and self.numbered:
                self.seq = found[-1]["seq"]
            yield found
        if self.place.end == status.st_size:
            self._know(status)
        elif self.place.end < (self._synced(status) if ends else status.st_size):
            due = self.seq + 1 if self.numbered else None
            for _ in read_records(path, file, self.place.end, due, ends=ends, holes=False):
                pass  # a line that was on the disk was torn by no power cut: this refuses it

    def _synced(self, status: os.stat_result) -> int:
        """Up to where a shared log's file is known to have been on the disk."""
        notes = self._open(f"{self.path}.synced") if self.shared else None
        if notes is None:
            return 0
        try:
            place = _read_note(notes)
        finally:
            os.close(notes)
        return place.end if place.file == _identity(status) else 0

    def _header_of(self, line: bytes, path: str) -> int:
        """The length of the header, the file's first line. 0 where that is torn, or, in a log that is not numbered, is no JSON:
        it is left out like any other. Raises LogDamaged, UnknownVersion."""
        records = [] if b"\0" in line else records_of(line)
        if not records:
            if self.numbered and line.endswith(b"\n") and b"\0" not in line:
                raise LogDamaged(f"is no {self.kind}", where=f"{path}:1", mend=_AWAY)
            return 0
        header = records[0]
        if header.get("kind") != self.kind:
            raise LogDamaged(f"is no {self.kind}: its first line says otherwise", where=path, mend=_AWAY)
        if header.get("version") != self.version:
            raise UnknownVersion(
                f"is a {self.kind} of version {header.get('version')}, this program knows version {self.version}",
                where=path,
                mend=f"use the hivemind that wrote it, or {_AWAY}",
            )
        self.has_header = True
        return len(line)

    # finding a place again, in a numbered log

    def mark(self) -> Mark | None:
        """What `resume` needs to go on from here; None where another file has the name by now."""
        file = self._open(self.path)
        if file is None:
            return None
        try:
            same = self.seq > 0 and self._goes_on(os.fstat(file))
            return Mark(self.seq, self.place.end, _digest(file, self.place.end)) if same else None
        finally:
            os.close(file)

    def resume(self, mark: Mark) -> bool:
        """Read from there on. False if it is not found, as the log was restored or cut: then nothing has changed."""
        for file in self._newest_first():
            if _digest(file, mark.end) == mark.digest:
                self._header_of(line_at(file, 0), self.path)
                self._go_to(file, mark.seq, mark.end)
                return True
        return False

    def _skip_to(self, since: int) -> None:
        """Read from a place on that is not far before the record after the number `since`."""
        for file in self._newest_first():
            begin = self._header_of(line_at(file, 0), self.path)
            if found := _last_before(file, begin, since):
                self._go_to(file, *found)
                return

    def _go_to(self, file: int, seq: int, end: int) -> None:
        self.place, self.seq, self.has_header = Place(_identity(os.fstat(file)), end), seq, True

    def _newest_first(self) -> Iterator[int]:
        for path in (self.path, *(path for _, path in reversed(self._full()))):
            file = self._open(path)
            if file is not None:
                try:
                    yield file
                finally:
                    os.close(file)

    # what the file is

    def _know(self, status: os.stat_result) -> None:
        """Remember what the file is now: whole."""
        self._whole = Place(_identity(status), status.st_size)

    @property
    def size(self) -> int:
        """Bytes of the file when it was last known to be whole."""
        return self._whole.end

    def torn(self) -> bytes:
        """What a crash left after the last whole record, or is being written just now. No file: nothing."""
        file = self._open(self.path)
        if file is None:
            return b""
        try:
            return whole_end(file, true_size(file), holes=self._holes)[1]
        finally:
            os.close(file)

    # the lock

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the log, its end mended, while it is read and appended to. Not re-entrant.

        Raises FileNotFoundError if its folder is gone, UserError if it cannot be locked or mended, UnknownVersion.
        """
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        """Lock and mend the file; where it was moved or replaced while this waited, the one that has the name now."""
        while not self.held:
            try:
                file = self._open_to_write()
                self._wait(file)
                if self._is_found():
                    self._mend(file)
                    self.held = self.segment_bytes is None or self.size < self.segment_bytes or not self._rotate(file)
            except OSError as error:
                self._refuse("cannot be written", error)
            finally:
                if not self.held:
                    self._close_file()

    def release(self) -> None:
        """Let the others write."""
        self.held = False
        if self.shared and self._file is not None:
            unlock(self._file)
        else:
            self._close_file()

    def close(self) -> None:
        """Close the files, which a `shared` log keeps open. The next use opens them again."""
        self._flushes.close()
        self._close_file()

    def _close_file(self) -> None:
        _close(self._file, self._queue)
        self._file = self._queue = None

    def __del__(self) -> None:
        self.close()

    def _open_to_write(self) -> int:
        if self._file is not None:
            if self._pid == os.getpid():
                return self._file
            self._close_file()  # this is a fork: what is open shares its parent's lock
        flags = os.O_RDWR | os.O_NOFOLLOW
        if not (self.shared and self.seq) or self._full():
            flags |= os.O_CREAT  # else it is gone, and begins nowhere else
        self._file, self._pid = open_own(self.path, flags), os.getpid()
        if self.shared:
            self._queue = _open_beside(self.path, "line")
        self._identity = _identity(os.fstat(self._file))
        return self._file

    def _wait(self, file: int) -> None:
        """Lock the file. The lock by itself is unfair: who has just let go of it takes it again before a waiter has woken.
        With `shared` one may do so for half a millisecond only; then it queues behind a second lock, which the next in line
        holds while it waits."""
        if not self.shared:
            lock(file)
            return
        now = time.monotonic()
        if now - self._last >= _QUANTUM_S:
            self._turn = now
        if now - self._turn >= _QUANTUM_S or not try_lock(file):
            assert self._queue is not None
            lock(self._queue)
            try:
                lock(file)
            finally:
                unlock(self._queue)
            self._turn = time.monotonic()
        self._last = time.monotonic()

    def _is_found(self) -> bool:
        """Whether the name leads to the file that is open, not to another one or nowhere."""
        try:
            return _identity(os.lstat(self.path)) == self._identity
        except FileNotFoundError:
            return False

    def _mend(self, file: int) -> None:
        """See to it, under the lock, that the file ends with a whole record: what is torn goes to `PATH.torn`."""
        size = true_size(file)
        if self.numbered and self.place != (self._identity, size):
            self._catch_up()
        if self._whole == (self._identity, size) and (self.place == self._whole or not self.numbered):
            return
        fresh = open_own(self.path, os.O_RDONLY)  # what was cached while others wrote is not believed
        try:
            self._header_of(line_at(fresh, 0), self.path)
            if self.numbered:
                end = self.place.end
                torn = os.pread(fresh, size - end, end)
                if _follows(torn, self.seq + 1 if end else None):
                    end, torn = size + 1, b""
            else:
                end, torn = whole_end(fresh, size, holes=self._holes)
        finally:
            os.close(fresh)
        if torn:
            keep_torn(self.path, torn, end, self.seq)
            reached(f"{self.kind}.torn.kept")
            self._cut(file, end)
        elif end > size:
            put(file, b"\n", size)
            if self.numbered:
                self._catch_up()
        self._whole = Place(self._identity, end)

    def _cut(self, file: int, end: int) -> None:
        """Cut the file back: what is written there next is not on the disk before it is flushed again."""
        with self._flushes.undone() if self.shared else nullcontext():
            os.ftruncate(file, end)

    # writing

    def append(
        self,
        *records: Mapping[str, Any],
        now: bool = False,
        apart: bool = False,
        guard: AbstractContextManager[object] | None = None,
    ) -> int:
        """Write records as one line, with `apart` as a line each; returns the number of the last one (0 if the log is not
        numbered).

        `guard` is entered for the moment in which the line comes to stand in the file, and let go before the disk is
        waited for; what it raises is raised. Raises UserError if the disk does not take the line, FileNotFoundError if
        the log or its folder was moved away; then nothing is there.
        """
        if held := self.held:
            if not self._is_found():  # a line must not land where nobody looks for it
                raise FileNotFoundError(errno.ENOENT, "was moved away while it was written to", self.path)
        else:
            self.acquire()
        try:
            line = b"".join(map(as_line, records)) if apart else self._line(records, self.seq + 1)
            self.append_line(line, len(records), sync=now or not self.lazy, guard=guard)
            return self.seq
        finally:
            if not held:
                self.release()

    def append_line(
        self, line: bytes, count: int, *, sync: bool = True, guard: AbstractContextManager[object] | None = None
    ) -> None:
        """Write a line of so many records, numbered as they must be. Requires the lock; raises as `append` does."""
        assert self._file is not None
        reached(f"{self.kind}.append.locked")
        place, size = self._whole, self._whole.end
        self._unnamed |= not size
        try:
            if self.shared and not size:
                fsync_folder(os.path.dirname(self.path) or ".")
            whole = line if size else as_line({"kind": self.kind, "version": self.version}) + line
            self._put(self._file, whole, size, guard, sync and self.durable and not self.shared)
        except OSError as error:
            self._refuse("cannot be written", error)
        if self.shared:
            self._whole = Place(self._identity, size + len(whole))
        else:
            self._know(os.fstat(self._file))
        if self.place in (place, (None, size)):
            self.place = self._whole
            self.seq += count if self.numbered else 0
            if self._pending:
                self._pending += records_of(line)
        self.taken += len(whole)

    def _line(self, records: Sequence[Mapping[str, Any]], due: int) -> bytes:
        said = [{"seq": seq, **one} for seq, one in enumerate(records, due)] if self.numbered else records
        return as_line(said[0] if len(said) == 1 else said)

    def _put(self, file: int, line: bytes, at: int, guard: AbstractContextManager[object] | None, sync: bool) -> None:
        """Write all of a line or nothing of it."""
        try:
            with guard or nullcontext():
                put(file, line, at)
            reached(f"{self.kind}.append.written")
            if sync:
                os.fdatasync(file)
                self._name()
        except BaseException:
            self._cut(file, at)
            raise
        self._unsynced = not sync
        reached(f"{self.kind}.append.synced")

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Put these records in the place of all that stand there. Raises UserError, and then nothing has changed."""
        with self.locked() if os.path.lexists(self.path) else nullcontext():
            mode = stat.S_IMODE(os.fstat(self._file).st_mode) if self.held and self._file is not None else 0o666
            lines = [self._line((one,), seq) for seq, one in enumerate(records, 1)]
            content = b"".join((as_line({"kind": self.kind, "version": self.version}), *lines))
            try:
                write(self.path, content, durable=self.durable, mode=mode)
                reached(f"{self.kind}.rewritten")
                status = os.lstat(self.path)
            except OSError as error:
                self._refuse("cannot be written", error)
        self.seq = len(lines) if self.numbered else 0
        self.place, self._pending = Place(_identity(status), len(content)), []
        self._unsynced = self._unnamed = False
        if status.st_size == len(content):  # else somebody was quick
            self._know(status)

    def repair(self, keep: Callable[[str], object], lost: Mapping[str, Any]) -> int:
        """Rewrite each file of a numbered log that has damaged lines without them: every record keeps its number, and a record
        `lost` has each number between them that is missing; returns how many. `keep` is called with the path of a file before.
        Requires that nobody else uses the log; raises OSError, UserError, and may be called again."""
        due, missing = 1, 0
        self._wait(self._open_to_write())
        try:
            for path in (*(path for _, path in self._full()), self.path):
                with open(open_own(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    mode, content = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read()
                header, *lines = content.split(b"\n")
                if records_of(header):
                    self._header_of(header + b"\n", path)
                kept = [as_line({"kind": self.kind, "version": self.version})]
                most = due + ((self.segment_bytes or 0) + len(content)) // _LEAST_BYTES
                for first, count, line in ascending(lines, due, most):
                    kept += [as_line({"seq": seq, **lost}) for seq in range(due, first)]
                    kept.append(line + b"\n")
                    due, missing = first + count, missing + first - due
                if content and (mended := b"".join(kept)) != content:
                    keep(path)
                    write(path, mended, durable=self.durable, mode=mode)
            return missing
        finally:
            self.close()
            self.rewind()

    # the disk

    def sync(self, *, named: bool = True) -> None:
        """See to it that every record is on the disk, before something else there rests on them; with `named` off the caller
        makes the folder durable.

        Raises UserError, FileNotFoundError if the folder is gone.
        """
        if not (self.durable and self._unsynced):
            return
        file = self._open(self.path)
        if file is None:
            os.stat(os.path.dirname(self.path) or ".")
            return  # nothing was written yet
        try:
            os.fdatasync(file)
            if named:
                self._name()
        except OSError as error:
            self._refuse("cannot be made durable", error)
        finally:
            os.close(file)
        self._unsynced = False

    def _name(self) -> None:
        """Make the file's name durable."""
        if self._unnamed:
            fsync_folder(os.path.dirname(self.path) or ".")
            self._unnamed = False

    def cover(self, place: Place, *, note: bool = True) -> None:
        """Return once a `shared` log is on the disk up to there. Raises UserError. Safe between threads. Without `note` nothing
        is locked or written: what is not known to be there is flushed once more."""
        try:
            self._flushes.cover(place, note=note)
        except OSError as error:
            self._refuse("cannot be made durable; whether its last records are there is not known", error)

    # segments

    def _rotate(self, file: int) -> bool:
        """Give a full file a name of its own: everything before the newest file is whole and, in a durable log, on the disk."""
        full = self._full()
        number = full[-1][0] + 1 if full else 1
        if self.numbered:
            number = _number_at(file, len(line_at(file, 0))) or number
        stem, suffix = os.path.splitext(self.path)
        durable = self.shared or (self.durable and not self.lazy)
        try:
            if durable:
                os.fdatasync(file)
            reached(f"{self.kind}.rotate.synced")
            move(self.path, f"{stem}-{number:012}{suffix}", durable=durable)
        except OSError as error:  # it grows for the time being
            _log.warning("%s: %s", self.path, error.strerror)
            return False
        reached(f"{self.kind}.rotate.renamed")
        return True

    def _full(self) -> list[tuple[int, str]]:
        """The files that were renamed when they were full, by number; those that are archived, too."""
        if self.segment_bytes is None:
            return []
        folder, name = os.path.split(self.path)
        stem, suffix = os.path.splitext(name)
        pattern = re.compile(rf"{re.escape(stem)}-(\d{{12,}}){re.escape(suffix)}")
        found: dict[int, str] = {}
        months = os.path.join(folder, _ARCHIVE)
        for place in (folder, *(os.path.join(months, month) for month in sorted(names_in(months), reverse=True))):
            for one in sorted(names_in(place), reverse=True):
                if fits := pattern.fullmatch(one):
                    found.setdefault(int(fits[1]), os.path.join(place, one))
        return sorted(found.items())

    def archive(self, before: float) -> list[str]:
        """Move full files that were last written to `before` a time (seconds since 1970) to `archive/<month>/`; where they lie
        now. Readers look there too."""
        folder, moved = os.path.dirname(self.path), list[str]()
        for _, path in self._full():
            if os.path.dirname(path) != folder:
                continue
            try:
                written = os.stat(path).st_mtime
                if written >= before:
                    break
                target = os.path.join(folder, _ARCHIVE, month_of(written))
                make_folder(target, durable=self.durable)
                target = os.path.join(target, os.path.basename(path))
                move(path, target, durable=self.durable)
            except FileNotFoundError:  # another process was first
                continue
            reached(f"{self.kind}.archive.moved")
            moved.append(target)
        return moved

    def _refuse(self, what: str, error: OSError) -> NoReturn:
        """Tell a person in one line what the disk refused; a folder that is gone is told as it is."""
        if isinstance(error, FileNotFoundError):
            raise error
        mend = mend_of(error) or "look after the disk, then go on"
        raise UserError(f"{what} ({error.strerror})", where=self.path, mend=mend) from error


class _Flushes:
    """How far a shared log is on the disk, as the file `PATH.synced` says for every process. Safe between threads.

    It is written after the fdatasync and may be lost or old: then one more is done. Who waits for the lock on it mostly finds,
    when it gets it, that the one before has done its work as well.
    """

    def __init__(self, path: str, kind: str) -> None:
        self._path, self.kind = path, kind
        self._mutex = threading.Lock()
        self._pid = 0  # which has opened the files
        self._notes: int | None = None
        self._file: int | None = None  # the one that was flushed last
        self._covered = Place()

    def cover(self, place: Place, *, note: bool) -> None:
        """See `Log.cover`. Raises OSError."""
        if not place.end or _covers(self._covered, place):
            return
        with self._mutex:
            if not note:
                self._flush(place)
            elif not _covers(_read_note(self._notes_file()), place):
                with self._locked() as notes:
                    if not _covers(_read_note(notes), place) and (size := self._flush(place)):
                        _note(notes, Place(place.file, size))
            self._covered = place

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Hold off flushes while the file is cut back: how far it is on the disk is not known any more."""
        with self._mutex, self._locked() as notes:
            _note(notes, Place())
            yield

    def close(self) -> None:
        with self._mutex:  # else a flush that is under way would lose its file
            self._let_go()

    def _let_go(self) -> None:
        _close(self._notes, self._file)
        self._notes = self._file = None

    def _notes_file(self) -> int:
        if self._pid != os.getpid():  # in a fork, what is open shares its parent's lock
            self._let_go()
            self._pid = os.getpid()
        if self._notes is None:
            self._notes = _open_beside(self._path, "synced")
        return self._notes

    @contextmanager
    def _locked(self) -> Iterator[int]:
        notes = self._notes_file()
        lock(notes)
        try:
            yield notes
        finally:
            unlock(notes)

    def _flush(self, place: Place) -> int:
        """Flush the file of that place, with what others have written to it by now; its size, 0 if it was renamed: then it was
        flushed before."""
        status = None if self._file is None else os.fstat(self._file)
        if status is None or _identity(status) != place.file or status.st_nlink == 0:
            _close(self._file)
            self._file = None  # if it cannot be opened now
            self._file = open_own(self._path, os.O_RDONLY | os.O_NOFOLLOW)
            status = os.fstat(self._file)
            if _identity(status) != place.file:
                return 0
        assert self._file is not None
        os.fdatasync(self._file)
        reached(f"{self.kind}.commit.synced")
        return status.st_size


def _close(*files: int | None) -> None:
    for file in files:
        if file is not None:
            os.close(file)


def _open_beside(path: str, name: str) -> int:
    """The file `PATH.name`, which lies beside a shared log; made if it is not there."""
    return open_own(f"{path}.{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _follows(piece: bytes, due: int | None) -> bool:
    """Whether what stands at the end lacks only its newline: a header, or records that are numbered as is due."""
    found = records_of(piece)
    return bool(found) and due in (None, found[0].get("seq"))


def _digest(file: int, end: int) -> str:
    """A digest of what stands before `end`, the last number with it."""
    size = min(end, _DIGESTED)
    return hashlib.sha256(os.pread(file, size, end - size)).hexdigest()


def _last_before(file: int, low: int, since: int) -> tuple[int, int] | None:
    """(number of the record before it, offset) of a line not far before the record after `since`, by bisection; None if all
    from the line at `low` on come after."""
    due = _number_at(file, low)
    if due is None or due > since:
        return None
    high = os.fstat(file).st_size
    while high - low > 4096:
        middle = (low + high) // 2
        begin = middle + len(line_at(file, middle))
        number = _number_at(file, begin) if begin < high else None
        if number is not None and number <= since:
            low, due = begin, number
        else:  # a damaged line, too: whoever reads it from before on will say so
            high = middle
    return due - 1, low


def _number_at(file: int, offset: int) -> int | None:
    """The number of the first record of a line."""
    found = records_of(line_at(file, offset))
    seq = found[0].get("seq") if found else None
    return seq if isinstance(seq, int) else None


def _covers(known: Place, wanted: Place) -> bool:
    return known.file == wanted.file and known.end >= wanted.end


def _note(notes: int, place: Place) -> None:
    os.pwrite(notes, b"%020d %020d %020d\n" % (*(place.file or (0, 0)), place.end), 0)


def _read_note(notes: int) -> Place:
    try:
        device, inode, end = map(int, os.pread(notes, _NOTE_BYTES, 0).split())
    except ValueError:
        return Place()
    return Place((device, inode), end)
