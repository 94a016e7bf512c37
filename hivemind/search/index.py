"""`Index`: a store of items that can be searched by words and by meaning.

An index's tables may share an SQLite database with other tables. Each write is one transaction, across processes.
"""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hivemind.boundary import boundary
from hivemind.embedding import VECTORS, Embedder, EmbedderUnavailable
from hivemind.frozen import frozen
from hivemind.fs.database import Database, DatabaseOwner, integrity_errors
from hivemind.search.answers import Confidence
from hivemind.search.engine import CandidateSource, Engine
from hivemind.search.item import Item, context_fields
from hivemind.search.meanings import Backlog, StoreEmbedder
from hivemind.search.parts import PARTS
from hivemind.search.query import Query
from hivemind.search.ranking import Candidate, Weights
from hivemind.search.words import TOKENIZER, count_rows, or_query, significant_words

_KEYS_PER_SCOPE = 1 << 32
_TEXT_FIELDS = ("text", "heading", "labels")
_ALL_KEYS = (0, (1 << 63) - 1)
_MIN_COSINE = 0.3  # an item that shares no word with the query is a hit from this cosine on
_MAX_CHARACTERS = 40_000  # of an item's text, at most this many are embedded
_MATCHES_EMBEDDED, _EMBEDDED_PER_SEARCH = 20, 64  # a search embeds at most so many matches by words, and items in all
_EMBEDDING_SECONDS = 1.5  # time limit for the matches by words, and again for the other items

INDEX = (
    """CREATE TABLE scopes (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, items INTEGER NOT NULL)""",
    f"""CREATE TABLE items (
        key INTEGER PRIMARY KEY, -- the scope's id * {_KEYS_PER_SCOPE} + its number there: a scope is one range of keys
        scope INTEGER NOT NULL,
        id TEXT NOT NULL,
        fields TEXT NOT NULL,    -- JSON: the fields that are not in `words`
        UNIQUE (scope, id)
    )""",
    f"CREATE VIRTUAL TABLE words USING fts5({', '.join(_TEXT_FIELDS)}, tokenize='{TOKENIZER}')",
    *VECTORS,
    *PARTS,
)
"""Statements that create the tables of an index, for the schema of the database that contains it."""

_ROWS = "FROM scopes s JOIN items i ON i.scope = s.id JOIN words w ON w.rowid = i.key"


@frozen
class Hit:
    """An item that a search found. `score` orders the hits of one search; `similarity` is the cosine to the query (0
    without a vector); `why` explains the hit in words."""

    id: str
    score: float
    similarity: float
    why: str
    confidence: Confidence
    scope: str
    fields: Mapping[str, Any]


class Index(DatabaseOwner):
    """Searchable items, grouped in scopes.

    The schema of `database` must contain the statements INDEX. Without an embedder, or if the embedder fails, a search
    uses words only. Methods raise the error class that this schema names.
    """

    def __init__(self, database: Database, embedder: Embedder | None = None) -> None:
        self.database = database
        self.meanings = StoreEmbedder(embedder)
        self._engine = Engine()

    def put(self, id: str, fields: Mapping[str, Any], scope: str = "") -> None:  # noqa: A002 - the public name
        """Store an item's fields, replacing all earlier fields.

        A search reads `text`, `heading` and `labels`. `speaker`, `session`, `time` (ISO 8601), `previous` and `next` (ids
        of items in `scope`) and `standing` (1, less for an outdated text) influence the ranking. Other fields are only
        stored; values may be any JSON. A hit has all fields.
        """
        # A lone surrogate is valid in JSON but not in SQLite text, so it is replaced.
        texts = [str(fields.get(name, "")).encode("utf-8", "replace").decode() for name in _TEXT_FIELDS]
        fields_json = json.dumps(
            {name: value for name, value in fields.items() if name not in _TEXT_FIELDS}, sort_keys=True
        )
        with self.database.write() as sql:
            row = sql.execute(
                f"SELECT i.key, i.fields, {', '.join(_TEXT_FIELDS)} {_ROWS} WHERE s.name = ? AND i.id = ?", (scope, id)
            ).fetchone()
            if row is None:
                (number,) = sql.execute(
                    "INSERT INTO scopes(name, items) VALUES (?, 1)"
                    " ON CONFLICT (name) DO UPDATE SET items = items + 1 RETURNING id",
                    (scope,),
                ).fetchone()
                newest = "SELECT coalesce(max(key) + 1, ?1) FROM items WHERE key BETWEEN ?1 AND ?2"
                (key,) = sql.execute(
                    newest, (number * _KEYS_PER_SCOPE, number * _KEYS_PER_SCOPE + _KEYS_PER_SCOPE - 1)
                ).fetchone()
                sql.execute("INSERT INTO items VALUES (?, ?, ?, ?)", (key, key // _KEYS_PER_SCOPE, id, fields_json))
                sql.execute(f"INSERT INTO words(rowid, {', '.join(_TEXT_FIELDS)}) VALUES (?, ?, ?, ?)", (key, *texts))
                return
            if row[1] != fields_json:
                sql.execute("UPDATE items SET fields = ? WHERE key = ?", (fields_json, row[0]))
            if [*row[2:]] != texts:
                sql.execute("UPDATE words SET text = ?, heading = ?, labels = ? WHERE rowid = ?", (*texts, row[0]))
                sql.execute("DELETE FROM vectors WHERE key = ?", (row[0],))

    def delete(self, id: str, scope: str = "") -> bool:  # noqa: A002
        """Delete an item; return False if it does not exist."""
        with self.database.write() as sql:
            row = sql.execute(f"SELECT i.key {_ROWS} WHERE s.name = ? AND i.id = ?", (scope, id)).fetchone()
            if row is not None:
                for table, column in (("items", "key"), ("words", "rowid"), ("vectors", "key")):
                    sql.execute(f"DELETE FROM {table} WHERE {column} = ?", row)
                sql.execute("UPDATE scopes SET items = items - 1 WHERE name = ?", (scope,))
                sql.execute("DELETE FROM scopes WHERE name = ? AND items = 0", (scope,))
            return row is not None

    def fields(self, scope: str = "") -> dict[str, dict[str, Any]]:
        """Return the fields of all items in a scope, by item id."""
        with self.database.read() as sql:
            statement = f"SELECT i.id, i.fields, {', '.join(_TEXT_FIELDS)} {_ROWS} WHERE s.name = ?"
            rows = sql.execute(statement, (scope,)).fetchall()
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
        """Return the best items of a scope (None: of all scopes), best first; equal scores by scope and age.

        First, some items without a vector are embedded: the best matches by words, then the newest items, for at most
        1.5 seconds each. `embeds=False` skips this. `features` replaces the engine's weights.
        """
        embedded_query = self.meanings.build_query(query) if isinstance(query, str) else query
        if embedded_query.vectors is not None and embeds:
            with self.database.read() as sql:
                first_keys = _IndexSource(sql, scope).find_by_words(
                    significant_words(embedded_query.text), _MATCHES_EMBEDDED
                )
            with suppress(EmbedderUnavailable):  # search with the existing vectors
                embedded_count = self.embed(_MATCHES_EMBEDDED, scope, seconds=_EMBEDDING_SECONDS, only_keys=first_keys)
                self.embed(_EMBEDDED_PER_SEARCH - embedded_count, scope, seconds=_EMBEDDING_SECONDS)
        with self.database.read() as sql:
            source = _IndexSource(sql, scope)
            hits, _ = self._engine.search(
                sql, source, embedded_query, limit, candidate_filter=_are_relevant, weights=features
            )
            return [
                Hit(ident, hit.score, hit.similarity, hit.why, hit.confidence, name, fields)
                for hit in hits
                for name, ident, fields in [source.rows[hit.id]]
            ]

    def pending(self, scope: str | None = None) -> int:
        """Return how many items of a scope (None: of all scopes) still need a vector; 0 without an embedder."""
        if (embedder := self.meanings.embedder) is None:
            return 0
        with self.database.read() as sql:
            return self._backlog(sql, scope).count_waiting(sql, embedder.name, embedder.dimension)

    def embed(
        self,
        limit: int,
        scope: str | None = None,
        *,
        seconds: float | None = None,
        only_keys: Sequence[int] | None = None,
    ) -> int:
        """Embed at most `limit` items that lack a vector, newest first; return how many were embedded.

        Texts that the embedder refuses are skipped. `seconds` limits the time, `only_keys` the items. Raises
        EmbedderUnavailable if the embedder fails for every text.
        """
        with self.database.read() as sql:
            backlog = self._backlog(sql, scope)
        return self.meanings.embed_backlog(self.database, backlog, limit, seconds=seconds, only_keys=only_keys)

    def _backlog(self, sql: sqlite3.Connection, scope: str | None) -> Backlog:
        return Backlog(
            key_column="i.key",
            from_clause="FROM items i LEFT JOIN vectors v ON v.key = i.key WHERE i.key BETWEEN ? AND ?",
            parameters=_key_range(sql, scope),
            texts_of=_texts,
            group_of=lambda key: key // _KEYS_PER_SCOPE,
            newest_first=True,
        )

    def check(self) -> list[str]:
        """Check every row of the tables; return a sentence for each problem, [] if the tables are sound."""
        with self.database.write() as sql:  # FTS5 checks its index by an INSERT
            problems = list(integrity_errors(sql, "items"))
            for problem, rows in (
                ("items belong to no scope", "items WHERE scope NOT IN (SELECT id FROM scopes)"),
                ("items have no words", "items WHERE key NOT IN (SELECT rowid FROM words)"),
                ("vectors belong to no item", "vectors WHERE key NOT IN (SELECT key FROM items)"),
                (
                    "scopes have a wrong count of items",
                    "scopes s WHERE s.items <> (SELECT count(*) FROM items i WHERE i.scope = s.id)",
                ),
            ):
                if count := sql.execute(f"SELECT count(*) FROM {rows}").fetchone()[0]:
                    problems.append(f"{count} {problem}")
            return problems


def _key_range(sql: sqlite3.Connection, scope: str | None) -> tuple[int, int]:
    """Return the first and last key of a scope (None: of all scopes), or (1, 0), an empty range, for an unknown scope."""
    if scope is None:
        return _ALL_KEYS
    row = sql.execute("SELECT id FROM scopes WHERE name = ?", (scope,)).fetchone()
    return (1, 0) if row is None else (row[0] * _KEYS_PER_SCOPE, row[0] * _KEYS_PER_SCOPE + _KEYS_PER_SCOPE - 1)


def _texts(sql: sqlite3.Connection, keys: Sequence[int]) -> dict[int, str]:
    """Return the texts to embed, by key."""
    rows = sql.execute(
        "SELECT rowid, heading, text FROM words WHERE rowid IN (SELECT value FROM json_each(?))", (json.dumps(keys),)
    )
    return {key: f"{heading}\n{text}".strip()[:_MAX_CHARACTERS] for key, heading, text in rows}


def _fields(rows: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return each item's fields, read from the row's column `fields` (JSON) and its full-text columns."""
    with boundary("item"):
        other_fields = json.loads(f"[{','.join(row[0] for row in rows)}]")
        text_fields = [{name: text for name, text in zip(_TEXT_FIELDS, row[1:], strict=True) if text} for row in rows]
        return [fields | texts for fields, texts in zip(other_fields, text_fields, strict=True)]


def _are_relevant(_: Query, candidates: Sequence[Candidate]) -> Sequence[bool]:
    return [
        candidate.match.score > 0 or (candidate.cosine is not None and candidate.cosine >= _MIN_COSINE)
        for candidate in candidates
    ]


class _IndexSource(CandidateSource):
    """The `CandidateSource` of an index. Only items in the searched scope count towards the rarity of a word."""

    def __init__(self, sql: sqlite3.Connection, scope: str | None) -> None:
        self._sql, self._keys = sql, _key_range(sql, scope)
        self.rows: dict[int, tuple[str, str, dict[str, Any]]] = {}  # key -> scope, id, fields
        self.groups: Collection[int] | None = None if scope is None else [self._keys[0] // _KEYS_PER_SCOPE]
        (self.total,) = sql.execute(
            "SELECT coalesce(sum(items), 0) FROM scopes WHERE ? IS NULL OR name = ?", (scope, scope)
        ).fetchone()

    def count_items(self, words: Sequence[str], bound: int) -> Sequence[int]:
        return [count_rows(self._sql, or_query([word]), bound, *self._keys) for word in words]

    def find_by_words(self, words: Sequence[str], limit: int) -> Sequence[int]:
        rows = self._sql.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rank, rowid LIMIT ?",
            (or_query(words), *self._keys, limit if words else 0),
        )
        return [key for (key,) in rows]

    def ids_of(self, keys: Sequence[int]) -> Mapping[int, int]:
        return {key: key for key in keys if self._keys[0] <= key <= self._keys[1]}

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        rows = self._sql.execute(
            f"SELECT i.key, s.name, i.id, i.fields, {', '.join(_TEXT_FIELDS)} {_ROWS}"
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
                scope=key // _KEYS_PER_SCOPE,
                name=ident,
                age=(scope, key),
                standing=standing if isinstance(standing, float) else 1.0,
                **context_fields(fields, fields),
            )

    def find_by_name(self, scope: int, names: Collection[Any]) -> Iterable[int]:
        statement = "SELECT key FROM items WHERE scope = ? AND id IN (SELECT value FROM json_each(?))"
        return [key for (key,) in self._sql.execute(statement, (scope, json.dumps([*names])))]
