"""The tables of graphs.db, the index of nodes. All of it follows from the graphs' own files and may be deleted."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.fs.database import Schema
from hivemind.layout import Layout, archived_places
from hivemind.reasoning.graph_log import LOG_NAME
from hivemind.reasoning.node import FLUSHED, ReasoningNode
from hivemind.reasoning.task_graph import TaskGraph
from hivemind.search import INDEX, Index

__all__ = [
    "SCHEMA",
    "GraphIndexDamaged",
    "Reading",
    "Source",
    "changed_archives",
    "drop",
    "read",
    "source_of",
    "sources",
    "take",
    "take_archive",
]

_STATES = {True: "active", False: "folded", FLUSHED: "flushed"}
_TICK_NS = 50_000_000  # two changes within a tick of the file system's clock look like one
_SUPERSEDED = 0.8  # how far such a node stands back
_VERSION = 6
_STATEMENTS = (
    """CREATE TABLE graphs (
        task TEXT PRIMARY KEY,  -- also the name of its scope
        inode INTEGER NOT NULL,
        stamp TEXT NOT NULL,    -- how its file looked before it was read
        seq INTEGER NOT NULL,   -- its last line that was read
        problem TEXT,           -- why it could not be read
        archive TEXT            -- the folder of its month, if it was archived
    )""",
    "CREATE INDEX graphs_archive ON graphs(archive)",
    "CREATE TABLE archives (folder TEXT PRIMARY KEY, changed INTEGER NOT NULL)",
    "CREATE INDEX graphs_problem ON graphs(task) WHERE problem IS NOT NULL",
    *INDEX,
)
_OLDER = (
    "words", "nodes", "graphs", "archives", "scopes", "items", "waiting", "embedded", "sentences", "parts", "vectors",
    "vectors_changes", "vectors_source",
)  # fmt: skip


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


class Reading(NamedTuple):
    """What a graph said up to line `seq` of its log, by node, as the fields of the index; or why it could not be read."""

    source: Source
    seq: int
    nodes: Mapping[str, Mapping[str, object]]
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


def take_archive(index: Index, place: str, changed: int, there: Collection[Source]) -> None:
    """Note which of the graphs that the index knows lie in that folder of the archive, and that it was looked at."""
    names = {one.task for one in there}
    with index.database.write() as sql:
        for (task,) in sql.execute("SELECT task FROM graphs WHERE archive = ?", (place,)).fetchall():
            if task not in names:  # deleted, or taken back: then it is read where it lies now
                drop(index, task)
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


def read(source: Source) -> Reading | None:
    """Read the main branch of a graph; None if its task has moved on. Takes no lock and changes nothing."""
    try:
        with boundary("graph", source.folder):
            graph = TaskGraph(source.folder, durable=False).graph
            return Reading(source, graph.seq, {str(number): _fields(node) for number, node in graph.nodes.items()})
    except UserError as error:
        problem = error.what if error.where is None else f"{error.where}: {error.what}"
    except OSError as error:
        problem = f"{error.filename or source.folder}: {error.strerror}"
    problem = problem.encode("utf-8", "replace").decode()
    return Reading(source, 0, {}, problem) if os.path.isdir(source.folder) else None


def _fields(node: ReasoningNode) -> dict[str, object]:
    state = "superseded" if node.status == "superseded" else _STATES[node.active]
    told = {"text": node.text, "heading": node.title, "labels": " ".join(node.tags)}
    found: dict[str, object] = {name: text.encode("utf-8", "replace").decode() for name, text in told.items() if text}
    found |= {"kind": node.kind.value, "lane": node.lane, "state": state}
    return found | ({"standing": _SUPERSEDED} if state == "superseded" else {})


# -- what graphs say now: only what differs is written -------------------------------------------------------------


def take(index: Index, found: Reading) -> None:
    """Let the index say what was read; nothing where another process has meanwhile taken in more of the same file."""
    source = found.source
    with index.database.write() as sql:
        row = sql.execute("SELECT inode, seq FROM graphs WHERE task = ?", (source.task,)).fetchone()
        if row is not None and row[0] == source.inode and row[1] > found.seq and not source.is_current():
            return
        sql.execute(
            "INSERT OR REPLACE INTO graphs(task, inode, stamp, seq, problem, archive) VALUES (?, ?, ?, ?, ?, ?)",
            (source.task, source.inode, source.stamp, found.seq, found.problem, source.archive),
        )
        before = index.fields(source.task)
        for node in before.keys() - found.nodes.keys():
            index.delete(node, source.task)
        for node, fields in found.nodes.items():
            if before.get(node) != fields:
                index.put(node, fields, source.task)


def drop(index: Index, task: str) -> None:
    """Take a task that is gone out of the index."""
    with index.database.write() as sql:
        for node in index.fields(task):
            index.delete(node, task)
        sql.execute("DELETE FROM graphs WHERE task = ?", (task,))
