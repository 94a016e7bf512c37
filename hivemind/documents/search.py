"""What the one search sees of documents: the passages of files (spec 9), the nodes of all trees (seed 003, *Query Pattern*)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hivemind.documents import tree
from hivemind.documents.node import Node, tags_in, without_tags
from hivemind.documents.passages import Part, Passage, lead_of, read_parts
from hivemind.documents.schema import unindexed_ids
from hivemind.documents.summaries import is_summary
from hivemind.frozen import frozen
from hivemind.fs.database import select_among
from hivemind.search import Engine, Item, Query, Weights, quote_span
from hivemind.search.item import told
from hivemind.search.ranking import Candidate
from hivemind.search.words import any_of, how_often, matching

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
        return how_often(self.sql, word, bound)

    def named(self, scope: int, names: Collection[Any]) -> Iterable[int]:  # noqa: ARG002 - only candidates count as neighbours
        return ()


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
        asked = any_of(words)
        for most in (2 * limit, -1):  # all of them only where most of the best lie outside of the keys
            seqs = [seq for (seq,) in self.sql.execute(best, (asked, most))]
            found = dict.fromkeys(seq for (seq,) in self.sql.execute(leads, (json.dumps(seqs), *self._bounds)))
            if len(found) >= limit or len(seqs) != most:
                break
        return list(found)[:limit]

    def allowed(self, ids: Sequence[int]) -> Collection[int]:
        leads = (
            "SELECT n.seq FROM nodes n JOIN places p ON p.node_id = n.id JOIN files f ON f.id = p.file_id"
            f" WHERE p.leads AND n.seq IN KEYS AND ({self._where})"
        )
        return {seq for (seq,) in select_among(self.sql, leads, ids, after=self._bounds)}

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
        quote = quote_span(part.text, terms, engine.stems, near)
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
_LONGEST_TITLE = 80


@dataclass(slots=True)
class Scored:
    """A node that answers, and those above it (`way`, from itself on): its score, and why."""

    way: Sequence[Node]
    score: float
    why: str


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
        self._below = below
        self.ways: dict[int, list[Node]] = {}
        self.tags = sorted(tags_in(text))
        rows = (sql.execute("SELECT node_id FROM tags WHERE tag = ?", (tag,)) for tag in self.tags)
        self.tagged = {tag: {row[0] for row in found} for tag, found in zip(self.tags, rows, strict=True)}

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        found = dict.fromkeys([*self._unindexed, *(node_id for ids in self.tagged.values() for node_id in ids)])
        if words:
            rows = self.sql.execute(
                "SELECT n.id FROM words CROSS JOIN nodes n ON n.seq = words.rowid WHERE words MATCH ?"
                " ORDER BY bm25(words), n.seq LIMIT ?",
                (any_of(words), limit if self._below is None else -1),
            )
            found |= {row[0]: None for row in rows}
        ordered = "SELECT n.seq FROM json_each(?) j CROSS JOIN nodes n ON n.id = j.value ORDER BY j.key"
        seqs = [seq for (seq,) in self.sql.execute(ordered, (json.dumps(list(found)),))]
        return seqs if self._below is None else self.allowed(seqs)

    def allowed(self, ids: Sequence[int]) -> Sequence[int]:
        unread = json.dumps([seq for seq in ids if seq not in self.ways])
        rows = self.sql.execute("SELECT id, seq FROM nodes WHERE seq IN (SELECT value FROM json_each(?))", (unread,))
        seqs = dict(rows.fetchall())
        for node_id, way in tree.ways_up(self.sql, seqs).items():
            if self._below is None or any(node.id == self._below for node in way):
                self.ways[seqs[node_id]] = way
        return [seq for seq in ids if seq in self.ways]

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        for seq in self.allowed(list(ids)):
            node, *above = self.ways[seq]
            titles = [title_of(one) for one in above]
            yield Item(
                seq,
                node.text,
                titles[0] if titles else "",
                " / ".join(reversed(titles[1:])),
                f"{node.context_name} {node.context_value}",
                name=node.id,
                age=(node.created_at, node.id),
                vector=lead_of(self.sql, node.id),
                **(self._said(node) if node.context_type == "message" else {}),
            )

    def _said(self, node: Node) -> dict[str, Any]:
        """Who wrote a letter of a kept thread (`importing.keep_thread`) and when; the letters before and after it."""
        sender, _, rest = node.context_value.partition(" ")
        around = [None if one is None else one.id for one in tree.siblings_around(self.sql, node)]
        said = {"speaker": sender, "session": node.parent_id, "time": rest.partition(" ")[0]}
        return told(said, dict(zip(("previous", "next"), around, strict=True)))


def scored(engine: Engine, sql: sqlite3.Connection, query: Query, below: str | None) -> dict[str, Scored]:
    """The nodes that answer, each with its score and why: those that have a tag that is asked for first."""
    source = Nodes(sql, query.text, below)
    plain = any(word not in source.tags for word in matching(without_tags(query.text)))

    def kept(_: Query, candidates: Sequence[Candidate]) -> list[bool]:
        return [
            any(source.ways[one.item.id][0].id in ids for ids in source.tagged.values())
            or ((plain or not source.tags) and _node_answers(one))
            for one in candidates
        ]

    hits = [*engine.search(sql, source, query, _CANDIDATES, kept=kept)[0]]
    best = max((hit.score for hit in hits), default=0.0)
    found = {}
    for hit in hits:
        one = Scored(source.ways[hit.id], hit.score, hit.why)
        for tag, ids in source.tagged.items():
            if one.way[0].id in ids:
                one.score, one.why = one.score + best + 1.0, f"@{tag} among its tags; {one.why}"
        found[one.way[0].id] = one
    return found


def _node_answers(one: Candidate) -> bool:
    """What only its parents say is theirs; and a query may ask for several things at once."""
    own = one.match.where.keys() & {"text", "labels"}
    return (bool(own) and one.match.covered >= _LEAST) or one.nearness >= _ALIKE


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
