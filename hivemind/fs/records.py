"""Small JSON records with a kind and a version: `{"kind": "claim", "version": 1, ...}`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hivemind.boundary import Unreadable, as_dataclass, boundary, json_fields, read_input
from hivemind.errors import UnknownVersion, UserError
from hivemind.fs.atomic import move, write

_T = TypeVar("_T")
_REMEDY = "hivemind doctor --fix sets it aside"

_readable = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, skipkeys=True)
_ascii = json.JSONEncoder(separators=(",", ":"), default=str, skipkeys=True)


def save_record(
    path: str | os.PathLike[str], kind: str, version: int, fields: dict[str, Any], *, durable: bool | None = None
) -> None:
    """Write a record atomically, with the fields in their order. `durable` is as for `atomic.write`."""
    record = {"kind": kind, "version": version, **fields}
    write(path, as_line(record), durable=durable)


def save_dataclass(
    path: str | os.PathLike[str], kind: str, version: int, instance: object, *, durable: bool | None = None
) -> None:
    """Write a dataclass as a record. The other arguments are as for `save_record`."""
    save_record(path, kind, version, json_fields(instance), durable=durable)


def as_line(record: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bytes:
    """Encode a record, or several that belong together, as one line of JSON.

    File names that are not UTF-8 (from os.fsdecode) are escaped and survive the round trip.
    """
    try:
        return _readable.encode(record).encode() + b"\n"
    except UnicodeEncodeError:
        return _ascii.encode(record).encode() + b"\n"


class DamagedRecord(UserError):
    """A file does not contain the expected record: it is truncated, edited by hand, or a different file."""


def load_record(path: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any] | None:
    """Return the fields of a record, or None if the file is missing.

    Raises UnknownVersion for another version, DamagedRecord if the file is not a valid record, UserError if it is
    unreadable. The file is not changed.
    """
    try:
        raw = read_input(path)
    except FileNotFoundError:
        return None
    except Unreadable as error:
        raise DamagedRecord(error.message, location=path, remedy=_REMEDY) from error
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", location=path, remedy="make it readable") from error
    return parse_record(raw, path, kind, version)


def load_dataclass(dataclass_type: type[_T], path: str | os.PathLike[str], kind: str, version: int) -> _T | None:
    """Return the dataclass that a record contains, or None if the file is missing.

    Raises the errors of `load_record`, and Unreadable for values that the dataclass does not accept.
    """
    record = load_record(path, kind, version)
    return None if record is None else as_dataclass(dataclass_type, record, f"{kind} record", path)


def parse_record(raw: bytes, path: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any]:
    """Parse a record's bytes, read from `path`, and return its fields. Raises UnknownVersion, DamagedRecord."""
    try:
        with boundary(f"{kind} record", path):
            record = json.loads(raw, parse_constant=_reject_constant)
    except Unreadable as error:
        raise DamagedRecord(error.message, location=path, remedy=_REMEDY) from error
    if not isinstance(record, dict) or record.pop("kind", None) != kind:
        raise DamagedRecord(f"is not a {kind} record", location=path, remedy=_REMEDY)
    found_version = record.pop("version", None)
    if found_version != version:
        raise UnknownVersion(
            f"is a {kind} record of version {found_version}, this program knows version {version}",
            location=path,
            remedy="use the hivemind that wrote it, or move the file away",
        )
    return record


def _reject_constant(constant: str) -> object:
    raise ValueError(f"{constant} is not a JSON number")


def set_aside(path: str | os.PathLike[str]) -> Path:
    """Rename a damaged file or folder to `NAME.damaged-<time>` in its folder. Return the new path. Raises OSError."""
    source = Path(path)
    target = source.with_name(f"{source.name}.damaged-{time.time_ns()}")
    move(source, target, durable=False)
    return target
