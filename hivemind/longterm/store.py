"""MemoryStore: everything that long-term memory does, for many processes at once (spec 6, seed 001); `open_store`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from hivemind.embedding import Embedder, EmbedderUnavailable, open_embedder
from hivemind.fs.database import DatabaseOwner, Sql
from hivemind.fs.postgres import is_postgres
from hivemind.longterm.embeddings import HOW_TO_EMBED, Embeddings, some_failed
from hivemind.longterm.entry import (
    FIRST,
    MemoryEntry,
    MemorySearchResult,
    UpsertMemoryResult,
    User,
    as_micros,
    as_time,
    new_id,
)
from hivemind.longterm.errors import EntryInvalid, LongtermError
from hivemind.longterm.filters import Filter
from hivemind.longterm.integrity import StoreStatus, problems, rebuild, status_of
from hivemind.longterm.namespace import Namespace, check_namespace, check_prefix
from hivemind.longterm.rows import (
    Meaning,
    MemoryDatabase,
    Upsert,
    drop_expired,
    fetch,
    fetch_key,
    history_of,
    set_link,
    space_for,
    space_of,
    spaces_below,
    upsert,
    with_vector,
    write_entry,
)
from hivemind.longterm.search import Asked, Mode, find, parties
from hivemind.longterm.sqlite import MemoryFile
from hivemind.longterm.validation import (
    Draft,
    check_between,
    check_flag,
    check_key,
    check_name,
    check_text,
    check_time,
    check_whole,
    draft_of,
    shortened,
)
from hivemind.search import Engine, Query
from hivemind.tokens import count_tokens

DIMENSION = 384
SIMILARITY_THRESHOLD = 0.25
_EMBEDDED_BY_A_WRITE = 8
_FORGOTTEN_BY_A_WRITE = 32  # expired entries
_log = logging.getLogger(__name__)
_FORGOTTEN_AT_ONCE = 500  # by `purge`, in one transaction: others may write between

Value = MemoryEntry | Mapping[str, Any] | str
"""What can be stored: an entry, a mapping with some of its fields (`content` among them), or just the content."""


def _pairs(values: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> list[tuple[str, Value]]:
    """Keys and values as pairs. Raises EntryInvalid for what is neither a mapping nor pairs."""
    pairs = values.items() if isinstance(values, Mapping) else values
    found = list(pairs) if isinstance(pairs, Iterable) and not isinstance(pairs, str | bytes) else [()]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in found):
        raise EntryInvalid("put_many takes keys with values", mend='as {"diet": "vegetarian"}, or pairs of them')
    return [(key, value) for key, value in found]


def _database(place: str | os.PathLike[str], durable: bool) -> MemoryDatabase:
    """The database that a path or a URL names."""
    if not is_postgres(place):
        return MemoryFile(place, durable=durable)
    from hivemind.longterm.postgres import MemoryServer

    return MemoryServer(str(place), durable=durable)


class MemoryStore(DatabaseOwner):
    """Long-term memory in one SQLite file, or in PostgreSQL (`postgresql://…`). Every write is one transaction: it happens
    whole or not at all.

    `embedder` gives vectors (None: words alone are searched); `dimension` is what embeddings have that callers give
    while there is none. `similarity_threshold` is what a cosine must reach to count. `durable=False` leaves out the fsync
    of each commit. `clock` is for tests. Methods raise NamespaceInvalid and EntryInvalid for what may not
    stand in the store, and LongtermError where the database cannot be read or written.
    """

    database: Any  # MemoryDatabase; what restores a damaged file knows it as more

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
    ) -> None:
        self.database = _database(path, durable)
        self.embeddings = Embeddings(embedder, dimension)
        self.similarity_threshold = check_between(similarity_threshold, "similarity_threshold", -1, 1)
        self._count = token_counter
        self._clock = clock
        self._engine = Engine(vectors=self.database.vectors)

    def now(self) -> datetime:
        """The time by the store's clock."""
        return self._clock()

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
        return self._put(namespace, _pairs(values), None, embed)

    def _put(
        self, namespace: Sequence[str], pairs: Sequence[tuple[str, Value]], expected: int | None, embed: bool
    ) -> list[MemoryEntry]:
        path = check_namespace(namespace)
        if expected is not None:
            check_whole(expected, "expected_version")
        check_flag(embed, "embed")
        checked = [(check_key(key), self._draft(value)) for key, value in pairs]
        meanings = self._meanings([draft for _, draft in checked], embed)
        with self._writing() as (sql, now):
            space = space_for(sql, path)
            apart = len({key for key, _ in checked}) == len(checked) > 1
            with self.database.words.filled(sql, space) if apart else nullcontext():
                seqs = [
                    write_entry(
                        sql,
                        space,
                        key,
                        draft,
                        meaning,
                        vectors=self.database.vectors,
                        now=now,
                        expected=expected,
                    )[0]
                    for (key, draft), meaning in zip(checked, meanings, strict=True)
                ]
            entries = dict(fetch(sql, set(seqs), FIRST - 1))  # when none of them has expired
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
        return self.embeddings.meanings(self.database, drafts)

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
        provenance: Mapping[str, Any] | None = None,
    ) -> UpsertMemoryResult:
        """Store a memory, or update the one under `key`; what is left out stays as it is there.

        Without a key, what is there already (similarity 0.95 or more) is not stored again, unless `allow_duplicate`:
        the result names the entry that says it. With a key it is always stored, and the other one is named too. Of
        `provenance` (see the function of that name) stands in the metadata of a new entry what these do not say themselves.
        """
        path = check_namespace(namespace)
        if key is not None:
            check_key(key)
        check_flag(allow_duplicate, "allow_duplicate")
        told = {
            "metadata": metadata, "category": category, "importance": importance,
            "expires_at": expires_at, "parent_id": parent_id,
        }  # fmt: skip
        draft = fresh = self._draft({"content": content, **told})
        if provenance is not None:
            self._draft({"content": content, "metadata": provenance})  # refused in words, where it cannot be kept
            fresh = self._draft({"content": content, **told, "metadata": {**provenance, **(metadata or {})}})
        said = frozenset(name for name, value in told.items() if value is not None)
        (meaning,) = self._meanings([draft])
        with self._writing() as (sql, now):
            asked = Upsert(space_for(sql, path), key, draft, fresh, meaning, said, allow_duplicate, now)
            result = upsert(sql, asked, self.database.vectors)
            waiting = some_failed(sql)
        self._embed_others(waiting, [meaning])
        return result

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Forget an entry and all that it ever said; False if there is none (any more)."""
        path = check_namespace(namespace)
        check_key(key)
        with self._writing() as (sql, now):
            rows = sql.execute(
                "DELETE FROM entries WHERE space = ? AND key = ? RETURNING expires_at IS NULL OR expires_at > ?",
                (space_of(sql, path), key, now),
            ).fetchall()
            return rows == [(1,)]

    def expire(self, namespace: Sequence[str], key: str, expires_at: datetime | None) -> bool:
        """Let an entry expire at another time, None: never. That is no new version of it; False if there is none."""
        at = None if expires_at is None else check_time(expires_at, "expires_at")
        with self._writing() as (sql, _):
            found = self._find(sql, namespace, key)
            if found is not None:
                sql.execute("UPDATE entries SET expires_at = ? WHERE seq = ?", (at, found[1]))
            return found is not None

    def purge(self, limit: int | None = None) -> int:
        """Forget what has expired for good, at most `limit` entries; gives how many.

        They were not found any more anyway, and every write forgets some.
        """
        left, done = (sys.maxsize if limit is None else check_whole(limit, "limit")), 0
        while left:
            some = min(left, _FORGOTTEN_AT_ONCE)
            with self.database.write() as sql:
                dropped = drop_expired(sql, self._now(), some)
            done += dropped
            left = left - some if dropped == some else 0
        return done

    def next_expiry(self) -> datetime | None:
        """When the entry that expires first does, which may be over already; None if none will."""
        with self.database.read() as sql:
            (found,) = sql.execute("SELECT min(expires_at) FROM entries WHERE expires_at IS NOT NULL").fetchone()
        return None if found is None else as_time(found)

    @contextmanager
    def _writing(self) -> Iterator[tuple[Sql, int]]:
        """A write and the time it happens at; at its end some of what has expired is forgotten in passing."""
        with self.database.write() as sql:
            now = self._now()
            yield sql, now
            drop_expired(sql, now, _FORGOTTEN_BY_A_WRITE)

    # reading

    def get(self, namespace: Sequence[str], key: str) -> MemoryEntry | None:
        """The entry under a key with its embedding, None if there is none (any more)."""
        return self.get_many(namespace, [key])[0]

    def get_many(self, namespace: Sequence[str], keys: Iterable[str]) -> list[MemoryEntry | None]:
        """The entries under some keys, in their order; None where there is none."""
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise EntryInvalid("get_many takes several keys", mend='as ["diet", "timezone"]')
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
            return [path for _, path in spaces_below(sql, beginning, self._now())]

    def history(self, namespace: Sequence[str], key: str) -> list[MemoryEntry]:
        """What the entry under a key said, oldest first; the last is what it says now. Empty if there is none."""
        with self.database.read() as sql:
            found = self._find(sql, namespace, key)
            return [] if found is None else history_of(sql, *found[1:])

    def linked(self, namespace: Sequence[str], key: str) -> dict[str, MemoryEntry]:
        """The entries that this one links to, by relation; a link to what is not there (any more) is left out."""
        with self.database.read() as sql:
            found = self._find(sql, namespace, key)
            links = {} if found is None else found[2].links
            entries = {relation: self._find(sql, namespace, other) for relation, other in links.items()}
        return {relation: other[2] for relation, other in entries.items() if other is not None}

    def children(self, namespace: Sequence[str], key: str) -> list[MemoryEntry]:
        """The entries whose parent this one is, oldest first."""
        with self.database.read() as sql:
            found, now = self._find(sql, namespace, key), self._now()
            if found is None:
                return []
            own = "SELECT seq FROM entries WHERE parent_id = ? AND space = ?"
            entries = dict(fetch(sql, [seq for (seq,) in sql.execute(own, (found[2].id, found[0]))], now))
        return [entries[seq] for seq in sorted(entries)]

    def link(self, namespace: Sequence[str], key: str, relation: str, other: str | None) -> None:
        """Let an entry name another one of its namespace by a relation (`previous`, `next`, …); None: no longer.

        Raises EntryInvalid if there is no entry under `key`.
        """
        with self._writing() as (sql, _):
            found = self._find(sql, namespace, key)
            if found is None:
                raise EntryInvalid(f"no entry has the key {key!r}")
            set_link(sql, found[1], found[2].links, relation, other)

    def _find(self, sql: Sql, namespace: Sequence[str], key: str) -> tuple[int, int, MemoryEntry] | None:
        """(namespace's number, seq, entry) under a key."""
        space = space_of(sql, check_namespace(namespace))
        pair = None if space is None else fetch_key(sql, space, check_key(key), self._now())
        return None if space is None or pair is None else (space, *pair)

    # users

    def create_user(self, name: str) -> User:
        """Somebody new, whose memories lie under `user.namespace`. Two users may have one name (seed 001, *User*)."""
        if not isinstance(name, str) or not name.strip():
            raise EntryInvalid(f"{name!r} is no name of a user")
        check_name(name, "the name")
        now = self._now()
        user = User(new_id(), name, as_time(now))
        with self.database.write() as sql:
            sql.execute("INSERT INTO users VALUES (?, ?, ?)", (user.id, user.name, now))
        return user

    def users(self) -> list[User]:
        """All users, oldest first."""
        with self.database.read() as sql:
            rows = sql.execute("SELECT id, name, created_at FROM users ORDER BY created_at, id")
            return [User(user_id, name, as_time(created)) for user_id, name, created in rows]

    # embedding

    def embed_pending(self, limit: int | None = None) -> int:
        """Embed entries that wait for it, at most `limit`; gives how many. 0 where the embedder still fails."""
        return self._embed_pending(sys.maxsize if limit is None else check_whole(limit, "limit"))

    def _embed_pending(self, limit: int, progress: Callable[[int], None] | None = None) -> int:
        backlog = self.embeddings.backlog(self.database, self._now())
        try:
            return self.embeddings.embed_waiting(self.database, backlog, limit, progress=progress)
        except EmbedderUnavailable as error:
            _log.warning("longterm: entries wait for their embedding: %s", error)
            return 0

    def embed_ahead(self, contents: Iterable[str]) -> None:
        """Embed contents that are put next, within `database.write()`: nobody should wait for an embedder there."""
        if self.embeddings.embedder is not None:
            self._meanings([self._draft(content) for content in contents])

    def fitting(self, text: str) -> str:
        """The beginning of a text that is short enough to be a content; all of it where it fits."""
        return shortened(text, self._count)

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

    def search_in(self, namespaces: Iterable[Sequence[str]], query: str, limit: int = 20) -> list[MemorySearchResult]:
        """The same in several namespaces together, so that their entries are compared with each other."""
        if isinstance(namespaces, str | bytes) or not isinstance(namespaces, Iterable):
            raise EntryInvalid(
                "search_in takes several namespaces", mend='as [("memories", "ann"), ("shared", "main")]'
            )
        paths = [check_namespace(namespace) for namespace in namespaces]
        return self._search(paths, False, query, None, limit, "hybrid", Filter())

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
        asked = Query(query)
        if mode == "vector" and query.strip():
            asked = Query(query, meaning=self.embeddings.meaning(query), model=self.embeddings.model)
        elif query.strip():
            with self.database.read() as sql:
                names = parties(self.database, sql, self._spaces(sql, paths, prefix), query)
            asked = Query(query, names) if mode == "text" else self.embeddings.query(query, names)
        with self.database.read() as sql:
            spaces, strict = self._spaces(sql, paths, prefix), threshold is not None
            wanted = Asked(spaces, asked, most, least, self._now(), mode, strict, narrowed)
            return find(self._engine, self.database, sql, wanted)

    def _spaces(self, sql: Sql, paths: Sequence[Namespace], prefix: bool) -> Sequence[int]:
        """The numbers of namespaces that there are, or of all below them."""
        if prefix:
            return [space for path in paths for space, _ in spaces_below(sql, path, self._now())]
        return [space for path in paths if (space := space_of(sql, path)) is not None]

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

        done = self._embed_pending(sys.maxsize, tell)
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
        return status_of(self.database, self.embeddings, self._now())

    def check(self) -> list[str]:
        """What is wrong with the database, one sentence each; empty if it is sound. Reads all of it."""
        with self.database.write() as sql:  # the full-text index's own check is written as an insert
            return list(problems(self.database, sql))

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
            rebuild(self.database, sql)

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


_SQLITE = "sqlite:///"


def open_store(
    path_or_url: str | os.PathLike[str], embedder: Embedder | Literal["auto"] | None = "auto", **options: Any
) -> MemoryStore:
    """The store in a file (`notes/memory.db`, `sqlite:///notes/memory.db`, or `:memory:`), or in a PostgreSQL database
    (`postgresql://user@host/database`, without a password); made at its first use.

    `"auto"` is the embedder that is installed (as `embedder: auto` in a hive), loaded at the first text; with None, and
    where none is installed, words alone are searched. `options` are MemoryStore's. Raises LongtermError for any other
    URL, a folder, or a file in a folder that is not there.
    """
    path = _path_of(path_or_url)
    if path != ":memory:" and not is_postgres(path):
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
    if is_postgres(path):
        return path
    scheme, found, _ = path.partition("://")
    if found:
        mend = "give a path, sqlite:///path or postgresql://host/database"
        raise LongtermError(f"{scheme}:// is no kind of store that is known", mend=mend)
    if not path or "\0" in path:
        raise LongtermError(f"{path!r} is no path", mend="give that of a file, such as memory.db")
    return path
