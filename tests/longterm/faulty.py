"""An embedder with the faults that embedders have."""

from __future__ import annotations

from collections.abc import Sequence

from hivemind.embedding import EmbedderUnavailable, HashingEmbedder


class Faulty:
    """The hashing embedder, as long as `fault` is None; counts the texts that it was asked for."""

    def __init__(self, dimension: int = 384, name: str | None = None) -> None:
        self._inner = HashingEmbedder(dimension)
        self.dimension = dimension
        self.name = name or self._inner.name
        self.fault: str | None = None
        self.asked: list[str] = []

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        self.asked += texts
        rows = [list(row) for row in self._inner.embed(texts)]
        match self.fault:
            case None:
                return rows
            case "down":
                raise EmbedderUnavailable("its process was killed")
            case "broken":
                raise RuntimeError("CUDA error")
            case "fewer":
                return rows[1:]
            case "dimension":
                return [row[:-1] for row in rows]
            case "nan":
                return [[float("nan")] * self.dimension for _ in rows]
            case "zero":
                return [[0.0] * self.dimension for _ in rows]
            case poison if any(poison in text for text in texts):
                raise EmbedderUnavailable(f"it cannot take {poison!r}")
        return rows
