"""GraphIndex: search the nodes of all tasks' graphs by words and by meaning."""

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
from hivemind.fs import crash_point, is_timestamp_reliable
from hivemind.fs.database import DerivedDatabase, Schema
from hivemind.layout import Layout, archived_folders
from hivemind.reasoning.graph_log import LOG_NAME
from hivemind.reasoning.node import FLUSHED, GraphError, ReasoningNode
from hivemind.reasoning.task_graph import TaskGraph
from hivemind.search import INDEX, Confidence, Index

_STATES = {True: "active", False: "folded", FLUSHED: "flushed"}
_SUPERSEDED_STANDING = 0.8  # the factor of a superseded node's score
_LISTING_SHARE = 8
"""A quick search lists a folder of tasks again only after this many times the duration of the last listing."""
_VERSION = 9
_STATEMENTS = (
    """CREATE TABLE graphs (
        task TEXT PRIMARY KEY,  -- also the name of its scope
        stamp TEXT NOT NULL,    -- the stamp of its file before it was read
        seq INTEGER NOT NULL,   -- its last line that was read
        problem TEXT,           -- the error if it could not be read
        place TEXT NOT NULL     -- the folder that contains its task, relative to the hive
    )""",
    "CREATE INDEX graphs_place ON graphs(place)",
    """CREATE TABLE places (
        place TEXT PRIMARY KEY,
        changed INTEGER NOT NULL,  -- its mtime (ns) when it was listed
        at REAL NOT NULL,          -- when it was listed, in seconds since the epoch
        cost REAL NOT NULL         -- seconds of processor time of the refresh
    )""",
    "CREATE INDEX graphs_problem ON graphs(task) WHERE problem IS NOT NULL",
    *INDEX,
)


class GraphIndexError(UserError):
    """The index cannot be read or written. The graphs themselves are not affected."""


class GraphIndexDamaged(GraphIndexError):
    """The index file is damaged. It is set aside and rebuilt."""


_SCHEMA = Schema(
    name="index of graphs",
    crash_prefix="graph.index",
    version=_VERSION,
    error=GraphIndexError,
    damage_error=GraphIndexDamaged,
    derived=True,
    statements=_STATEMENTS,
)


# -- the files of the graphs -------------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """The log of a task's graph. `folder` is the task's folder, `place` the folder that contains it, relative to the hive.

    `stamp` changes with each write of the log.
    """

    task: str
    place: str
    folder: str
    stamp: str


def _places(layout: Layout) -> list[Path]:
    """Return the folders that contain tasks, in the order in which tasks move through them."""
    return [layout.inbox, layout.active, layout.done, layout.failed, *archived_folders(layout)]


def _changed_at(layout: Layout, place: str) -> int:
    """Return the time (ns) of the last change of names in a folder of tasks, 0 if the folder does not exist.

    Return -1 for a folder that must be listed at each refresh: `active`, because its graphs change, and a folder that
    has just changed, because a second change might get the same time.
    """
    folder = layout.root / place
    if folder == layout.active:
        return -1
    try:
        changed_ns = folder.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
    return changed_ns if is_timestamp_reliable(changed_ns) else -1


def _sources(layout: Layout, place: str) -> Iterator[_Source]:
    """Yield the log of each graph among the tasks in a folder. Costs one stat per task."""
    with suppress(FileNotFoundError), os.scandir(layout.root / place) as entries:
        for name in sorted(entry.name for entry in entries if entry.is_dir()):
            if (source := _source(layout, place, name)) is not None:
                yield source


def _source(layout: Layout, place: str, name: str) -> _Source | None:
    """Return the log of the graph of the task `name` in `place`; None if it does not exist or is empty."""
    if name.startswith(".") or "/" in name or "\0" in name:
        return None
    folder = f"{layout.root}/{place}/{name}"
    try:
        name.encode()  # the name of a task is UTF-8
        status = os.lstat(f"{folder}/{LOG_NAME}")
    except (UnicodeEncodeError, FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return None
    stamp = f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    return _Source(name, place, folder, stamp)


def _find_source(layout: Layout, task: str) -> _Source | None:
    """Return the log of a task's graph, or None if there is none. Searches the folders in the order in which tasks move
    through them."""
    candidates = (_source(layout, layout.relative(place), task) for place in _places(layout))
    return next((source for source in candidates if source is not None), None)


def _read_graph(source: _Source) -> tuple[int, dict[str, dict[str, object]], str | None]:
    """Read the main branch of a graph. Return its log's seq, the fields to index of each node by id, and an error or None.

    With an error, seq is 0 and there are no fields. Takes no lock. Writes no file.
    """
    try:
        with boundary("graph", source.folder):
            graph = TaskGraph(source.folder).graph
            return graph.seq, {str(number): _fields(node) for number, node in graph.nodes.items()}, None
    except UserError as error:
        problem = error.message if error.location is None else f"{error.location}: {error.message}"
    except OSError as error:
        problem = f"{error.filename or source.folder}: {error.strerror}"
    return 0, {}, problem.encode("utf-8", "replace").decode()


def _fields(node: ReasoningNode) -> dict[str, object]:
    state = "superseded" if node.status == "superseded" else _STATES[node.active]
    text_fields = {"text": node.text, "heading": node.title, "labels": " ".join(node.tags)}
    standing_field = {"standing": _SUPERSEDED_STANDING} if state == "superseded" else {}
    fields = {name: text for name, text in text_fields.items() if text}
    return {**fields, "kind": node.kind.value, "lane": node.lane, "state": state, **standing_field}


Progress = Callable[[int, int], None]


@frozen
class NodeHit:
    """A node that matches a query.

    `place` is the state of the node's task (inbox, active, done, failed), `state` that of the node: active, folded,
    flushed, superseded. `path` is the file of its graph, relative to the hive. `similarity` is the cosine similarity to the
    query (0 to 1; 0 if the node is not embedded). `score` orders the hits of one search, higher is better. `why` lists
    the matches in words. `confidence` says how far the node can be trusted as an answer.
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
        """Return the hit's fields as JSON values, with the confidence as a word."""
        return {**asdict(self), "confidence": self.confidence.level}


@frozen
class GraphMatch:
    """Hits, best first, and remarks about the search: skipped graphs, a damaged index, search by words only."""

    hits: tuple[NodeHit, ...]
    remarks: tuple[str, ...] = ()


class GraphIndex:
    """The index of all graphs in a hive: one SQLite file, shared by processes and derived from the files of the graphs.

    Each search first indexes the graphs with changed files. `persistent=False` keeps the index in memory, for users who
    may not write into the hive. Methods raise GraphIndexError if the database cannot be read or written, UnknownVersion
    if a newer program wrote it.
    """

    def __init__(self, layout: Layout, embedder: Embedder | None = None, *, persistent: bool = True) -> None:
        self._layout = layout
        path = os.fspath(layout.graphs_db) if persistent else ":memory:"
        self.database = DerivedDatabase(path, _SCHEMA)
        self._index = Index(self.database, embedder)

    def find(
        self,
        query: str,
        *,
        task: str | None = None,
        limit: int = 10,
        quick: bool = False,
        progress: Progress | None = None,
    ) -> GraphMatch:
        """Return the nodes that match a query best, of all tasks' graphs or of one; ties are ordered by task and node id.

        A `quick` search does not read the graphs of active tasks, which change with every turn. It may miss a task that
        was just moved into a large folder, and it embeds no nodes; idle agents do this.

        The query may contain any characters. `progress` is called with (number, total) while graphs are read. Raises
        GraphError for invalid arguments and for a task without a graph.
        """
        if limit < 1:
            raise GraphError(f"a limit must be an integer ≥ 1, not {limit}")
        if task is not None and _find_source(self._layout, task) is None:
            raise GraphError(f"task {task!r} has no graph", remedy="hivemind task list shows the tasks")
        match, damage = self.database.run_with_rebuild(lambda: self._find(query, task, limit, progress, quick=quick))
        return match if damage is None else GraphMatch(match.hits, (damage, *match.remarks))

    def refresh(self, task: str | None = None, progress: Progress | None = None) -> int:
        """Index the graphs that have changed: those of all tasks, or only that of `task`. Return the number of graphs read."""
        return self.database.run_with_rebuild(lambda: self._refresh(task, progress))[0]

    def embed_pending(self, limit: int) -> int:
        """Embed at most `limit` nodes that are not embedded yet. Return their number. Idle agents call this."""
        return self.database.run_with_rebuild(lambda: self._index.embed(limit))[0]

    def check(self) -> list[str]:
        """Check the whole index, and return its problems, one sentence each."""
        problems = self._index.check()
        if not problems:
            with self.database.read() as sql:
                (orphan_count,) = sql.execute(
                    "SELECT count(*) FROM scopes WHERE name NOT IN (SELECT task FROM graphs)"
                ).fetchone()
            problems += [f"the nodes of {orphan_count} tasks belong to no graph"] if orphan_count else []
        return problems

    def close(self) -> None:
        """Close the database. The next use reopens it."""
        self._index.close()

    # -- searching -----------------------------------------------------------------------------------------------

    def _find(self, query: str, task: str | None, limit: int, progress: Progress | None, *, quick: bool) -> GraphMatch:
        self._refresh(task, progress, quick=quick)
        search_query = self._index.meanings.build_query(query)
        hits = self._index.search(search_query, task, limit, embeds=not quick)
        remarks = (
            []
            if search_query.words_only_reason is None
            else [f"searched by words only: {search_query.words_only_reason}"]
        )
        if search_query.vectors is not None and (pending_count := self._index.pending(task)):
            wording = "node is not embedded yet: searched by its" if pending_count == 1 else (
                "nodes are not embedded yet: searched by their")  # fmt: skip
            remarks.append(f"{pending_count:,} {wording} words only")
        with self.database.read() as sql:
            problem_rows = sql.execute(
                "SELECT problem FROM graphs WHERE problem IS NOT NULL AND (? IS NULL OR task = ?) ORDER BY task",
                (task, task),
            ).fetchall()
            rows = sql.execute(
                "SELECT task, place FROM graphs WHERE task IN (SELECT value FROM json_each(?))",
                (json.dumps([hit.scope for hit in hits]),),
            ).fetchall()
        layout = self._layout
        sources = {task: _source(layout, place, task) or _find_source(layout, task) for task, place in rows}
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
        return GraphMatch(tuple(nodes), (*(f"skipped: {problem}" for (problem,) in problem_rows), *remarks))

    # -- refreshing ----------------------------------------------------------------------------------------------

    def _refresh(self, task: str | None, progress: Progress | None, *, quick: bool = False) -> int:
        """Index the graphs that have changed, of all tasks or (unless it is None) of `task`. Return the number of graphs read.

        Costs one stat for each active task, each unreadable graph and each other folder of tasks. A folder is listed
        only if names in it have changed: a program that changes a graph in it refreshes the index itself.
        """
        layout, now, cpu_start = self._layout, time.time(), time.thread_time()
        listed_places: dict[str, int] = {}
        with self.database.read() as sql:
            if task is None:
                place_rows = {place: row for place, *row in sql.execute("SELECT place, changed, at, cost FROM places")}
                for place in dict.fromkeys([*map(layout.relative, _places(layout)), *place_rows]):
                    last_changed, listed_at, cost = place_rows.get(place, (0, 0.0, 0.0))
                    changed_at = _changed_at(layout, place)
                    is_due = not quick or not 0.0 <= now - listed_at < _LISTING_SHARE * cost
                    if is_due and (changed_at < 0 or changed_at != last_changed):
                        listed_places[place] = changed_at
                unreadable_rows = sql.execute("SELECT place, task FROM graphs WHERE problem IS NOT NULL").fetchall()
                sources = [_source(layout, *row) for row in unreadable_rows]
                sources += [source for place in listed_places for source in _sources(layout, place)]
            else:
                sources = [_find_source(layout, task)]
            sources_by_task = {source.task: source for source in sources if source is not None}
            rows = sql.execute(
                "SELECT task, stamp, place FROM graphs WHERE place IN (SELECT value FROM json_each(?))"
                " OR task IN (SELECT value FROM json_each(?))",
                (json.dumps(list(listed_places)), json.dumps([task, *sources_by_task])),
            )
            known_rows = {name: row for name, *row in rows}
        cost = time.thread_time() - cpu_start
        active = layout.relative(layout.active)
        changed_sources = [
            source
            for name, source in sources_by_task.items()
            if known_rows.get(name, [""])[0] != source.stamp and not (quick and source.place == active)
        ]
        for number, source in enumerate(changed_sources, 1):
            if progress is not None:
                progress(number, len(changed_sources))
            self._index_source(source)
            crash_point("graph.index.taken")
        moved_places = [
            (source.place, name)
            for name, source in sources_by_task.items()
            if name in known_rows and known_rows[name][1] != source.place
        ]
        # else the task has moved
        gone_tasks = [name for name in known_rows.keys() - sources_by_task.keys() if _find_source(layout, name) is None]
        if moved_places or gone_tasks or listed_places:
            with self.database.write() as sql:
                for name in gone_tasks:
                    self._put_nodes(name, {})
                    sql.execute("DELETE FROM graphs WHERE task = ?", (name,))
                sql.executemany("UPDATE graphs SET place = ? WHERE task = ?", moved_places)
                sql.executemany(
                    "INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?)",
                    [(place, changed_at, now, cost) for place, changed_at in listed_places.items()],
                )
        return len(changed_sources)

    def _index_source(self, source: _Source) -> None:
        """Replace a graph in the index. If another process has already indexed a later state of this graph, do nothing."""
        seq, nodes, problem = _read_graph(source)  # outside the transaction
        with self.database.write() as sql:
            row = sql.execute("SELECT seq FROM graphs WHERE task = ?", (source.task,)).fetchone()
            is_behind = problem is not None or (row is not None and row[0] > seq)
            if is_behind and _source(self._layout, source.place, source.task) != source:
                return  # the task has moved or its graph has changed: the next refresh sees it
            sql.execute(
                "INSERT OR REPLACE INTO graphs(task, stamp, seq, problem, place) VALUES (?, ?, ?, ?, ?)",
                (source.task, source.stamp, seq, problem, source.place),
            )
            self._put_nodes(source.task, nodes)

    def _put_nodes(self, task: str, nodes: Mapping[str, Mapping[str, object]]) -> None:
        """Replace the nodes of a task in the index. Writes only nodes that differ."""
        previous_nodes = self._index.fields(task)
        for node in previous_nodes.keys() - nodes.keys():
            self._index.delete(node, task)
        for node, fields in nodes.items():
            if previous_nodes.get(node) != fields:
                self._index.put(node, fields, task)
