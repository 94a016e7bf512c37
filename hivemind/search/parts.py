"""Vectors of an item's parts, with which a search compares its candidates more closely (late interaction).

A sentence of a long text can match a query although the whole text does not. Only the parts of candidates are compared;
no index contains parts.

With a FineEmbedder, which embeds tokens in context, a part is three tokens with one bit per dimension. With any other
embedder, a part is a sentence with one signed byte per dimension, scaled to the sentence's largest number.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from hivemind.boundary import boundary
from hivemind.embedding import Embedder, FineEmbedder, TextVectors, embed_finely, embed_packed, unpack
from hivemind.embedding.embedder import numpy_or_none
from hivemind.fs.database import Sql, select_by_keys

PARTS = (
    "CREATE TABLE parts (seq INTEGER PRIMARY KEY, model TEXT NOT NULL, vectors BLOB NOT NULL)",
    "CREATE TRIGGER vectors_gone AFTER DELETE ON vectors BEGIN DELETE FROM parts WHERE seq = old.key; END",
)
"""Statements that create the table `parts`. Deleting an item's row of `vectors` deletes its parts."""

_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=\s*(?:[-*+#|>]|\d+[.)])\s)")  # a wrapped line does not end a sentence
_MIN_LETTERS = 13  # shorter sentences such as "Thanks, Ann!" are ignored
_MAX_SENTENCES = 16  # parts per text; if it has more sentences, a part has several
_MAX_BYTE = 127
_BLOCK_PARTS = 4  # parts in half a stretch
_MAX_PRODUCTS = 250_000  # multiplications that OpenBLAS performs in the calling thread


def sentences_of(content: str) -> list[str]:
    """Return the sentences of at least 13 characters. In a long text, adjacent sentences are joined into at most 16 groups.

    Return [] for a text with fewer than two of these sentences.
    """
    spans = [span for span in sentence_spans(content) if span[1] - span[0] >= _MIN_LETTERS]
    if len(spans) < 2:
        return []
    sentences_per_part = math.ceil(len(spans) / _MAX_SENTENCES)
    return [
        content[spans[at][0] : spans[min(at + sentences_per_part, len(spans)) - 1][1]]
        for at in range(0, len(spans), sentences_per_part)
    ]


def sentence_spans(content: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence, without surrounding white space."""
    spans, start = [], 0
    for end in (*(match.span() for match in _END.finditer(content)), (len(content), len(content))):
        sentence = content[start : end[0]]
        first = start + len(sentence) - len(sentence.lstrip())
        if sentence.strip():
            spans.append((first, first + len(sentence.strip())))
        start = end[1]
    return spans


def embed_texts(embedder: Embedder, texts: Sequence[str], *, fine: bool = True) -> list[TextVectors]:
    """Embed texts and their parts: groups of tokens with `fine` and a FineEmbedder, otherwise sentences.

    Raises EmbedderUnavailable.
    """
    if fine and isinstance(embedder, FineEmbedder):
        return embed_finely(embedder, texts)
    sentences = [sentences_of(text) for text in texts]
    vectors = iter(embed_packed(embedder, [*texts, *chain.from_iterable(sentences)]))
    text_vectors = list(islice(vectors, len(texts)))
    return [
        TextVectors(vector, b"".join(map(_quantize, islice(vectors, len(text_sentences)))))
        for vector, text_sentences in zip(text_vectors, sentences, strict=True)
    ]


def embed_question(embedder: Embedder, text: str, *, fine: bool = True) -> TextVectors:
    """Embed a question and, with a FineEmbedder and `fine`, each of its words. Raises EmbedderUnavailable.

    `fine` must be the value with which the stored texts were embedded.
    """
    if fine and isinstance(embedder, FineEmbedder):
        return embed_finely(embedder, [text], is_query=True)[0]
    return TextVectors(embed_packed(embedder, [text])[0])


def _quantize(vector: bytes) -> bytes:
    numbers = unpack(vector)
    scale = _MAX_BYTE / max(max(numbers), -min(numbers))
    return array("b", [round(number * scale) for number in numbers]).tobytes()


def store_parts(sql: Sql, model: str, parts_by_seq: Mapping[int, bytes]) -> None:
    """Write the parts of items, replacing earlier ones. Where the new value is b"", only delete the earlier parts."""
    sql.executemany("DELETE FROM parts WHERE seq = ?", [(seq,) for seq in parts_by_seq])
    rows = [(seq, model, parts) for seq, parts in parts_by_seq.items() if parts]
    sql.executemany("INSERT INTO parts(seq, model, vectors) VALUES (?, ?, ?)", rows)


class PartSimilarity(NamedTuple):
    """The similarity of an item's parts to a query.

    `cosine` is that of the nearest sentence (or stretch of 24 tokens), `position` its place in the text (0 to 1).
    `word_similarity` is the mean, over the query's words, of the similarity to the nearest part; None if the parts are
    sentences. `weakest_word` tells how well one stretch of 36 tokens matches all of the query's words: the similarity
    of the word that the best such stretch matches least.
    """

    cosine: float
    position: float
    word_similarity: float | None
    weakest_word: float = 0.0


def compare_parts(
    sql: Sql, model: str, query_vectors: TextVectors, ids_by_key: Mapping[int, int]
) -> dict[int, PartSimilarity]:
    """Return the similarity of each item's parts to the query, by the item's id. Leave out items without parts of the model.

    `ids_by_key` maps the keys of the items' vectors, in reading order, to the items' ids.
    """
    dimension = len(query_vectors.vector) // 4
    width = dimension // 8 if query_vectors.parts else dimension
    statement = "SELECT seq, vectors FROM parts WHERE model = ? AND length(vectors) % ? = 0 AND seq IN KEYS"
    vectors_by_key: dict[int, bytes] = dict(select_by_keys(sql, statement, ids_by_key, [model, width]))
    vectors_by_id: dict[int, bytes] = {}
    for key, item_id in ids_by_key.items():
        if key in vectors_by_key:
            vectors_by_id[item_id] = vectors_by_id.get(item_id, b"") + vectors_by_key[key]
    rows = [*vectors_by_id.items()]
    numpy = numpy_or_none()
    if not rows or numpy is None:
        return {}
    with boundary("table of parts"):
        counts = numpy.array([len(vectors) // width for _, vectors in rows])
        query_vector = numpy.frombuffer(query_vectors.vector, dtype="<f4")
        if not query_vectors.parts:
            part_bytes = b"".join(vectors for _, vectors in rows)
            matrix = numpy.frombuffer(part_bytes, dtype="i1").reshape(-1, dimension)
            word_similarities: list[float | None] = [None] * len(rows)
            weakest_words = [0.0] * len(rows)
            starts = counts.cumsum() - counts
        else:
            parts, starts, padding_rows = _unpack_signs(numpy, [vectors for _, vectors in rows], width)
            products = _products(
                numpy, parts, numpy.frombuffer(query_vectors.parts, dtype="<f4").reshape(-1, dimension)
            )
            products[padding_rows] = -numpy.inf
            blocks, starts = products.reshape(-1, _BLOCK_PARTS, products.shape[1]).max(axis=1), starts // _BLOCK_PARTS
            scale = math.sqrt(dimension)
            word_similarities = (numpy.maximum.reduceat(blocks, starts).mean(axis=1) / scale).tolist()
            last = numpy.append(starts[1:], len(blocks)).repeat(numpy.diff(starts, append=len(blocks))) - 1
            following = numpy.arange(len(blocks)) + 1
            windows = numpy.maximum(blocks, blocks[numpy.minimum(following, last)])
            windows = numpy.maximum(windows, blocks[numpy.minimum(following + 1, last)])
            weakest_words = (numpy.maximum.reduceat(windows.min(axis=1), starts) / scale).tolist()
            matrix, starts, counts = _stretches(numpy, parts, starts)
        matrix = matrix.astype("f4")
        cosines = numpy.vecdot(matrix, query_vector) / numpy.sqrt(numpy.vecdot(matrix, matrix))
        similarities = {}
        for (seq, _), start, count, word_similarity, weakest_word in zip(
            rows, starts.tolist(), counts.tolist(), word_similarities, weakest_words, strict=True
        ):
            nearest = int(cosines[start : start + count].argmax())
            similarities[seq] = PartSimilarity(
                float(cosines[start + nearest]), (nearest + 0.5) / count, word_similarity, weakest_word
            )
        return similarities


def _unpack_signs(numpy: Any, packed_parts: Sequence[bytes], width: int) -> tuple[Any, Any, Any]:
    """Unpack the items' parts to rows of 1 or -1 per dimension. Pad each item with rows of 0 up to a whole block.

    Return the rows, the number of each item's first row, and the numbers of the padding rows.
    """
    padded = [vectors + bytes(-len(vectors) % (width * _BLOCK_PARTS)) for vectors in packed_parts]
    parts = numpy.unpackbits(numpy.frombuffer(b"".join(padded), dtype="u1")).view("i1").reshape(-1, 8 * width) * 2 - 1
    counts = numpy.array([len(vectors) // width for vectors in padded])
    starts = counts.cumsum() - counts
    padding_rows = [
        row
        for start, part_bytes, count in zip(starts.tolist(), packed_parts, counts.tolist(), strict=True)
        for row in range(start + len(part_bytes) // width, start + count)
    ]
    parts[padding_rows] = 0
    return parts, starts, padding_rows


def _products(numpy: Any, parts: Any, query_words: Any) -> Any:
    """Return the dot product of each part with each word of the query.

    It is computed in pieces so small that OpenBLAS starts no threads: on a busy machine, threads would wait for each other.
    """
    products = numpy.empty((len(parts), len(query_words)), "f4")
    rows = max(1, _MAX_PRODUCTS // query_words.size)
    for at in range(0, len(parts), rows):
        numpy.matmul(parts[at : at + rows].astype("f4"), query_words.T, out=products[at : at + rows])
    return products


def _stretches(numpy: Any, parts: Any, starts: Any) -> tuple[Any, Any, Any]:
    """Add up the parts in each stretch of two adjacent blocks. Stretches overlap by one block.

    Return the sums, the index of each item's first sum, and the number of each item's sums.
    """
    sums = parts.reshape(-1, _BLOCK_PARTS, parts.shape[1]).sum(axis=1, dtype="i1")
    blocks = numpy.diff(starts, append=len(sums))
    stretches = sums.copy()
    stretches[:-1] += sums[1:]
    last = starts + blocks - 1
    stretches[last] = sums[last]
    keep = numpy.ones(len(stretches), dtype=bool)
    keep[last[blocks > 1]] = False  # an item's last block is already in its last stretch
    counts = numpy.maximum(blocks - 1, 1)
    return stretches[keep], counts.cumsum() - counts, counts
