"""The tables of documents.db, and what happens when a file was made by someone else."""

from __future__ import annotations

import sqlite3

from hivemind.documents.errors import DocmemError
from hivemind.errors import UnknownVersion
from hivemind.fs import reached

__all__ = ["VERSION", "check_file", "is_prepared", "prepare"]

VERSION = 1

_NODES = """
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    parent_id TEXT,
    text TEXT NOT NULL,
    order_value REAL NOT NULL,
    token_count INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    context_type TEXT NOT NULL,
    context_name TEXT NOT NULL,
    context_value TEXT NOT NULL,
    readonly INTEGER NOT NULL CHECK (readonly IN (0, 1)),
    hash TEXT,
    importance REAL NOT NULL DEFAULT 0.5 CHECK (importance BETWEEN 0 AND 1),
    sticky INTEGER NOT NULL DEFAULT 0 CHECK (sticky IN (0, 1)),
    seq INTEGER NOT NULL UNIQUE, -- what the full-text index calls the node; a plain rowid would not survive VACUUM
    FOREIGN KEY (parent_id) REFERENCES nodes(id) ON DELETE CASCADE
)"""

_TABLES = (
    _NODES,
    "CREATE INDEX nodes_parent ON nodes(parent_id)",
    "CREATE UNIQUE INDEX nodes_parent_order ON nodes(parent_id, order_value)",
    """CREATE TABLE versions (
        node_id TEXT NOT NULL REFERENCES nodes(id) ON DELETE CASCADE,
        version INTEGER NOT NULL,
        text TEXT NOT NULL,
        context_type TEXT NOT NULL,
        context_name TEXT NOT NULL,
        context_value TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        hash TEXT NOT NULL,
        PRIMARY KEY (node_id, version)
    ) WITHOUT ROWID""",
    """CREATE TABLE summaries (
        node_id TEXT PRIMARY KEY REFERENCES nodes(id) ON DELETE CASCADE,
        stale INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    "CREATE INDEX summaries_stale ON summaries(node_id) WHERE stale",
    """CREATE TABLE tags (
        tag TEXT NOT NULL,
        node_id TEXT NOT NULL REFERENCES nodes(id) ON DELETE CASCADE,
        PRIMARY KEY (tag, node_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX tags_node ON tags(node_id)",
    """CREATE TABLE files (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE, -- relative to the hive with '/', or absolute
        kept INTEGER NOT NULL,     -- 1: kept up to date by Knowledge.sync; 0: imported once
        size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        ctime_ns INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        seen_ns INTEGER NOT NULL,
        digest TEXT NOT NULL,
        root_id TEXT REFERENCES nodes(id) ON DELETE SET NULL,
        title TEXT NOT NULL,
        labels TEXT NOT NULL,      -- words that the file is also found by: topic, subtopic, tags
        class TEXT NOT NULL,
        why TEXT NOT NULL,         -- why it has that class
        note TEXT                  -- why it was not imported, or what is wrong with it
    )""",
    "CREATE INDEX files_root ON files(root_id)",
    "CREATE INDEX files_digest ON files(digest)",
    """CREATE TABLE places (
        node_id TEXT PRIMARY KEY REFERENCES nodes(id) ON DELETE CASCADE,
        file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
        number INTEGER NOT NULL,   -- reading order within the file
        passage INTEGER NOT NULL,  -- nodes with one number are quoted together
        kind TEXT NOT NULL,
        start_line INTEGER NOT NULL,
        end_line INTEGER NOT NULL,
        gap TEXT NOT NULL          -- what stands between this node's text and the next one's
    ) WITHOUT ROWID""",
    "CREATE INDEX places_file ON places(file_id, passage, number)",
    """CREATE TABLE vectors (
        node_id TEXT PRIMARY KEY REFERENCES nodes(id) ON DELETE CASCADE,
        model TEXT NOT NULL,
        vector BLOB NOT NULL       -- float32, little-endian, of length 1
    ) WITHOUT ROWID""",
    """CREATE VIRTUAL TABLE words USING fts5(
        text, context_value, content='nodes', content_rowid='seq', tokenize='porter unicode61 remove_diacritics 2'
    )""",
    "CREATE VIRTUAL TABLE vocabulary USING fts5vocab('words', 'row')",
)

# What follows from a change follows here, so that no writer can forget it.
_TRIGGERS = (
    """CREATE TRIGGER nodes_added AFTER INSERT ON nodes BEGIN
        INSERT INTO words(rowid, text, context_value) VALUES (new.seq, new.text, new.context_value);
        UPDATE summaries SET stale = 1 WHERE node_id = new.parent_id;
    END""",
    """CREATE TRIGGER nodes_removed AFTER DELETE ON nodes BEGIN
        INSERT INTO words(words, rowid, text, context_value)
            VALUES ('delete', old.seq, old.text, old.context_value);
        UPDATE summaries SET stale = 1 WHERE node_id = old.parent_id;
    END""",
    """CREATE TRIGGER nodes_reworded AFTER UPDATE OF text, context_value ON nodes
        WHEN old.text <> new.text OR old.context_value <> new.context_value BEGIN
        INSERT INTO words(words, rowid, text, context_value)
            VALUES ('delete', old.seq, old.text, old.context_value);
        INSERT INTO words(rowid, text, context_value) VALUES (new.seq, new.text, new.context_value);
        DELETE FROM vectors WHERE node_id = new.id;
        UPDATE summaries SET stale = 1 WHERE node_id = new.parent_id;
    END""",
    """CREATE TRIGGER nodes_reparented AFTER UPDATE OF parent_id ON nodes WHEN old.parent_id IS NOT new.parent_id BEGIN
        UPDATE summaries SET stale = 1 WHERE node_id IN (old.parent_id, new.parent_id);
    END""",
)


def check_file(path: str) -> None:
    """Refuse a file that this program does not know, without opening it as a database: it is kept as it is.

    Raises UnknownVersion for a database of another version and DocmemError for what is no database at all.
    """
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DocmemError(f"cannot be read ({error.strerror})", where=path) from None
    if header and not header.startswith(b"SQLite format 3\0"):
        raise DocmemError("is no database", where=path, mend="move it away; a new one is made at the next use")
    if len(header) == 100:
        _check_version(int.from_bytes(header[60:64], "big"), path)


def _check_version(found: int, path: str) -> None:
    if found not in (0, VERSION):  # 0: being made, or its first page still stands in the write-ahead log
        raise UnknownVersion(
            f"is a document database of version {found}, this program knows version {VERSION}",
            where=path,
            mend="use the hivemind that wrote it, or move the file away",
        )


def is_prepared(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the tables are there. Raises UnknownVersion."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    _check_version(version, path)
    return bool(version == VERSION)


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Make the tables if the database is new. Called with the writers' lock held. Raises as check_file does."""
    if is_prepared(connection, path):
        return
    if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise DocmemError("is a database of another program", where=path, mend="choose another path")
    if path != ":memory:":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _TABLES + _TRIGGERS:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        reached("documents.schema.written")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
