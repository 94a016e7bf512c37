"""GraphIndex: the nodes of all tasks' graphs, found by words and by meaning (spec 9)."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from hivemind.boundary import boundary
from hivemind.embedding import Embedder
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import reached, time_tells
from hivemind.fs.database import DerivedDatabase, Schema
from hivemind.layout import Layout, archived_places
from hivemind.reasoning.graph_log import LOG_NAME
from hivemind.reasoning.node import FLUSHED, GraphError, ReasoningNode
from hivemind.reasoning.task_graph import TaskGraph
from hivemind.search import INDEX, Confidence, Index

_STATES = {True: "active", False: "folded", FLUSHED: "flushed"}
_SUPERSEDED = 0.8  # how far such a node stands back
_SHARE = 8
"""An agent lists a folder of tasks that changes all the time for at most one part in so many of the time, all agents together."""
_VERSION = 9
_STATEMENTS = (
    """CREATE TABLE graphs (
        task TEXT PRIMARY KEY,  -- also the name of its scope
        stamp TEXT NOT NULL,    -- how its file looked before it was read
        seq INTEGER NOT NULL,   -- its last line that was read
        problem TEXT,           -- why it could not be read
        place TEXT NOT NULL     -- the folder, within the hive, that its task lies in
    )""",
    "CREATE INDEX graphs_place ON graphs(place)",
    """CREATE TABLE places (
        place TEXT PRIMARY KEY,
        changed INTEGER NOT NULL,  -- as it was when it was listed
        at REAL NOT NULL,          -- when that was, in seconds of the clock
        cost REAL NOT NULL         -- seconds of processor time that it took
    )""",
    "CREATE INDEX graphs_problem ON graphs(task) WHERE problem IS NOT NULL",
    *INDEX,
)


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
    derived=True,
    statements=_STATEMENTS,
)


# -- the graphs' files: where they lie, how they look without being opened, what they say ---------------------------


class _Source(NamedTuple):
    """The log of a task's graph: whose it is, where the task lies (`place`, within the hive), and how it looks: `stamp`
    changes with each write."""

    task: str
    place: str
    folder: str
    stamp: str


def _places(layout: Layout) -> list[Path]:
    """Where tasks lie, in the order in which they move on."""
    return [layout.inbox, layout.active, layout.done, layout.failed, *archived_places(layout)]


def _changed(layout: Layout, place: str) -> int:
    """When names in a folder of tasks changed; 0 where it is not there. -1 for one that is looked through each time: where
    graphs are written, and while names changed a moment ago: a second change may hide."""
    folder = layout.root / place
    if folder == layout.active:
        return -1
    try:
        changed = folder.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
    return changed if time_tells(changed) else -1


def _sources(layout: Layout, place: str) -> Iterator[_Source]:
    """The graphs of the tasks in a folder. Costs a stat for each."""
    with suppress(FileNotFoundError), os.scandir(layout.root / place) as entries:
        for name in sorted(one.name for one in entries if one.is_dir()):
            if (source := _source(layout, place, name)) is not None:
                yield source


def _source(layout: Layout, place: str, name: str) -> _Source | None:
    """The graph in the folder of that name; None where there is none, or nothing was ever written to it."""
    if name.startswith(".") or "/" in name or "\0" in name:
        return None
    folder = f"{layout.root}/{place}/{name}"
    try:
        name.encode()  # no task can be asked for by a name that is not UTF-8
        found = os.lstat(f"{folder}/{LOG_NAME}")
    except (UnicodeEncodeError, FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    stamp = f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"
    return _Source(name, place, folder, stamp)


def _source_of(layout: Layout, task: str) -> _Source | None:
    """The graph of one task, wherever that lies; None if it has none. A task that moves on meanwhile is seen further on."""
    found = (_source(layout, layout.relative(place), task) for place in _places(layout))
    return next((source for source in found if source is not None), None)


def _read(source: _Source) -> tuple[int, dict[str, dict[str, object]], str | None]:
    """What the main branch of a graph says: the number of its log's last line, its nodes as the fields of the index, and why
    it cannot be read. Takes no lock and changes nothing."""
    try:
        with boundary("graph", source.folder):
            graph = TaskGraph(source.folder, durable=False).graph
            return graph.seq, {str(number): _fields(node) for number, node in graph.nodes.items()}, None
    except UserError as error:
        problem = error.what if error.where is None else f"{error.where}: {error.what}"
    except OSError as error:
        problem = f"{error.filename or source.folder}: {error.strerror}"
    return 0, {}, problem.encode("utf-8", "replace").decode()


def _fields(node: ReasoningNode) -> dict[str, object]:
    state = "superseded" if node.status == "superseded" else _STATES[node.active]
    told = {"text": node.text, "heading": node.title, "labels": " ".join(node.tags)}
    standing = {"standing": _SUPERSEDED} if state == "superseded" else {}
    found = {name: text for name, text in told.items() if text}
    return {**found, "kind": node.kind.value, "lane": node.lane, "state": state, **standing}


Progress = Callable[[int, int], None]


@frozen
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


@frozen
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
        path = os.fspath(layout.graphs_db) if lasting else ":memory:"
        self.database = DerivedDatabase(path, _SCHEMA, durable=False)
        self._index = Index(self.database, embedder)

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
        active task is read for it, as those change with every turn, no node is embedded, which agents do at rest, and what
        was just moved into a folder of many tasks may be found a little later.

        Any characters may stand in the query; one without words finds nothing by words. `progress` is told (read, of how
        many) while graphs are read. Raises GraphError for arguments that cannot be, and for a task without a graph.
        """
        if limit < 1:
            raise GraphError(f"a limit must be an integer ≥ 1, not {limit}")
        if task is not None and _source_of(self._layout, task) is None:
            raise GraphError(f"task {task!r} has no graph", mend="hivemind task list shows the tasks")
        found, damage = self.database.soundly(lambda: self._find(query, task, limit, progress, over=over))
        return found if damage is None else Found(found.hits, (damage, *found.remarks))

    def refresh(self, task: str | None = None, progress: Progress | None = None) -> int:
        """Take in the graphs that have changed (or one); returns how many were read."""
        return self.database.soundly(lambda: self._refresh(task, progress))[0]

    def embed_pending(self, limit: int) -> int:
        """Give vectors to at most `limit` nodes that have none yet; returns how many. For agents at rest."""
        return self.database.soundly(lambda: self._index.embed(limit))[0]

    def check(self) -> list[str]:
        """What is wrong with the index, one sentence each; empty if it is sound. Reads all of it."""
        found = self._index.check()
        if not found:
            with self.database.read() as sql:
                (lost,) = sql.execute(
                    "SELECT count(*) FROM scopes WHERE name NOT IN (SELECT task FROM graphs)"
                ).fetchone()
            found += [f"the nodes of {lost} tasks belong to no graph"] if lost else []
        return found

    def close(self) -> None:
        """Close the database; the next use opens it again."""
        self._index.close()

    # -- searching -----------------------------------------------------------------------------------------------

    def _find(self, query: str, task: str | None, limit: int, progress: Progress | None, *, over: bool) -> Found:
        self._refresh(task, progress, over=over)
        asked = self._index.meanings.query(query)
        hits = self._index.search(asked, task, limit, embeds=not over)
        remarks = [] if asked.lack is None else [f"looked for by words only: {asked.lack}"]
        if asked.meaning is not None and (waiting := self._index.pending(task)):
            which = "node is not embedded yet: looked for by its" if waiting == 1 else (
                "nodes are not embedded yet: looked for by their")  # fmt: skip
            remarks.append(f"{waiting:,} {which} words only")
        with self.database.read() as sql:
            unread = sql.execute(
                "SELECT problem FROM graphs WHERE problem IS NOT NULL AND (? IS NULL OR task = ?) ORDER BY task",
                (task, task),
            ).fetchall()
            rows = sql.execute(
                "SELECT task, place FROM graphs WHERE task IN (SELECT value FROM json_each(?))",
                (json.dumps([hit.scope for hit in hits]),),
            ).fetchall()
        layout = self._layout
        sources = {task: _source(layout, place, task) or _source_of(layout, task) for task, place in rows}
        places = {task: source.place for task, source in sources.items() if source is not None}
        nodes = [
            NodeHit(
                task=hit.scope,
                place=os.path.basename(places[hit.scope]),
                node_id=int(hit.id),
                kind=hit.fields["kind"],
                lane=hit.fields["lane"],
                state=hit.fields["state"],
                title=hit.fields.get("heading", ""),
                text=hit.fields.get("text", ""),
                score=round(hit.score, 6),
                similarity=round(hit.similarity, 6),
                why=hit.why,
                path=f"{places[hit.scope]}/{hit.scope}/{LOG_NAME}",
                confidence=hit.confidence,
            )
            for hit in hits
            if hit.scope in places
        ]
        return Found(tuple(nodes), (*(f"passed over: {problem}" for (problem,) in unread), *remarks))

    # -- keeping up ----------------------------------------------------------------------------------------------

    def _refresh(self, task: str | None, progress: Progress | None, *, over: bool = False) -> int:
        """Costs a stat for each task that is active or has a graph that could not be read, and one for each place of others,
        however much lies there, unless names changed in it: who writes such a graph refreshes the index."""
        layout, now, began = self._layout, time.time(), time.thread_time()
        looked: dict[str, int] = {}
        with self.database.read() as sql:
            if task is None:
                listed = {place: row for place, *row in sql.execute("SELECT place, changed, at, cost FROM places")}
                for place in dict.fromkeys([*map(layout.relative, _places(layout)), *listed]):
                    before, at, cost = listed.get(place, (0, 0.0, 0.0))
                    changed_at = _changed(layout, place)
                    is_due = not over or not 0.0 <= now - at < _SHARE * cost
                    if is_due and (changed_at < 0 or changed_at != before):
                        looked[place] = changed_at
                unread = sql.execute("SELECT place, task FROM graphs WHERE problem IS NOT NULL").fetchall()
                sources = [_source(layout, *one) for one in unread]
                sources += [one for place in looked for one in _sources(layout, place)]
            else:
                sources = [_source_of(layout, task)]
            found = {one.task: one for one in sources if one is not None}
            rows = sql.execute(
                "SELECT task, stamp, place FROM graphs WHERE place IN (SELECT value FROM json_each(?))"
                " OR task IN (SELECT value FROM json_each(?))",
                (json.dumps(list(looked)), json.dumps([task, *found])),
            )
            known = {name: row for name, *row in rows}
        cost = time.thread_time() - began
        active = layout.relative(layout.active)
        changed = [
            one
            for name, one in found.items()
            if known.get(name, [""])[0] != one.stamp and not (over and one.place == active)
        ]
        for number, source in enumerate(changed, 1):
            if progress is not None:
                progress(number, len(changed))
            self._take(source)
            reached("graph.index.taken")
        moved = [(one.place, name) for name, one in found.items() if name in known and known[name][1] != one.place]
        gone = [
            name for name in known.keys() - found.keys() if _source_of(layout, name) is None
        ]  # else it has moved on
        if moved or gone or looked:
            with self.database.write() as sql:
                for name in gone:
                    self._put(name, {})
                    sql.execute("DELETE FROM graphs WHERE task = ?", (name,))
                sql.executemany("UPDATE graphs SET place = ? WHERE task = ?", moved)
                sql.executemany(
                    "INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?)",
                    [(place, changed_at, now, cost) for place, changed_at in looked.items()],
                )
        return len(changed)

    def _take(self, source: _Source) -> None:
        """Let the index say what a graph says; nothing where another process has meanwhile taken in more of the same file."""
        seq, nodes, problem = _read(source)  # outside of any transaction
        with self.database.write() as sql:
            row = sql.execute("SELECT seq FROM graphs WHERE task = ?", (source.task,)).fetchone()
            is_behind = problem is not None or (row is not None and row[0] > seq)
            if is_behind and _source(self._layout, source.place, source.task) != source:
                return  # the task has moved on, or its graph has changed: the next look sees it
            sql.execute(
                "INSERT OR REPLACE INTO graphs(task, stamp, seq, problem, place) VALUES (?, ?, ?, ?, ?)",
                (source.task, source.stamp, seq, problem, source.place),
            )
            self._put(source.task, nodes)

    def _put(self, task: str, nodes: Mapping[str, Mapping[str, object]]) -> None:
        """Let the nodes of a task be these; only what differs is written."""
        before = self._index.fields(task)
        for node in before.keys() - nodes.keys():
            self._index.delete(node, task)
        for node, fields in nodes.items():
            if before.get(node) != fields:
                self._index.put(node, fields, task)
