"""The boundary of an entrance: where an input is read, whatever is raised sets that input aside and nothing else.

An entrance is a place where something comes in that others wrote: a task's text, a letter, a line of a log, a record, a
configuration file, a cache, a document, a request. `with boundary("letter", path):` around all that looks into it turns
whatever the input provokes into one `Unreadable`, which the caller answers by setting that input aside with its reason.
What is the machine's trouble and not the input's passes through unchanged: a full disk must not condemn a letter.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any, TypeVar

from hivemind.errors import HivemindError, UserError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_T = TypeVar("_T")
_adapters: dict[Any, TypeAdapter[Any]] = {}

_MACHINE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOENT,
        errno.ESTALE,
        errno.EINTR,
    }
)


class Unreadable(UserError):
    """An input that cannot be read; `what` says why. Whoever reads it sets it aside and goes on."""


class boundary:  # noqa: N801 - a word where it stands; as a generator it cost five times as much, a tenth of a claim
    """Turn what reading one input raises into `Unreadable`, which names the input.

    Passes through: errors that hivemind raised on purpose, and OSErrors that say nothing about the input (disk full,
    read-only, too many open files, out of memory, file gone). `kind` is what the input is, `where` which one.
    """

    __slots__ = ("_kind", "_mend", "_where")

    def __init__(self, kind: str, where: object = None, *, mend: str | None = None) -> None:
        self._kind, self._where, self._mend = kind, where, mend

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, HivemindError):
            return
        if isinstance(error, OSError) and error.errno in _MACHINE:
            return
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        reason = f"{type(error).__name__}: {said}"[:500] if said else type(error).__name__
        raise Unreadable(
            f"is a {self._kind} that cannot be read ({reason})", location=self._where, remedy=self._mend
        ) from error


def checked(kind: type[_T], given: object, what: str, where: object = None, *, mend: str | None = None) -> _T:
    """The dataclass whose fields `given`, a JSON object, has with their types (a list for a tuple). Raises Unreadable."""
    with boundary(what, where, mend=mend):
        try:
            found: _T = _adapter(kind).validate_python(given)
        except ValueError as error:
            from pydantic import ValidationError

            if not isinstance(error, ValidationError):
                raise
            first = error.errors(include_url=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return found


def plain(value: object) -> dict[str, Any]:
    """The fields of a dataclass as JSON has them: what `checked` makes it of again."""
    found: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json")
    return found


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    found = _adapters.get(kind)
    if found is None:
        from pydantic import TypeAdapter

        found = _adapters[kind] = TypeAdapter(kind)  # which takes milliseconds
    return found


def read_input(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """All of a regular file. Never waits for the writer of a FIFO, and opens no device.

    Raises Unreadable for anything else and for a file of over `most` bytes, and OSError.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise Unreadable("is no regular file", location=path)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        raw = file.read(-1 if most is None else most + 1)
    if most is not None and len(raw) > most:
        raise Unreadable(f"has more than {most} bytes", location=path)
    return raw
