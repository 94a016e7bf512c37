"""The append-only log: one file of JSON lines, written and read by several processes (README.md, *A log*).

Readers take no lock and never see half a line. Writers take turns by a lock on the file itself. What a crash left of a
line is set aside by the next writer; what a disk did not take is not there.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NoReturn

from hivemind.errors import UnknownVersion, UserError, mend_of
from hivemind.fs.atomic import fsync_folder, move, open_own, write
from hivemind.fs.crash import reached
from hivemind.fs.lines import (
    LogDamaged,
    Record,
    keep_torn,
    put,
    read_records,
    records_of,
    true_size,
    whole_end,
)
from hivemind.fs.locks import lock
from hivemind.fs.records import as_line

__all__ = ["Log"]

_AWAY = "move the file away"
_log = logging.getLogger(__name__)


class Log:
    """Appends records to the file `path`, and reads what is new in it. Not safe between threads; holds no file open.

    `numbered`: records have a `seq`, 1, 2, 3 …, and damage between them is refused. `durable`: a record is on the disk
    when `append` returns; if `lazy`, only when one is appended `now`, or after `sync`. `segment_bytes` (not in a numbered
    log): a file of that size is renamed, and a new one begun.
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
    ) -> None:
        self.path = os.fspath(path)
        self.kind = kind
        self.version = version
        self.numbered = numbered
        self.durable = durable
        self.lazy = lazy
        self.segment_bytes = segment_bytes
        self._holes = numbered or lazy  # lines build on one another, or rest unsynced: after a hole none counts
        self.epoch = 0
        """Rises when `read` begins anew, as the file is another one, or shorter than it was."""
        self.seq = 0
        """The number of the last record that was read; 0 in a log that is not numbered."""
        self.has_header = False
        """Whether `read` has found what the file is: else it is not there, empty, or torn from its first line on."""
        self._offset = 0
        self._identity: tuple[int, int] | None = None
        self._file: int | None = None
        self._end: tuple[tuple[int, int], int, int] | None = (
            None  # of which file, its size, last seq: known to be whole
        )
        self._left: tuple[int, ...] | None = None  # the file as this object left it
        self._touched = False  # something else has changed it since, as seen under the lock
        # What a process before this one wrote, and the file's name, may not be on the disk either.
        self._unsynced = self._unnamed = lazy

    # reading

    def read(self) -> list[Record]:
        """The records that are new since the last call, oldest first; all of them where `epoch` rose.

        What this object appended itself counts as read, unless something before it was not. No file is an empty log.
        Costs a stat if nothing is new. Raises LogDamaged naming file and line, UnknownVersion, OSError.
        """
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            if self._identity is not None:
                self.rewind()
            return []
        size = found.st_size if self._file is None else self.size  # the true one, under the lock
        if _identity(found) == self._identity and size == self._offset:
            return []
        file = open_own(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            return [record for records in self._pull(file) for record in records]
        except BaseException:
            self.rewind()
            raise
        finally:
            os.close(file)

    def rewind(self) -> None:
        """Begin anew at the next `read`."""
        self.epoch += 1
        self.seq = self._offset = 0
        self.has_header = False
        self._identity = None

    def records(self) -> Iterator[Record]:
        """All records of all segments, oldest first, whatever `read` has read. Raises as `read` does."""
        with ExitStack() as files:
            try:  # opened first: should it be renamed meanwhile, it is found among the full ones, and read once
                newest = files.enter_context(open(open_own(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb"))
            except FileNotFoundError:
                newest = None
            for _, path in self._full():
                with open(open_own(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    if newest is None or not os.path.sameopenfile(file.fileno(), newest.fileno()):
                        yield from self._all(path, file.fileno())
            if newest is not None:
                yield from self._all(self.path, newest.fileno())

    def _all(self, path: str, file: int) -> Iterator[Record]:
        whole = Log(path, self.kind, self.version, numbered=self.numbered)
        for records in whole._pull(file):
            yield from records

    def _pull(self, file: int) -> Iterator[list[Record]]:
        status = os.fstat(file)
        if self._identity not in (None, _identity(status)) or status.st_size < self._offset:
            self.rewind()
        self._identity = _identity(status)
        head = b"" if self._offset else _first_line(file)
        begin = self._header_of(head) if head.endswith(b"\n") else 0
        due = self.seq + 1 if self.numbered else None
        for found, _, end in read_records(self.path, file, self._offset, due, skip=begin, holes=self._holes):
            self._offset = end
            if found and self.numbered:
                self.seq = found[-1]["seq"]
            yield found
        if self._offset == status.st_size:
            self._know(status, self.seq)

    def _header_of(self, line: bytes) -> int:
        """The length of the header, the file's first line. 0 where that is torn, or, in a log that is not numbered, is no JSON:
        it is left out like any other. Raises LogDamaged, UnknownVersion."""
        records = [] if b"\0" in line else records_of(line)
        if not records:
            if self.numbered and line.endswith(b"\n") and b"\0" not in line:
                raise LogDamaged(f"is no {self.kind}", where=f"{self.path}:1", mend=_AWAY)
            return 0
        header = records[0]
        if header.get("kind") != self.kind:
            raise LogDamaged(f"is no {self.kind}: its first line says otherwise", where=self.path, mend=_AWAY)
        if header.get("version") != self.version:
            raise UnknownVersion(
                f"is a {self.kind} of version {header.get('version')}, this program knows version {self.version}",
                where=self.path,
                mend=f"use the hivemind that wrote it, or {_AWAY}",
            )
        self.has_header = True
        return len(line)

    def _know(self, status: os.stat_result, seq: int) -> None:
        """Remember what the file is now: whole, and with that last number."""
        self._end = _identity(status), status.st_size, seq
        self._left = _stamp(status)
        self._touched = False

    @property
    def size(self) -> int:
        """Bytes of the file when it was last known to be whole."""
        return self._end[1] if self._end is not None else 0

    @property
    def is_untouched(self) -> bool:
        """Whether the file is what this object found or left when it last read it to its end, wrote to it, or noted it; not
        there, where it has seen none."""
        return self._left == self._stamp()

    def note_state(self) -> None:
        """Take what the file is now for what this object left, without reading it."""
        self._left = self._stamp()

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            return _stamp(os.lstat(self.path))
        except OSError:
            return None

    # writing

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the log, its end mended, while it is read and appended to. Not re-entrant.

        Raises FileNotFoundError if its folder is gone, UserError if it cannot be locked or mended, UnknownVersion.
        """
        self._take()
        try:
            yield
        finally:
            self._let_go()

    def _take(self) -> None:
        """Lock and mend the file; where it was moved or replaced while this waited, the one that has the name now."""
        while self._file is None:
            try:
                self._file = open_own(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
                lock(self._file)
                found = self._found(self._file)
                if found is not None:
                    self._mend(self._file, found)
                    return
            except OSError as error:
                self._let_go()
                self._refuse("cannot be written", error)
            except BaseException:
                self._let_go()
                raise
            self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _found(self, file: int) -> os.stat_result | None:
        """What the file is, by its name; None if the name leads to another one, or nowhere."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return None
        return found if os.path.samestat(os.fstat(file), found) else None

    def _mend(self, file: int, found: os.stat_result) -> None:
        """See to it, under the lock, that the file ends with a whole record: what is torn goes to `PATH.torn`."""
        size, identity = true_size(file), _identity(found)
        self._touched = self._left != _stamp(found) and (self._left is not None or found.st_size > 0)
        if self._end is not None and self._end[:2] == (identity, size):
            return
        fresh = open_own(self.path, os.O_RDONLY)  # what was cached while others wrote is not believed
        try:
            self._header_of(_first_line(fresh))
            end, records, torn = whole_end(fresh, size, holes=self._holes)
        finally:
            os.close(fresh)
        seq = records[-1].get("seq") if records and self.numbered else 0
        seq = seq if isinstance(seq, int) else 0
        if torn:
            keep_torn(self.path, torn, end, seq)
            reached(f"{self.kind}.torn.kept")
            os.ftruncate(file, end)
        elif end > size:
            put(file, b"\n", size)
        self._end = identity, end, seq

    def torn(self) -> bytes:
        """What a crash left after the last whole record, or is being written just now. No file: nothing."""
        try:
            file = open_own(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return b""
        try:
            return whole_end(file, true_size(file), holes=self._holes)[2]
        finally:
            os.close(file)

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
        if self._file is not None:
            if self._found(self._file) is None:  # a line must not land where nobody looks for it
                raise FileNotFoundError(errno.ENOENT, "was moved away while it was written to", self.path)
            return self._append(records, now, apart, guard)
        self._take()
        try:
            return self._append(records, now, apart, guard)
        finally:
            self._let_go()

    def _append(
        self,
        records: Sequence[Mapping[str, Any]],
        now: bool,
        apart: bool,
        guard: AbstractContextManager[object] | None,
    ) -> int:
        if self.segment_bytes is not None and self.size >= self.segment_bytes:
            self._rotate()
        assert self._file is not None
        assert self._end is not None
        identity, size, last = self._end
        line = b"".join(map(as_line, records)) if apart else self._line(records, last + 1)
        self._unnamed |= not size
        try:
            self._put(
                self._file,
                line if size else self._header() + line,
                size,
                guard,
                self.durable and (now or not self.lazy),
            )
        except OSError as error:
            self._refuse("cannot be written", error)
        finally:
            status = os.fstat(self._file)
            if not self._touched:  # a line that was taken back is no change
                self._left = _stamp(status)
        if self.numbered:
            last += len(records)
        if self._offset == size and self._identity in (None, identity):
            self._identity, self._offset, self.seq = identity, status.st_size, last
        self._know(status, last)
        return last

    def _header(self) -> bytes:
        return as_line({"kind": self.kind, "version": self.version})

    def _line(self, records: Sequence[Mapping[str, Any]], due: int) -> bytes:
        said = [{"seq": seq, **one} for seq, one in enumerate(records, due)] if self.numbered else records
        return as_line(said[0] if len(said) == 1 else said)

    def _put(self, file: int, line: bytes, at: int, guard: AbstractContextManager[object] | None, sync: bool) -> None:
        """Write all of a line or nothing of it."""
        try:
            if guard is None:
                put(file, line, at)
            else:
                with guard:
                    put(file, line, at)
            reached(f"{self.kind}.append.written")
            if sync:
                os.fdatasync(file)
                self._name()
        except BaseException:
            os.ftruncate(file, at)
            raise
        self._unsynced = not sync
        reached(f"{self.kind}.append.synced")

    def sync(self, *, named: bool = True) -> None:
        """See to it that every record is on the disk, before something else there rests on them; with `named` off the caller
        makes the folder durable.

        Raises UserError, FileNotFoundError if the folder is gone.
        """
        if not (self.durable and self._unsynced):
            return
        try:
            file = open_own(self.path, os.O_RDONLY)
        except FileNotFoundError:
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

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Put these records in the place of all that stand there. Raises UserError, and then nothing has changed."""
        with self.locked() if os.path.lexists(self.path) else nullcontext():
            mode = 0o666 if self._file is None else stat.S_IMODE(os.fstat(self._file).st_mode)
            lines = [self._header(), *(self._line((one,), seq) for seq, one in enumerate(records, 1))]
            content = b"".join(lines)
            try:
                write(self.path, content, durable=self.durable, mode=mode)
                reached(f"{self.kind}.rewritten")
                status = os.lstat(self.path)
            except OSError as error:
                self._refuse("cannot be written", error)
        self.seq = len(lines) - 1 if self.numbered else 0
        self._identity, self._offset = _identity(status), len(content)
        self._unsynced = self._unnamed = False
        if status.st_size == len(content):  # else somebody was quick
            self._know(status, self.seq)

    # segments

    def _rotate(self) -> None:
        """Give a full file a name of its own, and go on in a new one."""
        number = max((number for number, _ in self._full()), default=0) + 1
        stem, suffix = os.path.splitext(self.path)
        try:
            move(self.path, f"{stem}-{number:06}{suffix}", durable=self.durable and not self.lazy)
        except OSError as error:  # it grows for the time being
            _log.warning("%s: %s", self.path, error.strerror)
            return
        self._let_go()
        self._take()

    def _full(self) -> list[tuple[int, str]]:
        """The files that were renamed when they were full, by number."""
        folder, name = os.path.split(self.path)
        stem, suffix = os.path.splitext(name)
        pattern = re.compile(rf"{re.escape(stem)}-(\d{{6,}}){re.escape(suffix)}")
        try:
            names = os.listdir(folder or ".") if self.segment_bytes is not None else []
        except FileNotFoundError:
            return []
        return sorted((int(found[1]), os.path.join(folder, one)) for one in names if (found := pattern.fullmatch(one)))

    def _refuse(self, what: str, error: OSError) -> NoReturn:
        """Tell a person in one line what the disk refused; a folder that is gone is told as it is."""
        if isinstance(error, FileNotFoundError):
            raise error
        mend = mend_of(error) or "look after the disk, then go on"
        raise UserError(f"{what} ({error.strerror})", where=self.path, mend=mend) from error


def _first_line(file: int) -> bytes:
    """The first line, with its newline if it has one."""
    size = 4096
    while b"\n" not in (head := os.pread(file, size, 0)) and len(head) == size:
        size *= 4
    return head[: head.find(b"\n") + 1] or head


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
