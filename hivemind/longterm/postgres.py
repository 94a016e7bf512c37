"""Memories in PostgreSQL: the tables of memory.db, PostgreSQL's text search, and pgvector."""

# ruff: noqa: ARG002, S608 - a port's arguments that need no use here; statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import unicodedata
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs.database import select_by_keys
from hivemind.fs.postgres import Postgres, PostgresSchema, Statements, check_url, connect
from hivemind.longterm.entry import MemoryEntry
from hivemind.longterm.errors import LongtermError, StoreDamaged
from hivemind.longterm.filters import Condition, parse_filter
from hivemind.longterm.namespace import Namespace, encode_namespace
from hivemind.longterm.rows import ENTRIES, INDEXES, KEYS_PER_NAMESPACE, entry_of, tables

if TYPE_CHECKING:
    import psycopg

_INDEXED_DIMENSION = 384  # the default model's; vectors of other dimensions are compared one by one
_EXACT_LIMIT, _VISIT_COST = 2_000, 20
"""Up to 2,000 vectors are compared one by one, and so are more if that costs less than the index, in which a visit costs 20
comparisons. The index's candidate list (`hnsw.ef_search`) is as long as the results, at least 200, at most 400. With 200 it
found all of the 50 nearest and 90 % of the 200 nearest of 10,000 vectors in 200 clusters, like those of texts."""
_MAX_SCANNED = 10_000  # entries that the index may visit, those of other namespaces included; it stops after 20,000

# As in SQLite's tokenizer, punctuation separates words, and Latin letters lose their accents.
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_ACCENTED = "".join(char for char in map(chr, range(0xC0, 0x250)) if len(unicodedata.normalize("NFD", char)) > 1)
_PLAIN = "".join(unicodedata.normalize("NFD", char)[0] for char in _ACCENTED)
_UNACCENTED = str.maketrans(_ACCENTED, _PLAIN)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_WORDS_OF = (
    f"to_tsvector('hivemind_memory.words'::regconfig, translate(content, {_quote(_PUNCTUATION + _ACCENTED)},"
    f" {_quote(' ' * len(_PUNCTUATION) + _PLAIN)}))"
)

_VERSION_1 = (
    # named like functions of SQLite: both databases run the same statements
    "CREATE FUNCTION json_extract(value json, path text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE"
    " AS $$ SELECT value ->> substr(path, 3) $$",
    "CREATE FUNCTION length(value vector) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE"
    " AS $$ SELECT 4 * vector_dims(value) $$",
    # stems like those of SQLite's `porter`; no stop words, which the search engine removes itself
    "CREATE TEXT SEARCH DICTIONARY stems (TEMPLATE = snowball, Language = english)",
    "CREATE TEXT SEARCH CONFIGURATION words (COPY = pg_catalog.simple)",
    "ALTER TEXT SEARCH CONFIGURATION words ALTER MAPPING FOR asciiword, word, numword WITH stems",
    *tables(
        id="bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY",
        int="bigint",
        real="double precision",
        bytes="bytea",
        name='text COLLATE "C"',
        text="text",
        json="json",
        flag="boolean NOT NULL DEFAULT true",
        more=f"words tsvector NOT NULL GENERATED ALWAYS AS ({_WORDS_OF}) STORED, CHECK (metadata::jsonb IS NOT NULL), ",
        entry=" REFERENCES entries(seq) ON DELETE CASCADE",
        end="",
    ),
    *INDEXES,
    "CREATE INDEX entries_words ON entries USING gin (words)",
    """CREATE TABLE vectors (
        key bigint PRIMARY KEY REFERENCES entries(seq) ON DELETE CASCADE,
        grp bigint NOT NULL,
        dimension integer NOT NULL GENERATED ALWAYS AS (vector_dims(vector)) STORED,
        model text NOT NULL,
        vector vector NOT NULL
    )""",
    "ALTER TABLE vectors ALTER COLUMN vector SET STORAGE PLAIN",
    "CREATE INDEX vectors_group ON vectors(grp)",
    f"CREATE INDEX vectors_near ON vectors USING hnsw ((vector::vector({_INDEXED_DIMENSION})) vector_cosine_ops)"
    f" WHERE dimension = {_INDEXED_DIMENSION}",
    """CREATE TABLE parts (
        seq bigint PRIMARY KEY REFERENCES vectors(key) ON DELETE CASCADE, model text NOT NULL, vectors bytea NOT NULL
    )""",
    """CREATE FUNCTION entries_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN
        IF TG_OP = 'INSERT' THEN
            UPDATE namespaces SET entries = entries + 1, made = new.seq % 4294967296 WHERE id = new.space;
        ELSIF TG_OP = 'DELETE' THEN
            UPDATE namespaces SET entries = entries - 1 WHERE id = old.space;
            UPDATE entries SET parent_id = NULL WHERE parent_id = old.id;
        ELSIF old.version <> new.version THEN
            INSERT INTO versions VALUES (old.seq, old.version, old.content, old.metadata, old.category, old.importance,
                old.updated_at, old.expires_at, old.parent_id, old.links);
            IF old.content <> new.content THEN
                DELETE FROM vectors WHERE key = new.seq;
                DELETE FROM given WHERE seq = new.seq;
            END IF;
        END IF;
        RETURN NULL;
    END $$""",
    "CREATE TRIGGER entries_changed AFTER INSERT OR DELETE OR UPDATE OF version ON entries"
    " FOR EACH ROW EXECUTE FUNCTION entries_changed()",
    # For people and for other programs: memories as one flat table.
    """CREATE VIEW memory AS SELECT e.id, ARRAY(SELECT json_array_elements_text(n.path::json)) AS namespace, e.key, e.content,
        e.metadata::jsonb AS metadata, v.vector AS embedding, to_timestamp(e.created_at / 1e6) AS created_at,
        to_timestamp(e.updated_at / 1e6) AS updated_at, to_timestamp(e.expires_at / 1e6) AS expires_at, e.category,
        e.importance, e.version, e.parent_id, e.links::jsonb AS links
        FROM entries e JOIN namespaces n ON n.id = e.space LEFT JOIN vectors v ON v.key = e.seq""",
)


class _Vector(bytes):
    """A packed vector, as a parameter of a statement."""


def _adapt(connection: psycopg.Connection[Any]) -> None:
    """Set up a connection to load vectors as packed float32 (little-endian) and JSON as text."""
    from psycopg.adapt import Dumper, Loader
    from psycopg.pq import Format
    from psycopg.types import TypeInfo

    vector = TypeInfo.fetch(connection, "vector")
    assert vector is not None  # the tables have columns of this type

    class PostgresVectors(Dumper):
        format = Format.BINARY
        oid = vector.oid if vector else 0

        def dump(self, obj: _Vector) -> bytes:
            return (len(obj) // 4).to_bytes(2, "big") + b"\0\0" + _swap_bytes(obj)

    class PackedVector(Loader):
        format = Format.BINARY

        def load(self, data: Any) -> bytes:
            return _swap_bytes(bytes(data)[4:])

    class PostgresText(Loader):
        format = Format.BINARY

        def load(self, data: Any) -> str:
            return str(bytes(data), "utf-8")

    connection.adapters.register_dumper(_Vector, PostgresVectors)
    connection.adapters.register_loader(vector.oid, PackedVector)
    connection.adapters.register_loader("json", PostgresText)


def _swap_bytes(vector_bytes: bytes) -> bytes:
    numbers = array("f", vector_bytes)
    numbers.byteswap()
    return numbers.tobytes()


_SCHEMA = PostgresSchema(
    name="hivemind_memory",
    contents="memories",
    crash_prefix="longterm",
    error=LongtermError,
    migrations=(_VERSION_1,),
    extensions=(("vector", (0, 8)),),
    settings=(
        "SET hnsw.ef_search = 100; SET hnsw.iterative_scan = strict_order",  # a larger list hides the index
        "SET gin_pending_list_limit = '64kB'",  # each search by words reads the list of entries that are not yet indexed
    ),
    adapt=_adapt,
)


_QUERY = "to_tsquery('hivemind_memory.words', ?)"


def _or_query(words: Sequence[str]) -> str:
    """Build a full-text query for any of the words, which must consist of letters and digits."""
    return " | ".join(f"'{word.translate(_UNACCENTED)}'" for word in words)


class _ServerWords:
    """The `WordIndex` in PostgreSQL: the column `entries.words`."""

    def count_entries(self, sql: Statements, words: Sequence[str], spaces: Sequence[int], bound: int) -> list[int]:
        matches = f"SELECT 1 FROM entries WHERE words @@ {_QUERY.replace('?', 'query')} AND space = ANY(?) LIMIT ?"
        rows = sql.execute(
            f"SELECT (SELECT count(*) FROM ({matches}) AS matches)"
            " FROM unnest(CAST(? AS text[])) WITH ORDINALITY AS queries(query, number) ORDER BY number",
            (list(spaces), bound + 1, [_or_query([word]) for word in words]),
        )
        return [count for (count,) in rows]

    def find_entries(
        self, sql: Statements, words: Sequence[str], spaces: Sequence[int], condition: Condition, limit: int
    ) -> list[int]:
        query = _or_query(words)
        rows = sql.execute(
            f"SELECT e.seq FROM entries e WHERE e.words @@ {_QUERY} AND e.space = ANY(?)"
            f" AND {condition[0]} ORDER BY ts_rank(e.words, {_QUERY}) DESC, e.seq LIMIT ?",
            (query, list(spaces), *condition[1], query, limit),
        ).fetchall()
        return [seq for (seq,) in rows]

    def contents_with(self, sql: Statements, word: str, space: int, limit: int) -> list[str]:
        statement = f"SELECT content FROM entries WHERE words @@ {_QUERY} AND space = ? ORDER BY seq LIMIT ?"
        return [content for (content,) in sql.execute(statement, (_or_query([word]), space, limit))]

    @contextmanager
    def bulk_insert(self, sql: Statements, space: int) -> Iterator[None]:
        yield


def _nearest_rows(
    wanted: Condition, model: str, query: bytes, limit: int, condition: Condition | None = None
) -> tuple[str, list[Any]]:
    """Return the beginning of a statement, and its parameters. It defines `nearest` (key, distance): the vectors
    nearest to `query`.

    `wanted` is a condition on `namespaces`, `condition` one on `entries e` (None: all entries). The planner cannot
    estimate the size of a namespace, so the statement itself chooses by the size: a search in the order of the index,
    or a scan of key ranges.
    """
    dimension, indexed_vector = len(query) // 4, f"v.vector::vector({_INDEXED_DIMENSION})"
    candidates = min(400, max(200, limit))
    is_current = f"AND (SELECT true FROM entries e WHERE e.seq = v.key AND {condition[0]})" if condition else ""
    fits = f"v.dimension = {dimension} AND v.model = (SELECT model FROM search) {is_current}"
    exact = f"""SELECT v.key, v.distance FROM unnest((SELECT ids FROM search)) AS space, LATERAL (
            SELECT key, vector <=> (SELECT query FROM search) AS distance FROM vectors v
            WHERE v.key BETWEEN space * {KEYS_PER_NAMESPACE} AND (space + 1) * {KEYS_PER_NAMESPACE} - 1 AND {fits}
            ORDER BY 2, 1 LIMIT {limit}) AS v
        WHERE NOT (SELECT is_indexed FROM search) ORDER BY 2, 1 LIMIT {limit}"""
    indexed = f"""SELECT v.key, v.distance FROM (
            SELECT key, grp, dimension, model, {indexed_vector} <=> (SELECT query FROM search) AS distance FROM vectors v
            WHERE dimension = {_INDEXED_DIMENSION} ORDER BY {indexed_vector} <=> (SELECT query FROM search) OFFSET 0) AS v
        WHERE (SELECT is_indexed FROM search) AND v.grp = ANY((SELECT ids FROM search)::bigint[]) AND {fits} LIMIT {limit}"""
    halves = [f"({exact})", f"({indexed})"] if dimension == _INDEXED_DIMENSION else [exact]
    statement = f"""WITH search AS MATERIALIZED (
        SELECT array_agg(id) FILTER (WHERE {wanted[0]}) AS ids, CAST(? AS vector) AS query, CAST(? AS text) AS model,
            {len(halves)} = 2 AND sum(entries) FILTER (WHERE {wanted[0]}) >
                greatest({_EXACT_LIMIT}, {limit} * sum(entries) / {_MAX_SCANNED}, sqrt({_VISIT_COST * limit} * sum(entries)))
                AS is_indexed,
            set_config('hnsw.ef_search', '{candidates}', true)
        FROM namespaces
    ), nearest AS MATERIALIZED ({" UNION ALL ".join(halves)})"""
    operands = condition[1] * len(halves) if condition else []
    return statement, [*wanted[1], _Vector(query), model, *wanted[1], *operands]


class _ServerVectors:
    """The `VectorStore` in PostgreSQL: the table `vectors`. In a large namespace the search uses the index, in a small
    one it compares all vectors."""

    def nearest(
        self, sql: Statements, model: str, query: bytes, limit: int, groups: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        if limit <= 0:
            return []
        wanted = ("true", []) if groups is None else ("id = ANY(?)", [list(groups)])
        nearest_rows, parameters = _nearest_rows(wanted, model, query, limit)
        rows = sql.execute(f"{nearest_rows} SELECT key, 1 - distance FROM nearest", parameters).fetchall()
        return sorted(((key, round(cosine, 6)) for key, cosine in rows), key=lambda pair: (-pair[1], pair[0]))

    def cosines(self, sql: Statements, model: str, query: bytes, keys: Collection[int]) -> dict[int, float]:
        statement = (
            f"SELECT key, 1 - (vector <=> ?) FROM vectors WHERE dimension = {len(query) // 4} AND model = ? AND key"
        )
        rows = select_by_keys(sql, f"{statement} IN KEYS", keys, [_Vector(query), model])
        return {key: round(cosine, 6) for key, cosine in rows}

    def put(self, sql: Statements, model: str, rows: Iterable[tuple[int, int, bytes]]) -> None:
        sql.executemany(
            "INSERT INTO vectors(key, grp, model, vector) VALUES (?, ?, ?, ?) ON CONFLICT(key)"
            " DO UPDATE SET grp = excluded.grp, model = excluded.model, vector = excluded.vector",
            [(key, group, model, _Vector(vector)) for key, group, vector in rows],
        )


class MemoryServer(Postgres):
    def __init__(self, url: str) -> None:
        try:
            super().__init__(url, _SCHEMA)
        except UserError as error:
            raise LongtermError(error.message, remedy=error.remedy) from None
        self.words, self.vectors = _ServerWords(), _ServerVectors()

    @contextmanager
    def _translate_errors(self, outcome: str = "") -> Iterator[None]:
        """Turn StoreDamaged into an error whose remedy is to correct the row: unlike in SQLite, there is no file to restore."""
        try:
            with super()._translate_errors(outcome):
                yield
        except StoreDamaged as error:
            raise LongtermError(error.message, location=self.path, remedy="correct the row, or delete it") from error

    def nearest_entries(
        self, spaces: Sequence[Namespace], model: str, query: bytes, limit: int, threshold: float, condition: Condition
    ) -> list[tuple[MemoryEntry, float]]:
        """Return (entry, cosine) of at most `limit` entries of the namespaces `spaces` that satisfy `condition`,
        nearest to `query` first.

        A cosine below `threshold` is left out.
        """
        wanted = "path = ANY(?)", [[encode_namespace(space) for space in spaces]]
        nearest_rows, parameters = _nearest_rows(wanted, model, query, limit, condition)
        statement = (
            f"{nearest_rows} SELECT entry.*, 1 - distance FROM nearest JOIN ({ENTRIES}) AS entry ON seq = nearest.key"
            " WHERE round(CAST(1 - distance AS numeric), 6) >= ?"
        )
        with self._translate_errors():
            rows = self.select(statement, [*parameters, threshold])
            return [(entry_of(row[:-1]), round(row[-1], 6)) for row in rows]

    def metadata_condition(self, filter_json: str) -> Condition:
        """Return an SQL condition for a metadata filter (JSON), with its parameters. It has the same result as
        `filters.metadata_fits`."""
        parts, parameters = [], list[Any]()
        for name, operator, operand in parse_filter(filter_json):
            part, operands = _test(operator, operand)
            parts.append(part)
            parameters += [parameter if parameter is not _NAME else name for parameter in operands]
        return " AND ".join(parts) or "true", parameters

    def faults(self, sql: Statements) -> Iterable[str]:
        """Return no faults: the server itself checks its files."""
        return ()

    def rebuild_words(self, sql: Statements) -> None:
        """Do nothing: the server generates the column `words`."""


@frozen
class ServerStatus:
    """The state of a memory server: version (None: not reachable), number of entries (None: unknown), and problems.

    A problem is (message, remedy).
    """

    url: str
    version: str | None = None
    entries: int | None = None
    problems: tuple[tuple[str, str], ...] = ()

    def summary(self) -> str:
        if self.problems:
            return f"PostgreSQL, {self.url}: {self.problems[0][0]} (hivemind doctor shows the remedy)"
        return f"PostgreSQL {self.version}, {self.url}, entries: {self.entries or 0:,}"


def server_status(url: str) -> ServerStatus:
    """Return the state of a memory server. Waits at most 3 seconds for the server; never writes."""
    version = entries = None
    problems: list[tuple[str, str]] = []
    try:
        with (
            _SCHEMA.translate_errors(url),
            closing(connect(check_url(url), LongtermError, {"connect_timeout": "3"})) as connection,
        ):
            connection.execute("SET statement_timeout = '3s'")
            version = str(connection.info.parameter_status("server_version")).split()[0]
            problems += _SCHEMA.missing_requirements(connection, url)
            if not problems and _SCHEMA.version(connection, url):
                rows = connection.execute("SELECT coalesce(sum(entries), 0) FROM hivemind_memory.namespaces")
                entries = sum(int(count) for (count,) in rows)
    except UserError as error:
        problems.append((error.message, error.remedy or ""))
    return ServerStatus(url, version, entries, tuple(problems))


_NAME = object()
_VALUE = "(e.metadata::jsonb -> CAST(? AS text))"
_SQL_OPERATORS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def _test(operator: str, operand: Any) -> tuple[str, list[Any]]:
    """Return the SQL condition of a valid operator, and the condition's parameters.

    The caller replaces `_NAME` among the parameters by the field's name.
    """
    operand_json = json.dumps(operand, ensure_ascii=False)
    if operator in _SQL_OPERATORS:
        if isinstance(operand, str):
            text = f"({_VALUE} #>> '{{}}') COLLATE \"C\" {_SQL_OPERATORS[operator]} ?"
            return f"coalesce(jsonb_typeof({_VALUE}) = 'string' AND {text}, false)", [_NAME, _NAME, operand]
        if isinstance(operand, bool) or not isinstance(operand, int | float):
            return "false", []
        number = f"{_VALUE} {_SQL_OPERATORS[operator]} CAST(? AS jsonb)"
        return f"coalesce(jsonb_typeof({_VALUE}) = 'number' AND {number}, false)", [_NAME, _NAME, operand_json]
    if operator == "$exists":
        return f"({_VALUE} IS NOT NULL) = ?", [_NAME, bool(operand)]
    is_list = operator in ("$in", "$nin")
    values = "(SELECT jsonb_array_elements(CAST(? AS jsonb)))" if is_list else "(CAST(? AS jsonb))"
    part = f"coalesce({_VALUE} IN {values}, false)"
    return f"NOT {part}" if operator in ("$nin", "$ne") else part, [_NAME, operand_json]
