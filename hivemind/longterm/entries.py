"""Entries: putting, getting and forgetting them, their history and links; users (spec 6, seed 001)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from sqlite3 import Connection
from types import TracebackType
from typing import Any, Self

from hivemind.embedding import Embedder
from hivemind.fs.database import Database
from hivemind.longterm.embeddings import Embeddings, embed_pending, some_failed
from hivemind.longterm.entry import FIRST, MemoryEntry, UpsertMemoryResult, User, as_micros, as_time, new_id
from hivemind.longterm.errors import EntryInvalid
from hivemind.longterm.namespace import Namespace, check_namespace, check_prefix
from hivemind.longterm.rows import (
    children_of,
    drop_expired,
    fetch,
    fetch_key,
    history_of,
    linked_from,
    next_expiry,
    set_link,
    space_of,
    spaces_below,
    with_vector,
)
from hivemind.longterm.schema import SCHEMA
from hivemind.longterm.validation import (
    Draft,
    check_between,
    check_flag,
    check_key,
    check_name,
    check_time,
    check_whole,
    draft_of,
    shortened,
)
from hivemind.longterm.writing import Meaning, Upsert, delete_entry, indexed_together, space_for, upsert, write_entry
from hivemind.search import Engine
from hivemind.tokens import count_tokens

__all__ = ["DIMENSION", "Entries"]

DIMENSION = 384
SIMILARITY_THRESHOLD = 0.25
_EMBEDDED_BY_A_WRITE = 8
_FORGOTTEN_BY_A_WRITE = 32  # expired entries
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


class Entries:
    """The entries of one SQLite file, put and got. `MemoryStore`, which searches them too, says what its arguments are."""

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
        new_id: Callable[[], str] = new_id,
    ) -> None:
        self.database = Database(path, SCHEMA, durable=durable)
        self.embeddings = Embeddings(embedder, dimension)
        self.similarity_threshold = check_between(similarity_threshold, "similarity_threshold", -1, 1)
        self._count = token_counter
        self._clock, self._new_id = clock, new_id
        self._engine = Engine()

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
            with indexed_together(sql, space) if apart else nullcontext():
                seqs = [
                    write_entry(sql, space, key, draft, meaning, now=now, new_id=self._new_id, expected=expected)[0]
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
            result = upsert(sql, asked, self._engine.vectors, self._new_id)
            waiting = some_failed(sql)
        self._embed_others(waiting, [meaning])
        return result

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Forget an entry and all that it ever said; False if there is none (any more)."""
        path = check_namespace(namespace)
        check_key(key)
        with self._writing() as (sql, now):
            space = space_of(sql, path)
            return space is not None and delete_entry(sql, space, key, now)

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
            found = next_expiry(sql)
        return None if found is None else as_time(found)

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, int]]:
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
        with self._writing() as (sql, _):
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
        check_name(name, "the name")
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

    # embedding

    def embed_pending(self, limit: int | None = None) -> int:
        """Embed entries that wait for it, at most `limit`; gives how many. 0 where the embedder still fails."""
        most = None if limit is None else check_whole(limit, "limit")
        return embed_pending(self.database, self.embeddings, self._now(), most)

    def embed_ahead(self, contents: Iterable[str]) -> None:
        """Embed contents that are put next, within `database.write()`: nobody should wait for an embedder there."""
        if self.embeddings.embedder is not None:
            self._meanings([self._draft(content) for content in contents])

    def fitting(self, text: str) -> str:
        """The beginning of a text that is short enough to be a content; all of it where it fits."""
        return shortened(text, self._count)

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
