"""The one root of all errors, and the kind that a person can mend."""

from __future__ import annotations

import errno

FAILED, WRONG_USE = 1, 2
"""Exit statuses: the work failed; a person has to mend something first."""

_REMEDIES = {
    errno.EROFS: "mount it for writing, or work in a copy",
    errno.ENOSPC: "make room, then try again",
    errno.EDQUOT: "make room, then try again",
    errno.EACCES: "give this user the right to it; hivemind doctor checks the hive's folders",
    errno.EMFILE: "too many files are open: see ulimit -n",
}


class HivemindError(Exception):
    """Root of every error that hivemind raises on purpose."""


class UserError(HivemindError):
    """An error that a person can mend: printed as one line `where: what; mend`, without a traceback.

    `what` says what is wrong, `where` the file (and line, and field), `mend` how to put it right.
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
    """A record written by another version: refused and kept, never guessed at, never deleted."""


def exit_line(error: Exception) -> tuple[str, int]:
    """What a person is told of an error that ended a process, and the exit status that it makes."""
    if isinstance(error, HivemindError):
        return str(error), WRONG_USE if isinstance(error, UserError) else FAILED
    if isinstance(error, OSError):
        return system_error(error), FAILED
    return f"a fault of hivemind itself: {type(error).__name__}: {error}", FAILED


def system_error(error: OSError) -> str:
    """The line that tells a person of what the operating system refused: `where: what; mend`."""
    line = f"{error.filename or 'the operating system'}: {error.strerror or error}"
    remedy = remedy_of(error)
    return line if remedy is None else f"{line}; {remedy}"


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error comes down to a full disk or quota, followed through its causes.

    A full disk is a pause: it uses up no try of a letter, a task or a step, and what is said of it is "disk full".
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # one raised again out of what it caused stands behind itself
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        # The second: no room for the index of the write-ahead log.
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"):
            return True
        error = error.__cause__ or error.__context__
    return False


def remedy_of(error: OSError) -> str | None:
    """What a person can do about what the operating system refused; None where nothing is known."""
    return _REMEDIES.get(error.errno or 0)


def _rebuild(kind: type[UserError], state: dict[str, object], args: tuple[object, ...]) -> UserError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = args
    return error
