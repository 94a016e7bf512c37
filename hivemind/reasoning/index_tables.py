"""The tables of graphs.db, the index of nodes. All of it follows from the graphs' own files and may be deleted."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hivemind.boundary import boundary
from hivemind.embedding import VECTORS, Embedder, Meaning, put_vectors
from hivemind.errors import UserError
from hivemind.fs import reached
from hivemind.fs.database import Database, Schema, faults, index_fault
from hivemind.layout import Layout, archived_places
from hivemind.reasoning.graph_log import LOG_NAME
from hivemind.reasoning.node import FLUSHED, ReasoningNode
from hivemind.reasoning.task_graph import TaskGraph
from hivemind.search import PARTS, TOKENIZER, Waiting, embed_waiting, keep_parts, meanings

__all__ = [
    "NODES",
    "SCHEMA",
    "GraphIndexDamaged",
    "Reading",
    "Row",
    "Source",
    "changed_archives",
    "count_waiting",
    "drop",
    "embed",
    "problems",
    "read",
    "source_of",
    "sources",
    "span",
    "take",
    "take_archive",
]

NODES = 1 << 32
"""How many nodes a graph may have: a node's `key` is its graph's number × NODES + its own, so that a graph is one
unbroken range, in the tables and in the full-text index."""

_STATES = {True: "active", False: "folded", FLUSHED: "flushed"}
_VERSION = 5
_TICK_NS = 50_000_000  # two changes within a tick of the file system's clock look like one
_CHARACTERS = 40_000  # of one node: what an embedder looks at, at most
_WITHOUT_VECTOR = (
    "nodes n WHERE n.key BETWEEN ? AND ? AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.key = n.key AND v.model = ?)"
)
_STATEMENTS = (
    """CREATE TABLE graphs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        task TEXT NOT NULL UNIQUE,
        inode INTEGER NOT NULL,
        stamp TEXT NOT NULL,    -- how its file looked before it was read
        seq INTEGER NOT NULL,   -- its last line that was read
        nodes INTEGER NOT NULL, -- how many it has
        problem TEXT,           -- why it could not be read
        archive TEXT            -- the folder of its month, if it was archived
    )""",
    "CREATE INDEX graphs_archive ON graphs(archive)",
    "CREATE TABLE archives (folder TEXT PRIMARY KEY, changed INTEGER NOT NULL)",
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
    *VECTORS,
    *PARTS,
)
_OLDER = (
    "words",
    "nodes",
    "graphs",
    "archives",
    "waiting",
    "embedded",
    "sentences",
    "parts",
    "vectors",
    "vectors_changes",
    "vectors_source",
)


class GraphIndexError(UserError):
    """The index cannot be read or written. Nothing that the graphs say is ever lost by it."""


class GraphIndexDamaged(GraphIndexError):
    """The file of the index is damaged; it is set aside and rebuilt."""


SCHEMA = Schema(
    name="index of graphs",
    room="graph.index",
    version=_VERSION,
    error=GraphIndexError,
    damaged=GraphIndexDamaged,
    statements=_STATEMENTS,
    # an older index is dropped: the graphs are read again
    upgrades=dict.fromkeys(range(1, _VERSION), (*(f"DROP TABLE IF EXISTS {name}" for name in _OLDER), *_STATEMENTS)),
)


def span(graph: int) -> tuple[int, int]:
    """The first and the last key that nodes of a graph can have."""
    return graph * NODES, graph * NODES + NODES - 1


# -- the graphs' files: where they lie, how they look without being opened, what they say ---------------------------


class Source(NamedTuple):
    """The log of a task's graph: whose it is, the folder it lies in, and how it looks (`stamp` changes with each write)."""

    task: str
    folder: str
    inode: int
    stamp: str

    @property
    def place(self) -> str:
        """The state of its task: inbox, active, done, failed."""
        return os.path.basename(os.path.dirname(self.folder))

    @property
    def archive(self) -> str | None:
        """The folder that it lies in, if that is one of a month in the archive."""
        place = os.path.dirname(self.folder)
        return None if os.path.basename(os.path.dirname(place)) == "tasks" else place

    def is_current(self) -> bool:
        """Whether the file still looks so."""
        return _source(os.path.dirname(self.folder), self.task) == self


class Row(NamedTuple):
    """A node, as columns of the index."""

    kind: str
    lane: str
    state: str
    title: str
    text: str
    tags: str

    @property
    def words(self) -> tuple[str, str, str]:
        """What it is found by."""
        return self.title, self.text, self.tags


class Reading(NamedTuple):
    """What a graph said up to line `seq` of its log, by node; or why it could not be read."""

    source: Source
    seq: int
    rows: Mapping[int, Row]
    problem: str | None = None


def sources(layout: Layout) -> dict[str, Source]:
    """The graph of every task that has one and is not archived, by task. Costs a stat for each task.

    A task that is moved on meanwhile may be missed: `source_of` tells whether one is really gone.
    """
    found = {}
    for place in _places(layout):
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = sorted(os.listdir(place))
        found.update({name: source for name in names if (source := _source(place, name)) is not None})
    return found


def source_of(layout: Layout, task: str) -> Source | None:
    """The graph of one task, wherever that lies; None if it has none."""
    found = [source for place in _places(layout) if (source := _source(place, task)) is not None]
    archived = filter(None, (_source(os.fspath(place), task) for place in archived_places(layout)))
    return found[-1] if found else next(archived, None)


def changed_archives(sql: sqlite3.Connection, layout: Layout) -> list[tuple[str, int, list[Source]]]:
    """The folders of the archive's months that are not as the index knows them: their times, the graphs in them. A folder that
    is gone has none. Costs a stat for each folder, however much lies there."""
    known = dict(sql.execute("SELECT folder, changed FROM archives"))
    places = {os.fspath(place): _changed(place) for place in archived_places(layout)}
    found = []
    for place in sorted({**known, **places}):
        changed = places.get(place, 0)
        if changed != known.get(place, 0):
            names = sorted(os.listdir(place)) if changed else []
            found.append((place, changed, [one for name in names if (one := _source(place, name)) is not None]))
    return found


def take_archive(sql: sqlite3.Connection, place: str, changed: int, there: Collection[Source]) -> None:
    """Note which of the graphs that the index knows lie in that folder of the archive, and that it was looked at."""
    names = {one.task for one in there}
    for (task,) in sql.execute("SELECT task FROM graphs WHERE archive = ?", (place,)).fetchall():
        if task not in names:  # deleted, or taken back: then it is read where it lies now
            drop(sql, task)
    sql.executemany("UPDATE graphs SET archive = ? WHERE task = ?", ((place, name) for name in names))
    if changed:
        sql.execute("INSERT OR REPLACE INTO archives VALUES (?, ?)", (place, changed))
    else:
        sql.execute("DELETE FROM archives WHERE folder = ?", (place,))


def _changed(place: Path) -> int:
    """When names in a folder changed; another time while that was a moment ago, which may hide a second change. 0: it is
    not there."""
    try:
        changed = place.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
    return changed if time.time_ns() - changed > _TICK_NS else changed - 1


def _places(layout: Layout) -> list[str]:
    """Where tasks lie, in the order in which they go: one that moves on while we look is seen further on."""
    return [os.fspath(place) for place in (layout.inbox, layout.active, layout.done, layout.failed)]


def _source(place: str, name: str) -> Source | None:
    """The graph in the folder of that name; None where there is none, or nothing was ever written to it."""
    if name.startswith(".") or "/" in name or "\0" in name:
        return None
    folder = f"{place}/{name}"
    try:
        name.encode()  # no task can be asked for by a name that is not UTF-8
        found = os.lstat(f"{folder}/{LOG_NAME}")
    except (UnicodeEncodeError, FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    return Source(name, folder, found.st_ino, f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}")


def read(source: Source, most: int) -> Reading | None:
    """Read the main branch of a graph, of at most that many nodes; None if its task has moved on. Takes no lock and changes
    nothing."""
    try:
        with boundary("graph", source.folder):
            graph = TaskGraph(source.folder, durable=False).graph
            if all(0 < number < most for number in graph.nodes):
                return Reading(source, graph.seq, {number: _row(node) for number, node in graph.nodes.items()})
            problem = f"{source.folder}: a node has a number below 1 or above {most - 1}"
    except UserError as error:
        problem = error.what if error.where is None else f"{error.where}: {error.what}"
    except OSError as error:
        problem = f"{error.filename or source.folder}: {error.strerror}"
    return Reading(source, 0, {}, _clean(problem)) if os.path.isdir(source.folder) else None


def _row(node: ReasoningNode) -> Row:
    state = "superseded" if node.status == "superseded" else _STATES[node.active]
    return Row(node.kind.value, node.lane, state, _clean(node.title), _clean(node.text), _clean(" ".join(node.tags)))


def _clean(text: str) -> str:
    """Half a character, which JSON can hold and a database cannot, is replaced."""
    return text.encode("utf-8", "replace").decode()


# -- what graphs say now: only what differs is written -------------------------------------------------------------


def take(sql: sqlite3.Connection, found: Reading) -> None:
    """Let the index say what was read; nothing where another process has meanwhile taken in more of the same file."""
    source = found.source
    row = sql.execute("SELECT id, inode, seq FROM graphs WHERE task = ?", (source.task,)).fetchone()
    if row is not None and row[1] == source.inode and row[2] > found.seq and not source.is_current():
        return
    (graph,) = sql.execute(
        "INSERT INTO graphs(task, inode, stamp, seq, nodes, problem, archive) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(task) DO UPDATE SET inode = excluded.inode, stamp = excluded.stamp, seq = excluded.seq,"
        " nodes = excluded.nodes, problem = excluded.problem, archive = excluded.archive RETURNING id",
        (source.task, source.inode, source.stamp, found.seq, len(found.rows), found.problem, source.archive),
    ).fetchone()
    first = graph * NODES
    rows = sql.execute(
        "SELECT key, kind, lane, state, title, text, tags FROM nodes WHERE key BETWEEN ? AND ?", span(graph)
    )
    before = {key: Row(*row) for key, *row in rows}
    now = {first + number: row for number, row in found.rows.items()}
    same_words = {key for key, row in now.items() if key in before and before[key].words == row.words}
    _take_out(sql, before.keys() - same_words)
    sql.executemany(
        "INSERT OR REPLACE INTO nodes(key, kind, lane, state, title, text, tags) VALUES (?, ?, ?, ?, ?, ?, ?)",
        ((key, *row) for key, row in now.items() if before.get(key) != row),
    )
    sql.executemany(
        "INSERT INTO words(rowid, title, text, tags) VALUES (?, ?, ?, ?)",
        ((key, *row.words) for key, row in now.items() if key not in same_words),
    )


def drop(sql: sqlite3.Connection, task: str) -> None:
    """Take a task that is gone out of the index."""
    for (graph,) in sql.execute("SELECT id FROM graphs WHERE task = ?", (task,)).fetchall():
        rows = sql.execute("SELECT key FROM nodes WHERE key BETWEEN ? AND ?", span(graph)).fetchall()
        _take_out(sql, [key for (key,) in rows])
        sql.execute("DELETE FROM graphs WHERE id = ?", (graph,))


def _take_out(sql: sqlite3.Connection, keys: Iterable[int]) -> None:
    """Take nodes out of all tables; the full-text index is told what they said."""
    marked = [(key,) for key in keys]
    sql.executemany(
        "INSERT INTO words(words, rowid, title, text, tags) SELECT 'delete', key, title, text, tags FROM nodes WHERE key = ?",
        marked,
    )
    for table in ("nodes", "vectors"):
        sql.executemany(f"DELETE FROM {table} WHERE key = ?", marked)


def problems(sql: sqlite3.Connection) -> Iterator[str]:
    """One sentence for each thing that is wrong; nothing for a sound index. Reads all of it."""
    yield from faults(sql)
    if (error := index_fault(sql)) is not None:
        yield f"the full-text index does not fit the nodes ({error})"
    for what, table, owner in (
        ("nodes belong to no graph", f"nodes WHERE key / {NODES}", "SELECT id FROM graphs"),
        ("vectors belong to no node", "vectors WHERE key", "SELECT key FROM nodes"),
    ):
        (count,) = sql.execute(f"SELECT count(*) FROM {table} NOT IN ({owner})").fetchone()
        if count:
            yield f"{count} {what}"
    for task, said, count in sql.execute(
        "SELECT g.task, g.nodes, count(n.key) AS found FROM graphs g"
        f" LEFT JOIN nodes n ON n.key BETWEEN g.id * {NODES} AND (g.id + 1) * {NODES} - 1"
        " GROUP BY g.id HAVING found <> g.nodes"
    ):
        yield f"the graph of {task} has {count} nodes and says {said}"


# -- vectors: progress is in the database itself, and any process goes on --------------------------------------------


def count_waiting(sql: sqlite3.Connection, keys: tuple[int, int], model: str) -> int:
    """How many nodes with keys in that range have no vector of the model yet."""
    (found,) = sql.execute(f"SELECT count(*) FROM {_WITHOUT_VECTOR}", (*keys, model)).fetchone()
    return int(found)


def embed(database: Database, embedder: Embedder, limit: int, keys: tuple[int, int], refused: set[object]) -> int:
    """Embed at most `limit` nodes with keys in that range, newest first; returns how many. See `search.embed_waiting`."""

    def waiting(sql: sqlite3.Connection, after: int, most: int) -> list[Waiting]:
        last = keys[1] if after < 0 else after - 1
        rows = sql.execute(
            f"SELECT n.key, n.title, n.text FROM {_WITHOUT_VECTOR} ORDER BY n.key DESC LIMIT ?",
            (keys[0], last, embedder.name, most),
        )
        return [Waiting(key, f"{title}\n{text}".strip()[:_CHARACTERS], (key, title, text)) for key, title, text in rows]

    def keep(sql: sqlite3.Connection, found: Sequence[tuple[Waiting, Meaning]]) -> None:
        still = "SELECT 1 FROM nodes WHERE key = ? AND title = ? AND text = ?"
        for one, meaning in found:
            if sql.execute(still, one.check).fetchone():  # type: ignore[arg-type]
                put_vectors(sql, embedder.name, [(one.id, one.id // NODES, meaning.vector)])
                keep_parts(sql, one.id, embedder.name, meaning.parts)

    done = embed_waiting(database, partial(meanings, embedder), waiting, keep, limit=limit, refused=refused)
    if done:
        reached("graph.index.embedded")
    return done
