"""The vectors of a store, and the nearest of them to one."""

from __future__ import annotations

from hivemind.embedding.index.engines import Near
from hivemind.embedding.index.table import VectorTable
from hivemind.embedding.index.vector_index import Change, VectorIndex
from hivemind.embedding.index.vectors import Vectors

__all__ = ["Change", "Near", "VectorIndex", "VectorTable", "Vectors"]
