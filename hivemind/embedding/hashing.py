"""An embedder that needs no model: words and their beginnings, hashed into dimensions. For tests and examples."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["HashingEmbedder"]

_WORD = re.compile(r"\w+")
_STEM = 4  # letters: "running" and "runner" share "runn"


class HashingEmbedder:
    """Vectors whose cosine says how many words two texts share. Deterministic, pure Python, the same everywhere."""

    __slots__ = ("dimension", "name")

    def __init__(self, dimension: int = 384) -> None:
        if dimension < 1:
            raise ValueError(f"a dimension of {dimension}")
        self.dimension = dimension
        self.name = f"hashing-{dimension}"

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """One vector of length 1 or more for each text; a text without words has the first axis."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimension
        for word, times in Counter(_WORD.findall(text.casefold())).items():
            for feature in {word, word[:_STEM]}:
                place, sign = _place(feature, self.dimension)
                vector[place] += sign * (1.0 + min(times, 3) / 10)
        if not any(vector):
            vector[0] = 1.0
        return vector


@lru_cache(maxsize=65_536)
def _place(feature: str, dimension: int) -> tuple[int, float]:
    number = int.from_bytes(hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    return (number >> 1) % dimension, 1.0 if number & 1 else -1.0
