"""From a place in a file to the node that stands there: how people and minds name nodes they have only read about."""

from __future__ import annotations

import re
import sqlite3

__all__ = ["node_at", "split_reference"]

_REFERENCE = re.compile(r"(?P<path>.+?)(?::(?P<line>[1-9]\d{0,8})(?:-\d+)?)?", re.DOTALL)


def split_reference(reference: str) -> tuple[str, int | None]:
    """(path, line) of `path`, `path:line` or `path:line-line`; a line counts from 1, None where none is named."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        return reference, None
    return found["path"], None if found["line"] is None else int(found["line"])


def node_at(sql: sqlite3.Connection, path: str, line: int | None) -> str | None:
    """The id of what a file, named as it was imported, has at a line: the first node on it, else the last before it.

    Without a line the document's root. None if the file is no document, or has nothing there.
    """
    try:
        row = sql.execute("SELECT id, root_id FROM files WHERE path = ?", (path,)).fetchone()
    except UnicodeEncodeError:  # half a character: no file that is a document is named so
        return None
    if row is None:
        return None
    file_id, root_id = row
    if line is None:
        return None if root_id is None else str(root_id)
    found = sql.execute(
        "SELECT node_id FROM places WHERE file_id = ? AND number > 0 AND start_line <= ?"
        " ORDER BY end_line >= ? DESC, CASE WHEN end_line >= ? THEN number ELSE -number END LIMIT 1",
        (file_id, line, line, line),
    ).fetchone()
    return None if found is None else str(found[0])
