"""A part of a document as text: as much of it as fits, and how much of it that is (spec 5, spec 2's forms)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hivemind.documents.node import Node
from hivemind.documents.tree import has_children

__all__ = ["Form", "Shown", "is_whole", "show"]

Form = Literal["full", "outline", "excerpt"]
_APART = "\n\n"
_LEFT_OUT = "\n\n[…]\n\n"


@dataclass(frozen=True, slots=True)
class Shown:
    """The text of some nodes in reading order, `[…]` where others of the same file are left out between them.

    `form`: "full" if nothing below the first one is missing; "outline" if only headings, summaries and the like are
    there, whose children are not; "excerpt" otherwise. `nodes` are those that the text is of.
    """

    text: str
    form: Form
    nodes: tuple[Node, ...]


def show(sql: sqlite3.Connection, nodes: Sequence[Node]) -> Shown:
    """The first of the nodes and those below it that are given with it, as text.

    What stood in one file one after the other has between it what stood between it there. A document that came from a
    file shows no title of its own: the file's first heading says it.
    """
    whole = is_whole(sql, nodes)
    form: Form = "full" if whole else "excerpt"
    if not whole and all(has_children(sql, node.id) for node in nodes):
        form = "outline"
    return Shown(_joined(sql, nodes), form, tuple(nodes))


def is_whole(sql: sqlite3.Connection, nodes: Sequence[Node]) -> bool:
    """Whether the nodes are the first one and all below it. Looks at no more than that many."""
    rows = sql.execute(
        "WITH RECURSIVE below(id) AS (SELECT ? UNION ALL SELECT n.id FROM below JOIN nodes n ON n.parent_id = below.id"
        " LIMIT ?) SELECT count(*) FROM below",
        (nodes[0].id, len(nodes) + 1),
    )
    return int(rows.fetchone()[0]) <= len(nodes)


def _joined(sql: sqlite3.Connection, nodes: Sequence[Node]) -> str:
    parts: list[str] = []
    before: tuple[int, int, str] | None = None  # file, number in it, what stands after it
    for node in nodes:
        row = sql.execute("SELECT file_id, number, gap FROM places WHERE node_id = ?", (node.id,)).fetchone()
        if row is not None and row[1] == 0 and len(nodes) > 1:
            before = None if row is None else (row[0], 0, "")
            continue
        if parts:
            parts.append(_between(before, row))
        parts.append(node.text)
        before = row
    return "".join(parts)


def _between(before: tuple[int, int, str] | None, after: tuple[int, int, str] | None) -> str:
    if before is None or after is None or before[0] != after[0]:
        return _APART
    return before[2] if after[1] == before[1] + 1 else _LEFT_OUT
