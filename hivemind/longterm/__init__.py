"""Long-term memory: entries that agents and users store for later, searched by words and by meaning."""

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
from hivemind.longterm.namespace import Namespace, check_namespace, format_namespace, parse_namespace
from hivemind.longterm.store import MemoryStore, open_store
from hivemind.longterm.validation import provenance, shorten

__all__ = [
    "EntryInvalid",
    "LongtermError",
    "MemoryEntry",
    "MemorySearchResult",
    "MemoryStore",
    "Namespace",
    "NamespaceForbidden",
    "NamespaceInvalid",
    "StoreDamaged",
    "StoreStatus",
    "UpsertMemoryInput",
    "UpsertMemoryResult",
    "User",
    "VersionConflict",
    "check_namespace",
    "copy_memories",
    "format_namespace",
    "open_store",
    "parse_namespace",
    "provenance",
    "shorten",
]  # fmt: skip
