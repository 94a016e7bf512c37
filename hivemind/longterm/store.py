"""`MemoryStore`, the interface of long-term memory (safe for many processes), and `open_store`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from hivemind.embedding import Embedder, EmbedderUnavailable, open_embedder
from hivemind.fs.database import DatabaseOwner, Sql
from hivemind.fs.postgres import is_postgres
from hivemind.longterm.embeddings import HOW_TO_EMBED, MemoryEmbedder, some_failed
from hivemind.longterm.entry import (
    MIN_MICROS,
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
    EntryVectors,
    MemoryDatabase,
    UpsertRequest,
    drop_expired,
    embedding_of,
    ensure_space,
    fetch_entries,
    fetch_entry,
    find_space,
    history_of,
    spaces_below,
    upsert,
    write_entries,
    write_entry,
)
from hivemind.longterm.search import MemorySearch, Mode, find_memories, find_participants, rank_by_meaning, searchable
from hivemind.longterm.sqlite import MemoryFile
from hivemind.longterm.validation import (
    EntryDraft,
    check_between,
    check_flag,
    check_key,
    check_name,
    check_text,
    check_time,
    check_whole,
    draft_of,
    shorten,
)
from hivemind.search import Engine, Query
from hivemind.tokens import count_tokens

DIMENSION = 384
SIMILARITY_THRESHOLD = 0.25
_EMBEDDED_PER_WRITE = 8
_EXPIRED_PER_WRITE = 32  # each write deletes at most this many expired entries
_log = logging.getLogger(__name__)
_PURGE_BATCH_SIZE = 500  # entries per transaction; other writers can proceed between two transactions

Value = MemoryEntry | Mapping[str, Any] | str
"""A value to store: an entry, a mapping with `content` and other fields of an entry, or just the content."""


def _pairs(values: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> list[tuple[str, Value]]:
    """Return a mapping or an iterable of pairs as a list of pairs. Raises EntryInvalid for anything else."""
    pairs = values.items() if isinstance(values, Mapping) else values
    key_values = list(pairs) if isinstance(pairs, Iterable) and not isinstance(pairs, str | bytes) else [()]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in key_values):
        raise EntryInvalid(
            "put_many requires keys with values", remedy='pass {"diet": "vegetarian"} or (key, value) pairs'
        )
    return [(key, value) for key, value in key_values]


def _database(path_or_url: str | os.PathLike[str]) -> MemoryDatabase:
    if not is_postgres(path_or_url):
        return MemoryFile(path_or_url)
    from hivemind.longterm.postgres import MemoryServer

    return MemoryServer(str(path_or_url))


class MemoryStore(DatabaseOwner):
    """Long-term memory in one SQLite file or in PostgreSQL (`postgresql://…`). Each write is one atomic transaction.

    If `embedder` is None, searches use words only, and embeddings that callers pass must have `dimension` numbers. In a
    search by meaning, an entry matches if its cosine is at least `similarity_threshold`. `clock` is for tests. Methods
    raise NamespaceInvalid and EntryInvalid for invalid arguments, and LongtermError if the database cannot be read or
    written.
    """

    database: Any  # a MemoryDatabase with the further methods that `fs.backup` uses

    def __init__(
        self,
        path: str | os.PathLike[str],
        embedder: Embedder | None = None,
        *,
        dimension: int = DIMENSION,
        similarity_threshold: float = SIMILARITY_THRESHOLD,
        token_counter: Callable[[str], int] = count_tokens,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.database = _database(path)
        self.embeddings = MemoryEmbedder(embedder, dimension)
        self.similarity_threshold = check_between(similarity_threshold, "similarity_threshold", -1, 1)
        self._count_tokens = token_counter
        self._clock = clock
        self._engine = Engine(vectors=self.database.vectors)

    def now(self) -> datetime:
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
        """Store a value under a key, replacing the value of an existing entry; return the entry.

        An existing entry keeps its id and its `created_at`; its old version goes into the history. If
        `expected_version` is not None, raises VersionConflict unless the entry has this version (0: no entry). With
        `embed=False`, the entry is never embedded.
        """
        return self._put(namespace, [(key, value)], expected_version, embed)[0]

    def put_many(
        self, namespace: Sequence[str], values: Mapping[str, Value] | Iterable[tuple[str, Value]], *, embed: bool = True
    ) -> list[MemoryEntry]:
        """Store many values by their keys in one transaction; return their entries in order. With `embed=False`, they
        are never embedded."""
        return self._put(namespace, _pairs(values), None, embed)

    def _put(
        self, namespace: Sequence[str], pairs: Sequence[tuple[str, Value]], expected_version: int | None, embed: bool
    ) -> list[MemoryEntry]:
        path = check_namespace(namespace)
        if expected_version is not None:
            check_whole(expected_version, "expected_version")
        check_flag(embed, "embed")
        drafts = [(check_key(key), self._draft(value)) for key, value in pairs]
        entry_vectors = self._embed_drafts([draft for _, draft in drafts], embed)
        with self._writing() as (sql, now):
            space = ensure_space(sql, path)
            is_bulk = len({key for key, _ in drafts}) == len(drafts) > 1
            keyed_drafts = [(*pair, vectors) for pair, vectors in zip(drafts, entry_vectors, strict=True)]
            if is_bulk:
                with self.database.words.bulk_insert(sql, space):
                    seqs = write_entries(sql, space, keyed_drafts, vector_store=self.database.vectors, now=now)
            else:
                options = {"vector_store": self.database.vectors, "now": now, "expected_version": expected_version}
                seqs = [write_entry(sql, space, *draft, **options)[0] for draft in keyed_drafts]
            entries = dict(fetch_entries(sql, set(seqs), MIN_MICROS - 1))  # at a time before any entry expires
            has_failed_ones = some_failed(sql)
        self._embed_failed(has_failed_ones, entry_vectors)
        return [entries[seq] for seq in seqs]

    def _embed_failed(self, has_failed_ones: bool, entry_vectors: Sequence[EntryVectors]) -> None:
        """If `entry_vectors` show that the embedder works, embed some of the entries for which it failed earlier.

        `has_failed_ones` says that such entries exist.
        """
        if has_failed_ones and any(vectors.vector is not None for vectors in entry_vectors):
            self.embed_pending(_EMBEDDED_PER_WRITE)

    def _draft(self, value: Value) -> EntryDraft:
        return draft_of(value, self._count_tokens, self.embeddings.dimension)

    def _embed_drafts(self, drafts: Sequence[EntryDraft], embed: bool = True) -> list[EntryVectors]:
        """Return each draft's vectors, or why it has none. Slow: do not call this inside a transaction."""
        if not embed:
            return [EntryVectors(self.embeddings.model, should_embed=False) for _ in drafts]
        return self.embeddings.embed_drafts(self.database, drafts)

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
        """Store a memory, or update the memory under `key`. In an update, an argument of None leaves its field unchanged.

        Without a key, a memory is not stored if an existing entry says the same (similarity ≥ 0.95), unless
        `allow_duplicate` is True; the result names this entry. With a key, the memory is always stored, and the result
        names an entry that says the same under another key. `provenance` is added to the metadata of a new entry (see
        `validation.provenance`).
        """
        path = check_namespace(namespace)
        if key is not None:
            check_key(key)
        check_flag(allow_duplicate, "allow_duplicate")
        optional_fields = {
            "metadata": metadata, "category": category, "importance": importance,
            "expires_at": expires_at, "parent_id": parent_id,
        }  # fmt: skip
        draft = new_draft = self._draft({"content": content, **optional_fields})
        if provenance is not None:
            self._draft({"content": content, "metadata": provenance})  # raises if it is invalid
            new_draft = self._draft(
                {"content": content, **optional_fields, "metadata": {**provenance, **(metadata or {})}}
            )
        set_fields = frozenset(name for name, value in optional_fields.items() if value is not None)
        (entry_vectors,) = self._embed_drafts([draft])
        with self._writing() as (sql, now):
            request = UpsertRequest(
                ensure_space(sql, path), key, draft, new_draft, entry_vectors, set_fields, allow_duplicate, now
            )
            result = upsert(sql, request, self.database.vectors)
            has_failed_ones = some_failed(sql)
        self._embed_failed(has_failed_ones, [entry_vectors])
        return result

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Delete an entry and its history; return False if the entry is missing or expired."""
        path = check_namespace(namespace)
        check_key(key)
        with self._writing() as (sql, now):
            rows = sql.execute(
                "DELETE FROM entries WHERE space = ? AND key = ? RETURNING expires_at IS NULL OR expires_at > ?",
                (find_space(sql, path), key, now),
            ).fetchall()
            return rows == [(1,)]

    def expire(self, namespace: Sequence[str], key: str, expires_at: datetime | None) -> bool:
        """Set when an entry expires (None: never), without a new version. Return False if the entry does not exist."""
        micros = None if expires_at is None else check_time(expires_at, "expires_at")
        with self._writing() as (sql, _):
            row = self._find(sql, namespace, key)
            if row is not None:
                sql.execute("UPDATE entries SET expires_at = ? WHERE seq = ?", (micros, row[0]))
            return row is not None

    def purge(self, limit: int | None = None) -> int:
        """Delete at most `limit` expired entries (None: all); return how many were deleted.

        Reads never return expired entries, and every write deletes some.
        """
        remaining, deleted_count = (sys.maxsize if limit is None else check_whole(limit, "limit")), 0
        while remaining:
            batch_size = min(remaining, _PURGE_BATCH_SIZE)
            with self.database.write() as sql:
                deleted = drop_expired(sql, self._now(), batch_size)
            deleted_count += deleted
            remaining = remaining - batch_size if deleted == batch_size else 0
        return deleted_count

    def next_expiry(self) -> datetime | None:
        """Return when the next entry expires; None if no entry does. The time is in the past if expired entries are not
        deleted yet."""
        with self.database.read() as sql:
            (earliest,) = sql.execute("SELECT min(expires_at) FROM entries WHERE expires_at IS NOT NULL").fetchone()
        return None if earliest is None else as_time(earliest)

    @contextmanager
    def _writing(self) -> Iterator[tuple[Sql, int]]:
        """Open a write transaction; yield it and the current time. At its end, delete some expired entries."""
        with self.database.write() as sql:
            now = self._now()
            yield sql, now
            drop_expired(sql, now, _EXPIRED_PER_WRITE)

    # reading

    def get(self, namespace: Sequence[str], key: str) -> MemoryEntry | None:
        """Return the entry under a key, with its embedding, or None if the entry is missing or expired."""
        return self.get_many(namespace, [key])[0]

    def get_many(self, namespace: Sequence[str], keys: Iterable[str]) -> list[MemoryEntry | None]:
        """Return the entries under several keys in order, None for a missing or expired entry."""
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise EntryInvalid("get_many requires several keys", remedy='pass ["diet", "timezone"]')
        path, checked_keys = check_namespace(namespace), [check_key(key) for key in keys]
        entries: list[MemoryEntry | None] = []
        with self.database.read() as sql:
            space, now = find_space(sql, path), self._now()
            for key in checked_keys:
                pair = None if space is None else fetch_entry(sql, space, key, now)
                entries.append(None if pair is None else replace(pair[1], embedding=embedding_of(sql, pair[0])))
        return entries

    def namespaces(self, prefix: Sequence[str] = ()) -> list[Namespace]:
        """Return, sorted, the namespaces that begin with the prefix and have entries."""
        prefix_parts = check_prefix(prefix)
        with self.database.read() as sql:
            return [path for _, path in spaces_below(sql, prefix_parts, self._now())]

    def history(self, namespace: Sequence[str], key: str) -> list[MemoryEntry]:
        """Return the versions of an entry, oldest first; the last one is the current entry. Return [] without an entry."""
        with self.database.read() as sql:
            row = self._find(sql, namespace, key)
            return [] if row is None else history_of(sql, *row)

    def _find(self, sql: Sql, namespace: Sequence[str], key: str) -> tuple[int, MemoryEntry] | None:
        """Return (seq, entry) for a key; None if the entry is missing or expired."""
        space = find_space(sql, check_namespace(namespace))
        return None if space is None else fetch_entry(sql, space, check_key(key), self._now())

    # users

    def create_user(self, name: str) -> User:
        """Create a user. The user's memories are in `user.namespace`. Several users may have one name."""
        if not isinstance(name, str) or not name.strip():
            raise EntryInvalid(f"{name!r} is not a user's name")
        check_name(name, "the name")
        now = self._now()
        user = User(new_id(), name, as_time(now))
        with self.database.write() as sql:
            sql.execute("INSERT INTO users VALUES (?, ?, ?)", (user.id, user.name, now))
        return user

    def users(self) -> list[User]:
        """Return all users, oldest first."""
        with self.database.read() as sql:
            rows = sql.execute("SELECT id, name, created_at FROM users ORDER BY created_at, id")
            return [User(user_id, name, as_time(created)) for user_id, name, created in rows]

    # embedding

    def embed_pending(self, limit: int | None = None) -> int:
        """Embed at most `limit` entries that have no vector yet (None: all); return how many were embedded, 0 if the
        embedder fails."""
        return self._embed_pending(sys.maxsize if limit is None else check_whole(limit, "limit"))

    def _embed_pending(self, limit: int, progress: Callable[[int], None] | None = None) -> int:
        backlog = self.embeddings.backlog(self.database, self._now())
        try:
            return self.embeddings.embed_backlog(self.database, backlog, limit, progress=progress)
        except EmbedderUnavailable as error:
            _log.warning("longterm: entries wait for their embedding: %s", error)
            return 0

    def embed_ahead(self, contents: Iterable[str]) -> None:
        """Embed contents that will be stored in a `database.write()` block. Their vectors are cached, so this
        transaction need not wait for them."""
        if self.embeddings.embedder is not None:
            self._embed_drafts([self._draft(content) for content in contents])

    def fitting(self, text: str) -> str:
        """Return the text, cut to the greatest number of tokens that a content may have."""
        return shorten(text, self._count_tokens)

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
        """Return the best entries of a namespace, best first. With `prefix`, search also the namespaces that begin with
        `namespace`.

        Mode "hybrid" searches by words and meaning, "text" by words, "vector" by meaning. Mode "vector" leaves out
        entries with a similarity below `threshold` (None: the store's threshold); mode "hybrid" does so only if a
        threshold is passed. The other arguments are those of `Filter`. A blank query returns the newest entries. If the
        embedder fails, the search uses words only, and `why` says so; mode "vector" raises EmbedderUnavailable. A
        search never writes.
        """
        path = check_prefix(namespace) if check_flag(prefix, "prefix") else check_namespace(namespace)
        filters = Filter(metadata, category, min_importance, since, until)
        return self._search([path], prefix, query, threshold, limit, mode, filters)

    def search_in(self, namespaces: Iterable[Sequence[str]], query: str, limit: int = 20) -> list[MemorySearchResult]:
        """Search several namespaces by words and meaning; return the best of all their entries, best first."""
        if isinstance(namespaces, str | bytes) or not isinstance(namespaces, Iterable):
            raise EntryInvalid(
                "search_in requires several namespaces", remedy='pass [("memories", "ann"), ("shared", "main")]'
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
        filters: Filter,
    ) -> list[MemorySearchResult]:
        if mode not in ("hybrid", "vector", "text"):
            raise EntryInvalid(f"{mode!r} is not a search mode", remedy="use hybrid, vector or text")
        min_similarity = (
            self.similarity_threshold if threshold is None else check_between(threshold, "threshold", -1, 1)
        )
        check_text(query, "a query")
        max_results = check_whole(limit, "limit")
        embedded_query, space_ids = Query(query), list[int]()
        if mode == "vector" and query.strip():
            vectors, model = self.embeddings.query_vectors(query), self.embeddings.model
            if (nearest_entries := self.database.nearest_entries) is not None and max_results:
                spaces = [space for path in paths for space in self.namespaces(path)] if prefix else paths
                condition = searchable(self.database, filters, self._now())
                return rank_by_meaning(
                    nearest_entries(spaces, model, vectors.vector, max_results, min_similarity, condition)
                )
            embedded_query = Query(query, vectors=vectors, model=model)
        elif query.strip():
            with self.database.read() as sql:
                space_ids = self._spaces(sql, paths, prefix)
                participants = find_participants(self.database, sql, space_ids, query)
            embedded_query = (
                Query(query, participants) if mode == "text" else self.embeddings.build_query(query, participants)
            )
        with self.database.read() as sql:
            space_ids, strict = space_ids or self._spaces(sql, paths, prefix), threshold is not None
            request = MemorySearch(
                space_ids, embedded_query, max_results, min_similarity, self._now(), mode, strict, filters
            )
            return find_memories(self._engine, self.database, sql, request)

    def _spaces(self, sql: Sql, paths: Sequence[Namespace], prefix: bool) -> list[int]:
        """Return the ids of the namespaces `paths` that exist; with `prefix`, of all namespaces that begin with a path."""
        if prefix:
            return [space for path in paths for space, _ in spaces_below(sql, path, self._now())]
        return [space for path in paths if (space := find_space(sql, path)) is not None]

    def coverage(self, query: str, text: str) -> float:
        """Return the share (0 to 1) of the query's words, without stop words, that a text contains."""
        return self._engine.coverage(check_text(query, "a query"), check_text(text, "the text"))

    # maintenance

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed each entry that has no vector of the current model; return how many were embedded.

        An interrupted call can be repeated. `progress` receives (done, total). Raises LongtermError if there is no
        embedder, or if it fails for some entries.
        """
        if self.embeddings.embedder is None:
            raise LongtermError("no embedder is configured", remedy=HOW_TO_EMBED)
        total = self.status().pending

        def report_progress(done: int) -> None:
            if progress is not None:
                progress(done, total)

        embedded_count = self._embed_pending(sys.maxsize, report_progress)
        status = self.status()
        if status.pending:
            raise LongtermError(
                f"{status.pending} of {status.entries} entries could not be embedded by {status.model}",
                location=self.database.path,
                remedy="`hivemind memory status` shows the reason; reindex again to continue",
            )
        return embedded_count

    def status(self) -> StoreStatus:
        """Return the state of the store: number of entries, model, pending embeddings. Never creates the database."""
        return status_of(self.database, self.embeddings, self._now())

    def check(self) -> list[str]:
        """Check every row of the database; return a sentence for each problem, [] if there is none."""
        with self.database.write() as sql:  # FTS5 checks its index by an INSERT
            return list(problems(self.database, sql))

    tables: Mapping[str, str] = MappingProxyType(
        {
            "entries": "digest = digest_of(content)",
            **dict.fromkeys(("versions", "given", "users", "vectors", "parts", "namespaces"), ""),
        }
    )
    """Tables that `fs.backup` copies from a damaged database; `namespaces` last, because it counts entries."""
    locks: Sequence[str] = (".lock",)

    def elsewhere(self, path: Path) -> MemoryStore:
        """Return a store for the database file `path`, without an embedder."""
        return MemoryStore(path)

    def rebuild(self) -> None:
        """Rebuild the data that is derived from the entries (see `integrity.rebuild`)."""
        with self.database.write() as sql:
            rebuild(self.database, sql)

    # the last method, since it hides the type `list` from the code below
    def list(self, namespace: Sequence[str]) -> list[str]:
        """Return the keys of a namespace, sorted."""
        path = check_namespace(namespace)
        with self.database.read() as sql:
            rows = sql.execute(
                "SELECT e.key FROM entries e JOIN namespaces n ON n.id = e.space"
                " WHERE e.space = ? AND (e.expires_at IS NULL OR e.expires_at > ?) ORDER BY e.key",
                (find_space(sql, path), self._now()),
            )
            return [key for (key,) in rows]


_SQLITE = "sqlite:///"


def open_store(
    path_or_url: str | os.PathLike[str], embedder: Embedder | Literal["auto"] | None = "auto", **options: Any
) -> MemoryStore:
    """Open the store in a file (`notes/memory.db`, `sqlite:///notes/memory.db` or `:memory:`) or in a PostgreSQL database
    (`postgresql://user@host/database`, without a password). The store is created at its first use.

    With `"auto"`, the installed embedder is used (as with `embedder: auto` in a hive) and loaded at the first text. With
    None, or if no embedder is installed, searches use words only. `options` are those of MemoryStore. Raises LongtermError
    for any other URL, a folder, or a file in a missing folder.
    """
    path = _path_of(path_or_url)
    if path != ":memory:" and not is_postgres(path):
        path = os.path.abspath(path)
        if os.path.isdir(path):
            raise LongtermError("is a folder", location=path, remedy="name a file in it, for example memory.db")
        if not os.path.isdir(os.path.dirname(path)):
            raise LongtermError(
                "the folder does not exist", location=os.path.dirname(path), remedy="create it, or check the path"
            )
    return MemoryStore(path, open_embedder() if embedder == "auto" else embedder, **options)


def _path_of(path_or_url: object) -> str:
    """Return a path or PostgreSQL URL. Raises LongtermError for other values; it quotes no URL, as this may hold a password."""
    if not isinstance(path_or_url, str | os.PathLike):
        raise LongtermError(
            f"a {type(path_or_url).__name__} is not a store's path", remedy="pass a path, or sqlite:///path"
        )
    path = os.fsdecode(path_or_url).removeprefix(_SQLITE)
    if is_postgres(path):
        return path
    scheme, separator, _ = path.partition("://")
    if separator:
        remedy = "pass a path, sqlite:///path or postgresql://host/database"
        raise LongtermError(f"{scheme}:// is not a supported kind of store", remedy=remedy)
    if not path or "\0" in path:
        raise LongtermError(f"{path!r} is not a path", remedy="pass the path of a file, for example memory.db")
    return path
