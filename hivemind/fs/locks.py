"""Locks that guard moments: BSD file locks, released by the operating system when their holder dies.

A lock file is never deleted: deleting it would let two processes hold two files of one name. The holder's record in
it (JSON: pid, host, machine, since, name) is for people and error messages; the lock itself is what counts.
For work that lasts, see leases (`hivemind.coordination`): a lock says nothing about what its holder has done.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from types import TracebackType

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs.atomic import open_own
from hivemind.fs.filesystem import mounts, needs_polling

_NO_FLOCK = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def lock(file: int) -> None:
    """Wait until this open file holds the lock. Raises OSError where there are no locks at all."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        _ofd(file, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK)


def try_lock(file: int) -> bool:
    """Take the lock if nobody holds it; says whether."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        try:
            _ofd(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)
        except (BlockingIOError, PermissionError):  # POSIX leaves either open
            return False
    return True


def unlock(file: int) -> None:
    """Let go of the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_UN)
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        _ofd(file, fcntl.F_OFD_SETLK, fcntl.F_UNLCK)


def _ofd(file: int, command: int, kind: int) -> bytes:
    """Ask about, or set, a record lock on the whole of an open file. Raises OSError."""
    return fcntl.fcntl(
        file, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)
    )  # struct flock of 64-bit Linux


@cache
def machine() -> dict[str, str]:
    """Which machine this process lives on, for a holder's record: the name alone does not tell two of one name apart. Its
    start and its processes' namespace say where a process's number means that process."""
    told = []
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            told.append(file.read(64))
    with contextlib.suppress(OSError):
        told.append(os.readlink("/proc/self/ns/pid").encode())
    return {"host": socket.gethostname(), "machine": hashlib.sha256(b"\n".join(told)).hexdigest()[:16]}


def is_here(holder: Mapping[str, object]) -> bool:
    """Whether the process of a holder's record is one of this machine, so that its number means something here."""
    return holder.get("machine", machine()["machine"]) == machine()["machine"]


def told_of(holder: Mapping[str, object]) -> str:
    """A holder in words: its process, the machine if it is another, since when."""
    if "pid" not in holder:
        return "a process that is just starting or ending"
    where = "" if is_here(holder) else f" on another machine ({holder.get('host', '?')})"
    return f"process {holder['pid']}{where}, since {holder.get('since', '?')}"


class HeldLock(UserError):
    """The lock is held by another process; `holder` is its record (may be empty)."""

    def __init__(self, what: str, *, where: object, holder: dict[str, object], mend: str | None = None) -> None:
        super().__init__(what, where=where, mend=mend)
        self.holder = holder


class Lock:
    """An exclusive lock on a file, held by one process at a time. Not re-entrant; usable as a context manager."""

    __slots__ = ("_file", "_noted", "_since", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file: int | None = None
        self._since = ""
        self._noted = False

    @property
    def held(self) -> bool:
        return self._file is not None

    def acquire(self, *, wait: bool = True, **record: object) -> bool:
        """Take the lock and write who holds it. Returns False if it is held and `wait` is False."""
        file = self._open()
        try:
            if wait:
                lock(file)
            elif not try_lock(file):
                os.close(file)
                return False
        except OSError:
            os.close(file)
            raise
        _mark(file)
        self._file = file
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        if record:
            try:
                self.note(**record)
            except BaseException:
                self.release()
                raise
        return True

    def _open(self) -> int:
        return open_own(self.path, os.O_RDWR | os.O_CREAT)

    def make(self) -> None:
        """Make the file if there is none."""
        os.close(self._open())

    @property
    def file(self) -> int:
        """The descriptor of the locked file itself, open for reading and writing: what is written through it lands nowhere
        else, whatever became of the name. Only for who holds it."""
        assert self._file is not None
        return self._file

    def note(self, **record: object) -> None:
        """Write (anew) who holds the lock and what for. Only for who holds it."""
        assert self._file is not None
        note = {"pid": os.getpid(), **machine(), "since": self._since, **record}
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(note).encode(), 0)
        self._noted = True

    def check_last_holder(self) -> None:
        """Raise HeldLock if another machine's holder has left its record, on a file system that machines share.

        Locks do not exclude across machines on all of those, and a holder that ends in order takes its record away.
        Requires the lock, before `note`.
        """
        assert self._file is not None
        last = _note_in(self._file, self.path)
        if is_here(last) or needs_polling(self.path, mounts()) is None:
            return
        raise HeldLock(
            f"is, or was, held by {told_of(last)}; on this file system the lock itself cannot tell",
            where=self.path,
            holder=last,
            mend="end it there; if that machine is gone: hivemind up --take-over",
        )

    def abandon(self) -> None:
        """Remove the record that another machine's holder has left. Only where a person says that it is gone."""
        file = self._open()
        try:
            if not is_here(_note_in(file, self.path)):
                os.ftruncate(file, 0)
        finally:
            os.close(file)

    def is_current(self) -> bool:
        """Whether what is held is still the file of that name, with its holder's record: not if it was moved away or
        replaced meanwhile, or taken over from another machine."""
        assert self._file is not None
        try:
            same = os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except FileNotFoundError:
            return False
        return same and (not self._noted or is_here(_note_in(self._file, self.path)))

    def release(self) -> None:
        if self._file is not None:
            if self._noted and is_here(_note_in(self._file, self.path)):
                with contextlib.suppress(OSError):  # a disk that can only be read by now
                    os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file, self._noted = None, False

    def holder(self) -> dict[str, object] | None:
        """The record of who holds the lock now, `{}` if it wrote none, or None if nobody holds it.

        Looks without locking, so that nobody who tries to take it meanwhile is turned away.
        """
        try:
            file = open_own(self.path, os.O_RDONLY)
        except (FileNotFoundError, UserError):  # what is no file can be held by nobody
            return None
        try:
            return _note_in(file, self.path) if _is_marked(file) else None
        finally:
            os.close(file)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _note_in(file: int, path: str) -> dict[str, object]:
    """The holder's record in a lock's file; `{}` if there is none that can be read."""
    try:
        with boundary("lock's note", path):
            found = json.loads(os.pread(file, 4096, 0))
    except Unreadable:
        return {}
    return found if isinstance(found, dict) else {}


# Whether a BSD lock is held can only be found out by trying for it, which for a moment keeps others from it. So its holder
# also takes a record lock on the same open file, which ends with it: that one can be asked about. Nobody waits for it.


def _mark(file: int) -> None:
    with contextlib.suppress(OSError):  # a file system without record locks: `_is_marked` tries for the lock there
        _ofd(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)


def _is_marked(file: int) -> bool:
    try:
        answer = _ofd(file, fcntl.F_OFD_GETLK, fcntl.F_RDLCK)
    except OSError:
        return _is_locked(file)
    return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return True
    return False
