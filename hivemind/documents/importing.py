"""A file's outline as nodes: readonly, each with its place in the file (seed 003, *Import*; spec 5)."""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass

from hivemind.documents.edit import Draft, Edit
from hivemind.documents.formats import Outline
from hivemind.documents.node import Context, Node
from hivemind.documents.passage import group
from hivemind.fs import reached

__all__ = ["Stamp", "import_outline", "section_contexts"]

_LONGEST_VALUE = 256


@dataclass(frozen=True, slots=True)
class Stamp:
    """How a file looked when it was read: equal stamps mean that it need not be read again."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    seen_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, time.time_ns())


def value(text: str, default: str) -> str:
    """`text` as a context value: its last 256 characters, or `default` if it has none."""
    text = " ".join(text.split()) or default
    return text if len(text) <= _LONGEST_VALUE else "…" + text[1 - _LONGEST_VALUE :]


def section_contexts(outline: Outline) -> list[Context]:
    """The context of each piece: its kind, and the title of the section that it stands in."""
    titles: list[tuple[int, str]] = [(0, outline.title)]
    found = []
    for piece in outline.pieces:
        while titles[-1][0] >= piece.depth:
            titles.pop()
        if piece.title:
            titles.append((piece.depth, piece.title))
        found.append(Context(piece.kind, "section", value(titles[-1][1], "document")))
    return found


def import_outline(edit: Edit, outline: Outline, key: str, stamp: Stamp, digest: str, *, kept: bool) -> str:
    """Write a new document with the outline's nodes; gives the root's id."""
    root = edit.add(None, 0.0, Draft(Context("root", "document", value(key, "document")), outline.title, 1))
    file_id = write_file_row(edit.sql, key, outline, stamp, digest, root.id, kept)
    gaps = outline.gaps()
    lines_of = outline.lines_of()
    place(edit.sql, root.id, file_id, 0, 0, "root", (1, 1), next(gaps))
    nodes = _add_nodes(edit, outline, root)
    numbers = group(outline.text, outline.pieces, [node.token_count for node in nodes])
    for at, (piece, node, gap) in enumerate(zip(outline.pieces, nodes, gaps, strict=True), 1):
        place(edit.sql, node.id, file_id, at, numbers[at - 1], piece.kind, lines_of(piece), gap)
    return root.id


def _add_nodes(edit: Edit, outline: Outline, root: Node) -> list[Node]:
    above: list[tuple[int, str]] = [(0, root.id)]
    counts: dict[str, int] = {}
    made = []
    for piece, context in zip(outline.pieces, section_contexts(outline), strict=True):
        while above[-1][0] >= piece.depth:
            above.pop()
        parent_id = above[-1][1]
        counts[parent_id] = order = counts.get(parent_id, 0) + 1
        node = edit.add(parent_id, float(order), Draft(context, outline.text[piece.start : piece.end], 1))
        above.append((piece.depth, node.id))
        made.append(node)
        reached("documents.import.one")
    return made


def write_file_row(
    sql: sqlite3.Connection, key: str, outline: Outline, stamp: Stamp, digest: str, root_id: str, kept: bool
) -> int:
    """Remember a file that was imported; gives its number."""
    labels = " ".join(outline.labels)
    (file_id,) = sql.execute(
        "INSERT INTO files (path, kept, size, mtime_ns, ctime_ns, inode, seen_ns, digest, root_id, title, labels, note)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (path) DO UPDATE SET kept = max(kept, excluded.kept), size = excluded.size,"
        " mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns, inode = excluded.inode,"
        " seen_ns = excluded.seen_ns, digest = excluded.digest, root_id = excluded.root_id, title = excluded.title,"
        " labels = excluded.labels, note = excluded.note RETURNING id",
        (
            key, int(kept), stamp.size, stamp.mtime_ns, stamp.ctime_ns, stamp.inode, stamp.seen_ns, digest, root_id,
            outline.title, labels, outline.note,
        ),
    ).fetchone()  # fmt: skip
    return int(file_id)


def place(
    sql: sqlite3.Connection, node_id: str, file_id: int, number: int, passage: int, kind: str,
    lines: tuple[int, int], gap: str,
) -> None:  # fmt: skip
    """Remember where in its file a node stands."""
    sql.execute(
        "INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (node_id, file_id, number, passage, kind, *lines, gap),
    )
