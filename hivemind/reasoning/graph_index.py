"""GraphIndex: the nodes of all tasks' graphs, found by words and by meaning (spec 9)."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hivemind.boundary import boundary
from hivemind.embedding import Embedder
from hivemind.errors import UserError
from hivemind.fs import Lock, reached, set_aside
from hivemind.fs.database import Database, Schema
from hivemind.layout import Layout, archived_places
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.graph_log import LOG_NAME
from hivemind.reasoning.node import FLUSHED, ReasoningNode
from hivemind.reasoning.task_graph import TaskGraph
from hivemind.search import INDEX, Confidence, Index

__all__ = ["Found", "GraphIndex", "NodeHit"]

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


_SCHEMA = Schema(
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


class _Source(NamedTuple):
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


class _Reading(NamedTuple):
    """What a graph said up to line `seq` of its log, by node, as the fields of the index; or why it could not be read."""

    source: _Source
    seq: int
    nodes: Mapping[str, Mapping[str, object]]
    problem: str | None = None


def _sources(layout: Layout) -> dict[str, _Source]:
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


def _source_of(layout: Layout, task: str) -> _Source | None:
    """The graph of one task, wherever that lies; None if it has none."""
    found = [source for place in _places(layout) if (source := _source(place, task)) is not None]
    archived = filter(None, (_source(os.fspath(place), task) for place in archived_places(layout)))
    return found[-1] if found else next(archived, None)


def _changed_archives(sql: sqlite3.Connection, layout: Layout) -> list[tuple[str, int, list[_Source]]]:
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


def _take_archive(index: Index, place: str, changed: int, there: Collection[_Source]) -> None:
    """Note which of the graphs that the index knows lie in that folder of the archive, and that it was looked at."""
    names = {one.task for one in there}
    with index.database.write() as sql:
        for (task,) in sql.execute("SELECT task FROM graphs WHERE archive = ?", (place,)).fetchall():
            if task not in names:  # deleted, or taken back: then it is read where it lies now
                _drop(index, task)
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


def _source(place: str, name: str) -> _Source | None:
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
    return _Source(
        name, folder, found.st_ino, f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"
    )


def _read(source: _Source) -> _Reading | None:
    """Read the main branch of a graph; None if its task has moved on. Takes no lock and changes nothing."""
    try:
        with boundary("graph", source.folder):
            graph = TaskGraph(source.folder, durable=False).graph
            return _Reading(source, graph.seq, {str(number): _fields(node) for number, node in graph.nodes.items()})
    except UserError as error:
        problem = error.what if error.where is None else f"{error.where}: {error.what}"
    except OSError as error:
        problem = f"{error.filename or source.folder}: {error.strerror}"
    problem = problem.encode("utf-8", "replace").decode()
    return _Reading(source, 0, {}, problem) if os.path.isdir(source.folder) else None


def _fields(node: ReasoningNode) -> dict[str, object]:
    state = "superseded" if node.status == "superseded" else _STATES[node.active]
    told = {"text": node.text, "heading": node.title, "labels": " ".join(node.tags)}
    found: dict[str, object] = {name: text.encode("utf-8", "replace").decode() for name, text in told.items() if text}
    found |= {"kind": node.kind.value, "lane": node.lane, "state": state}
    return found | ({"standing": _SUPERSEDED} if state == "superseded" else {})


# -- what graphs say now: only what differs is written -------------------------------------------------------------


def _take(index: Index, found: _Reading) -> None:
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


def _drop(index: Index, task: str) -> None:
    """Take a task that is gone out of the index."""
    with index.database.write() as sql:
        for node in index.fields(task):
            index.delete(node, task)
        sql.execute("DELETE FROM graphs WHERE task = ?", (task,))


Progress = Callable[[int, int], None]

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeHit:
    """A node that answers, and where it stands.

    `place` is the state of its task (inbox, active, done, failed), `state` its own: active, folded, flushed, superseded.
    `path` is the file of its graph, within the hive. `similarity` is the cosine of its meaning (0 to 1; 0 without one),
    `score` orders hits of one search, higher is better; `why` says in words what was found,
    `confidence` how far it can be trusted to answer.
    """

    task: str
    place: str
    node_id: int
    kind: str
    lane: str
    state: str
    title: str
    text: str
    score: float
    similarity: float
    why: str
    path: str
    confidence: Confidence

    def as_dict(self) -> dict[str, Any]:
        """The hit as JSON has it."""
        return {**asdict(self), "confidence": self.confidence.level}


@dataclass(frozen=True, slots=True)
class Found:
    """Hits, best first, and in sentences what a reader should know of the search: graphs that could not be read and were
    passed over, an index that was damaged, what could be looked for by its words only."""

    hits: tuple[NodeHit, ...]
    remarks: tuple[str, ...] = ()


class GraphIndex:
    """The index of all graphs in a hive, for many processes at once: one SQLite file, derived from the graphs' own files.

    Each search first takes in the graphs whose files have changed. `lasting=False` keeps the index in memory, for who may
    not write into the hive. Methods raise GraphIndexError where the database cannot be read or written, UnknownVersion
    for one of a newer program.
    """

    def __init__(self, layout: Layout, embedder: Embedder | None = None, *, lasting: bool = True) -> None:
        self._layout = layout
        self._embedder = embedder
        path = os.fspath(layout.graphs_db) if lasting else ":memory:"
        self._index = Index(Database(path, _SCHEMA, durable=False), embedder)
        self._database = self._index.database

    def find(
        self,
        query: str,
        *,
        task: str | None = None,
        limit: int = 10,
        over: bool = False,
        progress: Progress | None = None,
    ) -> Found:
        """The nodes of all tasks' graphs, or of one, that answer best; equal ones by task and number. With `over` no graph of an
        active task is read for it, as those change with every turn, and no node is embedded, which agents do at rest.

        Any characters may stand in the query; one without words finds nothing by words. `progress` is told (read, of how
        many) while graphs are read. Raises GraphError for arguments that cannot be, and for a task without a graph.
        """
        if limit < 1:
            raise GraphError(f"a limit must be an integer ≥ 1, not {limit}")
        if task is not None and _source_of(self._layout, task) is None:
            raise GraphError(f"task {task!r} has no graph", mend="hivemind task list shows the tasks")
        found, damage = self._mended(lambda: self._find(query, task, limit, progress, over=over))
        return found if damage is None else Found(found.hits, (damage, *found.remarks))

    def refresh(self, task: str | None = None, progress: Progress | None = None) -> int:
        """Take in the graphs that have changed (or one); returns how many were read."""
        return self._mended(lambda: self._refresh(task, progress))[0]

    def embed_pending(self, limit: int) -> int:
        """Give vectors to at most `limit` nodes that have none yet; returns how many. For agents at rest."""
        return self._mended(lambda: self._index.embed(limit))[0]

    def check(self) -> list[str]:
        """What is wrong with the index, one sentence each; empty if it is sound. Reads all of it."""
        found = self._index.check()
        if not found:
            with self._database.read() as sql:
                (lost,) = sql.execute(
                    "SELECT count(*) FROM scopes WHERE name NOT IN (SELECT task FROM graphs)"
                ).fetchone()
            found += [f"the nodes of {lost} tasks belong to no graph"] if lost else []
        return found

    def set_aside(self) -> str:
        """Rename the file, so that the next search rebuilds it; returns a sentence that says so."""
        return self._set_aside(self._inode())

    def close(self) -> None:
        """Close the database; the next use opens it again."""
        self._index.close()

    # -- searching -----------------------------------------------------------------------------------------------

    def _find(self, query: str, task: str | None, limit: int, progress: Progress | None, *, over: bool) -> Found:
        self._refresh(task, progress, over=over)
        asked = self._index.asked(query)
        hits = self._index.search(asked, task, limit, embeds=not over)
        remarks = [] if asked.lack is None else [f"looked for by words only: {asked.lack}"]
        if asked.meaning is not None and (waiting := self._index.pending(task)):
            which = "node is not embedded yet: looked for by its" if waiting == 1 else (
                "nodes are not embedded yet: looked for by their")  # fmt: skip
            remarks.append(f"{waiting:,} {which} words only")
        with self._database.read() as sql:
            unread = sql.execute(
                "SELECT problem FROM graphs WHERE problem IS NOT NULL AND (? IS NULL OR task = ?) ORDER BY task",
                (task, task),
            ).fetchall()
        nodes = []
        for hit in hits:
            place = "gone" if (lies := _source_of(self._layout, hit.scope)) is None else lies.place
            nodes.append(
                NodeHit(
                    task=hit.scope,
                    place=place,
                    node_id=int(hit.id),
                    kind=hit.fields["kind"],
                    lane=hit.fields["lane"],
                    state=hit.fields["state"],
                    title=hit.fields.get("heading", ""),
                    text=hit.fields.get("text", ""),
                    score=round(hit.score, 6),
                    similarity=round(hit.similarity, 6),
                    why=hit.why,
                    path=f"tasks/gone/{hit.scope}/{LOG_NAME}"
                    if lies is None
                    else self._layout.relative(f"{lies.folder}/{LOG_NAME}"),
                    confidence=hit.confidence,
                )
            )
        return Found(tuple(nodes), (*(f"passed over: {problem}" for (problem,) in unread), *remarks))

    # -- keeping up ----------------------------------------------------------------------------------------------

    def _refresh(self, task: str | None, progress: Progress | None, *, over: bool = False) -> int:
        if task is None:
            present = _sources(self._layout)
        else:
            present = {} if (found := _source_of(self._layout, task)) is None else {task: found}
        with self._database.read() as sql:
            which = "SELECT task, stamp FROM graphs WHERE CASE WHEN ?1 IS NULL THEN archive IS NULL ELSE task = ?1 END"
            known = dict(sql.execute(which, (task,)))
            gone = [name for name in known if name not in present and _source_of(self._layout, name) is None]
            archives = _changed_archives(sql, self._layout) if task is None else []
            archived = [one for _, _, there in archives for one in there if one.task not in present]
            for one in archived:
                known.update(sql.execute("SELECT task, stamp FROM graphs WHERE task = ?", (one.task,)))
        for name in gone:
            _drop(self._index, name)
        changed = [
            one
            for one in (*present.values(), *archived)
            if known.get(one.task) != one.stamp and not (over and one.place == "active")
        ]
        for at, source in enumerate(changed, 1):
            if progress is not None:
                progress(at, len(changed))
            reading = _read(source)  # outside of any transaction
            if reading is not None:
                _take(self._index, reading)
                reached("graph.index.taken")
        for place, moment, there in archives:
            _take_archive(self._index, place, moment, [one for one in there if one.task not in present])
        return len(changed)

    def _mended(self, work: Callable[[], _T]) -> tuple[_T, str | None]:
        """What the work returns; a damaged index is set aside first and rebuilt, and a sentence says so."""
        seen = self._inode()
        try:
            return work(), None
        except GraphIndexDamaged as error:
            said = f"{self._layout.relative(self._database.path)} {error.what}: {self._set_aside(seen)}"
            _log.warning("%s", said)
            return work(), said

    def _inode(self) -> int | None:
        try:
            return os.stat(self._database.path).st_ino
        except FileNotFoundError:
            return None

    def _set_aside(self, seen: int | None) -> str:
        """Rename the file that was seen, unless another program has done so meanwhile; returns what was done."""
        self._database.close()
        path = Path(self._database.path)
        with Lock(f"{path}.lock"):
            if seen is None or self._inode() != seen:
                return "it was set aside already"
            for end in ("-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
            aside = set_aside(path)
        return f"set aside as {self._layout.relative(aside)}, and rebuilt from the graphs"
