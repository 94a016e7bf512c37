"""Texts as vectors: the embedder's port and its kinds, one process that serves a hive, and the index of what is near."""

from __future__ import annotations

from hivemind.embedding.embedder import Embedder, EmbedderUnavailable
from hivemind.embedding.fusing import fused
from hivemind.embedding.hashing import HashingEmbedder
from hivemind.embedding.index import VectorIndex, Vectors, VectorTable
from hivemind.embedding.minilm import INSTALL, MiniLM
from hivemind.embedding.opening import open_embedder
from hivemind.embedding.packed import embed_each, embed_packed, pack, unpack
from hivemind.embedding.service import SharedEmbedder, end_service
from hivemind.embedding.warming import warm

__all__ = [
    "INSTALL",
    "Embedder",
    "EmbedderUnavailable",
    "HashingEmbedder",
    "MiniLM",
    "SharedEmbedder",
    "VectorIndex",
    "VectorTable",
    "Vectors",
    "embed_each",
    "embed_packed",
    "end_service",
    "fused",
    "open_embedder",
    "pack",
    "unpack",
    "warm",
]
