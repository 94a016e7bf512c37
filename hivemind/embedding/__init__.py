"""Texts as vectors: the embedders, the process that serves all hives of a user, and the search for the nearest vectors."""

from __future__ import annotations

from hivemind.embedding.embedder import (
    INSTALL,
    Embedder,
    EmbedderUnavailable,
    FineEmbedder,
    TextVectors,
    embed_each,
    embed_finely,
    embed_packed,
    in_background,
    pack,
    unpack,
)
from hivemind.embedding.local import HashingEmbedder, MiniLM
from hivemind.embedding.open import open_embedder
from hivemind.embedding.service import SharedEmbedder
from hivemind.embedding.vectors import VECTORS, VectorTable, preload, put_vectors

__all__ = [
    "INSTALL",
    "VECTORS",
    "Embedder",
    "EmbedderUnavailable",
    "FineEmbedder",
    "HashingEmbedder",
    "MiniLM",
    "SharedEmbedder",
    "TextVectors",
    "VectorTable",
    "embed_each",
    "embed_finely",
    "embed_packed",
    "in_background",
    "open_embedder",
    "pack",
    "preload",
    "put_vectors",
    "unpack",
]  # fmt: skip
