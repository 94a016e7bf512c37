"""Whether a store's SQLite file is whole, judged by SQLite itself and without changing anything."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from hivemind.errors import UserError
from hivemind.fs.atomic import open_own

__all__ = ["faults", "index_fault", "is_disk_full", "missing", "note_made", "unsound"]

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MAGIC = b"SQLite format 3\0"
_NOTE_BYTES = 200
_LEAST_ROOM = 1 << 16  # bytes: what SQLite takes beside a database to begin with


def missing(path: str | os.PathLike[str]) -> str | None:
    """That a database is gone or empty, though one was made here, in words; None if it is there, or never was."""
    try:
        if os.stat(path).st_size:
            return None
        now = "empty"
    except FileNotFoundError:
        now = "gone"
    try:
        with open(f"{os.fspath(path)}.lock", "rb") as file:
            made = file.read(_NOTE_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    return f"{now}, though {made}" if made else None


def note_made(path: str | os.PathLike[str]) -> None:
    """Note that a database was made, where that outlives it: in the file of its writers' lock, which is never deleted."""
    with contextlib.suppress(OSError), open(f"{os.fspath(path)}.lock", "r+b") as file:  # else at the next opening
        if not file.read(1):
            file.write(f"a database was made here on {datetime.now(UTC):%Y-%m-%d at %H:%M} UTC\n".encode())


def is_disk_full(error: sqlite3.Error, path: str | os.PathLike[str]) -> bool:
    """Whether a database's error comes of a full disk, which SQLite may call an I/O error too."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        room = os.statvfs(os.path.dirname(os.path.abspath(path)))
        return room.f_bavail * room.f_frsize < _LEAST_ROOM
    return primary == sqlite3.SQLITE_FULL


def unsound(path: str | os.PathLike[str]) -> str | None:
    """What is wrong with the file, in words; None if it is sound, or is yet to be made.

    Reads all of it. Raises OSError if it cannot be read, sqlite3.OperationalError if another program holds it.
    """
    if (lost := missing(path)) is not None:
        return f"it is {lost}"
    try:
        with open(open_own(path, os.O_RDONLY), "rb") as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError:
        return None
    except UserError as error:
        return f"it {error.what}"
    if not head:
        return None
    if head != _MAGIC:
        return "it is no database any more"
    place = Path(path).absolute()
    # Where nothing can be written SQLite could not make the file that it shares a log with others by; nobody writes there.
    name = f"file:{quote(str(place))}?mode=ro{'' if os.access(place.parent, os.W_OK) else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(name, uri=True, timeout=5)) as database:
            said = [" ".join(str(row[0]).split()) for row in database.execute("PRAGMA quick_check(3)")]
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if (
            code == sqlite3.SQLITE_READONLY_ROLLBACK
        ):  # a transaction was cut short; whoever opens it next undoes that first
            return None
        if (code & 0xFF) not in _DAMAGED:
            raise
        return str(error)
    return None if said == ["ok"] else "; ".join(said)


def faults(sql: sqlite3.Connection) -> Iterator[str]:
    """One sentence for each thing that SQLite finds wrong in an open database: its pages, its references. Reads all of it."""
    for (line,) in sql.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield f"SQLite: {line}"
    for table, row, parent, _ in sql.execute("PRAGMA foreign_key_check"):
        yield f"{table}, row {row}: it refers to {parent} that is not there"


def index_fault(sql: sqlite3.Connection) -> str | None:
    """Why the full-text index `words` does not fit the texts that it was made from; None if it does."""
    try:
        sql.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        return str(error)
    return None
