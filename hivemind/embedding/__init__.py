"""Texts as vectors: the embedder's port and its kinds, one process that serves a hive, and the index of what is near."""

from __future__ import annotations

from hivemind.embedding.embedder import Embedder, EmbedderUnavailable
from hivemind.embedding.hashing import HashingEmbedder
from hivemind.embedding.index import VectorIndex, VectorTable
from hivemind.embedding.packed import embed_packed, pack, unpack

__all__ = [
    "Embedder",
    "EmbedderUnavailable",
    "HashingEmbedder",
    "VectorIndex",
    "VectorTable",
    "embed_packed",
    "pack",
    "unpack",
]
