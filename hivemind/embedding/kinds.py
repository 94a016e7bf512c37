"""The embedders that run on this machine, by kind."""

from __future__ import annotations

from hivemind.embedding.embedder import Embedder
from hivemind.embedding.hashing import HashingEmbedder
from hivemind.embedding.minilm import MiniLM

__all__ = ["KINDS", "open_kind"]

KINDS = ("minilm", "hashing")


def open_kind(kind: str) -> Embedder:
    """The embedder of that kind; its model is loaded at its first use. Raises EmbedderUnavailable, KeyError."""
    if kind == "minilm":
        return MiniLM()
    if kind == "hashing":
        return HashingEmbedder()
    raise KeyError(kind)
