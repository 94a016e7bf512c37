"""Document memory: trees of text in one SQLite database, and the knowledge folder as such trees (spec 5, seed 003)."""

from __future__ import annotations

from hivemind.documents.docmem import Docmem
from hivemind.documents.edit import Version
from hivemind.documents.importing import Letter
from hivemind.documents.knowledge import Knowledge, SyncReport, files_below
from hivemind.documents.node import (
    CycleError,
    DocmemError,
    Node,
    NodeNotFoundError,
    OptimisticLockError,
    ReadonlyError,
    UnwritableError,
)
from hivemind.documents.passages import Citation, Passage, Verdict, how_far, verify
from hivemind.documents.query import Hit
from hivemind.documents.search import title_of
from hivemind.documents.tree import Shown, Source
from hivemind.embedding import Embedder

__all__ = [
    "Citation", "CycleError", "Docmem", "DocmemError", "Embedder", "Hit", "Knowledge", "Letter", "Node",
    "NodeNotFoundError", "OptimisticLockError", "Passage", "ReadonlyError", "Shown", "Source", "SyncReport",
    "UnwritableError", "Verdict", "Version", "files_below", "how_far", "title_of", "verify",
]  # fmt: skip
