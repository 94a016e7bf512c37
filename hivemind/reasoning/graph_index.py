"""GraphIndex: the nodes of all tasks' graphs, found by words and by meaning (spec 9)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from hivemind.embedding import Embedder, EmbedderUnavailable, Meaning
from hivemind.fs import Lock, reached, set_aside
from hivemind.fs.database import Database
from hivemind.layout import Layout
from hivemind.reasoning.errors import GraphError, a_text, a_text_or_none, a_whole_number
from hivemind.reasoning.graph_log import LOG_NAME
from hivemind.reasoning.index_tables import (
    NODES,
    SCHEMA,
    GraphIndexDamaged,
    Row,
    changed_archives,
    count_waiting,
    drop,
    embed,
    problems,
    read,
    source_of,
    sources,
    span,
    take,
    take_archive,
)
from hivemind.search import Confidence, Index, Item, Query, meaning_asked
from hivemind.search.ranking import Candidate

__all__ = ["Found", "GraphIndex", "NodeHit"]

Progress = Callable[[int, int], None]

_ALL = (0, (1 << 63) - 1)
_EMBEDDED_BY_A_SEARCH = 64
_ALIKE = 0.3  # the least cosine of a node that shares no word with the query
_SUPERSEDED = 0.8  # how far such a node stands back
_MARKS = 500  # parameters of one statement
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


class _Nodes:
    """What a search sees of the nodes (`search.Source`). How rare words are is counted among the keys that are searched."""

    def __init__(self, sql: sqlite3.Connection, keys: tuple[int, int], graph: int | None) -> None:
        self._sql, self._keys = sql, keys
        self.nodes: dict[int, tuple[str, Row]] = {}  # of each key the task, and what it says
        self.groups: Collection[int] | None = None if graph is None else [graph]
        (self.total,) = sql.execute(
            "SELECT coalesce(sum(nodes), 0) FROM graphs WHERE ? IS NULL OR id = ?", (graph, graph)
        ).fetchone()

    def how_often(self, word: str, bound: int) -> int:
        (often,) = self._sql.execute(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)",
            (f'"{word}"', *self._keys, bound + 1),
        ).fetchone()
        return int(often)

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        if not words:
            return []
        rows = self._sql.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rank, rowid LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words), *self._keys, limit),
        )
        return [key for (key,) in rows]

    def allowed(self, ids: Sequence[int]) -> Collection[int]:
        return {key for key, _, _ in self._read(ids)}

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        for key, task, row in self._read(ids):
            self.nodes[key] = task, row
            standing = _SUPERSEDED if row.state == "superseded" else 1.0
            yield Item(key, f"{row.title}\n{row.text}", labels=row.tags, age=(task, key), standing=standing)

    def _read(self, ids: Iterable[int]) -> Iterator[tuple[int, str, Row]]:
        wanted = [key for key in ids if self._keys[0] <= key <= self._keys[1]]
        for at in range(0, len(wanted), _MARKS):
            some = wanted[at : at + _MARKS]
            rows = self._sql.execute(
                "SELECT n.key, g.task, n.kind, n.lane, n.state, n.title, n.text, n.tags FROM nodes n"
                f" JOIN graphs g ON g.id = n.key / {NODES} WHERE n.key IN ({','.join('?' * len(some))})",
                some,
            )
            yield from ((key, task, Row(*row)) for key, task, *row in rows)


def _are_alike(_: Query, candidates: Sequence[Candidate]) -> Sequence[bool]:
    return [one.match.score > 0 or (one.cosine is not None and one.cosine >= _ALIKE) for one in candidates]


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
        self._database = Database(path, SCHEMA, durable=False)
        self._index = Index()
        self._refused: set[object] = set()

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
        active task is read for it: those change with every turn.

        Any characters may stand in the query; one without words finds nothing by words. `progress` is told (read, of how
        many) while graphs are read. Raises GraphError for arguments that cannot be, and for a task without a graph.
        """
        query, task = a_text(query, "a query"), a_text_or_none(task, "the id of a task")
        limit = a_whole_number(limit, "a limit", 1)
        if task is not None and source_of(self._layout, task) is None:
            raise GraphError(f"task {task!r} has no graph", mend="hivemind task list shows the tasks")
        found, damage = self._mended(lambda: self._find(query, task, limit, progress, over=over))
        return found if damage is None else Found(found.hits, (damage, *found.remarks))

    def refresh(self, task: str | None = None, progress: Progress | None = None) -> int:
        """Take in the graphs that have changed (or one); returns how many were read."""
        return self._mended(lambda: self._refresh(task, progress))[0]

    def embed_pending(self, limit: int) -> int:
        """Give vectors to at most `limit` nodes that have none yet; returns how many. For agents at rest."""
        if (embedder := self._embedder) is None:
            return 0
        return self._mended(lambda: embed(self._database, embedder, limit, _ALL, self._refused))[0]

    def check(self) -> list[str]:
        """What is wrong with the index, one sentence each; empty if it is sound. Reads all of it."""
        with self._database.write() as sql:  # the full-text index's own check is written as an insert
            return list(problems(sql))

    def set_aside(self) -> str:
        """Rename the file, so that the next search rebuilds it; returns a sentence that says so."""
        return self._set_aside(self._inode())

    def close(self) -> None:
        """Close the database; the next use opens it again."""
        self._database.close()

    # -- searching -----------------------------------------------------------------------------------------------

    def _find(self, query: str, task: str | None, limit: int, progress: Progress | None, *, over: bool) -> Found:
        self._refresh(task, progress, over=over)
        graph, keys = None, _ALL
        if task is not None:
            with self._database.read() as sql:
                (graph,) = sql.execute("SELECT id FROM graphs WHERE task = ?", (task,)).fetchone() or (None,)
            if graph is None:
                raise GraphError(f"task {task!r} was taken away meanwhile")
            keys = span(graph)
        meaning, remarks = self._meaning(query, keys)
        model = "" if self._embedder is None else self._embedder.name
        with self._database.read() as sql:
            source = _Nodes(sql, keys, graph)
            asked = Query(query, meaning=meaning, model=model)
            hits, _ = self._index.search(sql, source, asked, limit, kept=_are_alike)
            waiting = 0 if meaning is None else count_waiting(sql, keys, model)
            unread = sql.execute(
                "SELECT problem FROM graphs WHERE problem IS NOT NULL AND (? IS NULL OR task = ?) ORDER BY task",
                (task, task),
            ).fetchall()
        if waiting:
            which = "node is not embedded yet: looked for by its" if waiting == 1 else (
                "nodes are not embedded yet: looked for by their")  # fmt: skip
            remarks.append(f"{waiting:,} {which} words only")
        nodes = []
        for hit in hits:
            task_id, row = source.nodes[hit.id]
            place = "gone" if (lies := source_of(self._layout, task_id)) is None else lies.place
            nodes.append(
                NodeHit(
                    task_id, place, hit.id % NODES, *row[:5], round(hit.score, 6), round(hit.similarity, 6), hit.why,
                    f"tasks/gone/{task_id}/{LOG_NAME}" if lies is None else
                    self._layout.relative(f"{lies.folder}/{LOG_NAME}"), hit.confidence,
                )
            )  # fmt: skip
        return Found(tuple(nodes), (*(f"passed over: {problem}" for (problem,) in unread), *remarks))

    def _meaning(self, query: str, keys: tuple[int, int]) -> tuple[Meaning | None, list[str]]:
        """What the query means, or why there is none. Embeds some of what waits on the way."""
        if self._embedder is None or not query.strip():
            return None, []
        try:
            embed(self._database, self._embedder, _EMBEDDED_BY_A_SEARCH, keys, self._refused)
            return meaning_asked(self._embedder, query), []
        except EmbedderUnavailable as error:
            return None, [f"looked for by words only: {error}"]

    # -- keeping up ----------------------------------------------------------------------------------------------

    def _refresh(self, task: str | None, progress: Progress | None, *, over: bool = False) -> int:
        if task is None:
            present = sources(self._layout)
            which: tuple[str, tuple[str, ...]] = "archive IS NULL", ()
        else:
            found = source_of(self._layout, task)
            present = {} if found is None else {task: found}
            which = "task = ?", (task,)
        with self._database.read() as sql:
            known = dict(sql.execute(f"SELECT task, stamp FROM graphs WHERE {which[0]}", which[1]))
            gone = [name for name in known if name not in present and source_of(self._layout, name) is None]
            archives = changed_archives(sql, self._layout) if task is None else []
            archived = [one for _, _, there in archives for one in there if one.task not in present]
            for one in archived:
                known.update(sql.execute("SELECT task, stamp FROM graphs WHERE task = ?", (one.task,)))
        if gone:
            with self._database.write() as sql:
                for name in gone:
                    drop(sql, name)
        changed = [
            one
            for one in (*present.values(), *archived)
            if known.get(one.task) != one.stamp and not (over and one.place == "active")
        ]
        for at, source in enumerate(changed, 1):
            if progress is not None:
                progress(at, len(changed))
            reading = read(source, NODES)  # outside of any transaction
            if reading is not None:
                with self._database.write() as sql:
                    take(sql, reading)
                reached("graph.index.taken")
        if archives:
            with self._database.write() as sql:
                for place, time, there in archives:
                    take_archive(sql, place, time, [one for one in there if one.task not in present])
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
