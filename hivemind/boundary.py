"""The boundary around the reading of an input: an error inside condemns only that input, not the process.

Inputs are texts that others wrote: a task, a letter, a line of a log, a record, a configuration file, a cache, a document, a
request. `with boundary("letter", path):` around the reading turns every exception that the input causes into one `Unreadable`.
The caller then sets the input aside with the reason. Errors of the machine pass through unchanged: a full disk must not condemn a
letter.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from hivemind.errors import HivemindError, UserError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_T = TypeVar("_T")
_adapters: dict[Any, TypeAdapter[Any]] = {}
_type_hints: Any = cache(get_type_hints)

_MACHINE_ERRORS = frozenset(
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
    """An input that cannot be read, with the reason as its message. The reader sets the input aside and continues."""


class boundary:  # noqa: N801 - reads as a word; a generator function would cost five times as much, a tenth of a claim
    """Turn exceptions while an input is read into `Unreadable`, which names the input.

    HivemindErrors pass through. So do OSErrors that do not depend on the input: disk full, read-only, too many open files, out
    of memory, file gone. `kind` is the kind of input, `location` identifies it.
    """

    __slots__ = ("_kind", "_mend", "_where")

    def __init__(self, kind: str, location: object = None, *, remedy: str | None = None) -> None:
        self._kind, self._where, self._mend = kind, location, remedy

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, HivemindError):
            return
        if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
            return
        message = (error.strerror if isinstance(error, OSError) else None) or str(error)
        reason = f"{type(error).__name__}: {message}"[:500] if message else type(error).__name__
        raise Unreadable(
            f"is a {self._kind} that cannot be read ({reason})", location=self._where, remedy=self._mend
        ) from error


def as_dataclass(
    kind: type[_T], fields: object, description: str, location: object = None, *, remedy: str | None = None
) -> _T:
    """Validate a JSON object as a dataclass and return the instance. A list may stand for a tuple.

    Raises Unreadable, with `description` and `location` as the name of the input.
    """
    with suppress(TypeError, ValueError, LookupError, NameError, AttributeError):
        return cast("_T", _decode(kind, fields))
    with boundary(description, location, remedy=remedy):
        try:
            instance: _T = _adapter(kind).validate_python(fields)
        except ValueError as error:
            from pydantic import ValidationError

            if not isinstance(error, ValidationError):
                raise
            first = error.errors(include_url=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return instance


def _decode(hint: Any, value: Any) -> Any:
    """Return a value as an instance of the type `hint`, if it has exactly the form in which this program writes it.

    Raises some exception for another value; the caller then validates it with pydantic. This is tried first because importing
    pydantic takes longer than a short command.
    """
    arguments: tuple[Any, ...] = get_args(hint)
    kind: Any = get_origin(hint) or hint
    if hint is Any or (hint in (str, int, float, bool) and type(value) is hint):
        return value
    if kind is Literal and type(value) is str and value in arguments:
        return value
    if kind in (Union, UnionType):
        (argument,) = (argument for argument in arguments if argument is not NoneType)
        return None if value is None and NoneType in arguments else _decode(argument, value)
    if kind is Annotated and [marker.name for marker in arguments[1:]] == ["AfterValidator"]:
        return arguments[1].arguments[0](_decode(arguments[0], value))
    if hint is datetime and value[10] == "T":
        return datetime.fromisoformat(value)
    if kind is tuple and type(value) is list and arguments[1:] == (...,):
        return tuple(_decode(arguments[0], item) for item in value)
    if kind is list and type(value) is list:
        return [_decode(arguments[0], item) for item in value]
    if kind in (dict, Mapping) and type(value) is dict:
        return {_decode(arguments[0], key): _decode(arguments[1], item) for key, item in value.items()}
    if not is_dataclass(hint):
        raise TypeError(hint)
    hints = _type_hints(kind, include_extras=True)
    return kind(**{name: _decode(hints[name], item) for name, item in value.items()})


def json_fields(value: object) -> dict[str, Any]:
    """Return the fields of a dataclass as a JSON object, from which `as_dataclass` rebuilds it."""
    fields: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json")
    return fields


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    adapter = _adapters.get(kind)
    if adapter is None:
        from pydantic import AwareDatetime, TypeAdapter  # noqa: F401 - annotations find both here

        adapter = _adapters[kind] = TypeAdapter(kind)  # takes milliseconds
    return adapter


def read_input(path: str | os.PathLike[str], max_bytes: int | None = None) -> bytes:
    """Read a regular file. Never wait for the writer of a FIFO, and never open a device.

    Raises Unreadable for anything but a regular file and for a file over `max_bytes`, and OSError.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise Unreadable("is not a regular file", location=path)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        raw = file.read(-1 if max_bytes is None else max_bytes + 1)
    if max_bytes is not None and len(raw) > max_bytes:
        raise Unreadable(f"has more than {max_bytes} bytes", location=path)
    return raw
