"""MemoryStore: everything that long-term memory does, for many processes at once (spec 6, seed 001); `open_store`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection
from types import MappingProxyType
from typing import Any, Literal

from hivemind.embedding import Embedder, EmbedderUnavailable, Meaning, open_embedder
from hivemind.longterm.embeddings import HOW_TO_EMBED, embed_pending
from hivemind.longterm.entries import Entries
from hivemind.longterm.entry import MemorySearchResult
from hivemind.longterm.errors import EntryInvalid, LongtermError
from hivemind.longterm.filters import Filter
from hivemind.longterm.integrity import StoreStatus, problems, rebuild, status_of, status_of_nothing
from hivemind.longterm.namespace import Namespace, check_namespace, check_prefix
from hivemind.longterm.rows import space_of, spaces_below
from hivemind.longterm.search import Asked, Mode, find, parties
from hivemind.longterm.validation import check_between, check_flag, check_text, check_whole
from hivemind.search import Query
from hivemind.search.query import without

__all__ = ["MemoryStore", "open_store"]


class MemoryStore(Entries):
    """Long-term memory in one SQLite file. Every write is one transaction: it happens whole or not at all.

    `embedder` gives vectors (None: words alone are searched); `dimension` is what embeddings have that callers give
    while there is none. `similarity_threshold` is what a cosine must reach to count. `durable=False` leaves out the fsync
    of each commit. `clock` and `new_id` are for tests. Methods raise NamespaceInvalid and EntryInvalid for what may not
    stand in the store, and LongtermError where the database cannot be read or written.
    """

    def search(
        self,
        namespace: Sequence[str],
        query: str,
        threshold: float | None = None,
        limit: int = 20,
        *,
        mode: Mode = "hybrid",
        prefix: bool = False,
        metadata: Mapping[str, Any] | None = None,
        category: str | None = None,
        min_importance: float | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[MemorySearchResult]:
        """The entries of one namespace (with `prefix` also of those below it) that answer best, best first.

        "hybrid": by words and meaning together; "vector": by meaning, similarity ≥ threshold (default: the store's), the
        seed's own; "text": by words. A threshold that is given leaves out what is less similar in hybrid, too. The filters
        are those of `Filter`; a blank query gives the newest. Where the embedder fails words alone decide, and `why` says
        so; only mode "vector" raises EmbedderUnavailable then. Writes nothing.
        """
        path = check_prefix(namespace) if check_flag(prefix, "prefix") else check_namespace(namespace)
        narrowed = Filter(metadata, category, min_importance, since, until)
        return self._search([path], prefix, query, threshold, limit, mode, narrowed)

    def search_in(
        self, namespaces: Iterable[Sequence[str]], query: str, threshold: float | None = None, limit: int = 20
    ) -> list[MemorySearchResult]:
        """The same in several namespaces together, so that their entries are compared with each other."""
        if isinstance(namespaces, str | bytes) or not isinstance(namespaces, Iterable):
            raise EntryInvalid(
                "search_in takes several namespaces", mend='as [("memories", "ann"), ("shared", "main")]'
            )
        paths = [check_namespace(namespace) for namespace in namespaces]
        return self._search(paths, False, query, threshold, limit, "hybrid", Filter())

    def _search(
        self,
        paths: Sequence[Namespace],
        prefix: bool,
        query: str,
        threshold: float | None,
        limit: int,
        mode: Mode,
        narrowed: Filter,
    ) -> list[MemorySearchResult]:
        if mode not in ("hybrid", "vector", "text"):
            raise EntryInvalid(f"{mode!r} is no mode of searching", mend="hybrid, vector or text")
        least = self.similarity_threshold if threshold is None else check_between(threshold, "threshold", -1, 1)
        check_text(query, "a query")
        most = check_whole(limit, "limit")
        names = frozenset[str]()
        if mode != "vector":  # which compares with the query itself
            with self.database.read() as sql:
                names = parties(sql, self._spaces(sql, paths, prefix), query)
        meaning, lack = self._meant(without(query, names), mode)
        with self.database.read() as sql:
            spaces = self._spaces(sql, paths, prefix)
            asked = Asked(
                spaces=spaces,
                query=Query(query, names, meaning, self.embeddings.model, lack),
                limit=most,
                threshold=least,
                now=self._now(),
                mode=mode,
                strict=threshold is not None,
                filter=narrowed,
            )
            return find(self._engine, sql, asked)

    def _spaces(self, sql: Connection, paths: Sequence[Namespace], prefix: bool) -> Sequence[int]:
        """The numbers of namespaces that there are, or of all below them."""
        if prefix:
            return [space for path in paths for space, _ in spaces_below(sql, path, self._now())]
        return [space for path in paths if (space := space_of(sql, path)) is not None]

    def _meant(self, query: str, mode: Mode) -> tuple[Meaning | None, str | None]:
        """What the query means, or why there is none."""
        if mode == "text" or not query.strip():
            return None, None
        try:
            return self.embeddings.query(query), None
        except EmbedderUnavailable as error:
            if mode == "vector":
                raise
            return None, error.what

    def coverage(self, query: str, text: str) -> float:
        """The share of the query's words, without stop words, that a text has (0 to 1): whether it can be an answer."""
        return self._engine.coverage(check_text(query, "a query"), check_text(text, "what may answer"))

    # looking after it

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Bring every entry to the embedder's model; gives how many were embedded. Stopped anywhere, it goes on from there.

        `progress` is told (done, of how many). Raises LongtermError if there is no embedder, or it fails for some.
        """
        if self.embeddings.embedder is None:
            raise LongtermError("there is no embedder", mend=HOW_TO_EMBED)
        total = self.status().pending

        def tell(done: int) -> None:
            if progress is not None:
                progress(done, total)

        done = embed_pending(self.database, self.embeddings, self._now(), None, tell)
        left = self.status()
        if left.pending:
            raise LongtermError(
                f"{left.pending} of {left.entries} entries could not be embedded by {left.model}",
                where=self.database.path,
                mend="`hivemind memory status` says why; reindex again goes on from here",
            )
        return done

    def status(self) -> StoreStatus:
        """How much it holds, by which model it is searched, what waits. Makes no database."""
        if self.database.path != ":memory:" and not self.database.was_made:
            return status_of_nothing(self.embeddings)
        with self.database.read() as sql:
            return status_of(sql, self.embeddings, self._now())

    def check(self) -> list[str]:
        """What is wrong with the database, one sentence each; empty if it is sound. Reads all of it."""
        with self.database.write() as sql:  # the full-text index's own check is written as an insert
            return list(problems(sql))

    tables: Mapping[str, str] = MappingProxyType(
        {
            "entries": "digest = digest_of(content)",
            **dict.fromkeys(("versions", "given", "users", "vectors", "parts", "namespaces"), ""),
        }
    )
    """What is taken over from a damaged database (`fs.backup`): namespaces last, as they count."""
    locks: Sequence[str] = (".lock",)

    def elsewhere(self, path: Path) -> MemoryStore:
        """A store over another file, as this one."""
        return MemoryStore(path)

    def rebuild(self) -> None:
        """Rebuild what follows from the entries: the full-text index, counts, which vectors there are."""
        with self.database.write() as sql:
            rebuild(sql)


_SQLITE = "sqlite:///"


def open_store(
    path_or_url: str | os.PathLike[str], embedder: Embedder | Literal["auto"] | None = "auto", **options: Any
) -> MemoryStore:
    """The store in a file (`notes/memory.db`, `sqlite:///notes/memory.db`, or `:memory:`), made at its first use.

    `"auto"` is the embedder that is installed (as `embedder: auto` in a hive), loaded at the first text; with None, and
    where none is installed, words alone are searched. `options` are MemoryStore's. Raises LongtermError for any other
    URL, a folder, or a file in a folder that is not there.
    """
    path = _path_of(path_or_url)
    if path != ":memory:":
        path = os.path.abspath(path)
        if os.path.isdir(path):
            raise LongtermError("is a folder", where=path, mend="name a file in it, such as memory.db")
        if not os.path.isdir(os.path.dirname(path)):
            raise LongtermError(
                "the folder is not there", where=os.path.dirname(path), mend="make it, or check the path"
            )
    return MemoryStore(path, open_embedder() if embedder == "auto" else embedder, **options)


def _path_of(path_or_url: object) -> str:
    """The path that is meant. Raises LongtermError for what means none; no URL is shown, it may hold a password."""
    if not isinstance(path_or_url, str | os.PathLike):
        raise LongtermError(f"a {type(path_or_url).__name__} names no store", mend="give a path, or sqlite:///path")
    path = os.fsdecode(path_or_url).removeprefix(_SQLITE)
    scheme, found, _ = path.partition("://")
    if found and scheme.startswith("postgres"):
        raise LongtermError(
            "memories are kept in SQLite; a PostgreSQL store is not there yet", mend="give a path, or sqlite:///path"
        )
    if found:
        raise LongtermError(f"{scheme}:// is no kind of store that is known", mend="give a path, or sqlite:///path")
    if not path or "\0" in path:
        raise LongtermError(f"{path!r} is no path", mend="give that of a file, such as memory.db")
    return path
