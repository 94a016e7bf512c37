"""The tables and triggers of documents.db, its full-text index, and the check of its consistency."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from hivemind.documents.node import DamagedError, DocmemError, node_hash
from hivemind.documents.progress import VERSION
from hivemind.embedding import VECTORS
from hivemind.fs.database import Schema, integrity_errors
from hivemind.search import PARTS, TOKENIZER

MAX_UNINDEXED = 64
"""A commit leaves at most this many nodes unindexed: a search reads these nodes one by one."""


def index(sql: sqlite3.Connection) -> None:
    """Update the full-text index with all changed nodes. Call this within a write transaction."""
    sql.execute(
        "INSERT INTO words(words, rowid, text, context_value)"
        " SELECT 'delete', seq, text, context_value FROM unindexed WHERE text IS NOT NULL"
    )
    sql.execute(
        "INSERT INTO words(rowid, text, context_value)"
        " SELECT n.seq, n.text, n.context_value FROM unindexed u JOIN nodes n ON n.seq = u.seq"
    )
    sql.execute("DELETE FROM unindexed")


def index_if_many(sql: sqlite3.Connection) -> None:
    """Update the full-text index if it lacks the changes of more than `MAX_UNINDEXED` nodes.

    Called at the end of each transaction, and before a transaction searches its own changes.
    """
    if sql.execute("SELECT 1 FROM unindexed LIMIT 1 OFFSET ?", (MAX_UNINDEXED,)).fetchone() is not None:
        index(sql)


def unindexed_texts(sql: sqlite3.Connection) -> list[tuple[int, str]]:
    """Return (`seq`, text) of each node whose present text is not in the full-text index; at most `MAX_UNINDEXED`."""
    index_if_many(sql)
    rows = (
        "SELECT n.seq, n.text || ' ' || n.context_value FROM unindexed u JOIN nodes n ON n.seq = u.seq ORDER BY u.seq"
    )
    return sql.execute(rows).fetchall()


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
    seq INTEGER NOT NULL UNIQUE, -- the node's rowid in the full-text index; a plain rowid would not survive VACUUM
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
        labels TEXT NOT NULL,      -- words by which the file is also found: topic, subtopic, tags
        class TEXT NOT NULL,
        why TEXT NOT NULL,         -- why the file has this class
        parser INTEGER NOT NULL DEFAULT 0, -- the version of the importers that read the file (formats.VERSION)
        standing TEXT NOT NULL DEFAULT '', -- draft, rejected, superseded …, if the document declares this
        note TEXT                  -- why the file was not imported, or what is wrong with its front matter
    )""",
    "CREATE INDEX files_root ON files(root_id)",
    "CREATE INDEX files_digest ON files(digest)",
    """CREATE TABLE places (
        node_id TEXT PRIMARY KEY REFERENCES nodes(id) ON DELETE CASCADE,
        file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
        number INTEGER NOT NULL,   -- reading order within the file
        passage INTEGER NOT NULL,  -- nodes with the same number form one passage
        kind TEXT NOT NULL,
        start_line INTEGER NOT NULL,
        end_line INTEGER NOT NULL,
        gap TEXT NOT NULL,         -- the text between this node's text and the next node's
        leads INTEGER NOT NULL DEFAULT 0 -- 1: the first node of its passage, by whose seq the passage is named
    ) WITHOUT ROWID""",
    "CREATE INDEX places_file ON places(file_id, passage, number)",
    f"""CREATE VIRTUAL TABLE words USING fts5(
        text, context_value, content='nodes', content_rowid='seq', tokenize='{TOKENIZER}'
    )""",
)

# Changes that the full-text index lacks: the seq of an added, changed or removed node, and its text in the index (NULL
# for a new node). Updating the index node by node takes five times as long and writes most of the pages.
_UNINDEXED = (
    "CREATE TABLE unindexed (seq INTEGER PRIMARY KEY, text TEXT, context_value TEXT)",
    """CREATE TRIGGER words_added AFTER INSERT ON nodes BEGIN
        INSERT INTO unindexed (seq) VALUES (new.seq) ON CONFLICT DO NOTHING;
    END""",
    """CREATE TRIGGER words_removed AFTER DELETE ON nodes BEGIN
        INSERT INTO unindexed VALUES (old.seq, old.text, old.context_value) ON CONFLICT DO NOTHING;
    END""",
    """CREATE TRIGGER words_changed AFTER UPDATE OF text, context_value ON nodes
        WHEN old.text <> new.text OR old.context_value <> new.context_value BEGIN
        INSERT INTO unindexed VALUES (old.seq, old.text, old.context_value) ON CONFLICT DO NOTHING;
    END""",
)

# Consequences of a change are triggers: no writer can forget them.
_TRIGGERS = (
    """CREATE TRIGGER nodes_added AFTER INSERT ON nodes BEGIN
        UPDATE summaries SET stale = 1 WHERE node_id = new.parent_id;
    END""",
    """CREATE TRIGGER nodes_removed AFTER DELETE ON nodes BEGIN
        UPDATE summaries SET stale = 1 WHERE node_id = old.parent_id;
        DELETE FROM vectors WHERE key = old.seq;
    END""",
    """CREATE TRIGGER nodes_reworded AFTER UPDATE OF text, context_value ON nodes
        WHEN old.text <> new.text OR old.context_value <> new.context_value BEGIN
        DELETE FROM vectors WHERE key = new.seq OR key = (
            SELECT h.seq FROM places p JOIN places q ON q.file_id = p.file_id AND q.passage = p.passage AND q.leads
            JOIN nodes h ON h.id = q.node_id WHERE p.node_id = new.id);
        UPDATE summaries SET stale = 1 WHERE node_id = new.parent_id;
    END""",
    """CREATE TRIGGER nodes_reparented AFTER UPDATE OF parent_id ON nodes WHEN old.parent_id IS NOT new.parent_id BEGIN
        UPDATE summaries SET stale = 1 WHERE node_id IN (old.parent_id, new.parent_id);
    END""",
)


def _sql_hash(parent: str | None, kind: str, name: str, value: str, text: str, order: float) -> str:
    return node_hash(parent, (kind, name, value), text, order)


SCHEMA = Schema(
    name="document database",
    crash_prefix="documents",
    version=VERSION,
    error=DocmemError,
    damage_error=DamagedError,
    irreplaceable=True,
    statements=_TABLES + VECTORS + PARTS + _TRIGGERS + _UNINDEXED,
    functions=(("node_hash", 6, _sql_hash),),
)


LOST_VECTORS = "FROM vectors WHERE key NOT IN (SELECT seq FROM nodes)"


def problems(sql: sqlite3.Connection) -> Iterator[str]:
    """Check the whole database; yield a sentence for each inconsistency."""
    yield from integrity_errors(sql, "texts")
    rows = sql.execute(
        "SELECT id, parent_id, context_type, context_name, context_value, text, order_value, hash FROM nodes"
    )
    for node_id, parent_id, kind, name, value, text, order, stored_hash in rows:
        if stored_hash != node_hash(parent_id, (kind, name, value), text, order):
            yield f"node {node_id}: its hash does not match its content"
    (total,) = sql.execute("SELECT count(*) FROM nodes").fetchone()
    (reachable,) = sql.execute(
        "WITH RECURSIVE walk(id) AS (SELECT id FROM nodes WHERE parent_id IS NULL UNION ALL"
        " SELECT n.id FROM walk JOIN nodes n ON n.parent_id = walk.id) SELECT count(*) FROM walk"
    ).fetchone()
    if reachable != total:
        yield f"{total - reachable} nodes have no root (a cycle)"
    (lost,) = sql.execute(f"SELECT count(*) {LOST_VECTORS}").fetchone()
    if lost:
        yield f"{lost} vectors have no node"
    (sources,) = sql.execute("SELECT count(*) FROM vectors_source").fetchone()
    if sources != 1:
        yield f"the vectors have {sources} sources"
