"""An embedder that keeps what it gave in a file, so that a benchmark that is run again embeds nothing anew."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence

from hivemind.embedding import Embedder, embed_packed, unpack


class Kept:
    """Another embedder, asked once for each text."""

    def __init__(self, embedder: Embedder, path: str) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self._embedder = embedder
        self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._sql.execute("CREATE TABLE IF NOT EXISTS kept (text BLOB PRIMARY KEY, vector BLOB NOT NULL)")

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """The vectors, from the file where they are there."""
        digests = [hashlib.sha256(f"{self.name}\0{text}".encode("utf-8", "replace")).digest() for text in texts]
        known = {}
        for digest in digests:
            row = self._sql.execute("SELECT vector FROM kept WHERE text = ?", (digest,)).fetchone()
            if row is not None:
                known[digest] = row[0]
        missing = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in known}
        fresh = dict(zip(missing, embed_packed(self._embedder, list(missing.values())), strict=True))
        self._sql.executemany("INSERT OR IGNORE INTO kept VALUES (?, ?)", fresh.items())
        return [unpack((known | fresh)[digest]) for digest in digests]
