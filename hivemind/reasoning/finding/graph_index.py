"""GraphIndex: the nodes of all tasks' graphs, found by words and by meaning (issue 6)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from hivemind.embedding import Embedder, EmbedderUnavailable, embed_packed
from hivemind.fs import Lock, reached, set_aside
from hivemind.fs.database import Database
from hivemind.layout import Layout
from hivemind.reasoning.errors import GraphError
from hivemind.reasoning.finding import taking
from hivemind.reasoning.finding.errors import GraphIndexDamaged
from hivemind.reasoning.finding.hit import Found
from hivemind.reasoning.finding.integrity import problems
from hivemind.reasoning.finding.meaning import count_waiting, embed, follow
from hivemind.reasoning.finding.reading import Reading, read
from hivemind.reasoning.finding.schema import SCHEMA, span
from hivemind.reasoning.finding.search import Asked, find
from hivemind.reasoning.finding.sources import Source, source_of, sources
from hivemind.search import Index, Query

__all__ = ["GraphIndex"]

Progress = Callable[[int, int], None]

_ALL = (0, (1 << 63) - 1)
_TAKEN_AT_ONCE = 2_000  # nodes: a transaction that others wait for, and what a crash makes us read again
_EMBEDDED_BY_A_SEARCH = 64
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


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

    def find(self, query: str, *, task: str | None = None, limit: int = 10, progress: Progress | None = None) -> Found:
        """The nodes of all tasks' graphs, or of one, that answer best.

        Any characters may stand in the query; one without words finds nothing by words. `progress` is told (read, of how
        many) while graphs are read. Raises GraphError for arguments that cannot be, and for a task without a graph.
        """
        _check(query, task, limit)
        if task is not None and source_of(self._layout, task) is None:
            raise GraphError(f"task {task!r} has no graph", mend="hivemind task list shows the tasks")
        found, damage = self._sound(lambda: self._find(query, task, limit, progress))
        return found if damage is None else Found(found.hits, (damage, *found.remarks))

    def refresh(self, task: str | None = None, progress: Progress | None = None) -> int:
        """Take in the graphs that have changed (or one); gives how many were read."""
        return self._sound(lambda: self._refresh(task, progress))[0]

    def embed_pending(self, limit: int) -> int:
        """Give vectors to at most `limit` nodes that have none yet; gives how many. For agents at rest."""
        if self._embedder is None:
            return 0
        embedder = self._embedder

        def work() -> int:
            follow(self._database, embedder)
            return embed(self._database, embedder, limit, _ALL, self._refused)

        return self._sound(work)[0]

    def check(self) -> list[str]:
        """What is wrong with the index, one sentence each; empty if it is sound. Reads all of it."""
        with self._database.write() as sql:  # the full-text index's own check is written as an insert
            return list(problems(sql))

    def set_aside(self) -> str:
        """Give the file another name, so that the next search makes it anew; gives a sentence that says so."""
        return self._set_aside(self._inode())

    def close(self) -> None:
        """Close the database; the next use opens it again."""
        self._database.close()

    # -- inside --------------------------------------------------------------------------------------------------

    def _find(self, query: str, task: str | None, limit: int, progress: Progress | None) -> Found:
        self._refresh(task, progress)
        with self._database.read() as sql:
            graph = None
            if task is not None:
                (graph,) = sql.execute("SELECT id FROM graphs WHERE task = ?", (task,)).fetchone() or (None,)
                if graph is None:
                    raise GraphError(f"task {task!r} was taken away meanwhile")
        keys = _ALL if graph is None else span(graph)
        vector, remarks = self._meant(query, keys)
        model = "" if self._embedder is None else self._embedder.name
        with self._database.read() as sql:
            hits = find(self._index, sql, Asked(Query(query, vector=vector, model=model), limit, keys, graph))
            waiting = count_waiting(sql, keys) if vector is not None else 0
            unread = sql.execute(
                "SELECT problem FROM graphs WHERE problem IS NOT NULL AND (? IS NULL OR task = ?) ORDER BY task",
                (task, task),
            ).fetchall()
        if waiting:
            which = (
                "node is not embedded yet: looked for by its"
                if waiting == 1
                else "nodes are not embedded yet: looked for by their"
            )
            remarks.append(f"{waiting:,} {which} words only")
        return Found(tuple(hits), (*(f"passed over: {problem}" for (problem,) in unread), *remarks))

    def _meant(self, query: str, keys: tuple[int, int]) -> tuple[bytes | None, list[str]]:
        """The query's vector, or why there is none. Embeds some of what waits on the way."""
        if self._embedder is None or not query.strip():
            return None, []
        try:
            follow(self._database, self._embedder)
            embed(self._database, self._embedder, _EMBEDDED_BY_A_SEARCH, keys, self._refused)
            return embed_packed(self._embedder, [query])[0], []
        except EmbedderUnavailable as error:
            return None, [f"looked for by words only: {error}"]

    def _refresh(self, task: str | None, progress: Progress | None) -> int:
        if task is None:
            present: Mapping[str, Source] = sources(self._layout)
        else:
            one = source_of(self._layout, task)
            present = {} if one is None else {task: one}
        with self._database.read() as sql:
            rows = sql.execute("SELECT task, place, stamp FROM graphs WHERE ? IS NULL OR task = ?", (task, task))
            known = {name: (place, stamp) for name, place, stamp in rows}
        moved, changed = [], []
        for one in present.values():
            place, stamp = known.get(one.task, ("", ""))
            if stamp != one.stamp:
                changed.append(one)
            elif place != one.place:
                moved.append(one)
        gone = [name for name in known if name not in present and source_of(self._layout, name) is None]
        self._note(moved, gone)
        return self._take(changed, progress)

    def _note(self, moved: list[Source], gone: list[str]) -> None:
        if moved or gone:
            with self._database.write() as sql:
                for one in moved:
                    taking.move(sql, one)
                for name in gone:
                    taking.drop(sql, name)

    def _take(self, changed: list[Source], progress: Progress | None) -> int:
        """Read graphs, outside of any transaction, and take them in, so many nodes at a time."""
        batch: list[Reading] = []
        nodes = 0
        for at, source in enumerate(changed, 1):
            if progress is not None:
                progress(at, len(changed))
            reading = read(source)
            if reading is not None:
                batch.append(reading)
                nodes += len(reading.rows)
            if nodes >= _TAKEN_AT_ONCE:
                self._keep(batch)
                batch, nodes = [], 0
        self._keep(batch)
        return len(changed)

    def _keep(self, batch: Iterable[Reading]) -> None:
        batch = list(batch)
        if batch:
            with self._database.write() as sql:
                for reading in batch:
                    taking.take(sql, reading)
            reached("graph.index.taken")

    def _sound(self, work: Callable[[], _T]) -> tuple[_T, str | None]:
        """What the work gives; a damaged index is set aside first and made anew, and the sentence that says so is given."""
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
        """Give the file that was seen another name, unless another program has done so meanwhile; gives what was done."""
        self._database.close()
        path = Path(self._database.path)
        with Lock(f"{path}.lock"):
            if seen is None or self._inode() != seen:
                return "it was set aside already"
            for end in ("-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
            aside = set_aside(path)
        return f"set aside as {self._layout.relative(aside)}, and made anew from the graphs"


def _check(query: object, task: object, limit: object) -> None:
    if not isinstance(query, str):
        raise GraphError(f"a query is a text, not {query!r}")
    if task is not None and not isinstance(task, str):
        raise GraphError(f"a task is named by its id, a text, not {task!r}")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise GraphError(f"a limit is a number of 1 or more, not {limit!r}")
