"""What turns texts into vectors: the port, its one error, and vectors as they are kept: float32, of length 1, checked."""

from __future__ import annotations

import importlib
import math
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from hivemind.errors import UserError


class Embedder(Protocol):
    """Turns texts into vectors. Equal names mean comparable vectors.

    `embed` gives one row of `dimension` finite numbers for each text (a numpy float32 matrix will do), in their order,
    for any text at all: an empty one, one of a million characters. It raises EmbedderUnavailable where it cannot, and
    then nothing is wrong with the texts: ask again later.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]: ...


class Meaning(NamedTuple):
    """What a text means: its packed vector, and those of its parts, one after another: of a text that is kept a bit for each
    dimension, its sign; of one that is asked float32."""

    vector: bytes
    parts: bytes = b""


@runtime_checkable
class FineEmbedder(Embedder, Protocol):
    """One that also says, in the same pass, what the words of a text mean where they stand.

    `embed_finely` gives the packed meanings of texts: of those that are kept three tokens have one part together, of those that
    are asked each token its own.
    """

    def embed_finely(self, texts: list[str], *, asked: bool = False) -> Sequence[Meaning]: ...


class EmbedderUnavailable(UserError):
    """No vectors now: the model is not installed, its process is gone or slow, or what it gave is no vector."""


INSTALL = "pip install 'hivemind-swarm[embed]'"
_HARMLESS = "water"
_T = TypeVar("_T")


def numpy_or_none() -> Any:
    """numpy, imported now, or None where it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ModuleNotFoundError:
        return None


def pack(vector: Sequence[float], dimension: int) -> bytes:
    """A vector brought to length 1, as bytes. Raises ValueError for another dimension, NaN, infinity or all zeros."""
    if len(vector) != dimension:
        raise ValueError(f"a vector of {len(vector)} dimensions, not {dimension}")
    length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0.0:
        raise ValueError(f"a vector of the length {length}")
    return array("f", (value / length for value in vector)).tobytes()


def _pack_all(numpy: Any, vectors: Sequence[Sequence[float]], dimension: int) -> list[bytes]:
    """The same for each vector."""
    matrix = numpy.asarray(vectors, dtype="<f8")
    if matrix.ndim != 2 or matrix.shape[1] != dimension:
        raise ValueError(f"vectors of the shape {matrix.shape}, not of {dimension} dimensions")
    lengths = numpy.sqrt((matrix * matrix).sum(axis=1))
    bad = numpy.flatnonzero(~numpy.isfinite(lengths) | (lengths == 0.0))
    if len(bad):
        raise ValueError(f"vector {bad[0]} has the length {lengths[bad[0]]}")
    return [row.tobytes() for row in (matrix / lengths[:, None]).astype("<f4")]


def unpack(packed: bytes) -> array[float]:
    """The numbers of a packed vector."""
    return array("f", packed)


def embed_packed(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """A packed vector for each text: the way in which stores ask an embedder.

    Raises EmbedderUnavailable for whatever goes wrong: also where the embedder gave another number of vectors, another
    dimension, NaN or zeros.
    """
    return _checked(embedder, texts, embedder.embed, lambda rows, numpy: _pack_all(numpy, rows, embedder.dimension))


def embed_finely(embedder: FineEmbedder, texts: Sequence[str], *, asked: bool = False) -> list[Meaning]:
    """The same, with the parts of each text."""
    part = embedder.dimension * 4 if asked else embedder.dimension // 8

    def packed(found: Sequence[Meaning], numpy: Any) -> list[Meaning]:
        if any(not one.parts or len(one.parts) % part for one in found):
            raise ValueError(f"parts that are not of {embedder.dimension} dimensions")
        vectors = _pack_all(numpy, [unpack(one.vector) for one in found], embedder.dimension)
        return [Meaning(vector, one.parts) for vector, one in zip(vectors, found, strict=True)]

    return _checked(embedder, texts, partial(embedder.embed_finely, asked=asked), packed)


def _checked(
    embedder: Embedder,
    texts: Sequence[str],
    ask: Callable[[list[str]], Sequence[Any]],
    packed: Callable[[Sequence[Any], Any], list[_T]],
) -> list[_T]:
    if not texts:
        return []
    numpy = numpy_or_none()
    if numpy is None:
        raise EmbedderUnavailable("vectors are compared by numpy, which is not installed", mend=INSTALL)
    try:
        found = ask(list(texts))
        given = len(found)
    except EmbedderUnavailable:
        raise
    except (
        Exception
    ) as error:  # an embedder is somebody's program: texts are kept and searched by their words all the same
        raise EmbedderUnavailable(f"{embedder.name} failed ({type(error).__name__}: {error})") from error
    if given != len(texts):
        raise EmbedderUnavailable(f"{embedder.name} gave {given} vectors for {len(texts)} texts")
    try:
        return packed(found, numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbedderUnavailable(f"{embedder.name} gave what is no vector ({error})") from None


def embed_each(embed: Callable[[Sequence[str]], Sequence[_T]], texts: Sequence[str]) -> list[_T | None]:
    """What `embed` makes of each text; None for one that it refuses though it takes others.

    One text that it cannot take must not hold up the rest: where it fails for all together it is asked for each alone. Raises
    EmbedderUnavailable where it takes no text at all.
    """
    try:
        return list(embed(texts))
    except EmbedderUnavailable:
        found: list[_T | None] = []
        for text in texts:
            try:
                found.append(embed([text])[0])
            except EmbedderUnavailable:
                embed([_HARMLESS])  # is it the text?
                found.append(None)
        return found
