"""The table of imported files: look up, store and forget files together with their documents."""

# ruff: noqa: S608 - statements are built from constants of this module; values are always bound
from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Literal

from hivemind.documents import tree
from hivemind.documents.classes import classify, document_status
from hivemind.documents.edit import Edit, NodeDraft
from hivemind.documents.formats import VERSION, Outline
from hivemind.documents.importing import context_value, refresh
from hivemind.documents.node import NodeContext
from hivemind.documents.schema import index
from hivemind.frozen import frozen

ImportOutcome = Literal["imported", "changed", "unchanged"]

_YOUNG_NS = 2_000_000_000  # a file that was changed less than this before it was read may change again in the same tick
MISSING_DIGEST = "gone"
"""The digest in the row of a deleted file if its document is kept because it contains notes."""

_COLUMNS = "path, kept, size, mtime_ns, ctime_ns, inode, seen_ns, digest, root_id, note, id, parser"


@frozen
class Stamp:
    """A file's size, times and inode when it was read, and the time of reading (`seen_ns`)."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    seen_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, time.time_ns())

    def is_unchanged(self, status: os.stat_result) -> bool:
        """Return True if the file is surely unchanged: its stat is equal, and it was read over 2 s after its last change."""
        current = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        is_young = abs(self.seen_ns - max(status.st_mtime_ns, status.st_ctime_ns)) <= _YOUNG_NS
        return current == (self.size, self.mtime_ns, self.ctime_ns, self.inode) and not is_young


@frozen
class KnownFile:
    """A row of the table `files`. `note` says why the file has no document, or what is wrong with its front matter."""

    path: str
    is_synced: bool
    stamp: Stamp
    digest: str
    root_id: str | None
    note: str | None
    number: int
    parser: int

    @property
    def is_gone(self) -> bool:
        return self.digest == MISSING_DIGEST

    def is_unchanged(self, status: os.stat_result) -> bool:
        has_outcome = self.root_id is not None or self.note is not None
        return has_outcome and self.parser == VERSION and self.stamp.is_unchanged(status) and not self.is_gone


def _select(sql: sqlite3.Connection, condition: str, *values: str) -> list[KnownFile]:
    rows = sql.execute(f"SELECT {_COLUMNS} FROM files WHERE {condition} ORDER BY path", values)
    return [KnownFile(row[0], bool(row[1]), Stamp(*row[2:7]), *row[7:]) for row in rows]


def find_file(sql: sqlite3.Connection, path: str) -> KnownFile | None:
    """Return the row of a file, or None."""
    return next(iter(_select(sql, "path = ?", path)), None)


def known_files(sql: sqlite3.Connection, top: str) -> dict[str, KnownFile]:
    """Return the rows of the synchronised files at or below `top`, keyed by path."""
    condition = "kept AND (path = ? OR (path >= ? AND path < ?))"
    return {file.path: file for file in _select(sql, condition, top, top + "/", top + "0")}  # "0" follows "/"


def has_digest(sql: sqlite3.Connection, beginning: str) -> bool:
    """Return True if any file's digest starts with `beginning`."""
    query = "SELECT 1 FROM files WHERE digest >= ? AND digest < ?"  # "g" follows the hexadecimal digits
    return sql.execute(query, (beginning, beginning + "g")).fetchone() is not None


def files_with_digest(sql: sqlite3.Connection, digest: str) -> list[KnownFile]:
    """Return the rows of the synchronised files with this digest."""
    return _select(sql, "kept AND digest = ?", digest)


def store_document(
    edit: Edit, path: str, outline: Outline, stamp: Stamp, digest: str, *, is_synced: bool
) -> tuple[str, ImportOutcome]:
    """Create a file's document, or update it node by node. Return the id of its root and the outcome.

    If another process has stored this version already, the outcome is "unchanged". The full-text index is updated in
    the same transaction, so word frequencies (and with them rankings) depend on the files alone.
    """
    classification = classify(path, outline)
    context = NodeContext("root", classification.name, context_value(path, "document"))
    known_file = find_file(edit.sql, path)
    columns = {
        "digest": digest, "title": outline.title, "labels": " ".join(outline.labels), "class": classification.name,
        "why": classification.reason, "note": outline.note, "standing": document_status(outline),
    }  # fmt: skip
    known_id = None if known_file is None else known_file.root_id
    known_root = (
        None if known_id is None else tree.find(edit.sql, known_id)
    )  # None: damage that no check of SQLite sees
    is_current = known_file is not None and known_file.digest == digest and known_file.parser == VERSION
    root = known_root or edit.add(None, 0.0, NodeDraft(context, outline.title, 1))
    number = _save(edit.sql, path, is_synced, stamp, {**columns, "root_id": root.id})
    if known_root is not None and is_current and root.context == context:
        return root.id, "unchanged"
    refresh(edit, root.id, number, outline)
    if root.text != outline.title or root.context != context:
        edit.change(root, keep_version=root.text != outline.title, text=outline.title, context=context)
    edit.label(root.id, [*classification.tags, classification.name])
    index(edit.sql)
    return root.id, "imported" if known_root is None else "changed"


def record_skipped(edit: Edit, path: str, stamp: Stamp, note: str) -> None:
    """Record `note`, the reason why a file is not imported. The file is not read again until it changes."""
    known_file = find_file(edit.sql, path)
    if known_file is not None and known_file.root_id is not None:
        forget_file(edit, known_file)
    if find_file(edit.sql, path) is None:
        empty_columns = dict.fromkeys(("digest", "title", "labels", "class", "why", "standing"), "")
        _save(edit.sql, path, True, stamp, {**empty_columns, "note": note})


def _save(sql: sqlite3.Connection, path: str, is_synced: bool, stamp: Stamp, columns: Mapping[str, str | None]) -> int:
    """Insert or update a file's row; return its id. `is_synced` says that a sync keeps the file up to date."""
    row = {"path": path, "kept": int(is_synced), **asdict(stamp), "parser": VERSION, **columns}
    changes = ", ".join(f"{name} = excluded.{name}" for name in row if name != "kept")
    (number,) = sql.execute(
        f"INSERT INTO files ({', '.join(row)}) VALUES (?{', ?' * (len(row) - 1)}) ON CONFLICT (path) DO UPDATE SET"
        f" kept = max(kept, excluded.kept), {changes} RETURNING id",
        tuple(row.values()),
    ).fetchone()
    return int(number)


def forget_file(edit: Edit, known_file: KnownFile) -> None:
    """Delete the document of a deleted file. If it has notes, keep the notes and the root, and mark the root as gone."""
    if known_file.root_id is None or tree.find(edit.sql, known_file.root_id) is None:
        edit.sql.execute("DELETE FROM files WHERE id = ?", (known_file.number,))
        return
    refresh(edit, known_file.root_id, known_file.number, Outline("", "plain", "", (), (), ()))
    if tree.first_child(edit.sql, known_file.root_id):
        edit.change(tree.get(edit.sql, known_file.root_id), context_name="gone")
        edit.sql.execute("UPDATE files SET digest = ? WHERE id = ?", (MISSING_DIGEST, known_file.number))
    else:
        edit.sql.execute("DELETE FROM files WHERE id = ?", (known_file.number,))
        edit.remove([known_file.root_id])
    index(edit.sql)
