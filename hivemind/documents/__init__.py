"""Document memory: documents as trees of text nodes in one SQLite database, kept in sync with the knowledge folder.

Each name is imported at its first use, so `hivemind status` can count passages without loading the search.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hivemind.documents.citation import Citation, Verdict
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
    from hivemind.documents.passages import Passage
    from hivemind.documents.progress import describe_gap, describe_progress, read_progress
    from hivemind.documents.search import DocumentHit, title_of
    from hivemind.documents.tree import NodeListing, NodeSource
    from hivemind.documents.verification import verify

__all__ = [
    "Citation",
    "CycleError",
    "Docmem",
    "DocmemError",
    "DocumentHit",
    "Knowledge",
    "Letter",
    "Node",
    "NodeListing",
    "NodeNotFoundError",
    "NodeSource",
    "OptimisticLockError",
    "Passage",
    "ReadonlyError",
    "SyncReport",
    "UnwritableError",
    "Verdict",
    "Version",
    "describe_gap",
    "describe_progress",
    "files_below",
    "read_progress",
    "title_of",
    "verify",
]  # fmt: skip

_PARTS = (
    "citation", "progress", "node", "tree", "edit", "passages", "verification", "search", "importing", "docmem", "knowledge",
)  # fmt: skip


def __getattr__(name: str) -> object:
    for part in _PARTS if name in __all__ else ():
        module = import_module(f"{__name__}.{part}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
