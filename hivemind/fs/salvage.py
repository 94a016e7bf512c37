"""Reading what can still be read of a damaged SQLite file, row by row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["open_damaged", "rows_by_id", "rows_of"]


@contextmanager
def open_damaged(path: str) -> Iterator[sqlite3.Connection]:
    """The database file (a copy: reading may change it). Texts that are no UTF-8 come with replacement characters.

    SQLite refuses a file that was cut off, or of whose tables one is garbled, unless somebody is about to mend its tables.
    """
    sql = sqlite3.connect(path, isolation_level=None)
    sql.execute("PRAGMA writable_schema = ON")
    sql.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        yield sql
    finally:
        sql.close()


def rows_by_id(sql: sqlite3.Connection, select: str, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """The rows of a table whose rowids are among `ids` (ascending) or between two of them, as far as they can be read.

    Where a part of them cannot be, it is halved until one id is left: for some rows in a thousand that costs little.
    """
    parts = [(0, len(ids))]
    while parts:
        first, end = parts.pop()
        if first >= end:
            continue
        try:
            rows = sql.execute(f"{select} WHERE rowid BETWEEN ? AND ?", (ids[first], ids[end - 1])).fetchall()
        except sqlite3.DatabaseError:
            if end - first > 1:
                middle = (first + end) // 2
                parts += [(middle, end), (first, middle)]
            continue
        yield from rows


def rows_of(sql: sqlite3.Connection, statement: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
    """What a statement gives, up to where the damage begins."""
    try:
        yield from sql.execute(statement, parameters)
    except sqlite3.DatabaseError:
        return
