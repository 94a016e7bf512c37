"""Long-term memory: what agents and users said is worth knowing later, found by its words and its meaning."""

from __future__ import annotations

from hivemind.longterm.copy import copy_memories
from hivemind.longterm.entry import MemoryEntry, MemorySearchResult, UpsertMemoryInput, UpsertMemoryResult, User
from hivemind.longterm.errors import (
    EntryInvalid,
    LongtermError,
    NamespaceForbidden,
    NamespaceInvalid,
    StoreDamaged,
    VersionConflict,
)
from hivemind.longterm.integrity import StoreStatus
from hivemind.longterm.namespace import Namespace, check_namespace, named, shown
from hivemind.longterm.store import MemoryStore, open_store
from hivemind.longterm.validation import provenance, shortened

__all__ = [
    "EntryInvalid", "LongtermError", "MemoryEntry", "MemorySearchResult", "MemoryStore", "Namespace",
    "NamespaceForbidden", "NamespaceInvalid", "StoreDamaged", "StoreStatus", "UpsertMemoryInput",
    "UpsertMemoryResult", "User", "VersionConflict", "check_namespace", "copy_memories", "named", "open_store", "provenance",
    "shortened", "shown",
]  # fmt: skip
