"""GraphIndex: the nodes of all tasks' graphs, found by words and by meaning (spec 9)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from hivemind.embedding import Embedder
from hivemind.fs import Lock, reached, set_aside
from hivemind.fs.database import Database
from hivemind.layout import Layout
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.graph_log import LOG_NAME
from hivemind.reasoning.index_tables import (
    SCHEMA,
    GraphIndexDamaged,
    changed_archives,
    drop,
    read,
    source_of,
    sources,
    take,
    take_archive,
)
from hivemind.search import Confidence, Index

__all__ = ["Found", "GraphIndex", "NodeHit"]

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
        self._index = Index(Database(path, SCHEMA, durable=False), embedder)
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
        active task is read for it: those change with every turn.

        Any characters may stand in the query; one without words finds nothing by words. `progress` is told (read, of how
        many) while graphs are read. Raises GraphError for arguments that cannot be, and for a task without a graph.
        """
        if limit < 1:
            raise GraphError(f"a limit must be an integer ≥ 1, not {limit}")
        if task is not None and source_of(self._layout, task) is None:
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
        return self._index.check()

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
        hits = self._index.search(asked, task, limit)
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
            place = "gone" if (lies := source_of(self._layout, hit.scope)) is None else lies.place
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
        for name in gone:
            drop(self._index, name)
        changed = [
            one
            for one in (*present.values(), *archived)
            if known.get(one.task) != one.stamp and not (over and one.place == "active")
        ]
        for at, source in enumerate(changed, 1):
            if progress is not None:
                progress(at, len(changed))
            reading = read(source)  # outside of any transaction
            if reading is not None:
                take(self._index, reading)
                reached("graph.index.taken")
        for place, time, there in archives:
            take_archive(self._index, place, time, [one for one in there if one.task not in present])
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
