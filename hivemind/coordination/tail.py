"""The end of the log: reading what is new there, and writing the next line (spec 3, *Journal*)."""

from __future__ import annotations

import json
import logging
import os

from hivemind.coordination.commit import Commit
from hivemind.coordination.errors import JournalDamaged
from hivemind.coordination.event import Record, text_of
from hivemind.coordination.segments import Place, damaged, path_of, read_lines, segments, whole_lines
from hivemind.errors import UserError
from hivemind.fs import fsync_folder, open_own, reached

__all__ = ["REPAIRS", "Tail", "TailMoved"]

REPAIRS = "repairs.log"
_log = logging.getLogger(__name__)


class TailMoved(Exception):
    """The file that was read is another one now (restored, or saved by an editor): read the log from its beginning."""


class Tail:
    """A place in the log up to which it has been read. `first` names the segment, `offset` counts bytes in it.

    A segment of `limit` bytes or more is closed: the log goes on in the file that is named by the next seq. With
    `looking` the files are opened for reading, and `repair` and `push` are not for it.
    """

    __slots__ = ("_file", "_flags", "_folder", "_inode", "first", "limit", "offset", "read", "seq", "start", "torn")

    def __init__(self, folder: str, limit: int, place: Place, *, looking: bool = False) -> None:
        self._folder, self.limit = folder, limit
        self._flags = os.O_RDONLY if looking else os.O_RDWR
        self.seq, self.first, self.start, self.offset = place
        self.torn = False
        self.read = 0
        self._file: int | None = None
        self._inode: int | None = None  # of the file that `close` closed

    def pull(self) -> list[Record]:
        """The events that are new since the last pull, whole lines only; then `torn` says whether more stands there.

        Raises JournalDamaged for a line that is not what was written while whole ones follow it, TailMoved.
        """
        found: list[Record] = []
        while self._opened():
            assert self._file is not None
            status = os.fstat(self._file)
            if status.st_nlink == 0 or status.st_size < self.offset:
                raise TailMoved
            if status.st_size > self.offset:
                self._take(found, self._file)
            self.torn = status.st_size > self.offset
            if self.torn or self.offset < self.limit or not self._follow():
                break
        return found

    def pull_all(self) -> list[Record]:
        """The first pull: also makes sure that this is where the log ends. Raises JournalDamaged if a segment is missing."""
        found = self.pull()
        while (later := [first for first in segments(self._folder) if first > self.first]) and (
            self.offset < self.limit or later[0] != self.seq + 1
        ):
            more = self.pull()  # someone may just have filled this segment
            if not more:
                what = f"is missing: the log ends here, and goes on with event {later[0]}"
                raise damaged(self._folder, self.first, self.offset, what)
            found += more
        return found

    def _opened(self) -> bool:
        if self._file is None:
            try:
                self._file = open_own(path_of(self._folder, self.first), self._flags)
            except FileNotFoundError:
                return False
            if self._inode not in (None, os.fstat(self._file).st_ino):
                raise TailMoved
        return True

    def _follow(self) -> bool:
        """Go on to the next segment, if it is there."""
        try:
            file = open_own(path_of(self._folder, self.seq + 1), self._flags)
        except FileNotFoundError:
            return False
        self._use(file)
        return True

    def _use(self, file: int) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self.first, self.start, self.offset = file, self.seq + 1, 0, 0

    def _take(self, found: list[Record], file: int) -> None:
        for offset, lines in read_lines(file, self.offset):
            events, used, wrong = whole_lines(lines, self.seq + 1)
            if events:
                self.seq = events[-1]["seq"]
                self.start = offset + lines.rfind(b"\n", 0, used - 1) + 1
                self.offset = offset + used
                self.read += used
                found += events
            if wrong is not None:
                if self._followed(file):
                    raise damaged(self._folder, self.first, self.offset, wrong)
                return

    def _followed(self, file: int) -> bool:
        """True if an event stands at `offset` or after it: then the line there is no torn end, it was changed."""
        if any(first > self.first for first in segments(self._folder)):
            return True
        for _, lines in read_lines(file, self.offset):
            for line in lines.split(b"\n")[:-1]:
                try:
                    text_of(line)
                except ValueError:
                    continue
                return True
        return False

    def repair(self, commit: Commit) -> None:
        """Cut off what a crash left after the last whole line, keep and report it; only for who holds the lock."""
        assert self._file is not None
        size = os.fstat(self._file).st_size
        torn = os.pread(self._file, size - self.offset, self.offset)
        path = path_of(self._folder, self.first)
        _log.warning(
            "journal: %s: %d torn bytes after event %d cut off, kept in %s", path, len(torn), self.seq, REPAIRS
        )
        note = {"segment": os.path.basename(path), "offset": self.offset, "after_seq": self.seq}
        note["torn"] = torn.decode("utf-8", "backslashreplace")
        kept = os.path.join(self._folder, REPAIRS)
        try:
            _append(kept, json.dumps(note, ensure_ascii=False) + "\n")
        except OSError as error:  # then it stays where it is
            raise UserError(
                f"cannot be written ({error.strerror})", where=kept, mend="make room, then go on"
            ) from error
        reached("journal.repair.noted")
        commit.forget(self._file, self.offset)
        reached("journal.repair.cut")

    def push(self, line: bytes, events: int, commit: Commit) -> None:
        """Write the next line; only for who holds the lock and has pulled. UserError: nothing is written."""
        try:
            if self._file is None or self.offset >= self.limit:
                self._begin(commit)
            reached("journal.append.locked")
            self._put(line, commit)
        except OSError as error:
            path = path_of(self._folder, self.first)
            raise UserError(
                f"cannot be written ({error.strerror})", where=path, mend="make room, then go on"
            ) from error
        reached("journal.append.written")
        self.start, self.offset, self.seq = self.offset, self.offset + len(line), self.seq + events

    def _put(self, line: bytes, commit: Commit) -> None:
        """Write all of a line or nothing of it. Raises OSError."""
        assert self._file is not None
        written = 0
        try:
            while written < len(line):  # more than once only where the disk is all but full
                written += os.pwrite(self._file, line[written:], self.offset + written)
        except OSError:
            commit.forget(self._file, self.offset)
            raise

    def _begin(self, commit: Commit) -> None:
        """Close this segment and begin the next. The old one is made durable first: no gap can be before the end."""
        if self._file is not None:
            commit.cover(self.first, self.offset)
            reached("journal.rotate.synced")
        path = path_of(self._folder, self.seq + 1)
        file = open_own(path, os.O_RDWR | os.O_CREAT)
        reached("journal.rotate.created")
        if os.fstat(file).st_size:
            os.close(file)
            raise JournalDamaged("is there before the segment ahead of it is full", where=path, mend="restore a copy")
        self._use(file)
        fsync_folder(self._folder)

    @property
    def place(self) -> Place:
        return self.seq, self.first, self.start, self.offset

    def last_line(self) -> bytes:
        """The line that ends where the tail stands."""
        assert self._file is not None
        return os.pread(self._file, self.offset - self.start, self.start)

    def close(self) -> None:
        """Close the file; the next pull opens it again, if it is still the same one."""
        if self._file is not None:
            self._inode = os.fstat(self._file).st_ino
            os.close(self._file)
            self._file = None


def _append(path: str, text: str) -> None:
    with open(path, "ab") as file:
        file.write(text.encode("utf-8", "backslashreplace"))
        file.flush()
        os.fsync(file.fileno())
