"""Finding nodes: full text and vectors, traced up to their summary and document (seed 003, *Query Pattern*)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hivemind.documents import tree
from hivemind.documents.indexing import unindexed_ids
from hivemind.documents.node import Node
from hivemind.documents.question import Fields, Match, Words, ask
from hivemind.documents.ranking import rank
from hivemind.documents.summaries import is_summary
from hivemind.documents.tags import tags_in, without_tags
from hivemind.documents.vectors import Meaning
from hivemind.embedding import fused

__all__ = ["Asked", "Hit", "Trail", "find_hits", "scored", "title_of"]

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
class Asked:
    """A query: its text, below which node (None: everywhere), and what it means, if there is an embedder; `lack` says why its
    meaning is not known all the same."""

    text: str
    below: str | None = None
    meaning: Meaning | None = None
    lack: str | None = None

    def told(self, why: str) -> str:
        """Why something was found, with what was lacking."""
        return why if self.lack is None else f"{why}; by words only: {self.lack}"


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


def scored(sql: sqlite3.Connection, asked: Asked, words: Words) -> dict[str, _Scored]:
    """The nodes that answer, each with its score and why."""
    trail = Trail(sql)
    found = _by_words(sql, asked, words, trail)
    alike = dict(asked.meaning.nearest(sql, _CANDIDATES)) if asked.meaning else {}
    nodes = {node.id: node for node in tree.get_many(sql, [*found, *(i for i in alike if i not in found)])}
    if asked.below is not None:
        inside = {i for i, n in nodes.items() if i == asked.below or any(a.id == asked.below for a in trail.up(n))}
        nodes = {node_id: node for node_id, node in nodes.items() if node_id in inside}
    alike = {i: cosine for i, cosine in alike.items() if i in nodes and (cosine >= _ALIKE or i in found)}
    texts = {i: match.score for i, match in found.items() if i in nodes}
    whys = {i: found[i].why for i in texts}
    for node_id, cosine in alike.items():
        whys[node_id] = "; ".join(filter(None, (whys.get(node_id), f"its meaning is near ({cosine:.2f})")))
    return {node_id: _Scored(score, asked.told(whys[node_id])) for node_id, score in fused(texts, alike).items()}


def _by_words(sql: sqlite3.Connection, asked: Asked, words: Words, trail: Trail) -> dict[str, Match]:
    ids = dict.fromkeys(unindexed_ids(sql))
    question = ask(sql, asked.text, words)
    tags = sorted(tags_in(asked.text))
    for tag in tags:
        ids |= {row[0]: None for row in sql.execute("SELECT node_id FROM tags WHERE tag = ? LIMIT 200", (tag,))}
    if question.match is not None:
        rows = sql.execute(
            "SELECT n.id FROM words CROSS JOIN nodes n ON n.seq = words.rowid WHERE words MATCH ?"
            " ORDER BY bm25(words), n.seq LIMIT ?",
            (question.match, _CANDIDATES if asked.below is None else -1),
        )
        ids |= {row[0]: None for row in rows}
    nodes = tree.get_many(sql, ids)
    if asked.below is not None:
        nodes = [n for n in nodes if n.id == asked.below or any(a.id == asked.below for a in trail.up(n))][:_CANDIDATES]
    fields = [_fields(node, trail.up(node)) for node in nodes]
    places = words.places(fields, [term.stem for term in question.terms])
    matches = rank(question, fields, places)
    own = [
        any(field in ("text", "labels") for _, field in found) for found in places
    ]  # what only its parents say is theirs
    words_only = {n.id: m for n, m, is_own in zip(nodes, matches, own, strict=True) if is_own and m.covered >= _LEAST}
    if not tags:
        return words_only
    plain = ask(sql, without_tags(asked.text), words).terms
    return _tagged_first(sql, {n.id: m for n, m in zip(nodes, matches, strict=True)}, words_only if plain else {}, tags)


def _tagged_first(
    sql: sqlite3.Connection, matches: Mapping[str, Match], others: Mapping[str, Match], tags: Sequence[str]
) -> dict[str, Match]:
    """What has one of the tags asked for comes before what only has their words."""
    best = max((match.score for match in matches.values()), default=0.0)
    found = dict(others)
    for tag in tags:
        for (node_id,) in sql.execute("SELECT node_id FROM tags WHERE tag = ?", (tag,)):
            if (match := matches.get(node_id)) is not None:
                match.score += best + 1.0
                match.where.setdefault("tags", []).append(f"@{tag}")
                found[node_id] = match
    return found


def _fields(node: Node, above: list[Node]) -> Fields:
    titles = [title_of(found) for found in above]
    context = f"{node.context_name} {node.context_value}"
    return Fields(node.text, titles[0] if titles else "", " / ".join(reversed(titles[1:])), context)


def find_hits(sql: sqlite3.Connection, asked: Asked, limit: int, words: Words) -> list[Hit]:
    """The best hits, best first; equal ones in the order in which they were written."""
    found = scored(sql, asked, words)
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
