"""Small JSON records with a kind and a version: `{"kind": "claim", "version": 1, ...}`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs.atomic import write

__all__ = ["as_line", "load_record", "save_record"]

_readable = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
_ascii = json.JSONEncoder(separators=(",", ":"), default=str)


def save_record(
    path: str | os.PathLike[str], kind: str, version: int, fields: dict[str, Any], *, durable: bool = True
) -> None:
    """Write a record whole or not at all; keys in the order given."""
    record = {"kind": kind, "version": version, **fields}
    write(path, as_line(record), durable=durable)


def as_line(record: Mapping[str, Any]) -> bytes:
    """A record as one line of JSON. Names that are no UTF-8 (os.fsdecode) are escaped, and read back as they were."""
    try:
        return _readable.encode(record).encode() + b"\n"
    except UnicodeEncodeError:
        return _ascii.encode(record).encode() + b"\n"


def load_record(path: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any] | None:
    """The fields of a record, or None if there is no such file.

    Raises UnknownVersion for another version and UserError for a file that is no such record; both leave it as it is.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return None
    try:
        record = json.loads(raw)
    except ValueError as error:
        raise UserError(f"is damaged ({error})", where=path, mend="hivemind doctor --fix sets it aside") from None
    if not isinstance(record, dict) or record.pop("kind", None) != kind:
        raise UserError(f"is no {kind} record", where=path, mend="hivemind doctor --fix sets it aside")
    found = record.pop("version", None)
    if found != version:
        raise UnknownVersion(
            f"is a {kind} record of version {found}, this program knows version {version}",
            where=path,
            mend="use the hivemind that wrote it, or move the file away",
        )
    return record
