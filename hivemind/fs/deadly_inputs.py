"""Count the processes that died while reading an input. After two deaths the input is refused.

Each process keeps one mark: a lock file in a common folder, locked until the process ends. While the process reads an
input, the file contains that input's name. An unlocked mark therefore shows that its process died, and on which input.
Marking an input costs two small writes into the page cache.
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
_MAX_MARK_AGE_S = 30 * 86400.0


class DeadlyInputs:
    """The marks in one folder. A process, also a forked one, creates its mark when it first reads an input.

    With `read_only` no mark is created or removed.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._folder = folder
        self._pid = 0
        self._mark: Lock | None = None
        self._folder_mtime_ns = -1
        self._current_key = b"\0"
        self._deaths: Counter[bytes] = Counter()

    @contextmanager
    def reading(self, kind: str, name: str, version: str = "", *, max_deaths: int = MAX_DEATHS) -> Iterator[None]:
        """Mark an input while this process reads it. `version` (size and time) distinguishes a changed input.

        Raises Unreadable at once if `max_deaths` processes have died on this input. If a mark cannot be created (a full
        disk, a read-only hive), the input is read without a mark.
        """
        key = _key(kind, name, version)
        has_mark = not self._read_only and self._open()
        if (has_mark or self._read_only) and self._death_count(key) >= max_deaths:
            raise Unreadable(
                f"{self._deaths[key]} processes died while reading this {kind}",
                location=name,
                remedy="change it, then it is read again",
            )
        if not has_mark:
            yield
            return
        outer_key = self._current_key
        self._write_mark(key)
        try:
            yield
        finally:
            self._write_mark(outer_key)

    def close(self) -> None:
        """Remove this process's mark. A normal exit, and garbage collection of this object, do so too."""
        if self._mark is not None and self._pid == os.getpid():
            self._remove()
        self._pid, self._mark = 0, None

    def _write_mark(self, key: bytes) -> None:
        assert self._mark is not None
        self._current_key = key
        os.pwrite(self._mark.file, key, 0)

    def _open(self) -> bool:
        """Create this process's mark if it is missing. Return False if that is impossible."""
        if self._pid == os.getpid():
            return self._mark is not None
        self._pid, self._mark = os.getpid(), None
        mark = Lock(self._folder / f"{self._pid}-{time.time_ns()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            mark.acquire()
            while not mark.is_current():  # another process removed it before it was locked
                mark.release()
                mark.acquire()
            os.pwrite(mark.file, b"\0" * _KEY_BYTES, 0)
        except OSError:  # full disk or no permission: read without a mark
            mark.release()
            return False
        self._mark = mark
        self._remove = weakref.finalize(self, _remove_mark, mark, self._pid)
        return True

    def _death_count(self, key: bytes) -> int:
        try:
            mtime_ns = self._folder.stat().st_mtime_ns
        except FileNotFoundError:  # no process has read anything yet; do not create the folder
            return 0
        if mtime_ns != self._folder_mtime_ns:  # a process started or ended since
            self._folder_mtime_ns = mtime_ns
            self._deaths = Counter(self._keys_of_dead_marks())
        return self._deaths[key]

    def _keys_of_dead_marks(self) -> Iterator[bytes]:
        """Yield the keys in unlocked marks. Remove marks that contain no key or are too old."""
        for path in self._folder.iterdir():
            try:
                if Lock(path).holder() is not None:
                    continue  # its process is running
                key, age = path.read_bytes(), time.time() - path.stat().st_mtime
                if key[:1] not in (b"", b"\0") and age <= _MAX_MARK_AGE_S:
                    yield key
                elif not self._read_only:
                    path.unlink()
            except OSError:
                continue  # removed by another process


def _remove_mark(mark: Lock, pid: int) -> None:
    if os.getpid() != pid:  # in a fork: the mark is the parent's
        return
    with contextlib.suppress(OSError):  # the folder may be gone
        os.unlink(mark.path)
    mark.release()


def _key(kind: str, name: str, version: str) -> bytes:
    raw = os.fsencode(f"{kind} {version} {name}")
    return raw[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0")
