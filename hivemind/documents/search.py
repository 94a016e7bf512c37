"""What the one search sees of documents: the passages of files (spec 9), the nodes of all trees (seed 003, *Query Pattern*)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hivemind.documents import tree
from hivemind.documents.node import Node, tags_in, without_tags
from hivemind.documents.passages import Part, Passage, read_parts
from hivemind.documents.schema import unindexed_ids
from hivemind.documents.summaries import is_summary
from hivemind.search import Engine, Item, Query, Weights, quote_span
from hivemind.search.query import moment_of
from hivemind.search.ranking import Candidate
from hivemind.search.words import matching

__all__ = ["WEIGHTS", "Hit", "find_hits", "find_passages", "scored", "title_of"]

WEIGHTS = Weights(
    meaning=4.0, sentence=0.6, late=3.0, covered=0.6, together=0.35, lead=0.6, neighbour=0.1, session=0.6,
    answer=0.0, said_before=0.0, said_after=0.0, time=0.0, name=0.0, asking=0.0,
)  # fmt: skip
"""Chosen on the half of the questions that is for tuning (benchmarks/retrieval); round numbers on a plateau."""

FLOOR = 0.4
"""The share of a question (its words weighted by how rare they are) that a passage must cover to be an answer at all,"""
NEAR_ENOUGH = 0.35
"""or the cosine of its meaning, of the passage or of one of its sentences."""


class Documents:
    """What all searches in documents see alike."""

    groups: Collection[int] | None = None

    def __init__(self, sql: sqlite3.Connection) -> None:
        self.sql = sql
        (self.total,) = sql.execute("SELECT coalesce(max(seq), 0) FROM nodes").fetchone()

    def how_often(self, word: str, bound: int) -> int:
        counted = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
        return int(self.sql.execute(counted, (f'"{word}"', bound + 1)).fetchone()[0])


class Passages(Documents):
    """The passages of the files at or below `keys`."""

    def __init__(self, sql: sqlite3.Connection, keys: Sequence[str]) -> None:
        super().__init__(sql)
        self.parts = dict[int, Part]()
        self._where = " OR ".join("f.path = ? OR (f.path >= ? AND f.path < ?)" for _ in keys)
        self._bounds = [bound for key in keys for bound in (key, key + "/", key + "0")]

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        if not words:
            return []
        best = "SELECT rowid FROM words WHERE words MATCH ? AND rank MATCH 'bm25(1.0, 0.7)' ORDER BY rank LIMIT ?"
        leads = (
            "SELECT h.seq FROM json_each(?) j CROSS JOIN nodes n ON n.seq = j.value"
            " CROSS JOIN places p ON p.node_id = n.id CROSS JOIN files f ON f.id = p.file_id"
            " CROSS JOIN places q ON q.file_id = p.file_id AND q.passage = p.passage AND q.leads"
            f" CROSS JOIN nodes h ON h.id = q.node_id WHERE ({self._where}) ORDER BY j.key"
        )
        asked = " OR ".join(f'"{word}"' for word in words)
        for most in (2 * limit, -1):  # all of them only where most of the best lie outside of the keys
            seqs = [seq for (seq,) in self.sql.execute(best, (asked, most))]
            found = dict.fromkeys(seq for (seq,) in self.sql.execute(leads, (json.dumps(seqs), *self._bounds)))
            if len(found) >= limit or len(seqs) != most:
                break
        return list(found)[:limit]

    def allowed(self, ids: Sequence[int]) -> Collection[int]:
        marks = ",".join("?" * len(ids))
        rows = self.sql.execute(
            "SELECT n.seq FROM nodes n JOIN places p ON p.node_id = n.id JOIN files f ON f.id = p.file_id"
            f" WHERE p.leads AND n.seq IN ({marks}) AND ({self._where})",
            (*ids, *self._bounds),
        )
        return {seq for (seq,) in rows}

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        self.parts |= read_parts(self.sql, ids)
        return (part.item for part in self.parts.values())


def find_passages(
    engine: Engine, sql: sqlite3.Connection, query: Query, limit: int, keys: Sequence[str]
) -> list[Passage]:
    """The best passages of the files at or below `keys`, best first; equal ones by path and line."""
    if limit <= 0 or not keys:
        return []
    source = Passages(sql, keys)
    hits, asked = engine.search(sql, source, query, limit, kept=_answers)
    terms = {term.stem: term.weight for term in asked.terms}
    found = []
    for hit in hits:
        part = source.parts[hit.id]
        near = None if hit.near is None else 1 - (1 - hit.near.place) * len(part.meant) / max(1, len(part.plain))
        quote = quote_span(part.text, terms, engine.readings.stems, near)
        found.append(part.quoted(round(hit.score, 6), hit.why, hit.confidence, quote))
    return found


def _answers(_: Query, candidates: Sequence[Candidate]) -> Sequence[bool]:
    return [
        (one.match.covered >= FLOOR and bool(one.match.where.keys() - {"labels"})) or one.nearness >= NEAR_ENOUGH
        for one in candidates
    ]


_CANDIDATES = 200
_LEAST = 0.2  # the share of the query that a node must cover: a query may ask for several things at once
_ALIKE = 0.3  # the least cosine of a node that shares no word with the query
_PART = 0.1  # what each further hit under the same parent adds to the others' scores
_LONGEST_TITLE = 80


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class _Scored:
    score: float
    why: str


@dataclass(slots=True)
class Trail:
    """The way from nodes up to their roots, by parent pointers only; each step is read once."""

    sql: sqlite3.Connection
    _above: dict[str, Node] = field(default_factory=dict)

    def up(self, node: Node) -> list[Node]:
        """The nodes above, nearest first."""
        found = []
        parent_id = node.parent_id
        while parent_id is not None:
            if parent_id not in self._above:
                self._above[parent_id] = tree.get(self.sql, parent_id)
            found.append(self._above[parent_id])
            parent_id = found[-1].parent_id
        return found


def title_of(node: Node) -> str:
    """What a node is called: the title of a heading, else its first words, else its context."""
    if node.context_type == "heading":
        return node.context_value
    line = next((line.strip() for line in node.text.splitlines() if line.strip()), "") or node.context_value
    return line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE - 1] + "…"


class Nodes(Documents):
    """The nodes of all documents, or those at and below one. A node of a file has the meaning of its passage."""

    def __init__(self, sql: sqlite3.Connection, text: str, below: str | None) -> None:
        self._unindexed = unindexed_ids(sql)  # first: how often a word stands in the index is asked next
        super().__init__(sql)
        self._trail, self._below = Trail(sql), below
        self.nodes: dict[int, Node] = {}
        self.tags = sorted(tags_in(text))
        rows = (sql.execute("SELECT node_id FROM tags WHERE tag = ?", (tag,)) for tag in self.tags)
        self.tagged = {tag: {row[0] for row in found} for tag, found in zip(self.tags, rows, strict=True)}

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        found = {node.id: None for node in tree.get_many(self.sql, self._unindexed)}
        found |= {node_id: None for ids in self.tagged.values() for node_id in ids}
        if words:
            rows = self.sql.execute(
                "SELECT n.id FROM words CROSS JOIN nodes n ON n.seq = words.rowid WHERE words MATCH ?"
                " ORDER BY bm25(words), n.seq LIMIT ?",
                (" OR ".join(f'"{word}"' for word in words), limit if self._below is None else -1),
            )
            found |= {row[0]: None for row in rows}
        return self._seqs(found)

    def _seqs(self, node_ids: Iterable[str]) -> Sequence[int]:
        ordered = "SELECT n.seq FROM json_each(?) j CROSS JOIN nodes n ON n.id = j.value ORDER BY j.key"
        seqs = [seq for (seq,) in self.sql.execute(ordered, (json.dumps(list(node_ids)),))]
        return seqs if self._below is None else self.allowed(seqs)

    def allowed(self, ids: Sequence[int]) -> Sequence[int]:
        self._read(ids)
        return [seq for seq in ids if seq in self.nodes]

    def _read(self, ids: Iterable[int]) -> None:
        wanted = json.dumps([seq for seq in ids if seq not in self.nodes])
        rows = self.sql.execute("SELECT id, seq FROM nodes WHERE seq IN (SELECT value FROM json_each(?))", (wanted,))
        seqs = dict(rows.fetchall())
        for node in tree.get_many(self.sql, seqs):
            below = self._below is None or node.id == self._below
            if below or any(above.id == self._below for above in self._trail.up(node)):
                self.nodes[seqs[node.id]] = node

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        wanted = list(ids)
        self._read(wanted)
        lead = (
            "SELECT h.seq FROM places p JOIN places q ON q.file_id = p.file_id AND q.passage = p.passage AND q.leads"
            " JOIN nodes h ON h.id = q.node_id WHERE p.node_id = ?"
        )
        for seq in wanted:
            node = self.nodes.get(seq)
            if node is not None:
                titles = [title_of(found) for found in self._trail.up(node)]
                row = self.sql.execute(lead, (node.id,)).fetchone()
                said = self._said(node) if node.context_type == "message" else {}
                yield Item(
                    seq,
                    node.text,
                    titles[0] if titles else "",
                    " / ".join(reversed(titles[1:])),
                    f"{node.context_name} {node.context_value}",
                    age=(node.created_at, node.id),
                    vector=None if row is None else row[0],
                    **said,
                )

    def _said(self, node: Node) -> dict[str, Any]:
        """Who wrote a letter of a kept thread (`importing.keep_thread`) and when; the letters before and after it."""
        sender, _, rest = node.context_value.partition(" ")
        before, after = tree.siblings_around(self.sql, node)
        seqs = dict(
            self.sql.execute(
                "SELECT id, seq FROM nodes WHERE id IN (?, ?)", (before and before.id, after and after.id)
            ).fetchall()
        )
        return {
            "speaker": sender,
            "session": node.parent_id,
            "moment": moment_of(rest.partition(" ")[0]),
            "previous": None if before is None else seqs.get(before.id),
            "next": None if after is None else seqs.get(after.id),
        }


def scored(engine: Engine, sql: sqlite3.Connection, query: Query, below: str | None) -> dict[str, _Scored]:
    """The nodes that answer, each with its score and why: those that have a tag that is asked for first."""
    source = Nodes(sql, query.text, below)
    plain = any(word not in source.tags for word in matching(without_tags(query.text)))

    def kept(_: Query, candidates: Sequence[Candidate]) -> list[bool]:
        return [
            any(source.nodes[one.item.id].id in ids for ids in source.tagged.values())
            or ((plain or not source.tags) and _node_answers(one))
            for one in candidates
        ]

    hits, _ = engine.search(sql, source, query, _CANDIDATES, kept=kept)
    best = max((hit.score for hit in hits), default=0.0)
    found = {}
    for hit in hits:
        node_id, score, why = source.nodes[hit.id].id, hit.score, hit.why
        for tag, ids in source.tagged.items():
            if node_id in ids:
                score, why = score + best + 1.0, f"@{tag} among its tags; {why}"
        found[node_id] = _Scored(score, why)
    return found


def _node_answers(one: Candidate) -> bool:
    """What only its parents say is theirs; and a query may ask for several things at once."""
    own = one.match.where.keys() & {"text", "labels"}
    return (bool(own) and one.match.covered >= _LEAST) or one.nearness >= _ALIKE


def find_hits(engine: Engine, sql: sqlite3.Connection, query: Query, below: str | None, limit: int) -> list[Hit]:
    """The best hits, best first; equal ones in the order in which they were written."""
    found = scored(engine, sql, query, below)
    trail = Trail(sql)
    nodes = {node.id: node for node in tree.get_many(sql, found)}
    siblings = Counter(node.parent_id for node in nodes.values() if node.parent_id is not None)
    for node_id, node in nodes.items():
        further = siblings[node.parent_id] - 1 if node.parent_id else 0
        if further > 0:
            why = f"{found[node_id].why}; {further} more under the same parent"
            found[node_id] = _Scored(found[node_id].score * (1 + _PART * further), why)
    covers = _fold(sql, found, nodes, siblings, trail)
    best = sorted(found, key=lambda node_id: (-found[node_id].score, nodes[node_id].created_at, node_id))[:limit]
    return [_hit(sql, nodes[node_id], found[node_id], tuple(covers.get(node_id, ())), trail) for node_id in best]


def _fold(
    sql: sqlite3.Connection,
    found: dict[str, _Scored],
    nodes: dict[str, Node],
    siblings: Mapping[str, int],
    trail: Trail,
) -> dict[str, list[str]]:
    """A summary stands for the hits below it, if it is one itself or several of its children are."""
    covers: dict[str, list[str]] = {}
    for node_id in list(found):
        for above in trail.up(nodes[node_id]):
            stands = above.id in nodes or (above.id == nodes[node_id].parent_id and siblings[above.id] > 1)
            if stands and is_summary(sql, above.id):
                covers.setdefault(above.id, []).append(node_id)
                nodes[above.id] = above
                break
    for summary_id, below in covers.items():
        own = found.get(summary_id)
        best = max((found[node_id] for node_id in below), key=lambda hit: hit.score)
        why = own.why if own else best.why
        found[summary_id] = _Scored(
            max(own.score if own else 0.0, best.score), f"{why}; stands for {len(below)} of its children that match"
        )
    for below in covers.values():
        for node_id in below:
            if node_id not in covers:
                del found[node_id]
    return covers


def _hit(sql: sqlite3.Connection, node: Node, score: _Scored, covers: tuple[str, ...], trail: Trail) -> Hit:
    above = trail.up(node)
    before, after = tree.siblings_around(sql, node) if above else (None, None)
    linked = sql.execute(
        "SELECT DISTINCT other.node_id FROM tags mine JOIN tags other ON other.tag = mine.tag"
        " WHERE mine.node_id = ? AND other.node_id <> ? ORDER BY other.node_id LIMIT 20",
        (node.id, node.id),
    )
    return Hit(
        node, round(score.score, 6), tuple(map(title_of, reversed(above))), above[-1].id if above else node.id,
        before, after, covers, tuple(row[0] for row in linked), score.why,
    )  # fmt: skip
