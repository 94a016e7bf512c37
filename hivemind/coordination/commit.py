"""Group commit: one fdatasync serves every writer that waits for it, in whatever process (spec 3, *Journal*)."""

from __future__ import annotations

import os
import threading

from hivemind.coordination.segments import path_of
from hivemind.fs import open_own, reached
from hivemind.fs.flocks import lock, unlock

__all__ = ["Commit"]

_WIDTH = 20


class Commit:
    """Makes the log durable up to a place in it.

    The file `synced` says, for every process, how far the log is known to be on disk: the segment (everything in older
    ones is) and the offset in it. It is written after the fdatasync and may be lost or old: then one more is done. Who
    waits for the lock on it mostly finds, when it gets it, that the one before has done its work as well.

    With `looking` no file is written, made or locked: what is not known to be on disk is synced and not noted.
    """

    __slots__ = ("_file", "_first", "_folder", "_log", "_looking", "_mutex")

    def __init__(self, folder: str, *, looking: bool = False) -> None:
        self._folder, self._looking = folder, looking
        self._file = self._noted()
        self._log: int | None = None
        self._first = 0
        self._mutex = threading.Lock()  # flock does not part the threads of one process

    def _noted(self) -> int | None:
        """The file `synced`; for an onlooker None where there is none."""
        path = os.path.join(self._folder, "synced")
        if not self._looking:
            return open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            return open_own(path, os.O_RDONLY)
        except FileNotFoundError:
            return None

    def known(self) -> tuple[int, int]:
        """(segment, offset) up to which the log is durable."""
        if self._file is None:
            return 0, 0
        try:
            first, offset = os.pread(self._file, 2 * _WIDTH + 2, 0).split()
            return int(first), int(offset)
        except ValueError:
            return 0, 0

    def cover(self, first: int, offset: int) -> None:
        """Return once the log is durable up to `offset` of the segment `first`. Raises OSError."""
        place = (first, offset)
        if self.known() >= place:
            return
        with self._mutex:
            if self._looking:
                os.fdatasync(self._segment(first))
                return
            assert self._file is not None
            lock(self._file)
            try:
                if self.known() >= place:
                    return
                log = self._segment(first)
                size = os.fstat(log).st_size  # what others have written by now comes along
                os.fdatasync(log)
                reached("journal.commit.synced")
                self._note(first, size)
            finally:
                unlock(self._file)

    def forget(self, file: int, offset: int) -> None:
        """Cut a segment back to `offset`: what is written there next is not durable before it is synced anew."""
        assert self._file is not None
        with self._mutex:
            lock(self._file)
            try:
                self._note(0, 0)
                os.ftruncate(file, offset)
            finally:
                unlock(self._file)

    def _note(self, first: int, offset: int) -> None:
        assert self._file is not None
        os.pwrite(self._file, f"{first:0{_WIDTH}d} {offset:0{_WIDTH}d}\n".encode(), 0)

    def _segment(self, first: int) -> int:
        if self._log is None or self._first != first or os.fstat(self._log).st_nlink == 0:
            if self._log is not None:
                os.close(self._log)
                self._log = None
            self._log = open_own(path_of(self._folder, first), os.O_RDONLY)
            self._first = first
        return self._log

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        if self._log is not None:
            os.close(self._log)
