"""What a query of all trees finds (seed 003, *Query Pattern*): nodes with where they stand, summaries for what is below them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

from hivemind.documents import tree
from hivemind.documents.node import Node
from hivemind.documents.search import Scored, scored, title_of
from hivemind.documents.summaries import is_summary
from hivemind.frozen import frozen
from hivemind.search import Engine, Query

__all__ = ["Hit", "find_hits"]

_PART = 0.1  # what each further hit under the same parent adds to the others' scores


@frozen
class Hit:
    """A node that answers a query, and where it stands.

    `titles`: what the nodes above it are called, outermost first; `document`: the root's id; `before`, `after`: its
    neighbours; `covers`: ids of further hits that this summary stands for; `linked`: ids of nodes elsewhere that have
    one of its `@tags`; `why` says in words what was found.
    """

    node: Node
    score: float
    titles: tuple[str, ...]
    document: str
    before: Node | None
    after: Node | None
    covers: tuple[str, ...]
    linked: tuple[str, ...]
    why: str


def find_hits(engine: Engine, sql: sqlite3.Connection, query: Query, below: str | None, limit: int) -> list[Hit]:
    """The best hits, best first; equal ones in the order in which they were written."""
    found = scored(engine, sql, query, below)
    siblings = Counter(one.way[0].parent_id for one in found.values())
    for one in found.values():
        further = siblings[one.way[0].parent_id] - 1 if one.way[1:] else 0
        if further > 0:
            one.score, one.why = one.score * (1 + _PART * further), f"{one.why}; {further} more under the same parent"
    covers = _fold(sql, found, siblings)
    best = sorted(found.values(), key=lambda one: (-one.score, one.way[0].created_at, one.way[0].id))[:limit]
    return [_hit(sql, one, covers.get(one.way[0].id, ())) for one in best]


def _fold(
    sql: sqlite3.Connection, found: dict[str, Scored], siblings: Mapping[str | None, int]
) -> dict[str, list[str]]:
    """A summary stands for the hits below it, if it is one itself or several of its children are."""
    covers: dict[str, list[str]] = {}
    for node_id, one in found.items():
        for above in one.way[1:]:
            stands = above.id in found or above.id in covers or (above is one.way[1] and siblings[above.id] > 1)
            if stands and is_summary(sql, above.id):
                covers.setdefault(above.id, []).append(node_id)
                break
    for summary_id, below in covers.items():
        best = max((found[node_id] for node_id in below), key=lambda one: one.score)
        way = next(best.way[at:] for at, node in enumerate(best.way) if node.id == summary_id)
        own = found.get(summary_id, Scored(way, 0.0, best.why))
        why = f"{own.why}; stands for {len(below)} of its children that match"
        found[summary_id] = Scored(way, max(own.score, best.score), why)
    for node_id in {node_id for below in covers.values() for node_id in below} - covers.keys():
        del found[node_id]
    return covers


def _hit(sql: sqlite3.Connection, one: Scored, covers: Sequence[str]) -> Hit:
    node, *above = one.way
    before, after = tree.siblings_around(sql, node) if above else (None, None)
    linked = sql.execute(
        "SELECT DISTINCT other.node_id FROM tags mine JOIN tags other ON other.tag = mine.tag"
        " WHERE mine.node_id = ? AND other.node_id <> ? ORDER BY other.node_id LIMIT 20",
        (node.id, node.id),
    )
    return Hit(
        node, round(one.score, 6), tuple(map(title_of, reversed(above))), one.way[-1].id,
        before, after, tuple(covers), tuple(row[0] for row in linked), one.why,
    )  # fmt: skip
