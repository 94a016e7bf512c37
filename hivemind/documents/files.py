"""The files that documents come from: what is known of each, and taking in what has changed."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from hivemind.documents import tree
from hivemind.documents.classes import classify, standing_of
from hivemind.documents.edit import Edit
from hivemind.documents.formats import VERSION, Outline
from hivemind.documents.importing import import_outline, refresh, value, write_places
from hivemind.documents.node import Context
from hivemind.documents.schema import index
from hivemind.frozen import frozen

Taken = Literal["imported", "changed", "unchanged"]

_YOUNG_NS = 2_000_000_000  # what was changed this shortly before it was read may change again within one tick
GONE = "gone"
"""The digest of a file that is no longer there, but whose document holds others' nodes."""

_COLUMNS = "path, kept, size, mtime_ns, ctime_ns, inode, seen_ns, digest, root_id, note, id, parser"


@frozen
class Stamp:
    """How a file looked when it was read, and when that was: an equal look means that it need not be read again."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    seen_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, time.time_ns())

    def still(self, found: os.stat_result) -> bool:
        """Whether the file is surely the one that was read: a very young one may have changed without a trace."""
        look = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        young = abs(self.seen_ns - max(found.st_mtime_ns, found.st_ctime_ns)) <= _YOUNG_NS
        return look == (self.size, self.mtime_ns, self.ctime_ns, self.inode) and not young


@frozen
class KnownFile:
    """A row of the table `files`. `note` says why the file has no document, or what is wrong with it."""

    path: str
    kept: bool
    stamp: Stamp
    digest: str
    root_id: str | None
    note: str | None
    number: int
    parser: int

    @property
    def is_gone(self) -> bool:
        return self.digest == GONE

    def is_unchanged(self, found: os.stat_result) -> bool:
        known = self.root_id is not None or self.note is not None
        return known and self.parser == VERSION and self.stamp.still(found) and not self.is_gone


def _known(row: tuple[Any, ...]) -> KnownFile:
    path, kept, *look, digest, root_id, note, number, parser = row
    return KnownFile(path, bool(kept), Stamp(*look), digest, root_id, note, number, parser)


def find_file(sql: sqlite3.Connection, path: str) -> KnownFile | None:
    """What is known of the file, or None."""
    row = sql.execute(f"SELECT {_COLUMNS} FROM files WHERE path = ?", (path,)).fetchone()
    return None if row is None else _known(row)


def known_files(sql: sqlite3.Connection, top: str) -> dict[str, KnownFile]:
    """The files that are kept up to date, by path: `top` itself, or all below it."""
    rows = sql.execute(
        f"SELECT {_COLUMNS} FROM files WHERE kept AND (path = ? OR (path >= ? AND path < ?))",
        (top, top + "/", top + "0"),  # "0" follows "/"
    )
    return {row[0]: _known(row) for row in rows}


def files_like(sql: sqlite3.Connection, digest: str) -> list[KnownFile]:
    """The files that are kept up to date and have this digest."""
    rows = sql.execute(f"SELECT {_COLUMNS} FROM files WHERE kept AND digest = ? ORDER BY path", (digest,))
    return [_known(row) for row in rows]


def take_in(edit: Edit, path: str, outline: Outline, stamp: Stamp, digest: str, *, kept: bool) -> tuple[str, Taken]:
    """Bring the file's document in line with what was read: a new one, or the old one changed node by node.

    Gives the root's id. What another process has taken in meanwhile is not taken in twice. The index knows all of it at
    once: how rare a word is, and so which passage is best, must depend on the files alone.
    """
    found = classify(path, outline)
    context = Context("root", found.name, value(path, "document"))
    old = find_file(edit.sql, path)
    said = {
        "digest": digest, "title": outline.title, "labels": " ".join(outline.labels), "class": found.name, "why": found.why,
        "note": outline.note, "standing": standing_of(outline),
    }  # fmt: skip
    if old is None or old.root_id is None:
        root_id, node_ids = import_outline(edit, outline, context)
        number = _save(edit.sql, path, kept, stamp, {**said, "root_id": root_id})
        write_places(edit.sql, number, root_id, outline, node_ids)
        edit.label(root_id, [*found.tags, found.name])
        index(edit.sql)
        return root_id, "imported"
    _save(edit.sql, path, kept, stamp, said)
    root = tree.get(edit.sql, old.root_id)
    if old.digest == digest and old.parser == VERSION and root.context == context:
        return old.root_id, "unchanged"
    refresh(edit, old.root_id, old.number, outline)
    if root.text != outline.title or root.context != context:
        edit.change(
            root, keep_version=root.text != outline.title,
            text=outline.title, context_name=context.name, context_value=context.value,
        )  # fmt: skip
    edit.label(root.id, [*found.tags, found.name])
    index(edit.sql)
    return root.id, "changed"


def note_skipped(edit: Edit, path: str, stamp: Stamp, note: str) -> None:
    """Remember why a file is not imported, so that it is read again only when it changes."""
    old = find_file(edit.sql, path)
    if old is not None and old.root_id is not None:
        forget(edit, old)
    if find_file(edit.sql, path) is None:
        nothing = dict.fromkeys(("digest", "title", "labels", "class", "why", "standing"), "")
        _save(edit.sql, path, True, stamp, {**nothing, "note": note})


def _save(sql: sqlite3.Connection, path: str, kept: bool, stamp: Stamp, said: Mapping[str, str | None]) -> int:
    """Write these columns of a file's row; returns its number."""
    row = {"path": path, "kept": int(kept), **asdict(stamp), "parser": VERSION, **said}
    changes = ", ".join(f"{name} = excluded.{name}" for name in row if name != "kept")
    (number,) = sql.execute(
        f"INSERT INTO files ({', '.join(row)}) VALUES (?{', ?' * (len(row) - 1)}) ON CONFLICT (path) DO UPDATE SET"
        f" kept = max(kept, excluded.kept), {changes} RETURNING id",
        tuple(row.values()),
    ).fetchone()
    return int(number)


def rename(edit: Edit, old: KnownFile, path: str) -> None:
    """The same content under another name: the document stays what it is."""
    edit.sql.execute("UPDATE files SET path = ? WHERE id = ?", (path, old.number))


def forget(edit: Edit, old: KnownFile) -> None:
    """The file is gone, and with it its document; a root stays where others' notes hang on it, marked as gone."""
    if old.root_id is None or tree.find(edit.sql, old.root_id) is None:
        edit.sql.execute("DELETE FROM files WHERE id = ?", (old.number,))
        return
    refresh(edit, old.root_id, old.number, Outline("", "plain", "", (), (), ()))
    if tree.first_child(edit.sql, old.root_id):
        edit.change(tree.get(edit.sql, old.root_id), context_name="gone")
        edit.sql.execute("UPDATE files SET digest = ? WHERE id = ?", (GONE, old.number))
    else:
        edit.sql.execute("DELETE FROM files WHERE id = ?", (old.number,))
        edit.remove([old.root_id])
    index(edit.sql)
