"""Search documents: the passages of files, and the nodes of all trees."""

# ruff: noqa: S608 - statements are built from constants of this module; values are always bound
from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hivemind.documents import tree
from hivemind.documents.node import Node, tags_in, without_tags
from hivemind.documents.passages import Passage, PassagePart, read_parts, vector_keys
from hivemind.documents.progress import file_languages
from hivemind.documents.schema import unindexed_texts
from hivemind.documents.summaries import is_summary
from hivemind.frozen import frozen
from hivemind.search import CandidateSource, Confidence, Engine, Item, Query, Weights, quote_span
from hivemind.search.item import context_fields
from hivemind.search.query import identifiers
from hivemind.search.ranking import Candidate
from hivemind.search.words import Stemmer, count_rows, significant_words, words_of
from hivemind.words import is_unspaced, language_of, truncate

WEIGHTS = Weights(
    meaning=1.0, sentence=0.6, late=1.0, covered=0.6, together=0.35, lead=0.6, full_heading=0.5, neighbour=0.1, session=0.3,
    written=0.5, answer=0.0, said_before=0.0, said_after=0.0, time=0.0, name=0.0, asking=0.0,
)  # fmt: skip
"""The weights of features for documents, chosen on the tuning half of the questions in benchmarks/retrieval."""

MIN_COVERED = 0.4
"""A passage answers if it covers at least this share of the question's words (rare words count more), …"""
MIN_COSINE = 0.35
"""… or if its vector, or the vector of one of its sentences, has at least this cosine to the question."""
_FAR = 0.5  # the greatest confidence of a passage that does not answer


def question_language(sql: sqlite3.Connection, text: str) -> str:
    """Return the language of a question, recognised by its stop words. Without them, return the language of most documents."""
    return language_of(text) or next((name for name, _ in file_languages(sql).most_common(1)), "") or "english"


class Units(CandidateSource):
    """The units that a search finds. A unit is a passage of a file, or a node without a file.

    A unit is identified by the number (`seq`) of its first node. `keys` limits the units to files at or below these
    paths, `below` to the subtree of this node, `context_type` to nodes of this type (None: no limit). Files in
    `without` are excluded. Nodes with a tag that the query `text` contains are always candidates.
    """

    groups: Collection[int] | None = None

    def __init__(
        self,
        sql: sqlite3.Connection,
        stems: Stemmer,
        text: str,
        *,
        keys: Sequence[str] | None = None,
        without: Collection[str] = (),
        below: str | None = None,
        context_type: str | None = None,
    ) -> None:
        # First: `unindexed_texts` may update the index before its word frequencies are read.
        self._unindexed_stems = {seq: set(stems(words_of(words))) for seq, words in unindexed_texts(sql)}
        self._sql, self._stems, self._below = sql, stems, below
        (self.total,) = sql.execute("SELECT coalesce(max(seq), 0) FROM nodes").fetchone()
        within = "TRUE" if keys is None else " OR ".join("f.path = ? OR (f.path >= ? AND f.path < ?)" for _ in keys)
        self._bounds: list[str | None] = [bound for key in keys or () for bound in (key, key + "/", key + "0")]
        self._bounds += [json.dumps([*without]), context_type]
        self._units = (
            "SELECT n.id, n.seq, coalesce(h.seq, n.seq) FROM json_each(?) j CROSS JOIN nodes n ON n.seq = j.value"
            " LEFT JOIN places p ON p.node_id = n.id LEFT JOIN files f ON f.id = p.file_id"
            " LEFT JOIN places q ON q.file_id = p.file_id AND q.passage = p.passage AND q.leads = 1"
            " LEFT JOIN nodes h ON h.id = q.node_id"
            f" WHERE (p.node_id IS NULL OR h.seq IS NOT NULL OR ?) AND ({within})"
            " AND coalesce(f.path, '') NOT IN (SELECT value FROM json_each(?)) AND n.context_type = coalesce(?, n.context_type)"
            " ORDER BY j.key"
        )
        self.tags_by_node = dict[str, list[str]]()  # node id → the query's tags that the node has
        self._tagged_seqs = list[int]()
        for tag in sorted(tags_in(text)):
            statement = "SELECT n.id, n.seq FROM tags t JOIN nodes n ON n.id = t.node_id WHERE t.tag = ?"
            for node_id, seq in sql.execute(statement, (tag,)):
                self.tags_by_node.setdefault(node_id, []).append(tag)
                self._tagged_seqs.append(seq)
        self._phrases = [" ".join(words_of(name)) for name in identifiers(text)]
        self.parts = dict[int, PassagePart]()
        self.nodes = dict[int, Node]()

    def count_items(self, words: Sequence[str], bound: int) -> Sequence[int]:
        return [self._count(word, bound) for word in words]

    def _count(self, word: str, bound: int) -> int:
        if is_unspaced(word):
            return len(self._find_pairs([word], bound + 1))
        [stem] = self._stems([word])
        return count_rows(self._sql, self._stems.pattern(word), bound) + sum(
            stem in node_stems for node_stems in self._unindexed_stems.values()
        )

    def find_by_words(self, words: Sequence[str], limit: int) -> Sequence[int]:
        stems = set(self._stems(words))
        unindexed = [seq for seq, node_stems in self._unindexed_stems.items() if not stems.isdisjoint(node_stems)]
        units = dict.fromkeys(self._units_of([*unindexed, *self._tagged_seqs], includes_headings=True).values())
        if not words:
            return list(units)
        best = "SELECT rowid FROM words WHERE words MATCH ? AND rank MATCH 'bm25(1.0, 0.7)' ORDER BY rank LIMIT ?"
        pairs = [word for word in words if is_unspaced(word)]
        units |= dict.fromkeys(self._units_of(self._find_pairs(pairs, limit)).values()) if pairs else {}
        patterns = [self._stems.pattern(word) for word in words if word not in pairs]
        if not (pattern := " OR ".join([*patterns, *(f'"{phrase}"' for phrase in self._phrases)])):
            return list(units)
        for row_limit in (2 * limit, -1):  # all rows only if `keys` or `below` exclude most of the best
            seqs = [seq for (seq,) in self._sql.execute(best, (pattern, row_limit))]
            indexed = dict.fromkeys(self._units_of(seqs).values())
            if len(indexed) >= limit or len(seqs) != row_limit:
                break
        return list(units | dict.fromkeys(list(indexed)[:limit]))

    def _find_pairs(self, pairs: Sequence[str], limit: int) -> list[int]:
        """Return the numbers of the `limit` nodes that contain the most of these character pairs. Scans all texts,
        because no index has pairs."""
        statement = (
            "SELECT n.seq FROM nodes n CROSS JOIN json_each(?) j WHERE instr(n.text, j.value)"
            " GROUP BY n.seq ORDER BY count(*) DESC, n.seq LIMIT ?"
        )
        return [seq for (seq,) in self._sql.execute(statement, (json.dumps(pairs), limit))]

    def _units_of(self, seqs: Sequence[int], *, includes_headings: bool = False) -> dict[int, int]:
        """Map those of the nodes `seqs` that the search may return to their units, in order.

        Headings are included only with `includes_headings`.
        """
        rows = self._sql.execute(self._units, (json.dumps(seqs), includes_headings, *self._bounds)).fetchall()
        if self._below is not None:
            ancestries = tree.ancestries(self._sql, [node_id for node_id, *_ in rows])
            rows = [row for row in rows if any(node.id == self._below for node in ancestries[row[0]])]
        return {seq: unit for _, seq, unit in rows}

    def ids_of(self, keys: Sequence[int]) -> Mapping[int, int]:
        return self._units_of(keys)

    def keys_of(self, ids: Collection[int]) -> Mapping[int, int]:
        return {**{id_: id_ for id_ in ids}, **vector_keys(self._sql, ids)}

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        units = list(ids)
        parts = read_parts(self._sql, units)
        self.parts |= parts
        yield from (part.item for part in parts.values())
        other_units = json.dumps([unit for unit in units if unit not in parts])
        rows = self._sql.execute(
            "SELECT id, seq FROM nodes WHERE seq IN (SELECT value FROM json_each(?))", (other_units,)
        )
        seqs = dict(rows.fetchall())
        for node_id, (node, *ancestors) in tree.ancestries(self._sql, seqs).items():
            self.nodes[seqs[node_id]] = node
            titles = [title_of(parent) for parent in ancestors]
            yield Item(
                seqs[node_id],
                node.text,
                titles[0] if titles else "",
                " / ".join(reversed(titles[1:])),
                f"{node.context_name} {node.context_value}",
                name=node.id,
                age=("", node.created_at, node.id),
                **(self._letter_fields(node) if node.context_type == "message" else {}),
            )

    def _letter_fields(self, node: Node) -> dict[str, Any]:
        """Return the Item fields of a letter in a stored mail thread: its speaker, session, time and neighbours."""
        sender, _, date_and_id = node.context_value.partition(" ")
        neighbours = [
            None if neighbour is None else neighbour.id for neighbour in tree.siblings_around(self._sql, node)
        ]
        fields = {"speaker": sender, "session": node.parent_id, "time": date_and_id.partition(" ")[0]}
        return context_fields(fields, dict(zip(("previous", "next"), neighbours, strict=True)))

    def shares(self, unit: int, terms: Mapping[str, float]) -> dict[str, float]:
        """Return, for each node of a unit, the weight of its matching terms, divided by that of the unit's best node (0 to 1)."""
        if unit not in self.parts:
            return {self.nodes[unit].id: 1.0}
        nodes = self.parts[unit].members
        weights = [sum(terms[stem] for stem in terms.keys() & set(self._stems(words_of(node.text)))) for node in nodes]
        highest = max(weights)
        shares = [weight / highest for weight in weights] if highest else [1.0, *([0.0] * (len(nodes) - 1))]
        return {node.node_id: share for node, share in zip(nodes, shares, strict=True)}


def find_passages(
    engine: Engine,
    sql: sqlite3.Connection,
    query: Query,
    limit: int,
    keys: Sequence[str],
    without: Collection[str] = (),
) -> list[Passage]:
    """Return the passages of the files at or below `keys` that answer best, best first; equal scores by path and line.

    If none answers, return the nearest, with at most the confidence `_FAR`.
    """
    stemmer = engine.stemmer_of(query.language)
    source = Units(sql, stemmer, query.text, keys=keys, without=without)

    def are_near(_: Query, candidates: Sequence[Candidate]) -> list[bool]:
        answers = [*map(_passage_answers, candidates)]
        return answers if any(answers) else [True] * len(candidates)

    hits, parsed_query = engine.search(sql, source, query, limit, candidate_filter=are_near)
    terms = {term.stem: term.weight for term in parsed_query.terms}
    passages = []
    for hit in hits:
        part = source.parts[hit.id]
        near = None if hit.part_similarity is None else hit.part_similarity.position
        quote = quote_span(part.text, terms, stemmer, near)
        confidence = engine.rate_quote(parsed_query, hit, part.text[slice(*quote)], part.titles)
        if not _passage_answers(hit.candidate):
            confidence = replace(confidence, value=min(confidence.value, _FAR))
        passages.append(part.to_passage(round(hit.score, 6), hit.why, confidence, quote))
    return passages


def _passage_answers(candidate: Candidate) -> bool:
    match = candidate.match
    return (
        match.coverage >= MIN_COVERED and bool(match.words_by_field.keys() - {"labels"})
    ) or candidate.best_cosine >= MIN_COSINE


_NODE_MIN_COVERED = 0.2  # less than `MIN_COVERED`: a query may ask for several things at once
_NODE_MIN_COSINE = 0.3  # for a node that shares no word with the query
_MAX_TITLE_CHARS = 80


def _node_answers(candidate: Candidate) -> bool:
    """Return True if a node without a file answers the query. A match in the titles of its parents alone is not enough."""
    match = candidate.match
    return (
        bool(match.words_by_field.keys() & {"text", "labels"}) and match.coverage >= _NODE_MIN_COVERED
    ) or candidate.best_cosine >= _NODE_MIN_COSINE


def title_of(node: Node) -> str:
    """Return a heading's title. For another node, return its first line, or its context value if there is no text."""
    if node.context_type == "heading":
        return node.context_value
    line = next((line.strip() for line in node.text.splitlines() if line.strip()), "") or node.context_value
    return truncate(line, _MAX_TITLE_CHARS)


@dataclass(slots=True)
class ScoredUnit:
    """A unit that answers a query. `ancestry` has the unit's best node, that node's parent, and so on up to the root.

    `shares` has, for each node of the unit, its share (0 to 1) of the score.
    """

    ancestry: Sequence[Node]
    score: float
    reason: str
    shares: Mapping[str, float]
    is_in_file: bool = False


def find_notes(engine: Engine, sql: sqlite3.Connection, text: str, limit: int) -> list[tuple[Node, Confidence]]:
    """Return the notes that match best by words, best first, with the confidence of each."""
    source = Units(sql, engine.stemmer, "", context_type="note")
    hits, _ = engine.search(
        sql, source, Query(text), limit, candidate_filter=lambda _, notes: [*map(_passage_answers, notes)]
    )
    return [(source.nodes[hit.id], hit.confidence) for hit in hits]


def score_units(
    engine: Engine, sql: sqlite3.Connection, query: Query, below: str | None, limit: int
) -> list[ScoredUnit]:
    """Return the units (passages, or nodes without a file) that answer best, best first. Units with a tag of the query
    come first.

    `below` limits the search to the subtree of this node (None: no limit).
    """
    tags = tags_in(query.text)
    source = Units(sql, engine.stemmer_of(query.language), query.text, below=below)
    has_words = not tags or any(word not in tags for word in significant_words(without_tags(query.text)))

    def answers(candidate: Candidate) -> bool:
        if not source.tags_by_node.keys().isdisjoint(source.shares(candidate.item.id, {})):
            return True
        return has_words and (_passage_answers if candidate.item.id in source.parts else _node_answers)(candidate)

    ranked_hits, parsed_query = engine.search(
        sql, source, query, limit, candidate_filter=lambda _, candidates: [*map(answers, candidates)]
    )
    hits, terms = [*ranked_hits], {term.stem: term.weight for term in parsed_query.terms}
    shares = [source.shares(hit.id, terms) for hit in hits]
    ancestries = tree.ancestries(sql, [node_id for unit_shares in shares for node_id in unit_shares])
    highest = max((hit.score for hit in hits), default=0.0)
    units = []
    for hit, node_shares in zip(hits, shares, strict=True):
        candidate_ids = [
            node_id for node_id in node_shares if below is None or any(node.id == below for node in ancestries[node_id])
        ]
        best_id = max(candidate_ids, key=lambda node_id: (node_id in source.tags_by_node, node_shares[node_id]))
        unit = ScoredUnit(ancestries[best_id], hit.score, hit.why, node_shares, hit.id in source.parts)
        for tag in source.tags_by_node.get(best_id, ()):
            unit.score, unit.reason = unit.score + highest + 1.0, f"@{tag} among its tags; {unit.reason}"
        units.append(unit)
    return sorted(units, key=lambda unit: -unit.score)


_SIBLING_BONUS = 0.1  # each further hit under the same parent adds 10 % to the score of a node without a file, …
_MAX_SIBLINGS = 3  # … up to this many further hits
_EXAMINED_HITS = 32  # at least this many hits are compared for siblings and summaries, even if `limit` is smaller


@frozen
class DocumentHit:
    """A node that answers a query, and its surroundings.

    `titles` are the titles of the node's ancestors, outermost first. `document` is the root's id. `before` and `after`
    are the node's siblings. `covers` are the ids of hits that the node, a summary, replaces. `linked` are the ids of
    other nodes that share an `@tag` with the node. `why` describes the match in words.
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


def find_hits(
    engine: Engine, sql: sqlite3.Connection, query: Query, below: str | None, limit: int
) -> list[DocumentHit]:
    """Return the best hits, best first. Hits below a matching summary are replaced by the summary. `below` is as in
    `score_units`."""
    units = {unit.ancestry[0].id: unit for unit in score_units(engine, sql, query, below, max(limit, _EXAMINED_HITS))}
    siblings = Counter(unit.ancestry[0].parent_id for unit in units.values())
    for unit in units.values():
        other_hits = siblings[unit.ancestry[0].parent_id] - 1 if unit.ancestry[1:] else 0
        if other_hits > 0:
            unit.reason = f"{unit.reason}; {other_hits} more under the same parent"
            unit.score *= 1 if unit.is_in_file else 1 + _SIBLING_BONUS * min(other_hits, _MAX_SIBLINGS)
    covers = _fold_into_summaries(sql, units, siblings)
    best = sorted(units.values(), key=lambda unit: -unit.score)[:limit]
    return [_hit(sql, unit, covers.get(unit.ancestry[0].id, ())) for unit in best]


def _fold_into_summaries(
    sql: sqlite3.Connection, units: dict[str, ScoredUnit], siblings: Mapping[str | None, int]
) -> dict[str, list[str]]:
    """Replace hits below a summary by the summary, if the summary or several of its children are hits.

    Changes `units` in place. Returns, by the summary's id, the ids of the hits that the summary replaces.
    """
    covers: dict[str, list[str]] = {}
    for node_id, unit in units.items():
        for ancestor in unit.ancestry[1:]:
            can_cover = (
                ancestor.id in units
                or ancestor.id in covers
                or (ancestor is unit.ancestry[1] and siblings[ancestor.id] > 1)
            )
            if can_cover and is_summary(sql, ancestor.id):
                covers.setdefault(ancestor.id, []).append(node_id)
                break
    for summary_id, hit_ids in covers.items():
        best = max((units[node_id] for node_id in hit_ids), key=lambda candidate: candidate.score)
        ancestry = next(best.ancestry[at:] for at, node in enumerate(best.ancestry) if node.id == summary_id)
        summary_unit = units.get(summary_id, ScoredUnit(ancestry, 0.0, best.reason, {}))
        reason = f"{summary_unit.reason}; stands for {len(hit_ids)} of its children that match"
        units[summary_id] = ScoredUnit(ancestry, max(summary_unit.score, best.score), reason, {})
    for node_id in {node_id for member_ids in covers.values() for node_id in member_ids} - covers.keys():
        del units[node_id]
    return covers


def _hit(sql: sqlite3.Connection, unit: ScoredUnit, covers: Sequence[str]) -> DocumentHit:
    node, *ancestors = unit.ancestry
    before, after = tree.siblings_around(sql, node) if ancestors else (None, None)
    linked_rows = sql.execute(
        "SELECT DISTINCT other.node_id FROM tags mine JOIN tags other ON other.tag = mine.tag"
        " WHERE mine.node_id = ? AND other.node_id <> ? ORDER BY other.node_id LIMIT 20",
        (node.id, node.id),
    )
    return DocumentHit(
        node, round(unit.score, 6), tuple(map(title_of, reversed(ancestors))), unit.ancestry[-1].id,
        before, after, tuple(covers), tuple(row[0] for row in linked_rows), unit.reason,
    )  # fmt: skip
