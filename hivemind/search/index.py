"""`Index`: what is put into it is found by its words and its meaning (spec 9, *The engine*). Its tables stand in an SQLite
database that its owner may use for more; each writer is one transaction, across processes.
"""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hivemind.boundary import boundary
from hivemind.embedding import VECTORS, Embedder, EmbedderUnavailable
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs.database import Database, DatabaseOwner, Schema, faults
from hivemind.search.answers import Confidence
from hivemind.search.engine import Engine
from hivemind.search.item import Item, told
from hivemind.search.meanings import Backlog, Meanings
from hivemind.search.parts import PARTS
from hivemind.search.query import Query
from hivemind.search.ranking import Candidate, Weights
from hivemind.search.words import TOKENIZER, any_of, how_often, matching

__all__ = ["INDEX", "Hit", "Index"]

_ITEMS = 1 << 32
_WORDS = ("text", "heading", "labels")
_ALL = (0, (1 << 63) - 1)
_ALIKE = 0.3  # the least cosine of an item that shares no word with the query
_CHARACTERS = 40_000  # of one item: what an embedder looks at, at most
_ASKED_FIRST, _WITH_A_SEARCH = 20, 64  # items that a search embeds: of what its words find, and in all
_SECONDS = 1.5  # for which it does

INDEX = (
    """CREATE TABLE scopes (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, items INTEGER NOT NULL)""",
    f"""CREATE TABLE items (
        key INTEGER PRIMARY KEY, -- its scope's number * {_ITEMS} + its own: a scope is one unbroken range
        scope INTEGER NOT NULL,
        id TEXT NOT NULL,
        fields TEXT NOT NULL,    -- JSON: those that are not in `words`
        UNIQUE (scope, id)
    )""",
    f"CREATE VIRTUAL TABLE words USING fts5({', '.join(_WORDS)}, tokenize='{TOKENIZER}')",
    *VECTORS,
    *PARTS,
)
"""The statements that make an index's tables, for the schema of a database that has others too."""

_ROWS = "FROM scopes s JOIN items i ON i.scope = s.id JOIN words w ON w.rowid = i.key"


@frozen
class Hit:
    """An item that answers: `score` orders the hits of one search, `similarity` is the cosine of its meaning (0 without),
    `why` says in words what was found, `confidence` how far it can be trusted to answer."""

    id: str
    score: float
    similarity: float
    why: str
    confidence: Confidence
    scope: str
    fields: Mapping[str, Any]


class Index(DatabaseOwner):
    """Items of several scopes in one database: a `Database` whose schema has the statements of INDEX, or a path of its own.

    Without an embedder, and where it fails, words alone decide. Methods raise the schema's errors.
    """

    def __init__(self, database: Database | str | os.PathLike[str], embedder: Embedder | None = None) -> None:
        own = Schema(name="search index", room="search", version=1, error=UserError, statements=INDEX)
        self.database = database if isinstance(database, Database) else Database(database, own)
        self.meanings = Meanings(embedder)
        self._engine = Engine()

    def put(self, id: str, fields: Mapping[str, Any], scope: str = "") -> None:  # noqa: A002 - the spec's name
        """Let an item say this, in place of what it said. Found by: `text`, `heading`, `labels`; also used: `speaker`,
        `session`, `time` (ISO 8601), `previous` and `next` (ids of the scope), `standing` (1; less for what is no longer in
        force). All that JSON can say is kept, and comes back with a hit."""
        # half a character, which JSON can hold and a database cannot, is replaced
        words = [str(fields.get(name, "")).encode("utf-8", "replace").decode() for name in _WORDS]
        kept = json.dumps({name: value for name, value in fields.items() if name not in _WORDS}, sort_keys=True)
        with self.database.write() as sql:
            row = sql.execute(
                f"SELECT i.key, i.fields, {', '.join(_WORDS)} {_ROWS} WHERE s.name = ? AND i.id = ?", (scope, id)
            ).fetchone()
            if row is None:
                (number,) = sql.execute(
                    "INSERT INTO scopes(name, items) VALUES (?, 1)"
                    " ON CONFLICT (name) DO UPDATE SET items = items + 1 RETURNING id",
                    (scope,),
                ).fetchone()
                newest = "SELECT coalesce(max(key) + 1, ?1) FROM items WHERE key BETWEEN ?1 AND ?2"
                (key,) = sql.execute(newest, (number * _ITEMS, number * _ITEMS + _ITEMS - 1)).fetchone()
                sql.execute("INSERT INTO items VALUES (?, ?, ?, ?)", (key, key // _ITEMS, id, kept))
                sql.execute(f"INSERT INTO words(rowid, {', '.join(_WORDS)}) VALUES (?, ?, ?, ?)", (key, *words))
                return
            if row[1] != kept:
                sql.execute("UPDATE items SET fields = ? WHERE key = ?", (kept, row[0]))
            if [*row[2:]] != words:
                sql.execute("UPDATE words SET text = ?, heading = ?, labels = ? WHERE rowid = ?", (*words, row[0]))
                sql.execute("DELETE FROM vectors WHERE key = ?", (row[0],))

    def delete(self, id: str, scope: str = "") -> bool:  # noqa: A002
        """Take an item out; False if there is none."""
        with self.database.write() as sql:
            row = sql.execute(f"SELECT i.key {_ROWS} WHERE s.name = ? AND i.id = ?", (scope, id)).fetchone()
            if row is not None:
                for table, column in (("items", "key"), ("words", "rowid"), ("vectors", "key")):
                    sql.execute(f"DELETE FROM {table} WHERE {column} = ?", row)
                sql.execute("UPDATE scopes SET items = items - 1 WHERE name = ?", (scope,))
                sql.execute("DELETE FROM scopes WHERE name = ? AND items = 0", (scope,))
            return row is not None

    def fields(self, scope: str = "") -> dict[str, dict[str, Any]]:
        """What the items of a scope say, by id."""
        with self.database.read() as sql:
            found = f"SELECT i.id, i.fields, {', '.join(_WORDS)} {_ROWS} WHERE s.name = ?"
            rows = sql.execute(found, (scope,)).fetchall()
            return {row[0]: fields for row, fields in zip(rows, _fields([row[1:] for row in rows]), strict=True)}

    def search(
        self,
        query: str | Query,
        scope: str | None = None,
        limit: int = 10,
        features: Weights | None = None,
        *,
        embeds: bool = True,
    ) -> list[Hit]:
        """The items of a scope (None: of all) that answer best, best first; equal ones by scope and age.

        What is asked is embedded first: of what waits, the best by their words, then the newest, for a second and a half at
        most; with `embeds` off nothing is. `features` says what counts how much, for this search.
        """
        asked = self.meanings.query(query) if isinstance(query, str) else query
        if asked.meaning is not None and embeds:
            with self.database.read() as sql:
                first = _Items(sql, scope).matching(matching(asked.text), _ASKED_FIRST)
            with suppress(EmbedderUnavailable):  # then with the vectors that there are
                done = self.embed(_ASKED_FIRST, scope, seconds=_SECONDS, among=first)
                self.embed(_WITH_A_SEARCH - done, scope, seconds=_SECONDS)
        with self.database.read() as sql:
            source = _Items(sql, scope)
            found, _ = self._engine.search(sql, source, asked, limit, kept=_are_alike, weights=features)
            return [
                Hit(ident, one.score, one.similarity, one.why, one.confidence, name, told)
                for one in found
                for name, ident, told in [source.rows[one.id]]
            ]

    def pending(self, scope: str | None = None) -> int:
        """How many items have no vector yet; 0 without an embedder."""
        if (embedder := self.meanings.embedder) is None:
            return 0
        with self.database.read() as sql:
            return self._backlog(sql, scope).waiting(sql, embedder.name, embedder.dimension)

    def embed(
        self,
        limit: int,
        scope: str | None = None,
        *,
        seconds: float | None = None,
        among: Sequence[int] | None = None,
    ) -> int:
        """Give at most `limit` items their vectors, newest first; returns how many. What the embedder refuses is passed over.
        With `seconds` it ends when they are over; `among` are keys of the items that are meant. Raises EmbedderUnavailable
        where it takes nothing."""
        with self.database.read() as sql:
            backlog = self._backlog(sql, scope)
        return self.meanings.embed_waiting(self.database, backlog, limit, seconds=seconds, among=among)

    def _backlog(self, sql: sqlite3.Connection, scope: str | None) -> Backlog:
        return Backlog(
            key="i.key",
            rows="FROM items i LEFT JOIN vectors v ON v.key = i.key WHERE i.key BETWEEN ? AND ?",
            given=_span(sql, scope),
            texts=_texts,
            group=lambda key: key // _ITEMS,
            newest_first=True,
        )

    def check(self) -> list[str]:
        """What is wrong with the tables, one sentence each; empty if they are sound. Reads all of it."""
        with self.database.write() as sql:  # the full-text index's own check is written as an insert
            found = list(faults(sql, "items"))
            for what, rows in (
                ("items belong to no scope", "items WHERE scope NOT IN (SELECT id FROM scopes)"),
                ("items have no words", "items WHERE key NOT IN (SELECT rowid FROM words)"),
                ("vectors belong to no item", "vectors WHERE key NOT IN (SELECT key FROM items)"),
                (
                    "scopes have another number of items than they say",
                    "scopes s WHERE s.items <> (SELECT count(*) FROM items i WHERE i.scope = s.id)",
                ),
            ):
                if count := sql.execute(f"SELECT count(*) FROM {rows}").fetchone()[0]:
                    found.append(f"{count} {what}")
            return found


def _span(sql: sqlite3.Connection, scope: str | None) -> tuple[int, int]:
    """The first and the last key that items of a scope can have; of one that is not there, no key."""
    if scope is None:
        return _ALL
    row = sql.execute("SELECT id FROM scopes WHERE name = ?", (scope,)).fetchone()
    return (1, 0) if row is None else (row[0] * _ITEMS, row[0] * _ITEMS + _ITEMS - 1)


def _texts(sql: sqlite3.Connection, keys: Sequence[int]) -> dict[int, str]:
    """What is embedded of items."""
    rows = sql.execute(
        "SELECT rowid, heading, text FROM words WHERE rowid IN (SELECT value FROM json_each(?))", (json.dumps(keys),)
    )
    return {key: f"{heading}\n{text}".strip()[:_CHARACTERS] for key, heading, text in rows}


def _fields(rows: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """What items say, of whose rows `fields` and the words are given."""
    with boundary("item"):
        told = json.loads(f"[{','.join(row[0] for row in rows)}]")
        words = [{name: text for name, text in zip(_WORDS, row[1:], strict=True) if text} for row in rows]
        return [one | own for one, own in zip(told, words, strict=True)]


def _are_alike(_: Query, candidates: Sequence[Candidate]) -> Sequence[bool]:
    return [one.match.score > 0 or (one.cosine is not None and one.cosine >= _ALIKE) for one in candidates]


class _Items:
    """What a search sees of the items (`engine.Source`). How rare words are is counted among the keys that are searched."""

    def __init__(self, sql: sqlite3.Connection, scope: str | None) -> None:
        self._sql, self._keys = sql, _span(sql, scope)
        self.rows: dict[int, tuple[str, str, dict[str, Any]]] = {}  # of each key the scope, the id, and what it says
        self.groups: Collection[int] | None = None if scope is None else [self._keys[0] // _ITEMS]
        (self.total,) = sql.execute(
            "SELECT coalesce(sum(items), 0) FROM scopes WHERE ? IS NULL OR name = ?", (scope, scope)
        ).fetchone()

    def how_often(self, word: str, bound: int) -> int:
        return how_often(self._sql, word, bound, *self._keys)

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        rows = self._sql.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rank, rowid LIMIT ?",
            (any_of(words), *self._keys, limit if words else 0),
        )
        return [key for (key,) in rows]

    def allowed(self, ids: Sequence[int]) -> Collection[int]:
        return [key for key in ids if self._keys[0] <= key <= self._keys[1]]

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        rows = self._sql.execute(
            f"SELECT i.key, s.name, i.id, i.fields, {', '.join(_WORDS)} {_ROWS}"
            " WHERE i.key IN (SELECT value FROM json_each(?))",
            (json.dumps([*ids]),),
        ).fetchall()
        for (key, scope, ident, *_), fields in zip(rows, _fields([row[3:] for row in rows]), strict=True):
            self.rows[key] = scope, ident, fields
            standing = fields.get("standing")
            yield Item(
                key,
                str(fields.get("text", "")),
                str(fields.get("heading", "")),
                labels=str(fields.get("labels", "")),
                scope=key // _ITEMS,
                name=ident,
                age=(scope, key),
                standing=standing if isinstance(standing, float) else 1.0,
                **told(fields, fields),
            )

    def named(self, scope: int, names: Collection[Any]) -> Iterable[int]:
        found = "SELECT key FROM items WHERE scope = ? AND id IN (SELECT value FROM json_each(?))"
        return [key for (key,) in self._sql.execute(found, (scope, json.dumps([*names])))]
