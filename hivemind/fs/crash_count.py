"""Which inputs killed the processes that read them: after two deaths an input is not read a third time.

Each process has a mark, a lock in one folder that it holds while it lives; the mark's file names the input that the
process is reading just now, and nothing in between. So a death elsewhere counts against no input, and a mark that
nobody holds is a death of what it names. Costs two writes of a few bytes an input, into the page cache.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hivemind.boundary import Unreadable
from hivemind.fs.locks import Lock

MAX_DEATHS = 2
_KEY_BYTES = 1024
_KEPT_S = 30 * 86400.0


class CrashCount:
    """The marks in one folder, for one process. Opened at the first reading, so that a fork has its own.

    Who is only `read_only` makes no mark and takes none away.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._folder = folder
        self._pid = 0
        self._mark: Lock | None = None
        self._seen = -1
        self._current = b"\0"
        self._deaths: Counter[bytes] = Counter()

    @contextmanager
    def reading(self, kind: str, name: str, version: str = "", *, deaths: int = MAX_DEATHS) -> Iterator[None]:
        """Mark that this process reads an input. `version` tells a changed input from what it was (size and time).

        Raises Unreadable, before anything is read, for an input over which `deaths` processes died. Where no mark can be
        made (a full disk, a read-only hive) the input is read without one.
        """
        key = _key(kind, name, version)
        marked = not self._read_only and self._open()
        if (marked or self._read_only) and self._died_over(key) >= deaths:
            raise Unreadable(
                f"is a {kind} during whose reading {self._deaths[key]} processes died",
                where=name,
                mend="it is read again once it is changed",
            )
        if not marked:
            yield
            return
        before = self._current
        self._set(key)
        try:
            yield
        finally:
            self._set(before)

    def close(self) -> None:
        """Take the mark away: this process ends in order. Done at its end, or when this is no longer used, as well."""
        if self._mark is not None and self._pid == os.getpid():
            self._remove()
        self._pid, self._mark = 0, None

    def _set(self, key: bytes) -> None:
        assert self._mark is not None
        self._current = key
        os.pwrite(self._mark.file, key, 0)

    def _open(self) -> bool:
        """Make this process's mark, if it has none yet; False where none can be made."""
        if self._pid == os.getpid():
            return self._mark is not None
        self._pid, self._mark = os.getpid(), None
        mark = Lock(self._folder / f"{self._pid}-{time.time_ns()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            mark.acquire()
            while not mark.is_current():  # another process took it for a dead one before it was locked
                mark.release()
                mark.acquire()
            os.pwrite(mark.file, b"\0" * _KEY_BYTES, 0)
        except OSError:  # no room or no right to it: reading goes on, unmarked
            mark.release()
            return False
        self._mark = mark
        self._remove = weakref.finalize(self, _remove, mark, self._pid)
        return True

    def _died_over(self, key: bytes) -> int:
        try:
            now = self._folder.stat().st_mtime_ns
        except FileNotFoundError:  # nobody has read anything here, and who looks makes no folder
            return 0
        if now != self._seen:  # a process began or ended: somebody may have died
            self._seen = now
            self._deaths = Counter(self._dead_marks())
        return self._deaths[key]

    def _dead_marks(self) -> Iterator[bytes]:
        """What the marks that nobody holds name; marks that name nothing, or are old, are removed."""
        for mark in self._folder.iterdir():
            try:
                if Lock(mark).holder() is not None:
                    continue  # its process lives
                key, age = mark.read_bytes(), time.time() - mark.stat().st_mtime
                if key[:1] not in (b"", b"\0") and age <= _KEPT_S:
                    yield key
                elif not self._read_only:
                    mark.unlink()
            except OSError:
                continue  # gone meanwhile


def _remove(mark: Lock, pid: int) -> None:
    if os.getpid() != pid:  # a fork's: the mark is its parent's
        return
    with contextlib.suppress(OSError):  # somebody took the folder away
        os.unlink(mark.path)
    mark.release()


def _key(kind: str, name: str, version: str) -> bytes:
    raw = os.fsencode(f"{kind} {version} {name}")
    return raw[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0")
