"""Where a node stands in the file that it came from, so that it can be cited (spec 5, *Import*)."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from hivemind.documents.tree import ancestors

__all__ = ["Source", "root_source", "source_of"]


@dataclass(frozen=True, slots=True)
class Source:
    """A node's place: file, lines (pages in a PDF), the file's SHA-256 when it was read, and what class it has and why.

    `path` is as it was imported: relative to the hive for knowledge, else absolute.
    """

    path: str
    start_line: int
    end_line: int
    digest: str
    kind: str
    document_class: str
    why: str

    @property
    def citation(self) -> str:
        """`path:line-line`."""
        return f"{self.path}:{self.start_line}-{self.end_line}"


def source_of(sql: sqlite3.Connection, node_id: str) -> Source | None:
    """The place of a node; None for one that came from no file."""
    row = sql.execute(
        "SELECT f.path, p.start_line, p.end_line, f.digest, p.kind, f.class, f.why"
        " FROM places p JOIN files f ON f.id = p.file_id WHERE p.node_id = ?",
        (node_id,),
    ).fetchone()
    return None if row is None else Source(*row)


def root_source(sql: sqlite3.Connection, node_id: str) -> str | None:
    """The path of the file that the node's document came from; None for a document from none."""
    root_id = next((found for found, parent in ancestors(sql, node_id) if parent is None), None)
    row = sql.execute("SELECT path FROM files WHERE root_id = ?", (root_id,)).fetchone()
    return None if row is None else str(row[0])
