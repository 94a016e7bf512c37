"""Small JSON records with a kind and a version: `{"kind": "claim", "version": 1, ...}`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hivemind.boundary import Unreadable, boundary, checked, plain, read_input
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs.atomic import move, write

_T = TypeVar("_T")
_MEND = "hivemind doctor --fix sets it aside"

_readable = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, skipkeys=True)
_ascii = json.JSONEncoder(separators=(",", ":"), default=str, skipkeys=True)


def save_record(
    path: str | os.PathLike[str], kind: str, version: int, fields: dict[str, Any], *, durable: bool = True
) -> None:
    """Write a record whole or not at all; keys in the order given."""
    record = {"kind": kind, "version": version, **fields}
    write(path, as_line(record), durable=durable)


def save_value(path: str | os.PathLike[str], kind: str, version: int, value: object, *, durable: bool = True) -> None:
    """Write a dataclass as a record."""
    save_record(path, kind, version, plain(value), durable=durable)


def as_line(record: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bytes:
    """A record, or several that belong together, as one line of JSON.

    Names that are no UTF-8 (os.fsdecode) are escaped, and read back as they were.
    """
    try:
        return _readable.encode(record).encode() + b"\n"
    except UnicodeEncodeError:
        return _ascii.encode(record).encode() + b"\n"


class DamagedRecord(UserError):
    """A file that has the name of a record and is none: cut short, changed by hand, or something else."""


def load_record(path: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any] | None:
    """The fields of a record, or None if there is no such file.

    Raises UnknownVersion for another version, DamagedRecord for a file that is no such record, and UserError for one that
    can't be read now; all leave it as it is.
    """
    try:
        raw = read_input(path)
    except FileNotFoundError:
        return None
    except Unreadable as error:
        raise DamagedRecord(error.what, where=path, mend=_MEND) from error
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path, mend="make it readable") from error
    return parse_record(raw, path, kind, version)


def load_value(type_: type[_T], path: str | os.PathLike[str], kind: str, version: int) -> _T | None:
    """The dataclass that a record holds, None if there is no such file. Raises as load_record, and Unreadable for values that
    the dataclass does not take."""
    record = load_record(path, kind, version)
    return None if record is None else checked(type_, record, f"{kind} record", path)


def parse_record(raw: bytes, path: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any]:
    """The fields of a record whose bytes were read from `path`. Raises UnknownVersion, DamagedRecord."""
    try:
        with boundary(f"{kind} record", path):
            record = json.loads(raw, parse_constant=_refuse)
    except Unreadable as error:
        raise DamagedRecord(error.what, where=path, mend=_MEND) from error
    if not isinstance(record, dict) or record.pop("kind", None) != kind:
        raise DamagedRecord(f"is no {kind} record", where=path, mend=_MEND)
    found = record.pop("version", None)
    if found != version:
        raise UnknownVersion(
            f"is a {kind} record of version {found}, this program knows version {version}",
            where=path,
            mend="use the hivemind that wrote it, or move the file away",
        )
    return record


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no number of JSON")


def set_aside(path: str | os.PathLike[str]) -> Path:
    """Give a file or folder that is damaged another name beside it, `NAME.damaged-<time>`; gives that. Raises OSError."""
    old = Path(path)
    aside = old.with_name(f"{old.name}.damaged-{time.time_ns()}")
    move(old, aside, durable=False)
    return aside
