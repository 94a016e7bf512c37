"""The tables of graphs.db, the index of nodes. All of it follows from the graphs' own files and may be deleted."""

from __future__ import annotations

from hivemind.embedding import VECTORS
from hivemind.fs.database import Schema
from hivemind.reasoning.finding.errors import GraphIndexDamaged, GraphIndexError
from hivemind.search import TOKENIZER
from hivemind.search.sentences import SENTENCES

__all__ = ["ANEW", "NODES", "SCHEMA", "VERSION", "span"]

VERSION = 2
NODES = 1 << 32
"""How many nodes a graph may have: a node's `key` is its graph's number × NODES + its own, so that a graph is one
unbroken range, in the tables and in the full-text index."""

_TABLES = (
    """CREATE TABLE graphs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        task TEXT NOT NULL UNIQUE,
        place TEXT NOT NULL,    -- inbox, active, done, failed
        inode INTEGER NOT NULL,
        stamp TEXT NOT NULL,    -- how its file looked before it was read
        seq INTEGER NOT NULL,   -- its last line that was read
        nodes INTEGER NOT NULL, -- how many it has
        problem TEXT            -- why it could not be read
    )""",
    "CREATE INDEX graphs_problem ON graphs(task) WHERE problem IS NOT NULL",
    """CREATE TABLE nodes (
        key INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        lane TEXT NOT NULL,
        state TEXT NOT NULL,    -- active, folded, flushed, superseded
        title TEXT NOT NULL,
        text TEXT NOT NULL,
        tags TEXT NOT NULL
    )""",
    f"""CREATE VIRTUAL TABLE words USING fts5(
        title, text, tags, content='nodes', content_rowid='key', tokenize='{TOKENIZER}'
    )""",
    # Nodes without a vector of the model that is in use.
    "CREATE TABLE waiting (key INTEGER PRIMARY KEY)",
    "CREATE TABLE embedded (model TEXT NOT NULL)",  # one row: the model that is in use
    "INSERT INTO embedded VALUES ('')",
)

_STATEMENTS = (*_TABLES, *VECTORS, *SENTENCES)

ANEW = (
    *(f"DROP TABLE {name}" for name in ("words", "nodes", "graphs", "waiting", "embedded")),
    "DROP TABLE IF EXISTS sentences",
    *(f"DROP TABLE vectors{end}" for end in ("", "_changes", "_source")),
    *_STATEMENTS,
)
"""What makes this version of the index of an older one: nothing is taken over, the graphs are read anew."""

SCHEMA = Schema(
    name="index of graphs",
    room="graph.index",
    version=VERSION,
    error=GraphIndexError,
    damaged=GraphIndexDamaged,
    statements=_STATEMENTS,
    upgrades=dict.fromkeys(range(1, VERSION), ANEW),
)


def span(graph: int) -> tuple[int, int]:
    """The first and the last key that nodes of a graph can have."""
    return graph * NODES, graph * NODES + NODES - 1
