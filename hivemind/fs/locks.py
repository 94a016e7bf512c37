"""Short mutual exclusion by BSD file locks, which the operating system releases when the holder dies.

A lock file is never deleted: otherwise two processes could lock two files of the same name. The holder's record in the
file (JSON: pid, host, machine, since, name) is for people and error messages only; the lock decides.
For long work use leases (`hivemind.coordination`): a lock does not say what its holder has done.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from types import TracebackType

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs.atomic import open_regular
from hivemind.fs.filesystem import mounts, needs_polling

_NO_FLOCK = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def lock(file: int) -> None:
    """Lock an open file, waiting for its holder. Raises OSError if the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        _ofd(file, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK)


def try_lock(file: int) -> bool:
    """Lock an open file without waiting. Return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        try:
            _ofd(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)
        except (BlockingIOError, PermissionError):  # POSIX allows either
            return False
    return True


def unlock(file: int) -> None:
    """Release the lock of an open file."""
    try:
        fcntl.flock(file, fcntl.LOCK_UN)
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        _ofd(file, fcntl.F_OFD_SETLK, fcntl.F_UNLCK)


def _ofd(file: int, command: int, lock_type: int) -> bytes:
    """Query or set an open file description lock on a whole file. Return the kernel's answer, a packed `struct flock`. Raises
    OSError.
    """
    # struct flock of 64-bit Linux
    return fcntl.fcntl(file, command, struct.pack("hhqqi4x", lock_type, os.SEEK_SET, 0, 0, 0))


@cache
def machine_identity() -> dict[str, str]:
    """Return the host name and a digest that identifies this machine, its boot and its PID namespace.

    Host names need not be unique, and a PID is valid only within one boot and one namespace.
    """
    identifiers = []
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            identifiers.append(file.read(64))
    with contextlib.suppress(OSError):
        identifiers.append(os.readlink("/proc/self/ns/pid").encode())
    return {"host": os.uname().nodename, "machine": hashlib.sha256(b"\n".join(identifiers)).hexdigest()[:16]}


def is_on_this_machine(holder: Mapping[str, object]) -> bool:
    """Check whether a holder's process runs on this machine, where its PID is valid."""
    return holder.get("machine", machine_identity()["machine"]) == machine_identity()["machine"]


def describe_holder(holder: Mapping[str, object]) -> str:
    """Describe a lock's holder in words: its process, the machine if that is another one, and when it took the lock."""
    if "pid" not in holder:
        return "a process that is starting or ending"
    location = "" if is_on_this_machine(holder) else f" on another machine ({holder.get('host', '?')})"
    return f"process {holder['pid']}{location}, since {holder.get('since', '?')}"


class LockBusy(UserError):
    """Another process holds the lock. `holder` is that process's record, which may be empty."""

    def __init__(self, message: str, *, location: object, holder: dict[str, object], remedy: str | None = None) -> None:
        super().__init__(message, location=location, remedy=remedy)
        self.holder = holder


class Lock:
    """An exclusive lock on a file, for one process at a time; a context manager. Not re-entrant."""

    __slots__ = ("_file", "_has_record", "_since", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file: int | None = None
        self._since = ""
        self._has_record = False

    @property
    def is_held(self) -> bool:
        return self._file is not None

    def acquire(self, *, wait: bool = True, **record: object) -> bool:
        """Take the lock and write `record` as the holder's. Return False if `wait` is False and the lock is taken."""
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
        _take_marker_lock(file)
        self._file = file
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        if record:
            try:
                self.write_holder(**record)
            except BaseException:
                self.release()
                raise
        return True

    def _open(self) -> int:
        return open_regular(self.path, os.O_RDWR | os.O_CREAT)

    def create_file(self) -> None:
        """Create the lock file if it is missing."""
        os.close(self._open())

    @property
    def file(self) -> int:
        """The locked file's descriptor, open for reading and writing. It stays valid if the file is renamed or replaced.
        Requires the lock."""
        assert self._file is not None
        return self._file

    def write_holder(self, **record: object) -> None:
        """Write the holder's record, replacing the previous one. Requires the lock."""
        assert self._file is not None
        holder_record = {"pid": os.getpid(), **machine_identity(), "since": self._since, **record}
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(holder_record).encode(), 0)
        self._has_record = True

    def check_last_holder(self) -> None:
        """Raise LockBusy on a shared file system if the last holder may still run, although this process has the lock.

        Not every shared file system locks across machines, or across two mounts of one machine. A holder that ends normally
        removes its record. A record of another machine, or of a running process of this one, therefore counts as a holder.
        Requires the lock; call this before `write_holder`.
        """
        assert self._file is not None
        last_holder = _read_holder(self._file, self.path)
        is_local = is_on_this_machine(last_holder)
        if (is_local and not _is_other_process(last_holder.get("pid"))) or needs_polling(self.path, mounts()) is None:
            return
        remedy = "stop it there; if that machine is gone: hivemind up --take-over"
        raise LockBusy(
            f"is, or was, held by {describe_holder(last_holder)}; on this file system the lock cannot be trusted",
            location=self.path,
            holder=last_holder,
            remedy="it may use the hive through another mount: end it first" if is_local else remedy,
        )

    def clear_foreign_holder(self) -> None:
        """Remove the record that another machine's holder left. Call it only if a person says that the machine is gone."""
        file = self._open()
        try:
            if not is_on_this_machine(_read_holder(file, self.path)):
                os.ftruncate(file, 0)
        finally:
            os.close(file)

    def is_current(self) -> bool:
        """Check that the lock file was not moved or replaced, and that no other machine has taken it over."""
        assert self._file is not None
        try:
            is_same_file = os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except FileNotFoundError:
            return False
        return is_same_file and (not self._has_record or is_on_this_machine(_read_holder(self._file, self.path)))

    def release(self) -> None:
        if self._file is not None:
            if self._has_record and is_on_this_machine(_read_holder(self._file, self.path)):
                with contextlib.suppress(OSError):  # the disk may have become read-only
                    os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file, self._has_record = None, False

    def holder(self) -> dict[str, object] | None:
        """Return the current holder's record, or None if the lock is free. `{}`: the holder has written no record.

        This does not take the lock, so it never makes another process's `acquire(wait=False)` fail.
        """
        try:
            file = open_regular(self.path, os.O_RDONLY)
        except (FileNotFoundError, UserError):  # only a regular file can be locked
            return None
        try:
            return _read_holder(file, self.path) if _has_marker_lock(file) else None
        finally:
            os.close(file)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _is_other_process(pid: object) -> bool:
    """Check whether another process has that PID and has not ended (its PID lasts until its parent waits for it)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return pid != os.getpid() and file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _read_holder(file: int, path: str) -> dict[str, object]:
    """Read the holder's record from a lock file; `{}` if it is missing or invalid."""
    try:
        with boundary("lock's note", path):
            holder = json.loads(os.pread(file, 4096, 0))
    except Unreadable:
        return {}
    return holder if isinstance(holder, dict) else {}


# A BSD lock can be tested only by taking it, which would briefly block others. Therefore the holder also sets an open file
# description lock, the marker, on the same open file. The marker can be queried, and ends with the file; nobody waits for it.


def _take_marker_lock(file: int) -> None:
    with contextlib.suppress(OSError):  # a file system without these locks: `_has_marker_lock` tries the BSD lock
        _ofd(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)


def _has_marker_lock(file: int) -> bool:
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
