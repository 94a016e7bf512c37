"""Which inputs killed the processes that read them: after two deaths an input is not read a third time.

Each process has a mark, a file in one folder that it holds locked while it lives; the mark names the input that the
process is reading just now, and nothing in between. So a death elsewhere counts against no input, and a mark that
nobody holds is a death: its name is the input's. Costs two writes of a few bytes an input, into the page cache.
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
from hivemind.fs.locks import lock, try_lock

__all__ = ["MAX_DEATHS", "CrashCount"]

MAX_DEATHS = 2
_KEY_BYTES = 1024
_KEPT_S = 30 * 86400.0


class CrashCount:
    """The marks in one folder, for one process. Opened at the first reading, so that a fork has its own.

    Who is only `read_only` makes no mark and takes none away.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._folder = os.fspath(folder)
        self._path = ""
        self._pid = 0
        self._mark = -1
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
        if self._mark >= 0 and self._pid == os.getpid():
            self._remove()
        self._pid, self._mark = 0, -1

    def _set(self, key: bytes) -> None:
        self._current = key
        os.pwrite(self._mark, key, 0)

    def _open(self) -> bool:
        if self._pid == os.getpid():
            return self._mark >= 0
        self._pid, self._mark = os.getpid(), -1
        try:
            os.makedirs(self._folder, exist_ok=True)
            while self._mark < 0:
                self._mark = self._new_mark()
            self._remove = weakref.finalize(self, _remove, self._path, self._mark, self._pid)
        except OSError:
            return False  # no room or no right to it: reading goes on, unmarked
        return True

    def _new_mark(self) -> int:
        """A locked mark that names nothing; -1 if another process took it for a dead one before it was locked."""
        self._path = os.path.join(self._folder, f"{self._pid}-{time.time_ns()}")
        mark = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            lock(mark)
            os.pwrite(mark, b"\0" * _KEY_BYTES, 0)
            whole = os.fstat(mark).st_nlink > 0
        except OSError:
            os.close(mark)
            raise
        if not whole:
            os.close(mark)
        return mark if whole else -1

    def _died_over(self, key: bytes) -> int:
        try:
            now = os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:  # nobody has read anything here, and who looks makes no folder
            return 0
        if now != self._seen:  # a process began or ended: somebody may have died
            self._seen = now
            self._deaths = Counter(self._dead_marks())
        return self._deaths[key]

    def _dead_marks(self) -> Iterator[bytes]:
        """What the marks that nobody holds name; marks that name nothing, or are old, are removed."""
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            if path == self._path:  # our own
                continue
            try:
                mark = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue  # gone meanwhile
            try:
                if not try_lock(mark):
                    continue  # its process lives
                key, age = os.pread(mark, _KEY_BYTES, 0), time.time() - os.fstat(mark).st_mtime
                if key[:1] not in (b"", b"\0") and age <= _KEPT_S:
                    yield key
                elif not self._read_only:
                    os.unlink(path)
            except OSError:
                continue  # gone meanwhile
            finally:
                os.close(mark)


def _remove(path: str, mark: int, pid: int) -> None:
    if os.getpid() != pid:  # a fork's: the mark is its parent's
        return
    with contextlib.suppress(OSError):  # somebody took the folder away
        os.unlink(path)
    os.close(mark)


def _key(kind: str, name: str, version: str) -> bytes:
    raw = os.fsencode(f"{kind} {version} {name}")
    return raw[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0")
