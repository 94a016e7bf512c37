"""As much of a document as fits: expand to length (seed 003, *Expand to Length*; spec 5)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Literal

from hivemind.documents import tree
from hivemind.documents.node import DocmemError, Node
from hivemind.documents.summaries import is_summary, summary_ids
from hivemind.frozen import frozen
from hivemind.words import shown

By = Literal["order", "importance", "relevance"]
Interior = Literal["keep", "skip", "replace"]
Resolution = Literal["full", "mixed"]

_PARENTS_AT_ONCE = 500
_CHILDREN = """
SELECT n.parent_id, n.id, n.token_count, n.importance, n.sticky, EXISTS (SELECT 1 FROM nodes c WHERE c.parent_id = n.id)
FROM json_each(?) p CROSS JOIN nodes n ON n.parent_id = p.value ORDER BY p.key, n.order_value
"""


@frozen
class _Leaf:
    """What has to be known of a node to decide on it: its text is read only once it is in."""

    parent_id: str
    id: str
    tokens: int
    importance: float
    sticky: int
    interior: int


@dataclass(slots=True)
class _Expansion:
    sql: sqlite3.Connection
    left: int
    interior: Interior
    resolution: Resolution
    chosen: dict[str, int] = field(default_factory=dict)  # id -> tokens
    visited: dict[str, list[_Leaf]] = field(default_factory=dict)  # parent -> its children, in order

    def groups(self, start_id: str) -> Iterator[list[_Leaf]]:
        """Sibling by sibling group, breadth first; reads on only while there is room."""
        level = [start_id]
        while level:
            below: list[str] = []
            for at in range(0, len(level), _PARENTS_AT_ONCE):
                for group in self._read(level[at : at + _PARENTS_AT_ONCE]):
                    self.visited[group[0].parent_id] = group
                    below += [leaf.id for leaf in group if leaf.interior]
                    yield group
                    if self.left <= 0:
                        return
            level = below

    def _read(self, parents: list[str]) -> Iterator[list[_Leaf]]:
        rows = self.sql.execute(_CHILDREN, (json.dumps(parents),)).fetchall()
        for _, group in groupby((_Leaf(*row) for row in rows), key=attrgetter("parent_id")):
            yield list(group)

    def offer(self, group: Sequence[_Leaf]) -> None:
        """Take what fits of siblings, in order; those of a summary together, where the summary can stand for them."""
        parent = group[0].parent_id
        summarised = (self.resolution == "mixed" or self.interior == "replace") and is_summary(self.sql, parent)
        if summarised and parent in self.chosen:
            swapped = self.chosen[parent] if self.interior == "replace" else 0
            if self.cost(group) <= self.left + swapped:
                if self.interior == "replace":
                    self.left += self.chosen.pop(parent)
                self.take(group)
            elif self.resolution == "full":
                self.offer_each(group)
        else:
            self.offer_each(group)

    def offer_each(self, group: Iterable[_Leaf]) -> None:
        for unit in stuck_together(group):
            if self.cost(unit) <= self.left:
                self.take(unit)

    def cost(self, leaves: Iterable[_Leaf]) -> int:
        return sum(leaf.tokens for leaf in leaves if self._wanted(leaf))

    def take(self, leaves: Iterable[_Leaf]) -> None:
        for leaf in leaves:
            if self._wanted(leaf):
                self.chosen[leaf.id] = leaf.tokens
                self.left -= leaf.tokens

    def _wanted(self, leaf: _Leaf) -> bool:
        return not (leaf.interior and self.interior == "skip")

    def in_reading_order(self, start_id: str) -> list[str]:
        ordered, stack = [], [start_id]
        while stack:
            node_id = stack.pop()
            if node_id in self.chosen:
                ordered.append(node_id)
            stack += [leaf.id for leaf in reversed(self.visited.get(node_id, ()))]
        return ordered


def stuck_together(group: Iterable[_Leaf]) -> Iterator[list[_Leaf]]:
    """Siblings in order, each with those it is stuck to."""
    unit: list[_Leaf] = []
    for leaf in group:
        unit.append(leaf)
        if not leaf.sticky:
            yield unit
            unit = []
    if unit:
        yield unit


def expand(
    sql: sqlite3.Connection,
    start_id: str,
    max_tokens: int,
    *,
    interior: Interior = "keep",
    resolution: Resolution = "full",
    priority: Callable[[str, float], float] | None = None,
) -> list[Node]:
    """The start, and of what is below it as much as fits, in reading order. Raises NodeNotFoundError.

    Breadth first, group by group, in order; what doesn't fit is passed over. With `priority` (of an id and its
    importance) siblings' units go in by falling priority instead, equal ones in the breadth-first order.
    """
    check_interior(interior)
    if resolution not in ("full", "mixed"):
        raise DocmemError(f"resolution={shown(resolution)} cannot be", mend='resolution is "full" or "mixed"')
    start = tree.get(sql, start_id)
    work = _Expansion(sql, max_tokens - start.token_count, interior, resolution, {start_id: start.token_count})
    if work.left < 0:
        return [start]
    if priority is None:
        for group in work.groups(start_id):
            work.offer(group)
    else:
        _by_priority(work, start_id, priority)
    work.chosen[start_id] = start.token_count  # the start, always, even where its children replace it
    return tree.get_many(sql, work.in_reading_order(start_id))


def _by_priority(work: _Expansion, start_id: str, priority: Callable[[str, float], float]) -> None:
    together: list[list[_Leaf]] = []
    room, work.left = work.left, 1  # look at all of it before anything is taken
    for group in work.groups(start_id):
        whole = work.resolution == "mixed" and is_summary(work.sql, group[0].parent_id)
        together += [group] if whole else list(stuck_together(group))
    work.left = room
    ranks = [max(priority(leaf.id, leaf.importance) for leaf in unit) for unit in together]
    for at in sorted(range(len(together)), key=lambda at: (-ranks[at], at)):
        work.offer(together[at])


def check_interior(interior: str) -> None:
    """Raises DocmemError for a word that says nothing, instead of taking it for one that does."""
    if interior not in ("keep", "skip", "replace"):
        raise DocmemError(f"interior={shown(interior)} cannot be", mend='interior is "keep", "skip" or "replace"')


def without_interior(sql: sqlite3.Connection, nodes: list[Node], interior: Interior) -> list[Node]:
    """A subtree: all of it (keep), its leaves (skip), or without summaries, whose children stand there (replace)."""
    check_interior(interior)
    if interior == "keep":
        return nodes
    parents = {node.parent_id for node in nodes}
    if interior == "skip":
        return [node for node in nodes if node.id not in parents]
    replaced = summary_ids(sql, [node for node in nodes if node.id in parents])
    return [node for node in nodes if node.id not in replaced]
