"""Select as much of a document as fits into a token budget."""

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
from hivemind.words import short_repr

By = Literal["order", "importance", "relevance"]
Interior = Literal["keep", "skip", "replace"]
Resolution = Literal["full", "mixed"]

_PARENTS_AT_ONCE = 500
_CHILDREN = """
SELECT n.parent_id, n.id, n.token_count, n.importance, n.sticky, EXISTS (SELECT 1 FROM nodes c WHERE c.parent_id = n.id)
FROM json_each(?) p CROSS JOIN nodes n ON n.parent_id = p.value ORDER BY p.key, n.order_value
"""


@frozen
class _Candidate:
    """A node that may be selected, without its text. Texts are read after the selection."""

    parent_id: str
    id: str
    tokens: int
    importance: float
    sticky: int
    interior: int


@dataclass(slots=True)
class _Expansion:
    sql: sqlite3.Connection
    remaining_tokens: int
    interior: Interior
    resolution: Resolution
    selected_tokens: dict[str, int] = field(default_factory=dict)  # node id → tokens
    children_by_parent: dict[str, list[_Candidate]] = field(default_factory=dict)  # in order

    def sibling_groups(self, start_id: str) -> Iterator[list[_Candidate]]:
        """Yield groups of siblings below the start node, breadth first. Stop when the budget is used up."""
        level = [start_id]
        while level:
            below: list[str] = []
            for at in range(0, len(level), _PARENTS_AT_ONCE):
                rows = self.sql.execute(_CHILDREN, (json.dumps(level[at : at + _PARENTS_AT_ONCE]),)).fetchall()
                for parent_id, members in groupby((_Candidate(*row) for row in rows), key=attrgetter("parent_id")):
                    self.children_by_parent[parent_id] = group = list(members)
                    below += [candidate.id for candidate in group if candidate.interior]
                    yield group
                    if self.remaining_tokens <= 0:
                        return
            level = below

    def add_group(self, group: Sequence[_Candidate]) -> None:
        """Select those siblings that fit into the remaining budget, in order.

        With the resolution "mixed", the children of a selected summary are selected together or not at all.
        """
        parent, can_replace = group[0].parent_id, self.interior == "replace"
        is_optional = parent in self.selected_tokens and (can_replace or self.resolution == "mixed")
        if is_optional and is_summary(self.sql, parent):
            freed_tokens = self.selected_tokens[parent] if can_replace else 0
            if self.cost(group) <= self.remaining_tokens + freed_tokens:
                if can_replace:
                    self.remaining_tokens += self.selected_tokens.pop(parent)
                self.add(group)
                return
            if self.resolution == "mixed":
                return
        for unit in sticky_units(group):
            if self.cost(unit) <= self.remaining_tokens:
                self.add(unit)

    def cost(self, candidates: Iterable[_Candidate]) -> int:
        return sum(candidate.tokens for candidate in candidates if self._is_included(candidate))

    def add(self, candidates: Iterable[_Candidate]) -> None:
        new_tokens = {candidate.id: candidate.tokens for candidate in candidates if self._is_included(candidate)}
        self.selected_tokens |= new_tokens
        self.remaining_tokens -= sum(new_tokens.values())

    def _is_included(self, candidate: _Candidate) -> bool:
        return not (candidate.interior and self.interior == "skip")

    def in_reading_order(self, start_id: str) -> list[str]:
        node_ids, stack = [], [start_id]
        while stack:
            node_id = stack.pop()
            if node_id in self.selected_tokens:
                node_ids.append(node_id)
            stack += [candidate.id for candidate in reversed(self.children_by_parent.get(node_id, ()))]
        return node_ids


def sticky_units(group: Iterable[_Candidate]) -> Iterator[list[_Candidate]]:
    """Yield the siblings in order, in lists: nodes that stick together are in one list, any other node is alone."""
    unit: list[_Candidate] = []
    for candidate in group:
        unit.append(candidate)
        if not candidate.sticky:
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
    """Return the start node and as many of its descendants as fit into `max_tokens`, in reading order.

    Nodes are selected breadth first; a node that does not fit is skipped. With `priority` (a function of id and
    importance), nodes of higher priority are selected first. `interior` and `resolution` are as in
    `Docmem.expand_to_length`. Raises NodeNotFoundError.
    """
    check_interior(interior)
    if resolution not in ("full", "mixed"):
        raise DocmemError(f"invalid resolution={short_repr(resolution)}", remedy='use "full" or "mixed"')
    start = tree.get(sql, start_id)
    expansion = _Expansion(sql, max_tokens - start.token_count, interior, resolution, {start_id: start.token_count})
    if expansion.remaining_tokens < 0:
        return [start]
    if priority is None:
        for group in expansion.sibling_groups(start_id):
            expansion.add_group(group)
    else:
        _expand_by_priority(expansion, start_id, priority)
    expansion.selected_tokens[start_id] = start.token_count  # always, even if its children replace it
    return tree.get_many(sql, expansion.in_reading_order(start_id))


def _expand_by_priority(expansion: _Expansion, start_id: str, priority: Callable[[str, float], float]) -> None:
    units: list[list[_Candidate]] = []
    token_limit, expansion.remaining_tokens = expansion.remaining_tokens, 1  # > 0: read all groups before selecting
    for group in expansion.sibling_groups(start_id):
        is_indivisible = expansion.resolution == "mixed" and is_summary(expansion.sql, group[0].parent_id)
        units += [group] if is_indivisible else list(sticky_units(group))
    expansion.remaining_tokens = token_limit
    ranks = [max(priority(candidate.id, candidate.importance) for candidate in unit) for unit in units]
    for at in sorted(range(len(units)), key=lambda at: (-ranks[at], at)):
        expansion.add_group(units[at])


def check_interior(interior: str) -> None:
    if interior not in ("keep", "skip", "replace"):
        raise DocmemError(f"invalid interior={short_repr(interior)}", remedy='use "keep", "skip" or "replace"')


def without_interior(sql: sqlite3.Connection, nodes: list[Node], interior: Interior) -> list[Node]:
    """Return all nodes of a subtree ("keep"), only its leaves ("skip"), or all except summaries ("replace")."""
    check_interior(interior)
    if interior == "keep":
        return nodes
    parents = {node.parent_id for node in nodes}
    if interior == "skip":
        return [node for node in nodes if node.id not in parents]
    replaced = summary_ids(sql, [node for node in nodes if node.id in parents])
    return [node for node in nodes if node.id not in replaced]
