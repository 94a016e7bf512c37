"""The sentences of an item, each with a vector of its own, so that what one of them says is found among all that the
others say. They are looked at closely where an item is a candidate already, and are in no index.

A vector is kept as one signed byte for each dimension, scaled to its largest number: a quarter of the size, and a cosine
is less than 0.01 beside what it was.
"""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import math
import re
import sqlite3
from array import array
from collections.abc import Collection, Sequence

from hivemind.boundary import boundary
from hivemind.embedding import unpack
from hivemind.embedding.embedder import numpy_or_none

__all__ = [
    "SENTENCES", "every_span", "keep_sentences", "nearest_sentences", "packed_sentences", "sentences_of",
    "spans_of",
]  # fmt: skip

SENTENCES = (
    "CREATE TABLE sentences (seq INTEGER PRIMARY KEY, model TEXT NOT NULL, vectors BLOB NOT NULL)",
    "CREATE TRIGGER vectors_gone AFTER DELETE ON vectors BEGIN DELETE FROM sentences WHERE seq = old.key; END",
)
"""The table of them, beside a table `vectors`: an item has its sentences with its vector, and loses them with it."""

_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=\s*(?:[-*+#|>]|\d+[.)])\s)")  # a line that goes on is no end
_SHORTEST = 13  # letters: "Thanks, Ann!" says nothing
_MOST = 16  # of one content; of a longer one they are of several sentences
_MARKS = 500  # parameters of one statement
_LARGEST = 127


def sentences_of(content: str) -> list[str]:
    """The sentences of a text that have vectors of their own; none where there are not two."""
    return [content[start:end] for start, end in spans_of(content)]


def spans_of(content: str) -> list[tuple[int, int]]:
    """Where these sentences begin and end: without the shortest, several together in a long text."""
    found = [span for span in every_span(content) if span[1] - span[0] >= _SHORTEST]
    if len(found) < 2:
        return []
    each = math.ceil(len(found) / _MOST)
    return [(found[at][0], found[min(at + each, len(found)) - 1][1]) for at in range(0, len(found), each)]


def every_span(content: str) -> list[tuple[int, int]]:
    """Where each sentence of a text begins and ends, white space around it left out."""
    found, start = [], 0
    for end in (*(match.span() for match in _END.finditer(content)), (len(content), len(content))):
        part = content[start : end[0]]
        first = start + len(part) - len(part.lstrip())
        if part.strip():
            found.append((first, first + len(part.strip())))
        start = end[1]
    return found


def packed_sentences(vectors: Sequence[bytes]) -> bytes:
    """Packed vectors of one dimension as bytes, one after another, as they are kept."""
    return b"".join(map(_as_bytes, vectors))


def _as_bytes(vector: bytes) -> bytes:
    numbers = unpack(vector)
    scale = _LARGEST / max(max(numbers), -min(numbers))
    return array("b", [round(number * scale) for number in numbers]).tobytes()


def keep_sentences(sql: sqlite3.Connection, seq: int, model: str, vectors: bytes) -> None:
    """Write the sentences of an item, in place of those that it had."""
    if vectors:
        sql.execute("INSERT OR REPLACE INTO sentences(seq, model, vectors) VALUES (?, ?, ?)", (seq, model, vectors))
    else:
        sql.execute("DELETE FROM sentences WHERE seq = ?", (seq,))


def nearest_sentences(
    sql: sqlite3.Connection, model: str, query: bytes, seqs: Collection[int]
) -> dict[int, tuple[float, int]]:
    """The nearest sentence of each of these items that has any, of the model of a packed query: its cosine, its place."""
    wanted, rows = list(seqs), list[tuple[int, bytes]]()
    dimension = len(query) // 4
    for at in range(0, len(wanted), _MARKS):
        some = wanted[at : at + _MARKS]
        rows += sql.execute(
            "SELECT seq, vectors FROM sentences WHERE model = ? AND length(vectors) % ? = 0 AND seq IN"
            f" ({','.join('?' * len(some))})",
            (model, dimension, *some),
        ).fetchall()
    numpy = numpy_or_none()
    if not rows or numpy is None:
        return {}
    with boundary("table of sentences"):
        joined = b"".join(vectors for _, vectors in rows)
        matrix = numpy.frombuffer(joined, dtype="i1").reshape(-1, dimension).astype("f4")
        cosines = matrix @ numpy.frombuffer(query, dtype="<f4") / numpy.sqrt((matrix * matrix).sum(axis=1))
        found, start = {}, 0
        for seq, vectors in rows:
            end = start + len(vectors) // dimension
            place = int(cosines[start:end].argmax())
            found[seq], start = (float(cosines[start + place]), place), end
        return found
