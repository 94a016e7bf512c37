"""The tables of memory.db, and what follows from their changes."""

# ruff: noqa: S608 - statements are put together from this program's own constants

from __future__ import annotations

from hivemind.embedding import VECTORS
from hivemind.fs.database import Schema
from hivemind.longterm.errors import LongtermError, StoreDamaged
from hivemind.longterm.filters import metadata_fits
from hivemind.longterm.validation import digest_of
from hivemind.search import PARTS, TOKENIZER

__all__ = ["PLACES", "SCHEMA"]

VERSION = 6
PLACES = 1 << 32
"""How many entries a namespace can have had: an entry's `seq` is its namespace's number × PLACES + its own, so that a
namespace is one unbroken range, in the tables and in the full-text index."""

_TABLES = (
    """CREATE TABLE namespaces (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE,          -- a JSON array of its parts
        entries INTEGER NOT NULL DEFAULT 0, -- how many there are
        made INTEGER NOT NULL DEFAULT 0     -- how many there ever were: numbers are not used again
    )""",
    f"""CREATE TABLE entries (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        space INTEGER NOT NULL REFERENCES namespaces(id),
        key TEXT NOT NULL,
        content TEXT NOT NULL,
        digest BLOB NOT NULL,               -- of the content
        metadata TEXT NOT NULL,             -- JSON
        category TEXT,
        importance REAL CHECK (importance BETWEEN 0 AND 1),
        created_at INTEGER NOT NULL,        -- microseconds since 1970, as all times
        updated_at INTEGER NOT NULL,
        expires_at INTEGER,
        version INTEGER NOT NULL CHECK (version > 0),
        parent_id TEXT,
        links TEXT NOT NULL,                -- JSON: relation -> key in this namespace
        wants INTEGER NOT NULL DEFAULT 1,   -- 0: is never embedded
        problem TEXT,                       -- why it has no embedding yet, if embedding it was tried
        UNIQUE (space, key),
        CHECK (seq / {PLACES} = space)
    )""",
    "CREATE INDEX entries_digest ON entries(digest)",
    "CREATE INDEX entries_parent ON entries(parent_id) WHERE parent_id IS NOT NULL",
    "CREATE INDEX entries_expiry ON entries(expires_at) WHERE expires_at IS NOT NULL",
    """CREATE INDEX entries_speaker ON entries(space, json_extract(metadata, '$.speaker'))
        WHERE json_extract(metadata, '$.speaker') IS NOT NULL""",
    """CREATE INDEX entries_session ON entries(space, json_extract(metadata, '$.session'))
        WHERE json_extract(metadata, '$.session') IS NOT NULL""",
    """CREATE TABLE versions (
        seq INTEGER NOT NULL REFERENCES entries(seq) ON DELETE CASCADE,
        version INTEGER NOT NULL,
        content TEXT NOT NULL,
        metadata TEXT NOT NULL,
        category TEXT,
        importance REAL,
        updated_at INTEGER NOT NULL,
        expires_at INTEGER,
        parent_id TEXT,
        links TEXT NOT NULL,
        PRIMARY KEY (seq, version)
    ) WITHOUT ROWID""",
    "CREATE TABLE given (seq INTEGER PRIMARY KEY, vector BLOB NOT NULL)",  # embeddings of callers, float32, as they were
    "CREATE TABLE users (id TEXT PRIMARY KEY, name TEXT NOT NULL, created_at INTEGER NOT NULL)",
    f"CREATE VIRTUAL TABLE words USING fts5(content, content='entries', content_rowid='seq', tokenize='{TOKENIZER}')",
)

# While a row stands in `unindexed`, whoever writes gives `words` the new entries himself, many at once, and takes the row
# out again in the same transaction. One by one, by a trigger, the full-text index writes itself out for each.
_ADDED = (
    "CREATE TABLE unindexed (mark INTEGER PRIMARY KEY)",
    """CREATE TRIGGER entries_added AFTER INSERT ON entries WHEN NOT EXISTS (SELECT 1 FROM unindexed) BEGIN
        INSERT INTO words(rowid, content) VALUES (new.seq, new.content);
    END""",
    f"""CREATE TRIGGER entries_counted AFTER INSERT ON entries BEGIN
        UPDATE namespaces SET entries = entries + 1, made = new.seq % {PLACES} WHERE id = new.space;
    END""",
    # Every write asks whether there are any: without this it would read all entries to learn that there are none.
    "CREATE INDEX entries_problem ON entries(seq) WHERE problem IS NOT NULL",
)

# What follows from a change follows here, so that no writer can forget it.
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
    room="longterm",
    version=VERSION,
    error=LongtermError,
    damaged=StoreDamaged,
    lasting=True,
    functions=(("metadata_fits", 2, metadata_fits), ("digest_of", 1, digest_of)),
    statements=_TABLES + VECTORS + _TRIGGERS + _ADDED + PARTS,
)
