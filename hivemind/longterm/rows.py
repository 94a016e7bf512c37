"""Entries as rows of the database: tables, reads and writes, history, links, expiry, `upsert_memory`."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from hivemind.embedding import pack
from hivemind.frozen import frozen
from hivemind.fs.database import Sql, Transactions, select_by_keys
from hivemind.longterm.entry import Action, Embedding, MemoryEntry, UpsertMemoryResult, as_time, new_id
from hivemind.longterm.errors import EntryInvalid, VersionConflict, row_boundary
from hivemind.longterm.filters import Condition
from hivemind.longterm.namespace import Namespace, decode_namespace, encode_namespace
from hivemind.longterm.validation import EntryDraft
from hivemind.search import VectorStore, store_parts

ENTRIES = (
    "SELECT e.seq, e.id, n.path, e.key, e.content, e.metadata, e.created_at, e.updated_at, e.category, e.importance,"
    " e.expires_at, e.version, e.parent_id, e.links, e.wants AND v.key IS NULL"
    " FROM entries e JOIN namespaces n ON n.id = e.space LEFT JOIN vectors v ON v.key = e.seq"
)
"""SQL that selects all entries, as rows that `entry_of` parses."""
NOT_EXPIRED = "(e.expires_at IS NULL OR e.expires_at > ?)"
"""The SQL condition that an entry has not expired. Its parameter is the current time."""

KEYS_PER_NAMESPACE = 1 << 32
"""An entry's `seq` is its namespace's id × KEYS_PER_NAMESPACE + its number in the namespace, which so has one range."""

_TABLES = (
    """CREATE TABLE namespaces (
        id {id},
        path {name} NOT NULL UNIQUE,         -- a JSON array of its parts
        entries {int} NOT NULL DEFAULT 0,    -- number of entries
        made {int} NOT NULL DEFAULT 0        -- the last number used: numbers are not reused
    )""",
    """CREATE TABLE entries (
        seq {int} PRIMARY KEY,
        id {name} NOT NULL UNIQUE,
        space {int} NOT NULL REFERENCES namespaces(id),
        key {name} NOT NULL,
        content {text} NOT NULL,
        digest {bytes} NOT NULL,             -- of the content
        metadata {json} NOT NULL,
        category {text},
        importance {real} CHECK (importance BETWEEN 0 AND 1),
        created_at {int} NOT NULL,           -- microseconds since 1970, as all times
        updated_at {int} NOT NULL,
        expires_at {int},
        version INTEGER NOT NULL CHECK (version > 0),
        parent_id {name},
        links {json} NOT NULL,               -- relation -> key in this namespace
        wants {flag},                        -- false: the entry is never embedded
        problem {text},                      -- the last error of embedding it
        {more}UNIQUE (space, key),
        CHECK (seq / {places} = space)
    )""",
    """CREATE TABLE versions (
        seq {int} NOT NULL REFERENCES entries(seq) ON DELETE CASCADE,
        version INTEGER NOT NULL,
        content {text} NOT NULL,
        metadata {json} NOT NULL,
        category {text},
        importance {real},
        updated_at {int} NOT NULL,
        expires_at {int},
        parent_id {text},
        links {json} NOT NULL,
        PRIMARY KEY (seq, version)
    ){end}""",
    "CREATE TABLE given (seq {int} PRIMARY KEY{entry}, vector {bytes} NOT NULL)",  # embeddings as callers passed them
    "CREATE TABLE users (id {text} PRIMARY KEY, name {text} NOT NULL, created_at {int} NOT NULL)",
)


def tables(**types: str) -> tuple[str, ...]:
    """Return the SQL statements that create the tables. `types` are the names that a database has for the types."""
    return tuple(statement.format(places=KEYS_PER_NAMESPACE, **types) for statement in _TABLES)


INDEXES = (
    "CREATE INDEX entries_digest ON entries(digest)",
    "CREATE INDEX entries_parent ON entries(parent_id) WHERE parent_id IS NOT NULL",
    "CREATE INDEX entries_expiry ON entries(expires_at) WHERE expires_at IS NOT NULL",
    # every write looks for them; without the index it would read all entries
    "CREATE INDEX entries_problem ON entries(seq) WHERE problem IS NOT NULL",
    """CREATE INDEX entries_speaker ON entries(space, json_extract(metadata, '$.speaker'))
        WHERE json_extract(metadata, '$.speaker') IS NOT NULL""",
    """CREATE INDEX entries_session ON entries(space, CAST(json_extract(metadata, '$.session') AS TEXT))
        WHERE json_extract(metadata, '$.session') IS NOT NULL""",
)

UNNAMED_MODEL = ""
"""The model name of vectors that callers pass to a store without an embedder."""

_INSERT = (
    "INSERT INTO entries(seq, id, space, key, content, digest, metadata, category, importance, created_at, updated_at,"
    " expires_at, version, parent_id, links, wants, problem) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE entries SET content = ?, digest = ?, metadata = ?, category = ?, importance = ?, updated_at = ?,"
    " expires_at = ?, version = version + 1, parent_id = ?, links = ?, wants = ?, problem = ? WHERE seq = ?"
)


class WordIndex(Protocol):
    """The full-text index of the entries. Words must consist of letters and digits; `spaces` are ids of namespaces."""

    def count_entries(self, sql: Any, words: Sequence[str], spaces: Sequence[int], bound: int, /) -> list[int]:
        """Count, for each word, the entries that contain it. Counting stops at `bound` + 1."""

    def find_entries(
        self, sql: Any, words: Sequence[str], spaces: Sequence[int], condition: Condition, limit: int, /
    ) -> list[int]:
        """Return the `seq` of entries that contain any of the words and satisfy `condition` (SQL on `entries e`).

        The best matches come first.
        """

    def contents_with(self, sql: Any, word: str, space: int, limit: int, /) -> list[str]:
        """Return at most `limit` contents of the namespace's entries that contain the word."""

    def bulk_insert(self, sql: Any, space: int, /) -> AbstractContextManager[None]:
        """Return a context manager for adding entries to a namespace. At its end, it indexes them. The block must not
        change other entries."""


class MemoryDatabase(Transactions[Any], Protocol):
    """A memory database, in SQLite or PostgreSQL. Both have the tables of longterm/README.md and run the same statements,
    but each has its own full-text index and vectors."""

    path: str

    @property
    def was_made(self) -> bool: ...
    @property
    def words(self) -> WordIndex: ...
    @property
    def vectors(self) -> VectorStore: ...
    def close(self) -> None: ...
    def metadata_condition(self, filter_json: str) -> Condition: ...
    @property
    def nearest_entries(self) -> Callable[..., list[tuple[MemoryEntry, float]]] | None: ...
    def faults(self, sql: Any) -> Iterable[str]: ...
    def rebuild_words(self, sql: Any) -> None: ...


@frozen
class EntryVectors:
    """The packed vectors of a content and its parts. If there are none, `problem` is the reason.

    If `should_embed` is False, the content is never embedded.
    """

    model: str
    vector: bytes | None = None
    parts: bytes = b""
    problem: str | None = None
    should_embed: bool = True


def ensure_space(sql: Sql, namespace: Namespace) -> int:
    """Return the id of a namespace; create the namespace if it is new."""
    path = encode_namespace(namespace)
    row = sql.execute("SELECT id FROM namespaces WHERE path = ?", (path,)).fetchone()
    row = row or sql.execute("INSERT INTO namespaces(path) VALUES (?) RETURNING id", (path,)).fetchone()
    return int(row[0])


def write_entry(
    sql: Sql,
    space: int,
    key: str,
    draft: EntryDraft,
    entry_vectors: EntryVectors,
    *,
    vector_store: VectorStore,
    now: int,
    expected_version: int | None = None,
) -> tuple[int, str, Action]:
    """Store a draft under a key; return the entry's seq and id, and what was done. An expired entry counts as missing.

    If `expected_version` is None, any existing entry is replaced; otherwise, raises VersionConflict if the entry has
    another version (0: no entry). Raises EntryInvalid if the parent is not in the namespace.
    """
    row = sql.execute(
        "SELECT seq, id, version, updated_at, parent_id, expires_at FROM entries WHERE space = ? AND key = ?",
        (space, key),
    ).fetchone()
    if row is not None and row[5] is not None and row[5] <= now:
        sql.execute("DELETE FROM entries WHERE seq = ?", (row[0],))
        row = None
    if expected_version is not None and expected_version != (0 if row is None else row[2]):
        raise VersionConflict(key, expected_version, 0 if row is None else row[2])
    if row is None:
        ((seq, entry_id),) = _insert(sql, space, [(key, draft, entry_vectors)], vector_store, now)
        return seq, entry_id, "created"
    seq, entry_id, _, updated, old_parent_id, _ = row
    if draft.parent_id == entry_id:
        raise EntryInvalid("an entry cannot be its own parent")
    if draft.parent_id != old_parent_id:  # an unchanged parent may have expired
        _check_parent(sql, space, draft.parent_id, now)
    sql.execute(
        _UPDATE,
        (
            draft.content, draft.digest, draft.metadata, draft.category, draft.importance, max(now, updated + 1),
            draft.expires_at, draft.parent_id, draft.links, entry_vectors.should_embed, entry_vectors.problem, seq,
        ),
    )  # fmt: skip
    sql.execute("DELETE FROM given WHERE seq = ?", (seq,))
    if not entry_vectors.should_embed:
        sql.execute("DELETE FROM vectors WHERE key = ?", (seq,))
    _store_vectors(sql, vector_store, [(seq, draft, entry_vectors)])
    return seq, entry_id, "updated"


KeyedDraft = tuple[str, EntryDraft, EntryVectors]
"""A key, the draft to store under it, and the draft's vectors."""


def write_entries(
    sql: Sql, space: int, drafts: Sequence[KeyedDraft], *, vector_store: VectorStore, now: int
) -> list[int]:
    """Store drafts, each under another key; return the entries' `seq` in order. New entries are inserted together."""
    keys = [key for key, _, _ in drafts]
    statement = "SELECT key FROM entries WHERE space = ? AND key IN KEYS"
    existing_keys = {key for (key,) in select_by_keys(sql, statement, keys, [space])}
    seqs = {
        key: write_entry(sql, space, key, draft, entry_vectors, vector_store=vector_store, now=now)[0]
        for key, draft, entry_vectors in drafts
        if key in existing_keys
    }
    new_drafts = [keyed_draft for keyed_draft in drafts if keyed_draft[0] not in existing_keys]
    new_rows = _insert(sql, space, new_drafts, vector_store, now)
    seqs |= {key: seq for (key, _, _), (seq, _) in zip(new_drafts, new_rows, strict=True)}
    return [seqs[key] for key in keys]


def _insert(
    sql: Sql, space: int, drafts: Sequence[KeyedDraft], vector_store: VectorStore, now: int
) -> list[tuple[int, str]]:
    """Insert new entries; return (seq, id) of each, in order."""
    for parent_id in {draft.parent_id for _, draft, _ in drafts}:
        _check_parent(sql, space, parent_id, now)
    (last_number,) = sql.execute(
        "SELECT made FROM namespaces WHERE id = ?", (space,)
    ).fetchone()  # a trigger increments it
    first_seq = space * KEYS_PER_NAMESPACE + last_number + 1
    rows = [(seq, new_id()) for seq in range(first_seq, first_seq + len(drafts))]
    sql.executemany(
        _INSERT,
        [
            (
                seq, entry_id, space, key, draft.content, draft.digest, draft.metadata, draft.category,
                draft.importance, now, now, draft.expires_at, draft.parent_id, draft.links,
                entry_vectors.should_embed, entry_vectors.problem,
            )
            for (seq, entry_id), (key, draft, entry_vectors) in zip(rows, drafts, strict=True)
        ],
    )  # fmt: skip
    for (seq, _), (key, draft, _) in zip(rows, drafts, strict=True):
        if '"session"' in draft.metadata:
            _join_session(sql, space, seq, key, draft, now)
    _store_vectors(sql, vector_store, [(row[0], *draft[1:]) for row, draft in zip(rows, drafts, strict=True)])
    return rows


def _join_session(sql: Sql, space: int, seq: int, key: str, draft: EntryDraft, now: int) -> None:
    """Link a new entry and the previous entry of its session to each other; callers need not do it.

    If one of them has a link like that already, leave both. The ranking of a search uses these neighbours.
    """
    session, links = parse_object(draft.metadata).get("session"), parse_object(draft.links)
    if not isinstance(session, str | int) or isinstance(session, bool) or "previous" in links or "next" in links:
        return
    row = sql.execute(
        "SELECT e.seq, e.key, e.links FROM entries e WHERE e.space = ?"
        " AND CAST(json_extract(e.metadata, '$.session') AS TEXT) = ?"
        f" AND json_extract(e.metadata, '$.session') IS NOT NULL AND e.seq < ? AND {NOT_EXPIRED} ORDER BY e.seq DESC LIMIT 1",
        (space, str(session), seq, now),
    ).fetchone()
    if row is not None and "next" not in (previous_links := parse_object(row[2])):
        for linking_seq, new_links in ((seq, {**links, "previous": row[1]}), (row[0], {**previous_links, "next": key})):
            links_json = json.dumps(new_links, ensure_ascii=False)
            sql.execute("UPDATE entries SET links = ? WHERE seq = ?", (links_json, linking_seq))


def _check_parent(sql: Sql, space: int, parent_id: str | None, now: int) -> None:
    statement = f"SELECT 1 FROM entries e WHERE e.id = ? AND e.space = ? AND {NOT_EXPIRED}"
    if parent_id is not None and not sql.execute(statement, (parent_id, space, now)).fetchone():
        raise EntryInvalid(f"no entry of this namespace has the id {parent_id!r}", remedy="store the parent first")


def _store_vectors(sql: Sql, vector_store: VectorStore, drafts: Sequence[tuple[int, EntryDraft, EntryVectors]]) -> None:
    """Store the vectors of entries and of their parts (sentences). All vectors are of one model.

    Each tuple in `drafts` is an entry's `seq`, its draft, and its vectors.
    """
    rows, parts = list[tuple[int, int, bytes]](), dict[int, bytes]()
    for seq, draft, entry_vectors in drafts:
        vector = entry_vectors.vector
        if draft.vector is not None:
            vector = pack(memoryview(draft.vector).cast("f"), len(draft.vector) // 4)
            sql.execute("INSERT INTO given VALUES (?, ?)", (seq, draft.vector))
        if vector is not None:
            rows.append((seq, seq // KEYS_PER_NAMESPACE, vector))
            parts[seq] = entry_vectors.parts if draft.vector is None else b""
    if rows:
        model = drafts[0][2].model
        vector_store.put(sql, model, rows)
        store_parts(sql, model, parts)


DUPLICATE_SIMILARITY = 0.95
"""Two contents with at least this cosine are duplicates."""
_NEIGHBOURS_CHECKED = 8


@frozen
class UpsertRequest:
    """The arguments of one call of `MemoryStore.upsert_memory`. If `key` is None, a key is generated.

    If the key exists, its entry gets the content of `draft`, and those of its fields that are in `set_fields`.
    Otherwise `new_draft` is stored.
    """

    space: int
    key: str | None
    draft: EntryDraft
    new_draft: EntryDraft
    entry_vectors: EntryVectors
    set_fields: frozenset[str]
    allow_duplicate: bool
    now: int


def upsert(sql: Sql, request: UpsertRequest, vector_store: VectorStore) -> UpsertMemoryResult:
    """Store a memory, or report an existing entry that says the same, its duplicate.

    The caller must hold a write transaction: two processes must never both store a memory.
    """
    duplicate = _find_duplicate(sql, request, vector_store)
    if duplicate is not None and request.key is None and not request.allow_duplicate:
        other_id, other_key, similarity = duplicate
        refusal = f"not stored: {other_key!r} already says the same (similarity {similarity:.2f})"
        return UpsertMemoryResult(False, other_id, "duplicate", refusal, other_key, other_key)
    key = request.key if request.key is not None else new_id()
    names = ("metadata", "category", "importance", "expires_at", "parent_id", "links")
    row = sql.execute(
        f"SELECT {', '.join(names)} FROM entries e WHERE e.space = ? AND e.key = ? AND {NOT_EXPIRED}",
        (request.space, key, request.now),
    ).fetchone()
    draft = request.new_draft
    if row is not None:  # fields that the call does not set stay unchanged
        unchanged_fields = {
            name: column_value for name, column_value in zip(names, row, strict=True) if name not in request.set_fields
        }
        draft = replace(request.draft, **unchanged_fields)
    _, entry_id, action = write_entry(
        sql, request.space, key, draft, request.entry_vectors, vector_store=vector_store, now=request.now
    )
    message = f"{action} {key!r}"
    # without an embedder, a problem is normal
    if request.entry_vectors.problem is not None and request.entry_vectors.model != UNNAMED_MODEL:
        message += f"; found by its words only until it is embedded ({request.entry_vectors.problem})"
    if duplicate is not None:
        message += f"; {duplicate[1]!r} says nearly the same (similarity {duplicate[2]:.2f})"
    return UpsertMemoryResult(True, entry_id, action, message, key, None if duplicate is None else duplicate[1])


def _find_duplicate(sql: Sql, request: UpsertRequest, vector_store: VectorStore) -> tuple[str, str, float] | None:
    """Return (id, key, similarity) of an entry that says the same under another key; None if there is none.

    An entry with equal content is preferred, then the nearest in meaning.
    """
    same_content = sql.execute(
        "SELECT seq FROM entries WHERE digest = ? AND space = ? ORDER BY seq", (request.draft.digest, request.space)
    ).fetchall()
    duplicate = _first_duplicate(sql, request, [(seq, 1.0) for (seq,) in same_content])
    vector, limit = request.entry_vectors.vector, _NEIGHBOURS_CHECKED
    while duplicate is None and vector is not None:
        neighbours = vector_store.nearest(sql, request.entry_vectors.model, vector, limit, [request.space])
        duplicate = _first_duplicate(sql, request, neighbours)
        if len(neighbours) < limit or neighbours[-1][1] < DUPLICATE_SIMILARITY:
            break
        limit *= 8  # all these neighbours have expired or are the entry itself
    return duplicate


def _first_duplicate(
    sql: Sql, request: UpsertRequest, neighbours: Sequence[tuple[int, float]]
) -> tuple[str, str, float] | None:
    """Return (id, key, similarity) of the first sufficiently similar neighbour that has another key and has not
    expired; None if there is none."""
    for seq, similarity in neighbours:
        if similarity < DUPLICATE_SIMILARITY:
            return None
        row = sql.execute(
            "SELECT id, key FROM entries WHERE seq = ? AND key <> ? AND (expires_at IS NULL OR expires_at > ?)",
            (seq, request.key or "", request.now),
        ).fetchone()
        if row is not None:
            return row[0], row[1], min(1.0, similarity)
    return None


def drop_expired(sql: Sql, now: int, limit: int) -> int:
    """Delete at most `limit` expired entries with their history; return how many were deleted."""
    return sql.execute(
        "DELETE FROM entries WHERE seq IN (SELECT seq FROM entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)",
        (now, limit),
    ).rowcount


def expired_by_space(sql: Sql, now: int) -> dict[int, int]:
    """Return the number of expired entries that are not deleted yet, by namespace id. Reads only expired entries."""
    return dict(
        sql.execute("SELECT space, count(*) FROM entries WHERE expires_at <= ? GROUP BY space", (now,)).fetchall()
    )


def parse_object(text: str) -> dict[str, Any]:
    """Parse metadata or links. Raises StoreDamaged unless the text is a JSON object."""
    return parse_objects([text])[0]


def parse_objects(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Parse many JSON objects at once, which is faster. Raises StoreDamaged."""
    with row_boundary("metadata or links"):
        objects: list[dict[str, Any]] = json.loads(f"[{','.join(texts)}]")
        if [*map(type, objects)] != [dict] * len(texts):
            raise TypeError("not an object")
        return objects


def entry_of(row: tuple[Any, ...]) -> MemoryEntry:
    """Return the entry in a row of the query ENTRIES. Raises StoreDamaged for an unreadable row."""
    _, entry_id, path, key, content, metadata, created, updated, category, importance, expires, *version_columns = row
    version, parent_id, links, is_pending = version_columns
    with row_boundary(f"entry {key!r}"):
        if not (isinstance(content, str) and isinstance(key, str) and isinstance(entry_id, str)):
            raise TypeError("not a string")
        return MemoryEntry(
            content=content,
            id=entry_id,
            namespace=decode_namespace(path),
            key=key,
            metadata=parse_object(metadata),
            created_at=as_time(created),
            updated_at=as_time(updated),
            category=category,
            importance=importance,
            expires_at=None if expires is None else as_time(expires),
            version=version,
            parent_id=parent_id,
            links=parse_object(links),
            pending=bool(is_pending),
        )


def find_space(sql: Sql, namespace: Namespace) -> int | None:
    """Return the id of a namespace, or None if it never had an entry."""
    row = sql.execute("SELECT id FROM namespaces WHERE path = ?", (encode_namespace(namespace),)).fetchone()
    return None if row is None else row[0]


def spaces_below(sql: Sql, prefix: Namespace, now: int) -> list[tuple[int, Namespace]]:
    """Return (id, namespace) of each namespace that begins with the prefix and has entries, sorted by namespace."""
    expired = expired_by_space(sql, now)
    rows = sql.execute("SELECT id, path, entries FROM namespaces WHERE entries > 0")
    living = ((space, decode_namespace(path)) for space, path, entries in rows if entries > expired.get(space, 0))
    below = ((space, namespace) for space, namespace in living if namespace[: len(prefix)] == prefix)
    return sorted(below, key=lambda pair: pair[1])


def seq_range(space: int) -> tuple[int, int]:
    """Return the first and last possible `seq` of a namespace's entries."""
    return space * KEYS_PER_NAMESPACE, (space + 1) * KEYS_PER_NAMESPACE - 1


def fetch_entry(sql: Sql, space: int, key: str, now: int) -> tuple[int, MemoryEntry] | None:
    """Return (seq, entry) for a key, or None if the entry is missing or expired."""
    row = sql.execute(f"{ENTRIES} WHERE e.space = ? AND e.key = ? AND {NOT_EXPIRED}", (space, key, now)).fetchone()
    return None if row is None else (row[0], entry_of(row))


def fetch_entries(sql: Sql, seqs: Iterable[int], now: int) -> Iterator[tuple[int, MemoryEntry]]:
    """Yield (seq, entry) of the entries that exist and have not expired, in any order."""
    for row in select_by_keys(sql, f"{ENTRIES} WHERE e.seq IN KEYS AND {NOT_EXPIRED}", seqs, trailing_parameters=[now]):
        yield row[0], entry_of(row)


def embedding_of(sql: Sql, seq: int) -> Embedding | None:
    """Return an entry's embedding: the one that the caller passed, or else the computed one (of length 1). Return None
    if it has neither."""
    row = sql.execute(
        "SELECT g.vector, v.vector, e.digest FROM entries e"
        " LEFT JOIN given g ON g.seq = e.seq LEFT JOIN vectors v ON v.key = e.seq WHERE e.seq = ?",
        (seq,),
    ).fetchone()
    given_vector, computed_vector, digest = (None, None, b"") if row is None else row
    if given_vector is None and computed_vector is None:
        return None
    with row_boundary("an embedding"):
        return Embedding.from_numbers(
            array("f", given_vector or computed_vector or b""), digest, is_from_caller=given_vector is not None
        )


def history_of(sql: Sql, seq: int, entry: MemoryEntry) -> list[MemoryEntry]:
    """Return all versions of an entry, oldest first. The last one is the present `entry` itself."""
    rows = sql.execute(
        "SELECT e.seq, e.id, n.path, e.key, h.content, h.metadata, e.created_at, h.updated_at, h.category, h.importance,"
        " h.expires_at, h.version, h.parent_id, h.links, false FROM entries e JOIN namespaces n ON n.id = e.space"
        " JOIN versions h ON h.seq = e.seq WHERE e.seq = ? ORDER BY h.version",
        (seq,),
    )
    return [*(replace(entry_of(row), pending=entry.pending) for row in rows), entry]
