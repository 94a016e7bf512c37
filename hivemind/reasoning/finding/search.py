"""Candidates by words and by meaning, and one order for both, as documents and memories have it (spec 6)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hivemind.embedding import Vectors, fused
from hivemind.reasoning.finding.hit import NodeHit
from hivemind.reasoning.finding.schema import NODES
from hivemind.reasoning.log import LOG_NAME
from hivemind.terms import Stems, bm25, matching, rarity, words_of

__all__ = ["Asked", "Searcher"]

_CANDIDATES = 200  # looked at closely, by words and by meaning each
_COMMON, _FEW = 0.2, 1_000  # a word that more nodes have finds nothing by itself, where rarer ones do
_ALIKE = 0.3  # the least cosine of a node that shares no word with the query
_MARKS = 500  # parameters of one statement


@dataclass(frozen=True, slots=True)
class Asked:
    """A search: what for, among which keys (those of one graph, whose number is `graph`, or all). `vector` is what the
    query means, packed, and `model` whose vector it is; without one words alone decide."""

    query: str
    limit: int
    keys: tuple[int, int]
    graph: int | None = None
    vector: bytes | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class _Node:
    key: int
    task: str
    place: str
    kind: str
    lane: str
    state: str
    title: str
    text: str
    tags: str
    waits: int

    @property
    def words(self) -> list[str]:
        return words_of(f"{self.title}\n{self.text}\n{self.tags}")


class Searcher:
    """Finds nodes in a database that a transaction sees. Keeps what words are stemmed to, and the index of vectors."""

    def __init__(self, path: str) -> None:
        self._vectors = Vectors(path)
        self._stems = Stems()

    def find(self, sql: sqlite3.Connection, asked: Asked) -> list[NodeHit]:
        """The nodes that answer best, best first, equal ones by task and number."""
        terms = self._terms(sql, asked)
        keys = dict.fromkeys(_by_words(sql, asked, [word for word, _ in terms.values()]))
        groups = None if asked.graph is None else [asked.graph]
        if asked.vector is not None:
            keys |= dict(self._vectors.nearest(sql, asked.model, asked.vector, _CANDIDATES, groups))
        nodes = _nodes(sql, keys, asked.keys)
        stems = [self._stems(node.words) for node in nodes]
        scores = bm25({stem: weight for stem, (_, weight) in terms.items()}, stems)
        texts = {node.key: score for node, score in zip(nodes, scores, strict=True) if score > 0}
        cosines: dict[int, float] = {}
        if asked.vector is not None:
            cosines = self._vectors.cosines(sql, asked.model, asked.vector, [node.key for node in nodes])
        near = {key: cosine for key, cosine in cosines.items() if cosine >= _ALIKE or key in texts}
        found = fused(texts, near)
        hits = [
            _hit(node, found[node.key], near.get(node.key), _shared(terms, own), asked)
            for node, own in zip(nodes, stems, strict=True)
            if node.key in found
        ]
        hits.sort(key=lambda hit: (-hit.score, hit.task, hit.node_id))
        return hits[: asked.limit]

    def _terms(self, sql: sqlite3.Connection, asked: Asked) -> dict[str, tuple[str, float]]:
        """Stem → (word, rarity) of the query's words that some node has. How rare they are is counted among these keys."""
        (total,) = sql.execute(
            "SELECT coalesce(sum(nodes), 0) FROM graphs WHERE ? IS NULL OR id = ?", (asked.graph, asked.graph)
        ).fetchone()
        words = matching(asked.query)
        found: dict[str, tuple[str, float]] = {}
        common: dict[str, tuple[str, float]] = {}
        bound = max(_FEW, int(total * _COMMON))
        for word, stem in zip(words, self._stems(words), strict=True):
            (often,) = sql.execute(
                "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)",
                (f'"{word}"', *asked.keys, bound + 1),
            ).fetchone()
            if often:
                (found if often <= bound else common).setdefault(stem, (word, rarity(often, total)))
        return found or common


def _by_words(sql: sqlite3.Connection, asked: Asked, words: Sequence[str]) -> list[int]:
    """Keys of the best full-text hits. Words have letters and digits only, and are quoted: a query is data."""
    if not words:
        return []
    rows = sql.execute(
        "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rank, rowid LIMIT ?",
        (" OR ".join(f'"{word}"' for word in words), *asked.keys, _CANDIDATES),
    )
    return [key for (key,) in rows]


def _nodes(sql: sqlite3.Connection, keys: Collection[int], within: tuple[int, int]) -> list[_Node]:
    """The nodes with these keys that the transaction sees and that lie within a range."""
    wanted = [key for key in keys if within[0] <= key <= within[1]]
    found = []
    for at in range(0, len(wanted), _MARKS):
        some = wanted[at : at + _MARKS]
        found += sql.execute(
            "SELECT n.key, g.task, g.place, n.kind, n.lane, n.state, n.title, n.text, n.tags,"
            " EXISTS (SELECT 1 FROM waiting w WHERE w.key = n.key) FROM nodes n"
            f" JOIN graphs g ON g.id = n.key / {NODES} WHERE n.key IN ({','.join('?' * len(some))})",
            some,
        ).fetchall()
    return [_Node(*row) for row in sorted(found)]


def _shared(terms: dict[str, tuple[str, float]], stems: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of the query that a node has, and those that it has not."""
    own = set(stems)
    has = [word for stem, (word, _) in terms.items() if stem in own]
    return has, [word for stem, (word, _) in terms.items() if stem not in own]


def _hit(node: _Node, score: float, cosine: float | None, words: tuple[list[str], list[str]], asked: Asked) -> NodeHit:
    has, lacks = words
    why = [f"has {', '.join(has)}"] if has else []
    if lacks and has:
        why.append(f"without {', '.join(lacks)}")
    if cosine is not None:
        why.append(f"its meaning is near ({cosine:.2f})")
    elif asked.vector is not None and node.waits:
        why.append("not embedded yet")
    return NodeHit(
        task=node.task,
        place=node.place,
        node_id=node.key % NODES,
        kind=node.kind,
        lane=node.lane,
        state=node.state,
        title=node.title,
        text=node.text,
        score=round(score, 6),
        similarity=0.0 if cosine is None else round(min(1.0, max(0.0, cosine)), 6),
        why="; ".join(why),
        path=f"tasks/{node.place}/{node.task}/{LOG_NAME}",
    )
