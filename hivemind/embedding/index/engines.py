"""Finding the rows nearest to a vector: every one compared, or the signs first and the best of those exactly.

The signs of a vector are one bit for each dimension. How many of them two vectors share says roughly how near they are,
costs a thirty-second of the memory, and nothing is built: so beyond a size the rows that share most are compared
exactly, and the rest not at all. `by_numpy` and `in_python` give the same rows.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterable, Sequence
from heapq import nlargest, nsmallest
from operator import mul
from typing import Any

from hivemind.embedding.index.columns import DEAD, KEY, View
from hivemind.embedding.packed import numpy_or_none, unpack

__all__ = ["ROUNDED", "Near", "bits_of", "living", "nearest", "places_of"]

Near = tuple[int, float]
ROUNDED = 6  # digits of a cosine: what is beyond depends on how many rows were multiplied at once
LOOKED_AT = 1_000  # rows compared exactly after the signs, at least
SHARE = 100  # and one in so many


def bits_of(rows: Sequence[bytes]) -> bytes:
    """The signs of packed vectors, each padded to whole words of 64 bits, first dimension in the highest bit of a byte."""
    numpy = numpy_or_none()
    if numpy is not None and rows:
        matrix = numpy.frombuffer(b"".join(rows), dtype="<f4").reshape(len(rows), -1)
        packed = numpy.packbits(matrix > 0, axis=1)
        if lacking := -packed.shape[1] % 8:
            packed = numpy.pad(packed, ((0, 0), (0, lacking)))
        return bytes(packed.tobytes())
    return b"".join(map(_bits, rows))


def _bits(row: bytes) -> bytes:
    signs = "".join("1" if value > 0 else "0" for value in unpack(row))
    width = -(-len(signs) // 64) * 64
    return int(signs.ljust(width, "0"), 2).to_bytes(width // 8, "big")


def places_of(view: View, keys: Collection[int]) -> list[int]:
    """The rows that have one of the keys."""
    numpy = numpy_or_none()
    if numpy is None:
        wanted = set(keys)
        return [place for place, (key, _) in enumerate(_pairs(view)) if key in wanted]
    column = numpy.frombuffer(view.keys, dtype="<i8", count=2 * view.count)[::2]
    found: list[int] = numpy.flatnonzero(
        numpy.isin(column, numpy.fromiter(keys, dtype="<i8", count=len(keys)))
    ).tolist()
    return found


def living(view: View) -> int:
    """How many rows still count."""
    numpy = numpy_or_none()
    if numpy is None:
        return sum(key != DEAD for key, _ in _pairs(view))
    return int(numpy.count_nonzero(numpy.frombuffer(view.keys, dtype="<i8", count=2 * view.count)[::2] != DEAD))


def _pairs(view: View) -> Iterable[tuple[int, int]]:
    return KEY.iter_unpack(view.keys[: view.count * KEY.size])


def nearest(view: View, query: bytes, limit: int, groups: Collection[int] | None, exact_to: int) -> list[Near]:
    """(key, cosine) of the living rows nearest to a packed vector, best first, equal ones by key.

    Up to `exact_to` rows all are compared; of more, those that share most signs with the query.
    """
    if limit <= 0 or not view.count:
        return []
    numpy = numpy_or_none()
    if numpy is None:
        return _in_python(view, query, limit, groups, exact_to)
    return _by_numpy(numpy, view, query, limit, groups, exact_to)


def looked_at(limit: int, count: int) -> int:
    """How many rows are compared exactly, of `count` whose signs were."""
    return max(LOOKED_AT, 4 * limit, count // SHARE)


def _by_numpy(
    numpy: Any, view: View, query: bytes, limit: int, groups: Collection[int] | None, exact_to: int
) -> list[Near]:
    pairs = numpy.frombuffer(view.keys, dtype="<i8", count=2 * view.count).reshape(-1, 2)
    wanted = pairs[:, 0] != DEAD
    if groups is not None and len(groups) == 1:  # the usual search: comparing is six times as fast as isin
        wanted &= pairs[:, 1] == next(iter(groups))
    elif groups is not None:
        wanted &= numpy.isin(pairs[:, 1], numpy.fromiter(groups, dtype="<i8", count=len(groups)))
    places = numpy.flatnonzero(wanted)
    if len(places) > exact_to:
        places = _sharing_most(numpy, view, query, places, looked_at(limit, len(places)))
    if not len(places):
        return []
    vector = numpy.frombuffer(query, dtype="<f4")
    matrix = numpy.frombuffer(view.rows, dtype="<f4", count=view.count * len(vector)).reshape(-1, len(vector))
    together = places[-1] - places[0] + 1 == len(places)  # then no row need be copied
    rows = matrix[places[0] : places[-1] + 1] if together else matrix[places]
    # vecdot and not @: beyond some size that wakes a thread for each core, and on a busy machine waits for them all
    cosines = numpy.round(numpy.vecdot(rows, vector).astype("<f8"), ROUNDED)
    keys = pairs[places, 0]
    if len(places) > limit:  # all that are as good as the last of the best: ties are for the keys to settle
        kept = cosines >= numpy.partition(cosines, len(cosines) - limit)[len(cosines) - limit]
        cosines, keys = cosines[kept], keys[kept]
    order = numpy.lexsort((keys, -cosines))[:limit]
    return list(zip(keys[order].tolist(), cosines[order].tolist(), strict=True))


def _sharing_most(numpy: Any, view: View, query: bytes, places: Any, most: int) -> Any:
    """Of the rows at `places`, the `most` that share the most signs with the query, in their order; of rows that share as
    many as the last one, the first."""
    asked = numpy.frombuffer(bits_of([query]), dtype="<u8")
    words = numpy.frombuffer(view.bits, dtype="<u8", count=view.count * len(asked)).reshape(-1, len(asked))
    if few := len(places) < view.count // 2:  # else counting the others too costs less than copying these
        words = words[places]
    apart = numpy.zeros(len(words), dtype="<u2")
    for number, word in enumerate(asked):
        apart += numpy.bitwise_count(words[:, number] ^ word)
    if not few and len(places) < view.count:
        apart = apart[places]
    farthest = int(numpy.searchsorted(numpy.cumsum(numpy.bincount(apart)), most))
    near = numpy.flatnonzero(apart <= farthest)
    last = numpy.flatnonzero(apart[near] == farthest)
    return places[numpy.delete(near, last[len(last) - (len(near) - most) :])]


def _in_python(view: View, query: bytes, limit: int, groups: Collection[int] | None, exact_to: int) -> list[Near]:
    among = None if groups is None else set(groups)
    keys = [key for key, _ in _pairs(view)]
    places = [
        place for place, (key, group) in enumerate(_pairs(view)) if key != DEAD and (among is None or group in among)
    ]
    if len(places) > exact_to:
        asked, width = int.from_bytes(bits_of([query]), "big"), len(bits_of([query]))
        bits = view.bits
        apart = [(int.from_bytes(bits[at * width : (at + 1) * width], "big") ^ asked).bit_count() for at in places]
        most = looked_at(limit, len(places))
        places = [place for _, place in nsmallest(most, zip(apart, places, strict=True))]
    vector, size = unpack(query), len(query)
    cosines = ((round(sum(map(mul, _row(view.rows, at, size), vector)), ROUNDED), -keys[at]) for at in places)
    return [(-key, cosine) for cosine, key in nlargest(limit, cosines)]


def _row(rows: memoryview, place: int, size: int) -> Sequence[float]:
    row = rows[place * size : (place + 1) * size]
    return row.cast("f") if sys.byteorder == "little" else array("f", unpack(bytes(row)))
