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
from hivemind.documents.passages import Part, Passage, read_parts
from hivemind.documents.schema import unindexed_texts
from hivemind.documents.summaries import is_summary
from hivemind.frozen import frozen
from hivemind.search import Confidence, Engine, Item, Query, Weights, quote_span
from hivemind.search.item import told
from hivemind.search.query import identifiers
from hivemind.search.ranking import Candidate
from hivemind.search.words import Stems, any_of, how_often, matching, words_of

WEIGHTS = Weights(
    meaning=4.0, sentence=0.6, late=3.0, covered=0.6, together=0.35, lead=0.6, neighbour=0.1, session=0.6,
    written=0.5, answer=0.0, said_before=0.0, said_after=0.0, time=0.0, name=0.0, asking=0.0,
)  # fmt: skip
"""Chosen on the half of the questions that is for tuning (benchmarks/retrieval); round numbers on a plateau."""

FLOOR = 0.4
"""The share of a question (its words weighted by how rare they are) that a passage must cover to be an answer at all,"""
NEAR_ENOUGH = 0.35
"""or the cosine of its meaning, of the passage or of one of its sentences."""


class Units:
    """What is found in documents: passages of files, each called by the node that leads it, and nodes from no file.

    `keys`: only passages of the files at or below these. `below`: only what is at or below this node. Nodes that have a tag
    of the `text` that is asked are candidates whatever they say.
    """

    groups: Collection[int] | None = None

    def __init__(
        self,
        sql: sqlite3.Connection,
        stems: Stems,
        text: str,
        *,
        keys: Sequence[str] | None = None,
        below: str | None = None,
    ) -> None:
        # First: the index may be told of them, and how often a word stands in it is asked next.
        self._news = {seq: set(stems(words_of(words))) for seq, words in unindexed_texts(sql)}
        self._sql, self._stems, self._below = sql, stems, below
        (self.total,) = sql.execute("SELECT coalesce(max(seq), 0) FROM nodes").fetchone()
        within = "TRUE" if keys is None else " OR ".join("f.path = ? OR (f.path >= ? AND f.path < ?)" for _ in keys)
        self._bounds = [bound for key in keys or () for bound in (key, key + "/", key + "0")]
        self._units = (
            "SELECT n.id, coalesce(h.seq, n.seq) FROM json_each(?) j CROSS JOIN nodes n ON n.seq = j.value"
            " LEFT JOIN places p ON p.node_id = n.id LEFT JOIN files f ON f.id = p.file_id"
            " LEFT JOIN places q ON q.file_id = p.file_id AND q.passage = p.passage AND q.leads"
            " LEFT JOIN nodes h ON h.id = q.node_id"
            f" WHERE (p.node_id IS NULL OR h.seq IS NOT NULL OR ?) AND ({within}) ORDER BY j.key"
        )
        self.tagged = dict[str, list[str]]()  # node → those of the tags that it has
        self._tagged_seqs = list[int]()
        for tag in sorted(tags_in(text)):
            having = "SELECT n.id, n.seq FROM tags t JOIN nodes n ON n.id = t.node_id WHERE t.tag = ?"
            for node_id, seq in sql.execute(having, (tag,)):
                self.tagged.setdefault(node_id, []).append(tag)
                self._tagged_seqs.append(seq)
        self._phrases = [" ".join(words_of(name)) for name in identifiers(text)]
        self.parts = dict[int, Part]()
        self.nodes = dict[int, Node]()

    def how_often(self, word: str, bound: int) -> int:
        [stem] = self._stems([word])
        return how_often(self._sql, word, bound) + sum(stem in news for news in self._news.values())

    def named(self, scope: int, names: Collection[Any]) -> Iterable[int]:  # noqa: ARG002 - only candidates count as neighbours
        return ()

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        stems = set(self._stems(words))
        news = [seq for seq, own in self._news.items() if not stems.isdisjoint(own)]
        units = dict.fromkeys(self._units_of([*news, *self._tagged_seqs], tagged=True))
        if not words:
            return list(units)
        best = "SELECT rowid FROM words WHERE words MATCH ? AND rank MATCH 'bm25(1.0, 0.7)' ORDER BY rank LIMIT ?"
        for most in (2 * limit, -1):  # all of them only where most of the best lie outside of what is searched
            seqs = [seq for (seq,) in self._sql.execute(best, (any_of([*words, *self._phrases]), most))]
            indexed = dict.fromkeys(self._units_of(seqs))
            if len(indexed) >= limit or len(seqs) != most:
                break
        return list(units | dict.fromkeys(list(indexed)[:limit]))

    def _units_of(self, seqs: Sequence[int], *, tagged: bool = False) -> list[int]:
        """The units of nodes, in their order, as far as they are searched. A heading is none, unless its tag is asked for."""
        rows = self._sql.execute(self._units, (json.dumps(seqs), tagged, *self._bounds)).fetchall()
        if self._below is not None:
            ways = tree.ways_up(self._sql, [node_id for node_id, _ in rows])
            rows = [row for row in rows if any(node.id == self._below for node in ways[row[0]])]
        return [unit for _, unit in rows]

    def allowed(self, ids: Sequence[int]) -> Collection[int]:
        return set(self._units_of(ids))

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        units = list(ids)
        parts = read_parts(self._sql, units)
        self.parts |= parts
        yield from (part.item for part in parts.values())
        rest = json.dumps([unit for unit in units if unit not in parts])
        rows = self._sql.execute("SELECT id, seq FROM nodes WHERE seq IN (SELECT value FROM json_each(?))", (rest,))
        seqs = dict(rows.fetchall())
        for node_id, (node, *above) in tree.ways_up(self._sql, seqs).items():
            self.nodes[seqs[node_id]] = node
            titles = [title_of(parent) for parent in above]
            yield Item(
                seqs[node_id],
                node.text,
                titles[0] if titles else "",
                " / ".join(reversed(titles[1:])),
                f"{node.context_name} {node.context_value}",
                name=node.id,
                age=("", node.created_at, node.id),
                **(self._said(node) if node.context_type == "message" else {}),
            )

    def _said(self, node: Node) -> dict[str, Any]:
        """Who wrote a letter of a kept thread (`importing.keep_thread`) and when; the letters before and after it."""
        sender, _, rest = node.context_value.partition(" ")
        around = [None if one is None else one.id for one in tree.siblings_around(self._sql, node)]
        said = {"speaker": sender, "session": node.parent_id, "time": rest.partition(" ")[0]}
        return told(said, dict(zip(("previous", "next"), around, strict=True)))

    def shares(self, unit: int, terms: Mapping[str, float]) -> dict[str, float]:
        """The nodes of a unit by id, each with its share (0 to 1) in what the unit says of the terms."""
        if unit not in self.parts:
            return {self.nodes[unit].id: 1.0}
        nodes = self.parts[unit].members
        weights = [sum(terms[stem] for stem in terms.keys() & set(self._stems(words_of(node.text)))) for node in nodes]
        most = max(weights)
        shares = [weight / most for weight in weights] if most else [1.0, *([0.0] * (len(nodes) - 1))]
        return {node.node_id: share for node, share in zip(nodes, shares, strict=True)}


def find_passages(
    engine: Engine, sql: sqlite3.Connection, query: Query, limit: int, keys: Sequence[str]
) -> list[Passage]:
    """The best passages of the files at or below `keys`, best first; equal ones by path and line."""
    source = Units(sql, engine.stems, query.text, keys=keys)
    hits, asked = engine.search(sql, source, query, limit, kept=lambda _, found: [*map(_passage_answers, found)])
    terms = {term.stem: term.weight for term in asked.terms}
    found = []
    for hit in hits:
        part = source.parts[hit.id]
        near = None if hit.near is None else 1 - (1 - hit.near.place) * len(part.meant) / max(1, len(part.plain))
        quote = quote_span(part.text, terms, engine.stems, near)
        found.append(part.quoted(round(hit.score, 6), hit.why, hit.confidence, quote))
    return found


def _passage_answers(candidate: Candidate) -> bool:
    match = candidate.match
    return (match.covered >= FLOOR and bool(match.where.keys() - {"labels"})) or candidate.nearness >= NEAR_ENOUGH


_LEAST = 0.2  # the share of the query that a node must cover: a query may ask for several things at once
_ALIKE = 0.3  # the least cosine of a node that shares no word with the query
_LONGEST_TITLE = 80


def _node_answers(candidate: Candidate) -> bool:
    """Tell whether a node from no file answers: what only its parents say is theirs."""
    match = candidate.match
    return (bool(match.where.keys() & {"text", "labels"}) and match.covered >= _LEAST) or candidate.nearness >= _ALIKE


def title_of(node: Node) -> str:
    """What a node is called: the title of a heading, else its first words, else its context."""
    if node.context_type == "heading":
        return node.context_value
    line = next((line.strip() for line in node.text.splitlines() if line.strip()), "") or node.context_value
    return line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE - 1] + "…"


@dataclass(slots=True)
class Scored:
    """A passage, or a node from no file, that answers: its node that answers best and those above it (`way`, from itself on),
    its score, and why; `shares`: the part that each of its nodes has in the score."""

    way: Sequence[Node]
    score: float
    why: str
    shares: Mapping[str, float]
    in_file: bool = False


class Notes(Units):
    """The notes on documents, which are nodes from no file."""

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        if not words:
            return []
        rows = self._sql.execute(
            "SELECT n.seq FROM words CROSS JOIN nodes n ON n.seq = words.rowid WHERE words MATCH ?1"
            " AND n.context_type = 'note' UNION SELECT seq FROM nodes WHERE context_type = 'note'"
            " AND seq IN (SELECT value FROM json_each(?2)) LIMIT ?3",
            (any_of(words), json.dumps(list(self._news)), limit),
        )
        return [seq for (seq,) in rows]


def find_notes(engine: Engine, sql: sqlite3.Connection, text: str, limit: int) -> list[tuple[Node, Confidence]]:
    """Return the notes whose words answer best, best first, with the confidence of each."""
    source = Notes(sql, engine.stems, "")
    hits, _ = engine.search(sql, source, Query(text), limit, kept=lambda _, notes: [*map(_passage_answers, notes)])
    return [(source.nodes[hit.id], hit.confidence) for hit in hits]


def scored(engine: Engine, sql: sqlite3.Connection, query: Query, below: str | None, limit: int) -> list[Scored]:
    """What answers best, best first, ranked as by `find_passages`; what has a tag that is asked for comes first."""
    tags = tags_in(query.text)
    source = Units(sql, engine.stems, query.text, below=below)
    has_words = not tags or any(word not in tags for word in matching(without_tags(query.text)))

    def answers(candidate: Candidate) -> bool:
        if not source.tagged.keys().isdisjoint(source.shares(candidate.item.id, {})):
            return True
        return has_words and (_passage_answers if candidate.item.id in source.parts else _node_answers)(candidate)

    found, asked = engine.search(sql, source, query, limit, kept=lambda _, found: [*map(answers, found)])
    hits, terms = [*found], {term.stem: term.weight for term in asked.terms}
    shares = [source.shares(hit.id, terms) for hit in hits]
    ways = tree.ways_up(sql, [node_id for own in shares for node_id in own])
    highest = max((hit.score for hit in hits), default=0.0)
    units = []
    for hit, own in zip(hits, shares, strict=True):
        below_it = [node_id for node_id in own if below is None or any(node.id == below for node in ways[node_id])]
        best = max(below_it, key=lambda node_id: (node_id in source.tagged, own[node_id]))
        unit = Scored(ways[best], hit.score, hit.why, own, hit.id in source.parts)
        for tag in source.tagged.get(best, ()):
            unit.score, unit.why = unit.score + highest + 1.0, f"@{tag} among its tags; {unit.why}"
        units.append(unit)
    return sorted(units, key=lambda unit: -unit.score)


_PART = 0.1  # what each further hit under the same parent adds to the scores of those from no file,
_FURTHER = 3  # as far as it is one of so many
_FOUND = 32  # hits that are looked at together: as many as the search reads closely, whatever the limit


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
    """The best hits, best first, in the order in which passages are found for a question."""
    units = {unit.way[0].id: unit for unit in scored(engine, sql, query, below, max(limit, _FOUND))}
    siblings = Counter(unit.way[0].parent_id for unit in units.values())
    for unit in units.values():
        further = siblings[unit.way[0].parent_id] - 1 if unit.way[1:] else 0
        if further > 0:
            unit.why = f"{unit.why}; {further} more under the same parent"
            unit.score *= 1 if unit.in_file else 1 + _PART * min(further, _FURTHER)
    covers = _fold(sql, units, siblings)
    best = sorted(units.values(), key=lambda unit: -unit.score)[:limit]
    return [_hit(sql, unit, covers.get(unit.way[0].id, ())) for unit in best]


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
        own = found.get(summary_id, Scored(way, 0.0, best.why, {}))
        why = f"{own.why}; stands for {len(below)} of its children that match"
        found[summary_id] = Scored(way, max(own.score, best.score), why, {})
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
