"""The protocol of embedders, their only error, and packed vectors (float32, length 1, checked)."""

from __future__ import annotations

import importlib
import math
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from hivemind.errors import UserError


class Embedder(Protocol):
    """A model that turns texts into vectors. Vectors of embedders with equal names can be compared.

    `embed` returns a row of `dimension` finite numbers (or a row of a numpy float32 matrix) for each text, in order. It
    accepts any text, even an empty one or one of a million characters. If it cannot answer now, it raises
    EmbedderUnavailable; the caller may send the texts again later.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]: ...


class TextVectors(NamedTuple):
    """The packed vector of a text, and the concatenated vectors of its parts.

    A part of a stored text has one bit (the sign) per dimension, a part of a query one float32 per dimension.
    """

    vector: bytes
    parts: bytes = b""


@runtime_checkable
class FineEmbedder(Embedder, Protocol):
    """An embedder that also returns the vectors of a text's parts, at little extra cost.

    A stored text has a part for every three tokens, a query has a part for each token.
    """

    def embed_finely(self, texts: list[str], *, is_query: bool = False) -> Sequence[TextVectors]: ...


class EmbedderUnavailable(UserError):
    """The embedder cannot return vectors now: its model is missing, its process failed, or its output is invalid."""


def in_background(embedder: Embedder) -> Embedder:
    """Return an embedder with the same vectors that embeds only when no other texts wait, or else `embedder` itself."""
    background: Embedder = getattr(embedder, "background", embedder)
    return background


INSTALL = "pip install 'hivemind-swarm[embed]'"
_HARMLESS = "water"
_T = TypeVar("_T")


def numpy_or_none() -> Any:
    """Return the module numpy, or None if it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ModuleNotFoundError:
        return None


def pack(vector: Sequence[float], dimension: int) -> bytes:
    """Normalise a vector to length 1; return its numbers as float32 bytes.

    Raises ValueError for another number of dimensions, NaN, infinity or all zeros.
    """
    if len(vector) != dimension:
        raise ValueError(f"a vector of {len(vector)} dimensions, not {dimension}")
    length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0.0:
        raise ValueError(f"a vector of length {length}")
    return array("f", (value / length for value in vector)).tobytes()


def unpack(vector: bytes) -> array[float]:
    return array("f", vector)


def embed_packed(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """Return a packed vector for each text, checked. Stores call this function, never `Embedder.embed` directly.

    Raises EmbedderUnavailable for every failure, also for a wrong number or dimension of vectors, NaN or all zeros.
    """
    return _embed_checked(embedder, texts, embedder.embed, lambda row: pack(row, embedder.dimension))


def embed_finely(embedder: FineEmbedder, texts: Sequence[str], *, is_query: bool = False) -> list[TextVectors]:
    """Return the packed vectors of each text and of its parts, checked. `is_query` says that the texts are queries.

    Raises EmbedderUnavailable for every failure.
    """
    bytes_per_part = embedder.dimension * 4 if is_query else embedder.dimension // 8

    def pack_fine(vectors: TextVectors) -> TextVectors:
        if not vectors.parts or len(vectors.parts) % bytes_per_part:
            raise ValueError(f"parts must have {embedder.dimension} dimensions")
        return TextVectors(pack(unpack(vectors.vector), embedder.dimension), vectors.parts)

    return _embed_checked(embedder, texts, partial(embedder.embed_finely, is_query=is_query), pack_fine)


def _embed_checked(
    embedder: Embedder,
    texts: Sequence[str],
    embed: Callable[[list[str]], Sequence[Any]],
    pack_output: Callable[[Any], _T],
) -> list[_T]:
    if not texts:
        return []
    if numpy_or_none() is None:
        raise EmbedderUnavailable("comparing vectors needs numpy, which is not installed", remedy=INSTALL)
    try:
        output = embed(list(texts))
        vector_count = len(output)
    except EmbedderUnavailable:
        raise
    except Exception as error:  # an embedder may raise anything; texts can still be stored, and found by words
        raise EmbedderUnavailable(f"{embedder.name} failed ({type(error).__name__}: {error})") from error
    if vector_count != len(texts):
        raise EmbedderUnavailable(f"{embedder.name} returned {vector_count} vectors for {len(texts)} texts")
    try:
        return [pack_output(vectors) for vectors in output]
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbedderUnavailable(f"{embedder.name} returned an invalid vector ({error})") from None


def embed_each(embed: Callable[[Sequence[str]], Sequence[_T]], texts: Sequence[str]) -> list[_T | None]:
    """Return the output of `embed` for each text. The output is None for a text that `embed` refuses although it accepts others.

    If `embed` fails for the texts together, it is called for each text alone: one bad text must not block the others.
    Raises EmbedderUnavailable if `embed` accepts no text at all.
    """
    try:
        return list(embed(texts))
    except EmbedderUnavailable:
        outputs: list[_T | None] = []
        for text in texts:
            try:
                outputs.append(embed([text])[0])
            except EmbedderUnavailable:
                embed([_HARMLESS])  # raises if the embedder is at fault, not the text
                outputs.append(None)
        return outputs
