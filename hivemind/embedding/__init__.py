"""Texts as vectors: the embedder's port and its kinds, one process that serves a user's hives, and what is near to what."""

from __future__ import annotations

from hivemind.embedding.embedder import (
    INSTALL,
    Embedder,
    EmbedderUnavailable,
    FineEmbedder,
    Meaning,
    embed_each,
    embed_finely,
    embed_packed,
    pack,
    unpack,
)
from hivemind.embedding.local import HashingEmbedder, MiniLM
from hivemind.embedding.opening import open_embedder
from hivemind.embedding.service import SharedEmbedder
from hivemind.embedding.vectors import VECTORS, Vectors, put_vectors, warm

__all__ = [
    "INSTALL", "VECTORS", "Embedder", "EmbedderUnavailable", "FineEmbedder", "HashingEmbedder", "Meaning", "MiniLM",
    "SharedEmbedder", "Vectors", "embed_each", "embed_finely", "embed_packed", "open_embedder", "pack", "put_vectors",
    "unpack", "warm",
]  # fmt: skip
