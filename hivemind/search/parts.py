"""The parts of an item, each with a vector of its own, so that what one of them says is found among all that the others
say, and the words of a question are each compared with those of an item (late interaction). They are looked at closely
where an item is a candidate already, and are in no index.

Of an embedder that knows what words mean where they stand, parts are three tokens each, a bit for each dimension; of another
the sentences, one signed byte for each dimension, scaled to its largest number.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Collection, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from hivemind.boundary import boundary
from hivemind.embedding import Embedder, FineEmbedder, TextVectors, embed_finely, embed_packed, unpack
from hivemind.embedding.embedder import numpy_or_none
from hivemind.fs.database import Sql, select_among

PARTS = (
    "CREATE TABLE parts (seq INTEGER PRIMARY KEY, model TEXT NOT NULL, vectors BLOB NOT NULL)",
    "CREATE TRIGGER vectors_gone AFTER DELETE ON vectors BEGIN DELETE FROM parts WHERE seq = old.key; END",
)
"""The table of them, beside a table `vectors`: an item has its parts with its vector, and loses them with it."""

_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=\s*(?:[-*+#|>]|\d+[.)])\s)")  # a line that goes on is no end
_SHORTEST = 13  # letters: "Thanks, Ann!" says nothing
_MOST = 16  # of one content; of a longer one they are of several sentences
_LARGEST = 127
_BLOCK = 4  # parts: half of a stretch
_ALONE = 250_000  # multiplications that OpenBLAS does in the thread that asks


def sentences_of(content: str) -> list[str]:
    """The sentences of a text that have vectors of their own, without the shortest, several together in a long text; none
    where there are not two."""
    found = [span for span in every_span(content) if span[1] - span[0] >= _SHORTEST]
    if len(found) < 2:
        return []
    each = math.ceil(len(found) / _MOST)
    return [content[found[at][0] : found[min(at + each, len(found)) - 1][1]] for at in range(0, len(found), each)]


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


def meanings(embedder: Embedder, texts: Sequence[str], *, fine: bool = True) -> list[TextVectors]:
    """What texts mean, with their parts as they are kept; of sentences, where they are not to be fine. Raises
    EmbedderUnavailable."""
    if fine and isinstance(embedder, FineEmbedder):
        return embed_finely(embedder, texts)
    sentences = [sentences_of(text) for text in texts]
    vectors = iter(embed_packed(embedder, [*texts, *chain.from_iterable(sentences)]))
    whole = list(islice(vectors, len(texts)))
    return [
        TextVectors(vector, b"".join(map(_as_bytes, islice(vectors, len(own)))))
        for vector, own in zip(whole, sentences, strict=True)
    ]


def meaning_asked(embedder: Embedder, text: str, *, fine: bool = True) -> TextVectors:
    """What a question means, with its words where the embedder knows them; it is compared with what was kept as finely.
    Raises EmbedderUnavailable."""
    if fine and isinstance(embedder, FineEmbedder):
        return embed_finely(embedder, [text], is_query=True)[0]
    return TextVectors(embed_packed(embedder, [text])[0])


def _as_bytes(vector: bytes) -> bytes:
    numbers = unpack(vector)
    scale = _LARGEST / max(max(numbers), -min(numbers))
    return array("b", [round(number * scale) for number in numbers]).tobytes()


def keep_parts(sql: Sql, seq: int, model: str, parts: bytes) -> None:
    """Write the parts of an item, in place of those that it had."""
    if parts:
        sql.execute(
            "INSERT INTO parts(seq, model, vectors) VALUES (?, ?, ?) ON CONFLICT(seq)"
            " DO UPDATE SET model = excluded.model, vectors = excluded.vectors",
            (seq, model, parts),
        )
    else:
        sql.execute("DELETE FROM parts WHERE seq = ?", (seq,))


class Near(NamedTuple):
    """How near the parts of an item are: the cosine of its nearest sentence (or stretch of 24 tokens), where in its text that
    is (0 to 1), and the mean, over the words that are asked, of the nearest part of each (None: not known)."""

    cosine: float
    place: float
    words: float | None


def nearest_parts(sql: Sql, model: str, asked: TextVectors, seqs: Collection[int]) -> dict[int, Near]:
    """How near those of these items are that have parts of the model."""
    dimension = len(asked.vector) // 4
    width = dimension // 8 if asked.parts else dimension
    of_these = "SELECT seq, vectors FROM parts WHERE model = ? AND length(vectors) % ? = 0 AND seq IN KEYS"
    rows: list[tuple[int, bytes]] = list(select_among(sql, of_these, seqs, [model, width]))
    numpy = numpy_or_none()
    if not rows or numpy is None:
        return {}
    with boundary("table of parts"):
        counts = numpy.array([len(vectors) // width for _, vectors in rows])
        query = numpy.frombuffer(asked.vector, dtype="<f4")
        if not asked.parts:
            joined = b"".join(vectors for _, vectors in rows)
            matrix = numpy.frombuffer(joined, dtype="i1").reshape(-1, dimension)
            words: list[float | None] = [None] * len(rows)
            starts = counts.cumsum() - counts
        else:
            parts, starts, left = _signs(numpy, [vectors for _, vectors in rows], width)
            each = _products(numpy, parts, numpy.frombuffer(asked.parts, dtype="<f4").reshape(-1, dimension))
            each[left] = -numpy.inf
            words = (numpy.maximum.reduceat(each, starts).mean(axis=1) / math.sqrt(dimension)).tolist()
            matrix, starts, counts = _stretches(numpy, parts, starts // _BLOCK)
        matrix = matrix.astype("f4")
        cosines = numpy.vecdot(matrix, query) / numpy.sqrt(numpy.vecdot(matrix, matrix))
        found = {}
        for (seq, _), start, count, word in zip(rows, starts.tolist(), counts.tolist(), words, strict=True):
            place = int(cosines[start : start + count].argmax())
            found[seq] = Near(float(cosines[start + place]), (place + 0.5) / count, word)
        return found


def _signs(numpy: Any, found: Sequence[bytes], width: int) -> tuple[Any, Any, Any]:
    """The parts of all items, 1 or -1 for each dimension, those of each filled up to whole blocks with zeros; where those of
    each begin; which are only filled in."""
    filled = [vectors + bytes(-len(vectors) % (width * _BLOCK)) for vectors in found]
    parts = numpy.unpackbits(numpy.frombuffer(b"".join(filled), dtype="u1")).view("i1").reshape(-1, 8 * width) * 2 - 1
    many = numpy.array([len(vectors) // width for vectors in filled])
    starts = many.cumsum() - many
    left = [
        row
        for start, own, all_ in zip(starts.tolist(), found, many.tolist(), strict=True)
        for row in range(start + len(own) // width, start + all_)
    ]
    parts[left] = 0
    return parts, starts, left


def _products(numpy: Any, parts: Any, asked: Any) -> Any:
    """The product of each part with each word that is asked, in pieces so small that OpenBLAS starts no threads for them: on a
    busy machine it would wait for them all."""
    found = numpy.empty((len(parts), len(asked)), "f4")
    rows = max(1, _ALONE // asked.size)
    for at in range(0, len(parts), rows):
        numpy.matmul(parts[at : at + rows].astype("f4"), asked.T, out=found[at : at + rows])
    return found


def _stretches(numpy: Any, parts: Any, starts: Any) -> tuple[Any, Any, Any]:
    """The sums of parts that stand together, each overlapping half of the next, where those of each item begin, how many."""
    sums = parts.reshape(-1, _BLOCK, parts.shape[1]).sum(axis=1, dtype="i1")
    blocks = numpy.diff(starts, append=len(sums))
    both = sums.copy()
    both[:-1] += sums[1:]
    last = starts + blocks - 1
    both[last] = sums[last]
    keep = numpy.ones(len(both), dtype=bool)
    keep[last[blocks > 1]] = False  # it is the second half of the one before
    many = numpy.maximum(blocks - 1, 1)
    return both[keep], many.cumsum() - many, many
