"""Whether a store's SQLite file is whole, judged by SQLite itself and without writing anything."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

__all__ = ["unsound"]

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MAGIC = b"SQLite format 3\0"


def unsound(path: str | os.PathLike[str]) -> str | None:
    """What is wrong with the file, in words; None if it is sound, empty (made at its first use), or not there.

    Reads all of it. Raises OSError if it cannot be read, sqlite3.OperationalError if another program holds it.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError:
        return None
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
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) not in _DAMAGED:
            raise
        return str(error)
    return None if said == ["ok"] else "; ".join(said)
