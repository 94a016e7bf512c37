"""The SQLite database memory.db: schema, triggers, full-text index."""

# ruff: noqa: S608 - statements are put together from this program's own constants

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from hivemind.embedding import VECTORS, VectorTable
from hivemind.fs.atomic import open_regular
from hivemind.fs.database import Database, Schema, integrity_errors
from hivemind.longterm.errors import LongtermError, StoreDamaged
from hivemind.longterm.filters import Condition, metadata_fits
from hivemind.longterm.rows import INDEXES, KEYS_PER_NAMESPACE, seq_range, tables
from hivemind.longterm.validation import digest_of
from hivemind.search import PARTS, TOKENIZER
from hivemind.search.words import count_rows, or_query

VERSION = 7
_OLDEST_COPIED = 4  # of hivemind 0.1

_TABLES = (
    *tables(
        id="INTEGER PRIMARY KEY", int="INTEGER", real="REAL", bytes="BLOB", name="TEXT", text="TEXT", json="TEXT",
        flag="INTEGER NOT NULL DEFAULT 1", more="", entry="", end=" WITHOUT ROWID",
    ),
    *INDEXES,
    f"CREATE VIRTUAL TABLE words USING fts5(content, content='entries', content_rowid='seq', tokenize='{TOKENIZER}')",
)  # fmt: skip

# While `unindexed` contains a row, this trigger has no effect: the writer adds many new entries to `words` at once and deletes
# the row in the same transaction. The trigger would flush the full-text index for each entry.
_ADDED = (
    "CREATE TABLE unindexed (mark INTEGER PRIMARY KEY)",
    """CREATE TRIGGER entries_added AFTER INSERT ON entries WHEN NOT EXISTS (SELECT 1 FROM unindexed) BEGIN
        INSERT INTO words(rowid, content) VALUES (new.seq, new.content);
    END""",
    f"""CREATE TRIGGER entries_counted AFTER INSERT ON entries BEGIN
        UPDATE namespaces SET entries = entries + 1, made = new.seq % {KEYS_PER_NAMESPACE} WHERE id = new.space;
    END""",
)

# Triggers update the dependent tables: no writer can forget to.
_TRIGGERS = (
    """CREATE TRIGGER entries_removed AFTER DELETE ON entries BEGIN
        INSERT INTO words(words, rowid, content) VALUES ('delete', old.seq, old.content);
        UPDATE namespaces SET entries = entries - 1 WHERE id = old.space;
        UPDATE entries SET parent_id = NULL WHERE parent_id = old.id;
        DELETE FROM vectors WHERE key = old.seq;
        DELETE FROM given WHERE seq = old.seq;
    END""",
    """CREATE TRIGGER entries_kept BEFORE UPDATE OF version ON entries BEGIN
        INSERT INTO versions VALUES (old.seq, old.version, old.content, old.metadata, old.category, old.importance,
            old.updated_at, old.expires_at, old.parent_id, old.links);
    END""",
    """CREATE TRIGGER entries_reworded AFTER UPDATE OF content ON entries WHEN old.content <> new.content BEGIN
        INSERT INTO words(words, rowid, content) VALUES ('delete', old.seq, old.content);
        INSERT INTO words(rowid, content) VALUES (new.seq, new.content);
        DELETE FROM vectors WHERE key = new.seq;
        DELETE FROM given WHERE seq = new.seq;
    END""",
)

SCHEMA = Schema(
    name="memory database",
    crash_prefix="longterm",
    version=VERSION,
    error=LongtermError,
    damage_error=StoreDamaged,
    irreplaceable=True,
    functions=(("metadata_fits", 2, metadata_fits), ("digest_of", 1, digest_of)),
    statements=_TABLES + VECTORS + _TRIGGERS + _ADDED + PARTS,
)


class _FileWords:
    """The `WordIndex` in SQLite: the FTS5 table `words`."""

    def count_entries(
        self, sql: sqlite3.Connection, words: Sequence[str], spaces: Sequence[int], bound: int
    ) -> list[int]:
        return [sum(count_rows(sql, or_query([word]), bound, *seq_range(space)) for space in spaces) for word in words]

    def find_entries(
        self, sql: sqlite3.Connection, words: Sequence[str], spaces: Sequence[int], condition: Condition, limit: int
    ) -> list[int]:
        matches: list[tuple[float, int]] = []
        for space in spaces:
            matches += sql.execute(
                "SELECT words.rank, words.rowid FROM words JOIN entries e ON e.seq = words.rowid"
                f" WHERE words MATCH ? AND words.rowid BETWEEN ? AND ? AND {condition[0]} ORDER BY words.rank LIMIT ?",
                (or_query(words), *seq_range(space), *condition[1], limit),
            )
        return [seq for _, seq in sorted(matches)[:limit]]

    def contents_with(self, sql: sqlite3.Connection, word: str, space: int, limit: int) -> list[str]:
        rows = sql.execute(
            "SELECT e.content FROM words JOIN entries e ON e.seq = words.rowid"
            " WHERE words MATCH ? AND words.rowid BETWEEN ? AND ? LIMIT ?",
            (or_query([word]), *seq_range(space), limit),
        )
        return [content for (content,) in rows]

    @contextmanager
    def bulk_insert(self, sql: sqlite3.Connection, space: int) -> Iterator[None]:
        (last_number,) = sql.execute("SELECT made FROM namespaces WHERE id = ?", (space,)).fetchone()
        sql.execute("INSERT INTO unindexed VALUES (1)")
        yield  # an error rolls back everything, including this row
        sql.execute(
            "INSERT INTO words(rowid, content) SELECT seq, content FROM entries WHERE seq > ? AND seq < ?",
            (space * KEYS_PER_NAMESPACE + last_number, (space + 1) * KEYS_PER_NAMESPACE),
        )
        sql.execute("DELETE FROM unindexed")


class MemoryFile(Database):
    nearest_entries = None  # the vectors are compared in this process

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, SCHEMA)
        self.words, self.vectors = _FileWords(), VectorTable()

    def accept_older(self) -> bool:
        """If an earlier version of the program wrote the file, prepare to read it in that version, and return True.
        Otherwise return False.

        The earlier versions have the same tables, except `parts`.
        """
        with suppress(FileNotFoundError), open(open_regular(self.path, os.O_RDONLY), "rb") as file:
            version = int.from_bytes(file.read(64)[60:], "big")
            if _OLDEST_COPIED <= version < VERSION:
                self.schema = replace(SCHEMA, version=version)
                return True
        return False

    def metadata_condition(self, filter_json: str) -> Condition:
        """Return an SQL condition for a metadata filter (JSON)."""
        return "metadata_fits(e.metadata, ?)", [filter_json]

    def faults(self, sql: sqlite3.Connection) -> Iterator[str]:
        """Yield a sentence for each problem that SQLite's own check finds."""
        return integrity_errors(sql, "contents")

    def rebuild_words(self, sql: sqlite3.Connection) -> None:
        sql.execute("INSERT INTO words(words) VALUES ('rebuild')")
