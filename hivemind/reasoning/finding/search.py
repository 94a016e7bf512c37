"""What the one search sees of graphs, and its hits as nodes (spec 9)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hivemind.reasoning.finding.hit import NodeHit
from hivemind.reasoning.finding.schema import NODES
from hivemind.reasoning.history import LOG_NAME
from hivemind.search import Hit, Index, Item, Query
from hivemind.search.ranking import Candidate

__all__ = ["Asked", "find"]

_ALIKE = 0.3  # the least cosine of a node that shares no word with the query
_STANDING = {"superseded": 0.8}
_MARKS = 500  # parameters of one statement


@dataclass(frozen=True, slots=True)
class Asked:
    """A search: what for, among which keys (those of one graph, whose number is `graph`, or all)."""

    query: Query
    limit: int
    keys: tuple[int, int]
    graph: int | None = None


class _Node(NamedTuple):
    key: int
    task: str
    place: str
    kind: str
    lane: str
    state: str
    title: str
    text: str
    tags: str


def find(index: Index, sql: sqlite3.Connection, asked: Asked) -> list[NodeHit]:
    """The nodes that answer best, best first, equal ones by task and number."""
    source = _Nodes(sql, asked)
    hits, _ = index.search(sql, source, asked.query, asked.limit, kept=_are_alike)
    return [_node_hit(source.nodes[hit.id], hit) for hit in hits]


def _are_alike(_: Query, candidates: Sequence[Candidate]) -> Sequence[bool]:
    return [one.match.score > 0 or (one.cosine is not None and one.cosine >= _ALIKE) for one in candidates]


class _Nodes:
    """What a search sees of the nodes. How rare words are is counted among the keys that are searched."""

    def __init__(self, sql: sqlite3.Connection, asked: Asked) -> None:
        self._sql, self._keys = sql, asked.keys
        self.nodes: dict[int, _Node] = {}
        self.groups: Collection[int] | None = None if asked.graph is None else [asked.graph]
        (self.total,) = sql.execute(
            "SELECT coalesce(sum(nodes), 0) FROM graphs WHERE ? IS NULL OR id = ?", (asked.graph, asked.graph)
        ).fetchone()

    def how_often(self, word: str, bound: int) -> int:
        (often,) = self._sql.execute(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)",
            (f'"{word}"', *self._keys, bound + 1),
        ).fetchone()
        return int(often)

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        if not words:
            return []
        rows = self._sql.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rank, rowid LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words), *self._keys, limit),
        )
        return [key for (key,) in rows]

    def allowed(self, ids: Sequence[int]) -> Collection[int]:
        return {node.key for node in self._read(ids)}

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        for node in self._read(ids):
            self.nodes[node.key] = node
            standing = _STANDING.get(node.state, 1.0)
            age = (node.task, node.key)
            yield Item(node.key, f"{node.title}\n{node.text}", labels=node.tags, age=age, standing=standing)

    def _read(self, ids: Iterable[int]) -> Iterator[_Node]:
        wanted = [key for key in ids if self._keys[0] <= key <= self._keys[1]]
        for at in range(0, len(wanted), _MARKS):
            some = wanted[at : at + _MARKS]
            rows = self._sql.execute(
                "SELECT n.key, g.task, g.place, n.kind, n.lane, n.state, n.title, n.text, n.tags FROM nodes n"
                f" JOIN graphs g ON g.id = n.key / {NODES} WHERE n.key IN ({','.join('?' * len(some))})",
                some,
            )
            yield from (_Node(*row) for row in rows)


def _node_hit(node: _Node, hit: Hit) -> NodeHit:
    return NodeHit(
        task=node.task,
        place=node.place,
        node_id=node.key % NODES,
        kind=node.kind,
        lane=node.lane,
        state=node.state,
        title=node.title,
        text=node.text,
        score=round(hit.score, 6),
        similarity=round(hit.similarity, 6),
        why=hit.why,
        path=f"tasks/{node.place}/{node.task}/{LOG_NAME}",
        confidence=hit.confidence,
    )
