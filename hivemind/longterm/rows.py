"""Entries as rows of the database: reading and writing them, their history and links, what has expired; upsert_memory
(seed 001, *upsertMemory Tool Schema*)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from hivemind.embedding import pack
from hivemind.frozen import frozen
from hivemind.fs.database import Sql, Transactions, select_among
from hivemind.longterm.entry import Action, Embedding, MemoryEntry, UpsertMemoryResult, as_time, new_id
from hivemind.longterm.errors import EntryInvalid, VersionConflict, row_of
from hivemind.longterm.filters import Condition
from hivemind.longterm.namespace import Namespace, decoded, encoded
from hivemind.longterm.validation import Draft, check_key, check_name
from hivemind.search import Nearness, keep_parts

ENTRIES = (
    "SELECT e.seq, e.id, n.path, e.key, e.content, e.metadata, e.created_at, e.updated_at, e.category, e.importance,"
    " e.expires_at, e.version, e.parent_id, e.links, e.wants AND v.key IS NULL"
    " FROM entries e JOIN namespaces n ON n.id = e.space LEFT JOIN vectors v ON v.key = e.seq"
)
"""The statement that returns all entries, as `entry_of` reads them."""
ALIVE = "(e.expires_at IS NULL OR e.expires_at > ?)"
"""The condition under which an entry has not expired; its parameter is the time now."""

PLACES = 1 << 32
"""How many entries a namespace can have had: an entry's `seq` is its namespace's number × PLACES + its own, so that a
namespace is one unbroken range of every index."""

_TABLES = (
    """CREATE TABLE namespaces (
        id {id},
        path {name} NOT NULL UNIQUE,         -- a JSON array of its parts
        entries {int} NOT NULL DEFAULT 0,    -- how many there are
        made {int} NOT NULL DEFAULT 0        -- how many there ever were: numbers are not used again
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
        wants {flag},                        -- false: is never embedded
        problem {text},                      -- why it has no embedding yet, if embedding it was tried
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
    "CREATE TABLE given (seq {int} PRIMARY KEY{entry}, vector {bytes} NOT NULL)",  # embeddings of callers, as they were
    "CREATE TABLE users (id {text} PRIMARY KEY, name {text} NOT NULL, created_at {int} NOT NULL)",
)


def tables(**types: str) -> tuple[str, ...]:
    """The statements that make the tables, in the types of a database."""
    return tuple(statement.format(places=PLACES, **types) for statement in _TABLES)


INDEXES = (
    "CREATE INDEX entries_digest ON entries(digest)",
    "CREATE INDEX entries_parent ON entries(parent_id) WHERE parent_id IS NOT NULL",
    "CREATE INDEX entries_expiry ON entries(expires_at) WHERE expires_at IS NOT NULL",
    # every write asks whether there are any: without this it would read all entries to learn that there are none
    "CREATE INDEX entries_problem ON entries(seq) WHERE problem IS NOT NULL",
    """CREATE INDEX entries_speaker ON entries(space, json_extract(metadata, '$.speaker'))
        WHERE json_extract(metadata, '$.speaker') IS NOT NULL""",
    """CREATE INDEX entries_session ON entries(space, CAST(json_extract(metadata, '$.session') AS TEXT))
        WHERE json_extract(metadata, '$.session') IS NOT NULL""",
)

UNNAMED = ""
"""The model of vectors that callers give while there is no embedder."""

_INSERT = (
    "INSERT INTO entries(seq, id, space, key, content, digest, metadata, category, importance, created_at, updated_at,"
    " expires_at, version, parent_id, links, wants, problem) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE entries SET content = ?, digest = ?, metadata = ?, category = ?, importance = ?, updated_at = ?,"
    " expires_at = ?, version = version + 1, parent_id = ?, links = ?, wants = ?, problem = ? WHERE seq = ?"
)


class WordIndex(Protocol):
    """The full-text index of the entries. Words have letters and digits only; `spaces` are numbers of namespaces."""

    def how_often(self, sql: Any, word: str, spaces: Sequence[int], bound: int, /) -> int:
        """How many entries have a word, counted to just beyond the bound."""

    def matching(
        self, sql: Any, words: Sequence[str], spaces: Sequence[int], where: Condition, limit: int, /
    ) -> list[int]:
        """Those that have some of the words and fulfil a condition on `entries e`, as far as the index can tell best first."""

    def saying(self, sql: Any, word: str, space: int, limit: int, /) -> list[str]:
        """Contents that have a word."""

    def filled(self, sql: Any, space: int, /) -> AbstractContextManager[None]:
        """New entries of a namespace reach the index at the end of this, all at once, and are not changed within."""


class MemoryDatabase(Transactions[Any], Protocol):
    """Where entries are kept: what differs between SQLite and PostgreSQL. Both have the tables that longterm/README.md
    describes, and run the same statements on them; each finds words and vectors by its own means."""

    path: str

    @property
    def was_made(self) -> bool: ...
    @property
    def words(self) -> WordIndex: ...
    @property
    def vectors(self) -> Nearness: ...
    def close(self) -> None: ...
    def fits(self, wanted: str) -> Condition: ...
    def faults(self, sql: Any) -> Iterable[str]: ...
    def rebuild_words(self, sql: Any) -> None: ...


@frozen
class Meaning:
    """What is known of a content's meaning: a packed vector of the model, with those of its parts as they are kept, or
    why there is none. `wanted`: never, if False."""

    model: str
    vector: bytes | None = None
    parts: bytes = b""
    problem: str | None = None
    wanted: bool = True


def space_for(sql: Sql, namespace: Namespace) -> int:
    """The number of a namespace, made if it is new."""
    path = encoded(namespace)
    found = sql.execute("SELECT id FROM namespaces WHERE path = ?", (path,)).fetchone()
    found = found or sql.execute("INSERT INTO namespaces(path) VALUES (?) RETURNING id", (path,)).fetchone()
    return int(found[0])


def write_entry(
    sql: Sql,
    space: int,
    key: str,
    draft: Draft,
    meaning: Meaning,
    *,
    vectors: Nearness,
    now: int,
    expected: int | None = None,
) -> tuple[int, str, Action]:
    """Store a value under a key: (seq, id, created or updated). The last write wins, unless `expected` names a version.

    An entry that has expired is gone: what is stored under its key is a new one. Raises VersionConflict, and
    EntryInvalid for a parent that is no entry of this namespace.
    """
    row = sql.execute(
        "SELECT seq, id, version, updated_at, parent_id, expires_at FROM entries WHERE space = ? AND key = ?",
        (space, key),
    ).fetchone()
    if row is not None and row[5] is not None and row[5] <= now:
        sql.execute("DELETE FROM entries WHERE seq = ?", (row[0],))
        row = None
    if expected is not None and expected != (0 if row is None else row[2]):
        raise VersionConflict(key, expected, 0 if row is None else row[2])
    if row is None:
        _check_parent(sql, space, draft.parent_id, now)
        seq, entry_id = _insert(sql, space, key, draft, meaning, now)
        _keep_meaning(sql, vectors, seq, draft, meaning)
        return seq, entry_id, "created"
    seq, entry_id, _, updated, had, _ = row
    if draft.parent_id == entry_id:
        raise EntryInvalid("an entry cannot be its own parent")
    if draft.parent_id != had:  # the one that it has may have expired meanwhile
        _check_parent(sql, space, draft.parent_id, now)
    sql.execute(
        _UPDATE,
        (
            draft.content, draft.digest, draft.metadata, draft.category, draft.importance, max(now, updated + 1),
            draft.expires_at, draft.parent_id, draft.links, meaning.wanted, meaning.problem, seq,
        ),
    )  # fmt: skip
    sql.execute("DELETE FROM given WHERE seq = ?", (seq,))
    _keep_meaning(sql, vectors, seq, draft, meaning)
    return seq, entry_id, "updated"


def _insert(sql: Sql, space: int, key: str, draft: Draft, meaning: Meaning, now: int) -> tuple[int, str]:
    (made,) = sql.execute("SELECT made FROM namespaces WHERE id = ?", (space,)).fetchone()  # a trigger counts on
    seq, entry_id = space * PLACES + made + 1, new_id()
    sql.execute(
        _INSERT,
        (
            seq, entry_id, space, key, draft.content, draft.digest, draft.metadata, draft.category, draft.importance,
            now, now, draft.expires_at, draft.parent_id, draft.links, meaning.wanted, meaning.problem,
        ),
    )  # fmt: skip
    if '"session"' in draft.metadata:
        _join_session(sql, space, seq, key, draft, now)
    return seq, entry_id


def _join_session(sql: Sql, space: int, seq: int, key: str, draft: Draft, now: int) -> None:
    """Link a new entry and the one before it in its session with each other, unless its links say something else: what was
    said before and after bears on what an entry answers, and no writer need know of it."""
    session, links = object_of(draft.metadata).get("session"), object_of(draft.links)
    if not isinstance(session, str | int) or isinstance(session, bool) or "previous" in links or "next" in links:
        return
    row = sql.execute(
        "SELECT e.seq, e.key, e.links FROM entries e WHERE e.space = ?"
        " AND CAST(json_extract(e.metadata, '$.session') AS TEXT) = ?"
        f" AND json_extract(e.metadata, '$.session') IS NOT NULL AND e.seq < ? AND {ALIVE} ORDER BY e.seq DESC LIMIT 1",
        (space, str(session), seq, now),
    ).fetchone()
    if row is not None and "next" not in object_of(row[2]):
        set_link(sql, seq, links, "previous", row[1])
        set_link(sql, row[0], object_of(row[2]), "next", key)


def _check_parent(sql: Sql, space: int, parent_id: str | None, now: int) -> None:
    found = f"SELECT 1 FROM entries e WHERE e.id = ? AND e.space = ? AND {ALIVE}"
    if parent_id is not None and not sql.execute(found, (parent_id, space, now)).fetchone():
        raise EntryInvalid(f"no entry of this namespace has the id {parent_id!r}", mend="store the parent first")


def _keep_meaning(sql: Sql, vectors: Nearness, seq: int, draft: Draft, meaning: Meaning) -> None:
    vector = meaning.vector
    if draft.vector is not None:
        vector = pack(memoryview(draft.vector).cast("f"), len(draft.vector) // 4)
        sql.execute("INSERT INTO given VALUES (?, ?)", (seq, draft.vector))
    if vector is not None:
        vectors.put(sql, meaning.model, [(seq, seq // PLACES, vector)])
        keep_parts(sql, seq, meaning.model, meaning.parts if draft.vector is None else b"")
    elif not meaning.wanted:
        sql.execute("DELETE FROM vectors WHERE key = ?", (seq,))


ALIKE = 0.95
"""The similarity from which on two contents say the same."""
_LOOKED_AT = 8


@frozen
class Upsert:
    """One call: the namespace's number, the key (None: one is made), what is stored, and which fields were said.
    `fresh` is what is stored where there is no such entry yet."""

    space: int
    key: str | None
    draft: Draft
    fresh: Draft
    meaning: Meaning
    said: frozenset[str]
    allow_duplicate: bool
    now: int


def upsert(sql: Sql, asked: Upsert, vectors: Nearness) -> UpsertMemoryResult:
    """Store it, or say which entry says the same. Within a write, so that two processes cannot both be first."""
    alike = _alike(sql, asked, vectors)
    if alike is not None and asked.key is None and not asked.allow_duplicate:
        other_id, other, similarity = alike
        said = f"not stored: {other!r} says the same already (similarity {similarity:.2f})"
        return UpsertMemoryResult(False, other_id, "duplicate", said, other, other)
    key = asked.key if asked.key is not None else new_id()
    names = ("metadata", "category", "importance", "expires_at", "parent_id", "links")
    row = sql.execute(
        f"SELECT {', '.join(names)} FROM entries e WHERE e.space = ? AND e.key = ? AND {ALIVE}",
        (asked.space, key, asked.now),
    ).fetchone()
    draft = asked.fresh
    if row is not None:  # what was not said stays as it is in the entry that is updated
        kept = {name: old for name, old in zip(names, row, strict=True) if name not in asked.said}
        draft = replace(asked.draft, **kept)
    _, entry_id, action = write_entry(sql, asked.space, key, draft, asked.meaning, vectors=vectors, now=asked.now)
    message = f"{action} {key!r}"
    if (
        asked.meaning.problem is not None and asked.meaning.model != UNNAMED
    ):  # without an embedder that is as it should be
        message += f"; found by its words only until it is embedded ({asked.meaning.problem})"
    if alike is not None:
        message += f"; {alike[1]!r} says nearly the same (similarity {alike[2]:.2f})"
    return UpsertMemoryResult(True, entry_id, action, message, key, None if alike is None else alike[1])


def _alike(sql: Sql, asked: Upsert, vectors: Nearness) -> tuple[str, str, float] | None:
    """(id, key, similarity) of the entry under another key that says the same: word for word, else by meaning."""
    same = sql.execute(
        "SELECT seq FROM entries WHERE digest = ? AND space = ? ORDER BY seq", (asked.draft.digest, asked.space)
    ).fetchall()
    found = _first_other(sql, asked, [(seq, 1.0) for (seq,) in same])
    vector, reach = asked.meaning.vector, _LOOKED_AT
    while found is None and vector is not None:
        near = vectors.nearest(sql, asked.meaning.model, vector, reach, [asked.space])
        found = _first_other(sql, asked, near)
        if len(near) < reach or near[-1][1] < ALIKE:
            break
        reach *= 8  # all of them have expired, or are the entry itself
    return found


def _first_other(sql: Sql, asked: Upsert, near: Sequence[tuple[int, float]]) -> tuple[str, str, float] | None:
    """(id, key, similarity) of the first that is alike, is there, and has another key."""
    for seq, similarity in near:
        if similarity < ALIKE:
            return None
        row = sql.execute(
            "SELECT id, key FROM entries WHERE seq = ? AND key <> ? AND (expires_at IS NULL OR expires_at > ?)",
            (seq, asked.key or "", asked.now),
        ).fetchone()
        if row is not None:
            return row[0], row[1], min(1.0, similarity)
    return None


def drop_expired(sql: Sql, now: int, most: int) -> int:
    """Delete at most `most` entries that have expired, with all that they ever said; gives how many."""
    return sql.execute(
        "DELETE FROM entries WHERE seq IN (SELECT seq FROM entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)",
        (now, most),
    ).rowcount


def expired_by_space(sql: Sql, now: int) -> dict[int, int]:
    """How many entries have expired and are not deleted yet, by the number of their namespace; reads only those."""
    return dict(
        sql.execute("SELECT space, count(*) FROM entries WHERE expires_at <= ? GROUP BY space", (now,)).fetchall()
    )


def object_of(text: str) -> dict[str, Any]:
    """The object that metadata or links are as JSON. Raises StoreDamaged for what is none."""
    return objects_of([text])[0]


def objects_of(texts: Sequence[str]) -> list[dict[str, Any]]:
    """The same of many, which are read as one."""
    with row_of("metadata or links"):
        found: list[dict[str, Any]] = json.loads(f"[{','.join(texts)}]")
        if [*map(type, found)] != [dict] * len(texts):
            raise TypeError("no object")
        return found


def entry_of(row: tuple[Any, ...]) -> MemoryEntry:
    """The entry that a row of ENTRIES says. Raises StoreDamaged for one that makes no sense."""
    _, entry_id, path, key, content, metadata, created, updated, category, importance, expires, *rest = row
    version, parent_id, links, pending = rest
    with row_of(f"entry {key!r}"):
        if not (isinstance(content, str) and isinstance(key, str) and isinstance(entry_id, str)):
            raise TypeError("no text")
        return MemoryEntry(
            content=content,
            id=entry_id,
            namespace=decoded(path),
            key=key,
            metadata=object_of(metadata),
            created_at=as_time(created),
            updated_at=as_time(updated),
            category=category,
            importance=importance,
            expires_at=None if expires is None else as_time(expires),
            version=version,
            parent_id=parent_id,
            links=object_of(links),
            pending=bool(pending),
        )


def space_of(sql: Sql, namespace: Namespace) -> int | None:
    """The number of a namespace, None if nothing was ever stored in it."""
    row = sql.execute("SELECT id FROM namespaces WHERE path = ?", (encoded(namespace),)).fetchone()
    return None if row is None else row[0]


def spaces_below(sql: Sql, prefix: Namespace, now: int) -> list[tuple[int, Namespace]]:
    """(number, namespace) of all that have entries and are the prefix or lie below it, in the order of their parts."""
    expired = expired_by_space(sql, now)
    rows = sql.execute("SELECT id, path, entries FROM namespaces WHERE entries > 0")
    found = ((space, decoded(path)) for space, path, entries in rows if entries > expired.get(space, 0))
    below = ((space, one) for space, one in found if one[: len(prefix)] == prefix)
    return sorted(below, key=lambda pair: pair[1])


def span(space: int) -> tuple[int, int]:
    """The first and the last `seq` that an entry of a namespace may have."""
    return space * PLACES, (space + 1) * PLACES - 1


def fetch_key(sql: Sql, space: int, key: str, now: int) -> tuple[int, MemoryEntry] | None:
    """(seq, entry) under a key, unless it has expired."""
    row = sql.execute(f"{ENTRIES} WHERE e.space = ? AND e.key = ? AND {ALIVE}", (space, key, now)).fetchone()
    return None if row is None else (row[0], entry_of(row))


def fetch(sql: Sql, seqs: Iterable[int], now: int) -> Iterator[tuple[int, MemoryEntry]]:
    """(seq, entry) of those that are there and have not expired, in no order."""
    for row in select_among(sql, f"{ENTRIES} WHERE e.seq IN KEYS AND {ALIVE}", seqs, after=[now]):
        yield row[0], entry_of(row)


def with_vector(sql: Sql, seq: int) -> Embedding | None:
    """The embedding of an entry: as it was given, else as it was computed (of length 1)."""
    row = sql.execute(
        "SELECT g.vector, v.vector, e.digest FROM entries e"
        " LEFT JOIN given g ON g.seq = e.seq LEFT JOIN vectors v ON v.key = e.seq WHERE e.seq = ?",
        (seq,),
    ).fetchone()
    given, own, digest = (None, None, b"") if row is None else row
    if given is None and own is None:
        return None
    with row_of("an embedding"):
        return Embedding.read(array("f", given or own or b""), digest, given=given is not None)


def history_of(sql: Sql, seq: int, entry: MemoryEntry) -> list[MemoryEntry]:
    """What an entry said, oldest first; the last one is what it says now."""
    rows = sql.execute(
        "SELECT e.seq, e.id, n.path, e.key, h.content, h.metadata, e.created_at, h.updated_at, h.category, h.importance,"
        " h.expires_at, h.version, h.parent_id, h.links, false FROM entries e JOIN namespaces n ON n.id = e.space"
        " JOIN versions h ON h.seq = e.seq WHERE e.seq = ? ORDER BY h.version",
        (seq,),
    )
    return [*(replace(entry_of(row), pending=entry.pending) for row in rows), entry]


def set_link(sql: Sql, seq: int, links: Mapping[str, str], relation: str, key: str | None) -> None:
    """Let an entry name another by a relation, or with None no longer. That is no new version of it."""
    if not isinstance(relation, str) or not relation.strip():
        raise EntryInvalid(f"{relation!r} is no relation", mend='a word, such as "previous"')
    check_name(relation, "the relation")
    kept = {name: one for name, one in links.items() if name != relation}
    if key is not None:
        kept[relation] = check_key(key)
    sql.execute("UPDATE entries SET links = ? WHERE seq = ?", (json.dumps(kept, ensure_ascii=False), seq))
