"""What a node said before: every change of text or context keeps the old version (spec 5)."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from hivemind.documents import tree
from hivemind.documents.edit import Edit
from hivemind.documents.errors import DocmemError, ReadonlyError
from hivemind.documents.given import shown
from hivemind.documents.node import Node

__all__ = ["Version", "history", "restore"]


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a node's text and context; `updated_at` is when it came about. Versions count from 1."""

    version: int
    text: str
    context_type: str
    context_name: str
    context_value: str
    updated_at: str
    hash: str


def history(sql: sqlite3.Connection, node_id: str) -> list[Version]:
    """All versions, oldest first; the last one is how the node stands now. Raises NodeNotFoundError."""
    node = tree.get(sql, node_id)
    rows = sql.execute(
        "SELECT version, text, context_type, context_name, context_value, updated_at, hash"
        " FROM versions WHERE node_id = ? ORDER BY version",
        (node_id,),
    )
    found = [Version(*row) for row in rows]
    return [*found, Version(len(found) + 1, node.text, *node.context, node.updated_at, node.hash)]


def restore(edit: Edit, node_id: str, version: int, expected_hash: str | None) -> Node:
    """Give a node the text and context of one of its versions; what it said until now is kept as a version too.

    Raises OptimisticLockError, ReadonlyError, and DocmemError for a version that it never had.
    """
    node = edit.expect(node_id, expected_hash)
    if node.readonly:
        raise ReadonlyError(node_id)
    found = next((old for old in history(edit.sql, node_id) if old.version == version), None)
    if found is None:
        raise DocmemError(f"node {node_id!r} has no version {shown(version)}", mend="history(node_id) lists them")
    return edit.change(
        node, text=found.text, context_type=found.context_type,
        context_name=found.context_name, context_value=found.context_value,
    )  # fmt: skip
