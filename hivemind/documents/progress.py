"""Count the embedded passages of documents.db without importing the modules that read and search documents."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from contextlib import closing

from hivemind.embedding import Embedder
from hivemind.errors import UserError
from hivemind.fs.database import Database, Schema
from hivemind.words import is_unspaced, language_of

VERSION = 6
"""The schema version of documents.db."""
EMBEDDABLE = (
    "FROM nodes n LEFT JOIN places p ON p.node_id = n.id LEFT JOIN vectors v ON v.key = n.seq"
    " WHERE n.text <> '' AND (p.node_id IS NULL OR p.leads)"
)
"""SQL that selects the texts to embed: the first nodes of passages, and nodes without a file."""
_SAMPLES = """
SELECT (
    SELECT group_concat(text, ' ') FROM (
        SELECT n.text FROM places p JOIN nodes n ON n.id = p.node_id WHERE p.file_id = f.id AND n.token_count > 20 LIMIT 20
    )
) sample FROM (SELECT id FROM files LIMIT 200) f WHERE sample IS NOT NULL
"""
"""SQL that selects texts of files, by which the language of the documents is recognised."""
_OWN_SAMPLES = "SELECT text FROM nodes WHERE token_count > 20 LIMIT 200"
_PER_SECOND = 30.0  # passages of about 200 tokens on one free core: an estimate


class _ReadOnlySchema(Schema):
    """The schema for reading an existing database. Unlike other schemas, it creates no tables, but raises an error if
    there are none."""

    def prepare(self, connection: sqlite3.Connection, path: str) -> None:  # noqa: ARG002
        raise self.error("has no tables yet", location=path)


def read_progress(path: str | os.PathLike[str], embedder: Embedder | None) -> tuple[int, int, bool]:
    """Return the two counts of `count_embedded` for a database file, and True if the language of any document is known.

    Raises UserError if the database cannot be read.
    """
    schema = _ReadOnlySchema(
        name="document database", crash_prefix="documents", version=VERSION, error=UserError, statements=()
    )
    with closing(Database(path, schema)) as database, database.read() as sql:
        return *count_embedded(sql, embedder), file_languages(sql).keys() != {""}


def file_languages(sql: sqlite3.Connection) -> Counter[str]:
    """Count the files of each language ("" if unknown). Texts in scripts without spaces count as English."""
    texts = [text for (text,) in sql.execute(_SAMPLES).fetchall() or sql.execute(_OWN_SAMPLES)]
    return Counter(language_of(text) or ("english" if any(map(is_unspaced, text)) else "") for text in texts)


def count_embedded(sql: sqlite3.Connection, embedder: Embedder | None) -> tuple[int, int]:
    """Return the number of embedded passages and of all passages; a node without a file counts as a passage."""
    model = ("", 0) if embedder is None else (embedder.name, 4 * embedder.dimension)
    statement = f"SELECT count(CASE WHEN v.model = ? AND length(v.vector) = ? THEN 1 END), count(*) {EMBEDDABLE}"
    embedded_count, total = sql.execute(statement, model).fetchone()
    return int(embedded_count), int(total)


def describe_progress(embedded_count: int, total: int) -> str:
    """Return a text that describes the progress of embedding, with an estimate of the remaining time."""
    if embedded_count >= total:
        return f"all {total:,} passages by meaning"
    minutes = max(1, round((total - embedded_count) / _PER_SECOND / 60))
    return f"{embedded_count:,} of {total:,} passages by meaning, about {minutes:,} min left"


def describe_gap(embedded_count: int, total: int) -> str:
    """Return a sentence that says how many passages are not searched by meaning; "" if all are embedded."""
    if embedded_count >= total:
        return ""
    if not embedded_count:
        return "The documents were searched by their words alone, not by meaning."
    return f"By meaning, {embedded_count:,} of {total:,} passages were searched, the others by their words alone."
