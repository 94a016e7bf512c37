"""Vectors as they are kept: float32, little-endian, of length 1, checked before anybody stores them."""

from __future__ import annotations

import importlib
import math
import sys
from array import array
from collections.abc import Sequence
from typing import Any

from hivemind.embedding.embedder import Embedder, EmbedderUnavailable

__all__ = ["embed_each", "embed_packed", "numpy_or_none", "pack", "pack_all", "unpack"]

FLOAT_BYTES = 4
_HARMLESS = "water"


def numpy_or_none() -> Any:
    """numpy, imported now, or None where it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ModuleNotFoundError:
        return None


def pack(vector: Sequence[float], dimension: int) -> bytes:
    """A vector brought to length 1, as bytes. Raises ValueError for another dimension, NaN, infinity or all zeros."""
    return pack_all([vector], dimension)[0]


def pack_all(vectors: Sequence[Sequence[float]], dimension: int) -> list[bytes]:
    """Each vector brought to length 1, as bytes. Raises ValueError naming the first that is none."""
    numpy = sys.modules.get("numpy")  # whoever made a matrix has imported it; lists need no numpy
    if numpy is not None and isinstance(vectors, numpy.ndarray):
        return _pack_matrix(numpy, vectors, dimension)
    return [_pack_one(vector, dimension, number) for number, vector in enumerate(vectors)]


def _pack_one(vector: Sequence[float], dimension: int, number: int) -> bytes:
    if len(vector) != dimension:
        raise ValueError(f"vector {number} has {len(vector)} dimensions, not {dimension}")
    length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0.0:
        raise ValueError(f"vector {number} has the length {length}")
    return _little(array("f", (value / length for value in vector))).tobytes()


def _little(values: array[float]) -> array[float]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _pack_matrix(numpy: Any, vectors: Any, dimension: int) -> list[bytes]:
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise ValueError(f"a matrix of the shape {vectors.shape}, not of {dimension} dimensions")
    matrix = vectors.astype("<f8")
    lengths = numpy.sqrt((matrix * matrix).sum(axis=1))
    bad = numpy.flatnonzero(~numpy.isfinite(lengths) | (lengths == 0.0))
    if len(bad):
        raise ValueError(f"vector {bad[0]} has the length {lengths[bad[0]]}")
    data: bytes = (matrix / lengths[:, None]).astype("<f4").tobytes()
    width = dimension * FLOAT_BYTES
    return [data[at : at + width] for at in range(0, len(data), width)]


def unpack(packed: bytes) -> array[float]:
    """The numbers of a packed vector."""
    return _little(array("f", packed))


def embed_packed(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """A packed vector for each text: the way in which stores ask an embedder.

    Raises EmbedderUnavailable for whatever goes wrong: also where the embedder gave another number of vectors, another
    dimension, NaN or zeros.
    """
    if not texts:
        return []
    try:
        vectors = embedder.embed(list(texts))
        given = len(vectors)
    except EmbedderUnavailable:
        raise
    except (
        Exception
    ) as error:  # an embedder is somebody's program: texts are kept and searched by their words all the same
        raise EmbedderUnavailable(f"{embedder.name} failed ({type(error).__name__}: {error})") from error
    if given != len(texts):
        raise EmbedderUnavailable(f"{embedder.name} gave {given} vectors for {len(texts)} texts")
    try:
        return pack_all(vectors, embedder.dimension)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbedderUnavailable(f"{embedder.name} gave what is no vector ({error})") from None


def embed_each(embedder: Embedder, texts: Sequence[str]) -> list[bytes | None]:
    """A packed vector for each text; None for one that the embedder refuses though it takes others.

    One text that it cannot take must not hold up the rest: where it fails for all together it is asked for each alone. Raises
    EmbedderUnavailable where it takes no text at all.
    """
    try:
        return list(embed_packed(embedder, texts))
    except EmbedderUnavailable:
        found: list[bytes | None] = []
        for text in texts:
            try:
                found.append(embed_packed(embedder, [text])[0])
            except EmbedderUnavailable:
                embed_packed(embedder, [_HARMLESS])  # is it the text?
                found.append(None)
        return found
