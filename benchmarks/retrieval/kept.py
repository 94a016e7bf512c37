"""An embedder with a cache file: a second run of a benchmark embeds only new texts."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence

from hivemind.embedding import FineEmbedder, TextVectors, embed_finely, unpack


class CachedEmbedder:
    """Another embedder, asked once for each text."""

    def __init__(self, embedder: FineEmbedder, path: str) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self._embedder = embedder
        self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._sql.execute("CREATE TABLE IF NOT EXISTS meanings (text BLOB PRIMARY KEY, vector BLOB, parts BLOB)")

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """The vectors, from the file where they are there."""
        return [unpack(vectors.vector) for vectors in self.embed_finely(texts)]

    def embed_finely(self, texts: list[str], *, is_query: bool = False) -> Sequence[TextVectors]:
        """The vectors with the parts, likewise."""
        digests = [
            hashlib.sha256(f"{self.name}\0{is_query}\0{text}".encode("utf-8", "replace")).digest() for text in texts
        ]
        cache = {}
        for digest in digests:
            row = self._sql.execute("SELECT vector, parts FROM meanings WHERE text = ?", (digest,)).fetchone()
            if row is not None:
                cache[digest] = TextVectors(*row)
        misses = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in cache}
        fresh = embed_finely(self._embedder, list(misses.values()), is_query=is_query)
        rows = [(digest, *vectors) for digest, vectors in zip(misses, fresh, strict=True)]
        self._sql.executemany("INSERT OR IGNORE INTO meanings VALUES (?, ?, ?)", rows)
        cache |= dict(zip(misses, fresh, strict=True))
        return [cache[digest] for digest in digests]
