"""MemoryStore: everything that long-term memory does, for many processes at once (spec 6, seed 001)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from sqlite3 import Connection
from types import TracebackType
from typing import Any, Self

from hivemind.embedding import Embedder, EmbedderUnavailable
from hivemind.fs.database import Database
from hivemind.longterm.draft import Draft, check_key, draft_of, shortened
from hivemind.longterm.embeddings import Embeddings
from hivemind.longterm.entry import MemoryEntry, MemorySearchResult, UpsertMemoryResult, User
from hivemind.longterm.errors import EntryInvalid, LongtermError
from hivemind.longterm.filters import Filter
from hivemind.longterm.integrity import problems
from hivemind.longterm.links import children_of, history_of, linked_from, set_link
from hivemind.longterm.moment import as_micros, as_time
from hivemind.longterm.namespace import Namespace, check_namespace, check_prefix
from hivemind.longterm.parties import parties, without
from hivemind.longterm.pending import embed_waiting, some_failed
from hivemind.longterm.rows import fetch, fetch_key, space_of, spaces_below, with_vector
from hivemind.longterm.schema import SCHEMA
from hivemind.longterm.search import Asked, Mode, Searcher
from hivemind.longterm.status import StoreStatus, status_of
from hivemind.longterm.upsert import Upsert, upsert
from hivemind.longterm.writing import Meaning, delete_entry, space_for, write_entry
from hivemind.tokens import count_tokens

__all__ = ["DIMENSION", "SIMILARITY_THRESHOLD", "MemoryStore", "Value"]

DIMENSION = 384
SIMILARITY_THRESHOLD = 0.25
_EMBEDDED_BY_A_WRITE = 8

Value = MemoryEntry | Mapping[str, Any] | str
"""What can be stored: an entry, a mapping with some of its fields (`content` among them), or just the content."""


def _random_id() -> str:
    return str(uuid.uuid4())


class MemoryStore:
    """Long-term memory in one SQLite file. Every write is one transaction: it happens whole or not at all.

    `embedder` gives vectors (None: words alone are searched); `dimension` is what embeddings have that callers give
    while there is none. `similarity_threshold` is what a cosine must reach to count. `durable=False` leaves out the fsync
    of each commit. `clock` and `new_id` are for tests. Methods raise NamespaceInvalid and EntryInvalid for what may not
    stand in the store, and LongtermError where the database cannot be read or written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        embedder: Embedder | None = None,
        *,
        dimension: int = DIMENSION,
        similarity_threshold: float = SIMILARITY_THRESHOLD,
        durable: bool = True,
        token_counter: Callable[[str], int] = count_tokens,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = _random_id,
    ) -> None:
        self.database = Database(path, SCHEMA, durable=durable)
        self.embeddings = Embeddings(embedder, dimension)
        self.similarity_threshold = similarity_threshold
        self._count = token_counter
        self._clock, self._new_id = clock, new_id
        self._searcher = Searcher(self.database.path)

    def _now(self) -> int:
        return as_micros(self._clock())

    # storing

    def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Value,
        *,
        expected_version: int | None = None,
        embed: bool = True,
    ) -> MemoryEntry:
        """Store a value under a key, in place of what is there; gives the entry as it is now.

        Its id and `created_at` stay, `updated_at` moves, what it said before is kept. `expected_version` (0: that there
        is none) makes it compare-and-set. `embed=False`: its meaning does not matter. Raises VersionConflict.
        """
        return self._put(namespace, [(key, value)], expected_version, embed)[0]

    def put_many(
        self, namespace: Sequence[str], values: Mapping[str, Value] | Iterable[tuple[str, Value]], *, embed: bool = True
    ) -> list[MemoryEntry]:
        """Store many values at once, all or none; gives the entries, in their order."""
        pairs = values.items() if isinstance(values, Mapping) else values
        return self._put(namespace, list(pairs), None, embed)

    def _put(
        self, namespace: Sequence[str], pairs: Sequence[tuple[str, Value]], expected: int | None, embed: bool
    ) -> list[MemoryEntry]:
        path = check_namespace(namespace)
        checked = [(check_key(key), self._draft(value)) for key, value in pairs]
        meanings = self._meanings([draft for _, draft in checked], embed)
        now = self._now()
        with self.database.write() as sql:
            space = space_for(sql, path)
            seqs = [
                write_entry(sql, space, key, draft, meaning, now=now, new_id=self._new_id, expected=expected)[0]
                for (key, draft), meaning in zip(checked, meanings, strict=True)
            ]
            entries = dict(fetch(sql, set(seqs), -1))  # -1: also what has expired already
            waiting = some_failed(sql)
        self._embed_others(waiting, meanings)
        return [entries[seq] for seq in seqs]

    def _embed_others(self, waiting: bool, meanings: Sequence[Meaning]) -> None:
        """The embedder has just worked: give it some of what it failed for before."""
        if waiting and any(meaning.vector is not None for meaning in meanings):
            self.embed_pending(_EMBEDDED_BY_A_WRITE)

    def _draft(self, value: Value) -> Draft:
        return draft_of(value, self._count, self.embeddings.dimension)

    def _meanings(self, drafts: Sequence[Draft], embed: bool = True) -> list[Meaning]:
        """What each means, as far as it can be found out now: outside any write, since an embedder may be slow."""
        if not embed:
            return [Meaning(self.embeddings.model, wanted=False) for _ in drafts]
        with self.database.read() as sql:
            known, missing = self.embeddings.meanings(sql, drafts)
        found = self.embeddings.embed(missing)
        return [found.get(draft.digest, one) for draft, one in zip(drafts, known, strict=True)]

    def upsert_memory(
        self,
        namespace: Sequence[str],
        content: str,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
        *,
        category: str | None = None,
        importance: float | None = None,
        expires_at: datetime | None = None,
        parent_id: str | None = None,
        allow_duplicate: bool = False,
    ) -> UpsertMemoryResult:
        """Store a memory, or update the one under `key`; what is left out stays as it is there.

        Without a key, what is there already (similarity 0.95 or more) is not stored again, unless `allow_duplicate`:
        the result names the entry that says it. With a key it is always stored, and the other one is named too.
        """
        path = check_namespace(namespace)
        if key is not None:
            check_key(key)
        told = {
            "metadata": metadata, "category": category, "importance": importance,
            "expires_at": expires_at, "parent_id": parent_id,
        }  # fmt: skip
        draft = self._draft({"content": content, **told})
        said = frozenset(name for name, value in told.items() if value is not None)
        (meaning,) = self._meanings([draft])
        with self.database.write() as sql:
            asked = Upsert(space_for(sql, path), key, draft, meaning, said, allow_duplicate, self._now())
            result = upsert(sql, asked, self._searcher.vectors, self._new_id)
            waiting = some_failed(sql)
        self._embed_others(waiting, [meaning])
        return result

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Forget an entry and all that it ever said; False if there is none."""
        path = check_namespace(namespace)
        with self.database.write() as sql:
            space = space_of(sql, path)
            return space is not None and delete_entry(sql, space, check_key(key))

    def expire(self, namespace: Sequence[str], key: str, expires_at: datetime | None) -> bool:
        """Let an entry expire at another time, None: never. That is no new version of it; False if there is none."""
        with self.database.write() as sql:
            found = self._find(sql, namespace, key)
            if found is not None:
                at = None if expires_at is None else as_micros(expires_at)
                sql.execute("UPDATE entries SET expires_at = ? WHERE seq = ?", (at, found[1]))
            return found is not None

    def purge(self) -> int:
        """Forget what has expired for good; gives how many entries. They were not found any more anyway."""
        with self.database.write() as sql:
            return sql.execute("DELETE FROM entries WHERE expires_at <= ?", (self._now(),)).rowcount

    # reading

    def get(self, namespace: Sequence[str], key: str) -> MemoryEntry | None:
        """The entry under a key with its embedding, None if there is none (any more)."""
        return self.get_many(namespace, [key])[0]

    def get_many(self, namespace: Sequence[str], keys: Iterable[str]) -> list[MemoryEntry | None]:
        """The entries under some keys, in their order; None where there is none."""
        path, wanted = check_namespace(namespace), [check_key(key) for key in keys]
        found: list[MemoryEntry | None] = []
        with self.database.read() as sql:
            space, now = space_of(sql, path), self._now()
            for key in wanted:
                pair = None if space is None else fetch_key(sql, space, key, now)
                found.append(None if pair is None else replace(pair[1], embedding=with_vector(sql, pair[0])))
        return found

    def namespaces(self, prefix: Sequence[str] = ()) -> list[Namespace]:
        """The namespaces that have entries and are the prefix or lie below it, sorted."""
        beginning = check_prefix(prefix)
        with self.database.read() as sql:
            return [path for _, path in spaces_below(sql, beginning)]

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
        path = check_prefix(namespace) if prefix else check_namespace(namespace)
        narrowed = Filter(metadata, category, min_importance, since, until)
        return self._search([path], prefix, query, threshold, limit, mode, narrowed)

    def search_in(
        self, namespaces: Iterable[Sequence[str]], query: str, threshold: float | None = None, limit: int = 20
    ) -> list[MemorySearchResult]:
        """The same in several namespaces together, so that their entries are compared with each other."""
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
        names = frozenset[str]()
        if mode != "vector":  # which compares with the query itself
            with self.database.read() as sql:
                names = parties(sql, self._spaces(sql, paths, prefix), query)
        vector, lack = self._meant(without(query, names), mode)
        with self.database.read() as sql:
            spaces = self._spaces(sql, paths, prefix)
            asked = Asked(
                spaces=spaces,
                query=query,
                limit=limit,
                threshold=self.similarity_threshold if threshold is None else threshold,
                now=self._now(),
                mode=mode,
                strict=threshold is not None,
                names=names,
                vector=vector,
                model=self.embeddings.model,
                lack=lack,
                filter=narrowed,
            )
            return self._searcher.find(sql, asked)

    @staticmethod
    def _spaces(sql: Connection, paths: Sequence[Namespace], prefix: bool) -> Sequence[int]:
        """The numbers of namespaces that there are, or of all below them."""
        if prefix:
            return [space for path in paths for space, _ in spaces_below(sql, path)]
        return [space for path in paths if (space := space_of(sql, path)) is not None]

    def _meant(self, query: str, mode: Mode) -> tuple[bytes | None, str | None]:
        """The query's vector, or why there is none."""
        if mode == "text" or not query.strip():
            return None, None
        try:
            return self.embeddings.query(query), None
        except EmbedderUnavailable as error:
            if mode == "vector":
                raise
            return None, error.what

    def history(self, namespace: Sequence[str], key: str) -> list[MemoryEntry]:
        """What the entry under a key said, oldest first; the last is what it says now. Empty if there is none."""
        with self.database.read() as sql:
            found = self._find(sql, namespace, key)
            return [] if found is None else history_of(sql, *found[1:])

    def linked(self, namespace: Sequence[str], key: str) -> dict[str, MemoryEntry]:
        """The entries that this one links to, by relation."""
        with self.database.read() as sql:
            found = self._find(sql, namespace, key)
            return {} if found is None else linked_from(sql, found[0], found[2].links, self._now())

    def children(self, namespace: Sequence[str], key: str) -> list[MemoryEntry]:
        """The entries whose parent this one is, oldest first."""
        with self.database.read() as sql:
            found = self._find(sql, namespace, key)
            return [] if found is None else children_of(sql, found[0], found[2], self._now())

    def link(self, namespace: Sequence[str], key: str, relation: str, other: str | None) -> None:
        """Let an entry name another one of its namespace by a relation (`previous`, `next`, …); None: no longer.

        Raises EntryInvalid if there is no entry under `key`.
        """
        with self.database.write() as sql:
            found = self._find(sql, namespace, key)
            if found is None:
                raise EntryInvalid(f"no entry has the key {key!r}")
            set_link(sql, found[1], found[2].links, relation, other)

    def _find(self, sql: Connection, namespace: Sequence[str], key: str) -> tuple[int, int, MemoryEntry] | None:
        """(namespace's number, seq, entry) under a key."""
        space = space_of(sql, check_namespace(namespace))
        pair = None if space is None else fetch_key(sql, space, check_key(key), self._now())
        return None if space is None or pair is None else (space, *pair)

    # users

    def create_user(self, name: str) -> User:
        """Somebody new, whose memories lie under `user.namespace`. Two users may have one name (seed 001, *User*)."""
        if not isinstance(name, str) or not name.strip():
            raise EntryInvalid(f"{name!r} is no name of a user")
        now = self._now()
        user = User(self._new_id(), name, as_time(now))
        with self.database.write() as sql:
            sql.execute("INSERT INTO users VALUES (?, ?, ?)", (user.id, user.name, now))
        return user

    def users(self) -> list[User]:
        """All users, oldest first."""
        with self.database.read() as sql:
            rows = sql.execute("SELECT id, name, created_at FROM users ORDER BY created_at, id")
            return [User(user_id, name, as_time(created)) for user_id, name, created in rows]

    # looking after it

    def embed_pending(self, limit: int | None = None) -> int:
        """Embed entries that wait for it, at most `limit`; gives how many. 0 where the embedder still fails."""
        return 0 if self.embeddings.embedder is None else embed_waiting(self.database, self.embeddings, limit)

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Bring every entry to the embedder's model; gives how many were embedded. Stopped anywhere, it goes on from there.

        `progress` is told (done, of how many). Raises LongtermError if there is no embedder, or it fails for some.
        """
        if self.embeddings.embedder is None:
            raise LongtermError("there is no embedder", mend="pip install 'hivemind[embed]'")
        total = self.status().pending

        def tell(done: int) -> None:
            if progress is not None:
                progress(done, total)

        done = embed_waiting(self.database, self.embeddings, None, tell)
        left = self.status()
        if left.pending:
            raise LongtermError(
                f"{left.pending} of {left.entries} entries could not be embedded by {left.model}",
                where=self.database.path,
                mend="`hivemind memory status` says why; reindex again goes on from here",
            )
        return done

    def embed_ahead(self, contents: Iterable[str]) -> None:
        """Embed contents that are put next, within `database.write()`: nobody should wait for an embedder there."""
        if self.embeddings.embedder is not None:
            self._meanings([self._draft(content) for content in contents])

    def fitting(self, text: str) -> str:
        """The beginning of a text that is short enough to be a content; all of it where it fits."""
        return shortened(text, self._count)

    def status(self) -> StoreStatus:
        """How much it holds, by which model it is searched, what waits."""
        with self.database.read() as sql:
            return status_of(sql, self.embeddings)

    def check(self) -> list[str]:
        """What is wrong with the database, one sentence each; empty if it is sound. Reads all of it."""
        with self.database.write() as sql:  # the full-text index's own check is written as an insert
            return list(problems(sql))

    def close(self) -> None:
        """Close this process's connection; the next use opens it again."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # last, since it hides the type of this name from what stands below
    def list(self, namespace: Sequence[str]) -> list[str]:
        """The keys of a namespace, sorted."""
        path = check_namespace(namespace)
        with self.database.read() as sql:
            rows = sql.execute(
                "SELECT e.key FROM entries e JOIN namespaces n ON n.id = e.space"
                " WHERE e.space = ? AND (e.expires_at IS NULL OR e.expires_at > ?) ORDER BY e.key",
                (space_of(sql, path), self._now()),
            )
            return [key for (key,) in rows]
