"""The root class of all errors, and the class of errors that a person can correct."""

from __future__ import annotations

import errno

FAILED, WRONG_USE = 1, 2
"""The exit statuses if the work failed, and if a person must correct something first."""

_REMEDIES = {
    errno.EROFS: "mount it for writing, or work in a copy",
    errno.ENOSPC: "make room, then try again",
    errno.EDQUOT: "make room, then try again",
    errno.EACCES: "give this user the right to it; hivemind doctor checks the hive's folders",
    errno.EMFILE: "too many files are open: see ulimit -n",
}


class HivemindError(Exception):
    """The root of all errors that hivemind raises on purpose."""


class UserError(HivemindError):
    """An error that a person can correct, printed as one line `location: message; remedy`, without a traceback.

    `message` describes the error, `location` is the file (and line, and field), `remedy` says how to correct it.
    """

    def __init__(self, message: str, *, location: object = None, remedy: str | None = None) -> None:
        self.message = message
        self.location = None if location is None else str(location)
        self.remedy = remedy
        line = message if self.location is None else f"{self.location}: {message}"
        if remedy:
            line = f"{line}; {remedy}"
        super().__init__(" ".join(line.split()))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.__dict__, self.args))


class UnknownVersion(UserError):
    """A record of another version than this program's. The record is refused and kept, never interpreted or deleted."""


def exit_line(error: Exception) -> tuple[str, int]:
    """Return the line that a person sees for an error that ended a process, and the exit status of the process."""
    if isinstance(error, HivemindError):
        return str(error), WRONG_USE if isinstance(error, UserError) else FAILED
    if isinstance(error, OSError):
        return system_error(error), FAILED
    return f"a fault of hivemind itself: {type(error).__name__}: {error}", FAILED


def system_error(error: OSError) -> str:
    """Return the line that a person sees for an error of the operating system: `location: message; remedy`."""
    line = f"{error.filename or 'the operating system'}: {error.strerror or error}"
    remedy = remedy_of(error)
    return line if remedy is None else f"{line}; {remedy}"


def is_disk_full(error: BaseException | None) -> bool:
    """Check whether an error was caused, directly or not, by a full disk or quota.

    A full disk only causes a pause: it does not count as a failed try of a letter, task or step, and is reported as
    "disk full".
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # an error that was raised again can be among its own causes
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        # SQLITE_IOERR_SHMSIZE: no room for the index of the write-ahead log.
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"):
            return True
        error = error.__cause__ or error.__context__
    return False


def remedy_of(error: OSError) -> str | None:
    """Return what a person can do about an error of the operating system, or None if that is unknown."""
    return _REMEDIES.get(error.errno or 0)


def _rebuild(kind: type[UserError], state: dict[str, object], args: tuple[object, ...]) -> UserError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = args
    return error
