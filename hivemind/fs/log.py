"""The append-only log: JSON lines in one or more files, written and read by several processes (README.md, *A log*).

Readers take no lock and never see a partial line. Writers take turns by a lock on the file. The next writer moves a line
that a crash cut short to `PATH.torn`. If the disk refuses a line, none of it stays in the file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, NoReturn

from hivemind.errors import UnknownVersion, UserError, remedy_of
from hivemind.fs.atomic import fsync_folder, fsync_folder_later, is_durable, make_folder, move, open_regular, write
from hivemind.fs.crash import crash_point
from hivemind.fs.lines import (
    LogDamaged,
    Record,
    consecutive_lines,
    current_status,
    last_record_end,
    line_at,
    read_records,
    records_of,
    save_torn_bytes,
    write_line,
)
from hivemind.fs.locks import lock, try_lock, unlock
from hivemind.fs.paths import names_in
from hivemind.fs.postponed import current_moment, flush_postponed, next_moment
from hivemind.fs.records import as_line
from hivemind.layout import month_of
from hivemind.logger import logger

_ARCHIVE = "archive"
_MOVE_AWAY = "move the file away"
_QUANTUM_S = 0.0005
_DIGEST_BYTES = 4096
_NOTE_BYTES = 63
_MIN_RECORD_BYTES = 16  # the shortest record: limits how many a file can contain
_log = logger(__name__)
_Identity = tuple[int, int]
_forks = 0  # how many forks lead to this process


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class ReadPosition(NamedTuple):
    """The position up to which a log was read: a file (device and inode) and the offset in that file."""

    file: _Identity | None = None
    end: int = 0


class LogBookmark(NamedTuple):
    """A position in a numbered log, for `resume`: the last number, the end of its line, a digest of the bytes before that."""

    seq: int
    end: int
    digest: str


class Log:
    """A log of records in the file `path`, to append to and to read. Not thread-safe. Keeps no file open unless `shared`.

    * `numbered`: records have a `seq`, 1, 2, 3 …, and damage between records is refused.
    * In a durable hive `append` returns after the record is on the disk. With `lazy`, only `append(sync_now=True)` and `sync`
      wait for the disk; with `durable=False` no call does.
    * `segment_bytes`: a file that reaches this size is renamed, and a new file is started.
    * `shared` (numbered only): for many writers, which queue. A record is on the disk after `sync_to` was called with its
      position or a later one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str,
        version: int,
        *,
        numbered: bool = False,
        durable: bool | None = None,
        lazy: bool = False,
        segment_bytes: int | None = None,
        shared: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        self.kind = kind
        self.version = version
        self.numbered = numbered
        self.durable = is_durable(self.path) if durable is None else durable
        self.lazy = lazy
        self.segment_bytes = segment_bytes
        self.shared = shared
        self._may_have_holes = numbered or lazy  # lines depend on one another, or are unsynced: ignore all after a hole
        self.epoch = 0
        """Rises when `read` starts again from the first record, because the file was replaced or shortened."""
        self.seq = 0
        """The number of the last record that was read; 0 if the log is not numbered."""
        self.transferred_bytes = 0
        """The number of bytes read and written so far."""
        self.has_header = False
        """True after `read` has seen a header. False if the file is missing, empty, or torn in its first line."""
        self.position = ReadPosition()
        self._looked: int | None = None  # the moment up to which this thread knows the log
        self._pending: list[Record] = []  # read under the lock, returned by the next `read`
        self._file: int | None = None
        self._queue_file: int | None = None
        self._identity: _Identity = (0, 0)  # of the open file
        self._forks = 0  # of this process when it opened the file
        self.is_locked = False
        """True while this object has the lock."""
        self._intact = ReadPosition()  # the part of the file that ends with a whole record
        # Lines from an earlier process, and the file's name, may not be on the disk either.
        self._unsynced = self._name_unsynced = lazy
        self._flushes = _SharedSync(self.path, kind)
        self._turn_start = self._last_locked = 0.0  # first and last time it took the lock unqueued

    # reading

    def read(self) -> list[Record]:
        """Return the records that are new since the last call, oldest first. A missing file is an empty log.

        If the log was replaced, all its records are returned, and `epoch` has risen. Records that this object appended count as
        read, unless an unread record comes before them. Costs one stat if there are no new records. Raises LogDamaged,
        UnknownVersion, OSError.
        """
        return [record for batch in self.batches() for record in batch]

    def batches(self) -> Iterator[list[Record]]:
        """Yield the new records, many at a time, for long logs. If the log was replaced, `epoch` rises and all records are
        yielded.
        """
        records, self._pending = self._pending, []
        if records:
            yield records
        if not self._is_up_to_date():
            try:
                yield from self._new_batches()
            except BaseException:
                self.rewind()
                raise

    def _is_up_to_date(self) -> bool:
        if self.is_locked:
            return self.position == self._intact
        if self._looked is not None and self._looked == current_moment():
            return True
        self._looked = current_moment() if self.shared else None  # the caller reads the new records
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return self.position.file is None and self.segment_bytes is None
        return self.position == (_identity(status), status.st_size)

    def _catch_up(self) -> None:
        try:
            for batch in self._new_batches():
                self._pending += batch
        except BaseException:
            self.rewind()
            raise

    def rewind(self) -> None:
        """Make the next `read` start at the first record."""
        self.epoch += 1
        self._looked = None
        self.seq = 0
        self.has_header = False
        self.position = ReadPosition()
        self._pending = []

    def records(self, after_seq: int = 0) -> Iterator[Record]:
        """Yield all records, oldest first; in a numbered log only those after `after_seq`. Does not affect `read`.

        Raises the errors of `read`.
        """
        reader = Log(self.path, self.kind, self.version, numbered=self.numbered, segment_bytes=self.segment_bytes)
        if after_seq:
            reader._skip_to(after_seq)
        for records in reader._new_batches():
            yield from (record for record in records if not after_seq or record["seq"] > after_seq)

    def _new_batches(self) -> Iterator[list[Record]]:
        """Yield the new records, many at a time, starting in the file that was read last."""
        newest = self._open(self.path)
        try:
            if newest is None or not self._extends_read_part(os.fstat(newest)):
                segments = [path for _, path in self._segments()]
                partly_read = [index for index, path in enumerate(segments) if self._extends_read_part(_status(path))]
                if self.position.file is not None and not partly_read:
                    self.rewind()
                for path in segments[partly_read[0] if partly_read else 0 :]:
                    with self._open_segment(path) as file:
                        if newest is not None and os.path.sameopenfile(file, newest):
                            break  # renamed a moment ago
                        yield from self._read_file(path, file, is_last=False)
            if newest is not None:
                yield from self._read_file(self.path, newest)
        finally:
            if newest is not None:
                os.close(newest)

    def _open(self, path: str) -> int | None:
        try:
            return open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None

    @contextmanager
    def _open_segment(self, path: str) -> Iterator[int]:
        """Open a full file, which was renamed to a segment. Find it in the archive if it was moved there a moment ago."""
        file = self._open(path)
        if file is None:
            name = os.path.basename(path)
            path = next((candidate for _, candidate in self._segments() if os.path.basename(candidate) == name), path)
            file = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            yield file
        finally:
            os.close(file)

    def _extends_read_part(self, status: os.stat_result | None) -> bool:
        """Check that `status` belongs to the file that was read last, and that the file still contains all that was read."""
        return status is not None and self.position.file == _identity(status) and status.st_size >= self.position.end

    def _read_file(self, path: str, file: int, *, is_last: bool = True) -> Iterator[list[Record]]:
        status = os.fstat(file)
        if self.position.file != _identity(status):
            self.position = ReadPosition(_identity(status), 0)
        header_bytes = 0
        if not self.position.end:
            first_line = line_at(file, 0)
            if not first_line.endswith(b"\n"):  # the header is not complete yet
                return
            header_bytes = self._check_header(first_line, path)
        next_seq = self.seq + 1 if self.numbered else None
        for batch, end in read_records(
            path,
            file,
            self.position.end,
            next_seq,
            skip_bytes=header_bytes,
            is_last_file=is_last,
            may_have_holes=self._may_have_holes,
        ):
            self.transferred_bytes += end - self.position.end
            self.position = self.position._replace(end=end)
            if batch and self.numbered:
                self.seq = batch[-1]["seq"]
            yield batch
        if self.position.end == status.st_size:
            self._set_intact(status)
        elif self.position.end < (self._synced_end(status) if is_last else status.st_size):
            next_seq = self.seq + 1 if self.numbered else None
            for _ in read_records(path, file, self.position.end, next_seq, is_last_file=is_last, may_have_holes=False):
                pass  # a power cut cannot tear a synced line: raise LogDamaged

    def _synced_end(self, status: os.stat_result) -> int:
        """Return the offset up to which a shared log's file is known to be on the disk."""
        notes = self._open(f"{self.path}.synced") if self.shared else None
        if notes is None:
            return 0
        try:
            position = _read_note(notes)
        finally:
            os.close(notes)
        return position.end if position.file == _identity(status) else 0

    def _check_header(self, line: bytes, path: str) -> int:
        """Check the header, the file's first line, and return its length. Raises LogDamaged, UnknownVersion.

        Return 0 if the line has no header because it is torn, or because it is not JSON in a log that is not numbered.
        """
        records = [] if b"\0" in line else records_of(line)
        if not records:
            if self.numbered and line.endswith(b"\n") and b"\0" not in line:
                raise LogDamaged(f"is not a log of kind {self.kind!r}", location=f"{path}:1", remedy=_MOVE_AWAY)
            return 0
        header = records[0]
        if header.get("kind") != self.kind:
            raise LogDamaged(f"is not a log of kind {self.kind!r}", location=path, remedy=_MOVE_AWAY)
        if header.get("version") != self.version:
            raise UnknownVersion(
                f"is a {self.kind} of version {header.get('version')}, this program knows version {self.version}",
                location=path,
                remedy=f"use the hivemind that wrote it, or {_MOVE_AWAY}",
            )
        self.has_header = True
        return len(line)

    # finding a position again, in a numbered log

    def bookmark(self) -> LogBookmark | None:
        """Return a bookmark of the current position for `resume`, or None if the file was replaced."""
        file = self._open(self.path)
        if file is None:
            return None
        try:
            is_current = self.seq > 0 and self._extends_read_part(os.fstat(file))
            return LogBookmark(self.seq, self.position.end, _digest(file, self.position.end)) if is_current else None
        finally:
            os.close(file)

    def resume(self, bookmark: LogBookmark) -> bool:
        """Continue reading at a bookmark. Return False, without moving, if the log no longer contains that position."""
        for file in self._newest_first():
            if _digest(file, bookmark.end) == bookmark.digest:
                self._check_header(line_at(file, 0), self.path)
                self._set_position(file, bookmark.seq, bookmark.end)
                return True
        return False

    def _skip_to(self, after_seq: int) -> None:
        """Move the position to a line shortly before record `after_seq` + 1."""
        for file in self._newest_first():
            begin = self._check_header(line_at(file, 0), self.path)
            if start := _last_before(file, begin, after_seq):
                self._set_position(file, *start)
                return

    def _set_position(self, file: int, seq: int, end: int) -> None:
        self.position, self.seq, self.has_header = ReadPosition(_identity(os.fstat(file)), end), seq, True

    def _newest_first(self) -> Iterator[int]:
        for path in (self.path, *(path for _, path in reversed(self._segments()))):
            file = self._open(path)
            if file is not None:
                try:
                    yield file
                finally:
                    os.close(file)

    # the state of the file

    def _set_intact(self, status: os.stat_result) -> None:
        """Remember that the file, with this `status`, ends with a whole record."""
        self._intact = ReadPosition(_identity(status), status.st_size)

    @property
    def size(self) -> int:
        """The file's size when it last ended with a whole record."""
        return self._intact.end

    def torn_bytes(self) -> bytes:
        """Return the bytes after the last whole record: left by a crash, or being written. Empty if the file is missing."""
        file = self._open(self.path)
        if file is None:
            return b""
        try:
            return last_record_end(file, current_status(self.path)[2], may_have_holes=self._may_have_holes)[1]
        finally:
            os.close(file)

    # the lock

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the log and repair its end, for reading and appending. Not re-entrant.

        Raises FileNotFoundError if the folder is gone, UserError if the log cannot be locked or repaired, UnknownVersion.
        """
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        """Lock the file and repair its end. If the file was replaced during the wait, lock the new file at `path`."""
        while not self.is_locked:
            try:
                file = self._open_to_write()
                self._lock_file(file)
                *identity, size = current_status(self.path)
                if self._identity == tuple(identity):
                    self._repair_end(file, size)
                    self.is_locked = (
                        self.segment_bytes is None or self.size < self.segment_bytes or not self._rotate(file)
                    )
            except OSError as error:
                self._raise_user_error("cannot be written", error)
            finally:
                if not self.is_locked:
                    self._close_file()

    def release(self) -> None:
        """Release the lock."""
        self.is_locked = False
        if self.shared and self._file is not None:
            unlock(self._file)
        else:
            self._close_file()

    def close(self) -> None:
        """Close the files that a `shared` log keeps open. The next use reopens them."""
        self._flushes.close()
        self._close_file()

    def _close_file(self) -> None:
        _close(self._file, self._queue_file)
        self._file = self._queue_file = None

    def __del__(self) -> None:
        self.close()

    def _open_to_write(self) -> int:
        if self._file is not None:
            if self._forks == _forks:
                return self._file
            self._close_file()  # in a fork: open files share the parent's lock
        flags = os.O_RDWR | os.O_NOFOLLOW
        if not (self.shared and self.seq) or self._segments():
            flags |= os.O_CREAT  # otherwise the log was lost: do not start a new one
        self._file, self._forks = open_regular(self.path, flags), _forks
        if self.shared:
            self._queue_file = _open_beside(self.path, "line")
        self._identity = _identity(os.fstat(self._file))
        return self._file

    def _lock_file(self, file: int) -> None:
        """Lock the file.

        The lock alone is unfair: a process that has just released it can take it again before a waiter wakes. In a
        `shared` log a process may do so for half a millisecond. Then it queues for a second lock, which the first process
        in the queue holds while it waits.
        """
        if not self.shared:
            lock(file)
            return
        now = time.monotonic()
        if now - self._last_locked >= _QUANTUM_S:
            self._turn_start = now
        if now - self._turn_start >= _QUANTUM_S or not try_lock(file):
            assert self._queue_file is not None
            lock(self._queue_file)
            try:
                lock(file)
            finally:
                unlock(self._queue_file)
            self._turn_start = time.monotonic()
        self._last_locked = time.monotonic()

    def _repair_end(self, file: int, size: int) -> None:
        """Make the file end with a whole record: move torn bytes to `PATH.torn`. Requires the lock."""
        if not size and self.position.file is None and self.segment_bytes is None:  # a new log
            self.position = self._intact = ReadPosition(self._identity, 0)
            return
        if self.numbered and self.position != (self._identity, size):
            self._catch_up()
        if self._intact == (self._identity, size) and (self.position == self._intact or not self.numbered):
            return
        fresh_file = open_regular(self.path, os.O_RDONLY)  # a new descriptor, because the cache may be old
        try:
            self._check_header(line_at(fresh_file, 0), self.path)
            if self.numbered:
                end = self.position.end
                torn = os.pread(fresh_file, size - end, end)
                records = records_of(torn)
                if records and (not end or records[0].get("seq") == self.seq + 1):  # it lacks only its newline
                    end, torn = size + 1, b""
            else:
                end, torn = last_record_end(fresh_file, size, may_have_holes=self._may_have_holes)
        finally:
            os.close(fresh_file)
        if torn:
            save_torn_bytes(self.path, torn, end, self.seq)
            crash_point(f"{self.kind}.torn.kept")
            self._cut(file, end)
        elif end > size:
            write_line(file, b"\n", size)
            if self.numbered:
                self._catch_up()
        self._intact = ReadPosition(self._identity, end)

    def _cut(self, file: int, end: int) -> None:
        """Truncate the file. In a shared log this also resets the offset that is known to be on the disk."""
        with self._flushes.invalidate() if self.shared else nullcontext():
            os.ftruncate(file, end)

    # writing

    def append(
        self,
        *records: Mapping[str, Any],
        sync_now: bool = False,
        separate_lines: bool = False,
        guard: AbstractContextManager[object] | None = None,
    ) -> int:
        """Write the records as one line, or with `separate_lines` as one line each. Return the last number (0 if not numbered).

        `sync_now` waits for the disk also in a `lazy` log. `guard` is entered while the line is written, and left before waiting
        for the disk; its errors propagate. Raises UserError if the disk refuses the line, FileNotFoundError if the log or its
        folder was moved away. After an error no part of the line is in the log.
        """
        if was_locked := self.is_locked:
            if self._identity != current_status(self.path)[:2]:  # readers would not find the line
                raise FileNotFoundError(errno.ENOENT, "was moved away while open for writing", self.path)
        else:
            self.acquire()
        try:
            line = b"".join(map(as_line, records)) if separate_lines else self._encode(records, self.seq + 1)
            self.append_line(line, len(records), sync=sync_now or not self.lazy, guard=guard)
            return self.seq
        finally:
            if not was_locked:
                self.release()

    def append_line(
        self, line: bytes, count: int, *, sync: bool = True, guard: AbstractContextManager[object] | None = None
    ) -> None:
        """Write an encoded line of `count` correctly numbered records, or none of it. Requires the lock. `guard` and errors are
        as for `append`. Without `sync` the call does not wait for the disk.
        """
        assert self._file is not None
        crash_point(f"{self.kind}.append.locked")
        previous_intact, size = self._intact, self._intact.end
        self._name_unsynced |= not size
        try:
            if self.shared and not size:
                fsync_folder(os.path.dirname(self.path) or ".")
            content = line if size else as_line({"kind": self.kind, "version": self.version}) + line
            try:
                with guard or nullcontext():
                    write_line(self._file, content, size)
                crash_point(f"{self.kind}.append.written")
                if is_synced := sync and self.durable and not self.shared:
                    flush_postponed()
                    os.fdatasync(self._file)
                    self._sync_name()
            except BaseException:
                self._cut(self._file, size)
                raise
        except OSError as error:
            self._raise_user_error("cannot be written", error)
        self._unsynced = not is_synced
        crash_point(f"{self.kind}.append.synced")
        self._intact = ReadPosition(self._identity, size + len(content))
        if self.position in (previous_intact, (None, size)):
            self.position = self._intact
            self.seq += count if self.numbered else 0
            if self._pending:
                self._pending += records_of(line)
            self._looked = next_moment() if self.shared else None  # a shared log is read to its end before
        self.transferred_bytes += len(content)

    def _encode(self, records: Sequence[Mapping[str, Any]], first_seq: int) -> bytes:
        numbered_records = (
            [{"seq": seq, **record} for seq, record in enumerate(records, first_seq)] if self.numbered else records
        )
        return as_line(numbered_records[0] if len(numbered_records) == 1 else numbered_records)

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace all records by `records`. Raises UserError, and then keeps the old records."""
        with self.locked() if os.path.lexists(self.path) else nullcontext():
            mode = stat.S_IMODE(os.fstat(self._file).st_mode) if self.is_locked and self._file is not None else 0o666
            lines = [self._encode((record,), seq) for seq, record in enumerate(records, 1)]
            content = b"".join((as_line({"kind": self.kind, "version": self.version}), *lines))
            try:
                write(self.path, content, durable=self.durable, mode=mode)
                crash_point(f"{self.kind}.rewritten")
                status = os.lstat(self.path)
            except OSError as error:
                self._raise_user_error("cannot be written", error)
        self.seq = len(lines) if self.numbered else 0
        self.position, self._pending = ReadPosition(_identity(status), len(content)), []
        self._unsynced = self._name_unsynced = False
        if status.st_size == len(content):  # otherwise another process has already appended
            self._set_intact(status)

    def repair(self, back_up: Callable[[str], object], placeholder: Mapping[str, Any]) -> int:
        """Rewrite the files of a numbered log without their damaged lines. Return the number of missing records.

        Each record keeps its number; `placeholder` is written for each missing record. `back_up` is called with a file's path
        before that file is rewritten. No other process may use the log. Raises OSError, UserError; may be called again.
        """
        next_seq, missing_count = 1, 0
        self._lock_file(self._open_to_write())
        try:
            for path in (*(path for _, path in self._segments()), self.path):
                with open(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    mode, content = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read()
                header, *lines = content.split(b"\n")
                if records_of(header):
                    self._check_header(header + b"\n", path)
                repaired_lines = [as_line({"kind": self.kind, "version": self.version})]
                max_seq = next_seq + ((self.segment_bytes or 0) + len(content)) // _MIN_RECORD_BYTES
                for first_seq, count, line in consecutive_lines(lines, next_seq, max_seq):
                    repaired_lines += [as_line({"seq": seq, **placeholder}) for seq in range(next_seq, first_seq)]
                    repaired_lines.append(line + b"\n")
                    next_seq, missing_count = first_seq + count, missing_count + first_seq - next_seq
                if content and (repaired := b"".join(repaired_lines)) != content:
                    back_up(path)
                    write(path, repaired, durable=self.durable, mode=mode)
            return missing_count
        finally:
            self.close()
            self.rewind()

    # the disk

    def sync(self) -> None:
        """Wait until every record is on the disk. Raises UserError, FileNotFoundError if the folder is gone."""
        if not (self.durable and self._unsynced):
            return
        file = self._open(self.path)
        if file is None:
            os.stat(os.path.dirname(self.path) or ".")
            return  # no record was written yet
        try:
            os.fdatasync(file)
            self._sync_name()
        except OSError as error:
            self._raise_user_error("cannot be synced to the disk", error)
        finally:
            os.close(file)
        self._unsynced = False

    def _sync_name(self) -> None:
        """Make the file's name durable."""
        if self._name_unsynced:
            fsync_folder_later(os.path.dirname(self.path) or ".")
            self._name_unsynced = False

    def sync_to(self, position: ReadPosition, *, update_note: bool = True) -> None:
        """Wait until a `shared` log is on the disk up to a position. Thread-safe. Raises UserError.

        With `update_note=False` no lock is taken and `PATH.synced` is neither read nor written: the file is always flushed.
        """
        try:
            self._flushes.sync_to(position, update_note=update_note)
        except OSError as error:
            self._raise_user_error("cannot be synced to the disk; its last records may be lost", error)

    # segments

    def _rotate(self, file: int) -> bool:
        """Rename a full file to a segment; a shared log syncs it first. Return False if that fails."""
        segments = self._segments()
        number = segments[-1][0] + 1 if segments else 1
        if self.numbered:
            number = _seq_at(file, len(line_at(file, 0))) or number
        stem, suffix = os.path.splitext(self.path)
        try:
            if self.shared:
                os.fdatasync(file)
            crash_point(f"{self.kind}.rotate.synced")
            move(self.path, f"{stem}-{number:012}{suffix}", durable=self.shared)
        except OSError as error:  # continue with the full file
            _log.warning("%s: %s", self.path, error.strerror)
            return False
        crash_point(f"{self.kind}.rotate.renamed")
        return True

    def _segments(self) -> list[tuple[int, str]]:
        """Return the segments (rotated files), archived ones included, as (number, path) in order."""
        if self.segment_bytes is None:
            return []
        folder, name = os.path.split(self.path)
        stem, suffix = os.path.splitext(name)
        pattern = re.compile(rf"{re.escape(stem)}-(\d{{12,}}){re.escape(suffix)}")
        paths: dict[int, str] = {}
        months = os.path.join(folder, _ARCHIVE)
        for parent in (folder, *(os.path.join(months, month) for month in sorted(names_in(months), reverse=True))):
            for segment_name in sorted(names_in(parent), reverse=True):
                if match := pattern.fullmatch(segment_name):
                    paths.setdefault(int(match[1]), os.path.join(parent, segment_name))
        return sorted(paths.items())

    def archive(self, cutoff: float) -> list[str]:
        """Move full files last written before `cutoff` (seconds since 1970) to `archive/<month>/`. Return their new paths.

        Readers still find the files.
        """
        folder, archived_paths = os.path.dirname(self.path), list[str]()
        for _, path in self._segments():
            if os.path.dirname(path) != folder:
                continue
            try:
                modified = os.stat(path).st_mtime
                if modified >= cutoff:
                    break
                target = os.path.join(folder, _ARCHIVE, month_of(modified))
                make_folder(target, durable=self.durable)
                target = os.path.join(target, os.path.basename(path))
                move(path, target, durable=self.durable)
            except FileNotFoundError:  # another process moved it
                continue
            crash_point(f"{self.kind}.archive.moved")
            archived_paths.append(target)
        return archived_paths

    def _raise_user_error(self, message: str, error: OSError) -> NoReturn:
        """Raise a UserError with the message and the disk's error. Raise a FileNotFoundError unchanged."""
        if isinstance(error, FileNotFoundError):
            raise error
        remedy = remedy_of(error) or "check the disk, then try again"
        raise UserError(f"{message} ({error.strerror})", location=self.path, remedy=remedy) from error


class _SharedSync:
    """The note in `PATH.synced` that tells all processes how far a shared log is on the disk. Thread-safe.

    `PATH.synced` is written after the fdatasync. If that file is lost or old, there is one more fdatasync. A process that
    has waited for the file's lock usually finds that the previous holder has synced its records, too.
    """

    def __init__(self, path: str, kind: str) -> None:
        self._path, self.kind = path, kind
        self._mutex = threading.Lock()
        self._forks = 0  # of this process when it opened the files
        self._notes: int | None = None
        self._file: int | None = None  # the file that was synced last
        self._covered = ReadPosition()

    def sync_to(self, position: ReadPosition, *, update_note: bool) -> None:
        """Do the work of `Log.sync_to`. Raises OSError."""
        if not position.end or _is_synced_to(self._covered, position):
            return
        with self._mutex:
            if not update_note:
                self._flush(position)
            elif not _is_synced_to(_read_note(self._notes_file()), position):
                with self._locked() as notes:
                    if not _is_synced_to(_read_note(notes), position) and (size := self._flush(position)):
                        _write_note(notes, ReadPosition(position.file, size))
            self._covered = position

    @contextmanager
    def invalidate(self) -> Iterator[None]:
        """Within a `with` block, block syncs while the caller truncates the file. Reset the recorded position."""
        with self._mutex, self._locked() as notes:
            _write_note(notes, ReadPosition())
            yield

    def close(self) -> None:
        with self._mutex:  # a sync in another thread uses the files
            self._close_files()

    def _close_files(self) -> None:
        _close(self._notes, self._file)
        self._notes = self._file = None

    def _notes_file(self) -> int:
        if self._forks != _forks:  # in a fork: open files share the parent's lock
            self._close_files()
            self._forks = _forks
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

    def _flush(self, position: ReadPosition) -> int:
        """Sync the position's file and return its size. Return 0 if the file was renamed: it was synced before that."""
        status = None if self._file is None else os.fstat(self._file)
        if status is None or _identity(status) != position.file or status.st_nlink == 0:
            _close(self._file)
            self._file = None  # in case opening fails
            self._file = open_regular(self._path, os.O_RDONLY | os.O_NOFOLLOW)
            status = os.fstat(self._file)
            if _identity(status) != position.file:
                return 0
        assert self._file is not None
        os.fdatasync(self._file)
        crash_point(f"{self.kind}.commit.synced")
        return status.st_size


def _close(*files: int | None) -> None:
    for file in files:
        if file is not None:
            os.close(file)


def _open_beside(path: str, name: str) -> int:
    """Open the file `PATH.name` next to a shared log and return its descriptor. Create the file if it is missing."""
    return open_regular(f"{path}.{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _digest(file: int, end: int) -> str:
    """Return a digest of the last bytes before `end`."""
    size = min(end, _DIGEST_BYTES)
    return hashlib.sha256(os.pread(file, size, end - size)).hexdigest()


def _last_before(file: int, low: int, after_seq: int) -> tuple[int, int] | None:
    """Find, by bisection, a line shortly before record `after_seq` + 1, at or after the offset `low`.

    Return (number of the line's first record - 1, the line's offset), or None if the line at `low` already comes after record
    `after_seq`.
    """
    first_seq = _seq_at(file, low)
    if first_seq is None or first_seq > after_seq:
        return None
    high = os.fstat(file).st_size
    while high - low > 4096:
        middle = (low + high) // 2
        line_start = middle + len(line_at(file, middle))
        seq = _seq_at(file, line_start) if line_start < high else None
        if seq is not None and seq <= after_seq:
            low, first_seq = line_start, seq
        else:  # also for a damaged line: the reader will report it
            high = middle
    return first_seq - 1, low


def _seq_at(file: int, offset: int) -> int | None:
    """Return the number of the first record of the line at `offset`, or None if the line has no numbered record."""
    records = records_of(line_at(file, offset))
    seq = records[0].get("seq") if records else None
    return seq if isinstance(seq, int) else None


def _is_synced_to(synced: ReadPosition, target: ReadPosition) -> bool:
    return synced.file == target.file and synced.end >= target.end


def _write_note(notes: int, position: ReadPosition) -> None:
    os.pwrite(notes, b"%020d %020d %020d\n" % (*(position.file or (0, 0)), position.end), 0)


def _read_note(notes: int) -> ReadPosition:
    try:
        device, inode, end = map(int, os.pread(notes, _NOTE_BYTES, 0).split())
    except ValueError:
        return ReadPosition()
    return ReadPosition((device, inode), end)
