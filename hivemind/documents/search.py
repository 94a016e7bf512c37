"""What the one search sees of documents: the passages of files (spec 9). Nodes are in `query`."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence

from hivemind.documents.passage import Passage
from hivemind.documents.passages import Part, Reader
from hivemind.search import Index, Item, Query, Weights, quote_span
from hivemind.search.ranking import Candidate
from hivemind.search.sentences import spans_of

__all__ = ["WEIGHTS", "Documents", "Passages", "find_passages"]

WEIGHTS = Weights(
    meaning=4.0, sentence=0.6, covered=0.6, together=0.35, counted=1.0, lead=0.6, neighbour=0.1, session=0.6,
    answer=0.0, said_before=0.0, said_after=0.0, time=0.0, name=0.0, asking=0.0,
)  # fmt: skip
"""Chosen on the half of the questions that is for tuning (benchmarks/retrieval); round numbers on a plateau."""

FLOOR = 0.4
"""The share of a question (its words weighted by how rare they are) that a passage must cover to be an answer at all,"""
NEAR_ENOUGH = 0.35
"""or the cosine of its meaning, of the passage or of one of its sentences."""
_LOOKED_AT = 1_000


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
        self.reader, self.parts = Reader(sql), dict[int, Part]()
        self._where = " OR ".join("f.path = ? OR (f.path >= ? AND f.path < ?)" for _ in keys)
        self._bounds = [bound for key in keys for bound in (key, key + "/", key + "0")]

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        if not words:
            return []
        best = (
            "SELECT rowid AS seq, rank FROM words WHERE words MATCH ? AND rank MATCH 'bm25(1.0, 0.7)'"
            " ORDER BY rank LIMIT ?"
        )
        joined = (
            f"SELECT h.seq FROM ({best}) w CROSS JOIN nodes n ON n.seq = w.seq"
            " CROSS JOIN places p ON p.node_id = n.id CROSS JOIN files f ON f.id = p.file_id"
            " CROSS JOIN places q ON q.file_id = p.file_id AND q.passage = p.passage AND q.leads"
            f" CROSS JOIN nodes h ON h.id = q.node_id WHERE ({self._where}) ORDER BY w.rank, h.seq LIMIT ?"
        )
        asked = " OR ".join(f'"{word}"' for word in words)
        for most in (_LOOKED_AT, -1):  # all of them only where most of the best lie outside of the keys
            rows = self.sql.execute(joined, (asked, most, *self._bounds, 2 * limit)).fetchall()
            if len(rows) == 2 * limit:
                break
        return list(dict.fromkeys(seq for (seq,) in rows))[:limit]

    def allowed(self, ids: Sequence[int]) -> Collection[int]:
        marks = ",".join("?" * len(ids))
        rows = self.sql.execute(
            "SELECT n.seq FROM nodes n JOIN places p ON p.node_id = n.id JOIN files f ON f.id = p.file_id"
            f" WHERE p.leads AND n.seq IN ({marks}) AND ({self._where})",
            (*ids, *self._bounds),
        )
        return {seq for (seq,) in rows}

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        self.parts |= self.reader.parts(ids)
        return (part.item for part in self.parts.values())


def find_passages(
    index: Index, sql: sqlite3.Connection, query: Query, limit: int, keys: Sequence[str]
) -> list[Passage]:
    """The best passages of the files at or below `keys`, best first; equal ones by path and line."""
    if limit <= 0 or not keys:
        return []
    source = Passages(sql, keys)
    hits, asked = index.search(sql, source, query, limit, kept=_answers)
    terms = {term.stem: term.weight for term in asked.terms}
    found = []
    for hit in hits:
        part = source.parts[hit.id]
        spans = spans_of(part.text)
        near = spans[hit.near][0] if hit.near is not None and hit.near < len(spans) else None
        quote = quote_span(part.text, terms, index.readings.stems, near)
        found.append(part.quoted(round(hit.score, 6), hit.why, hit.confidence, quote))
    return found


def _answers(_: Query, candidates: Sequence[Candidate]) -> Sequence[bool]:
    return [
        (one.match.covered >= FLOOR and bool(one.match.where.keys() - {"labels"})) or one.nearness >= NEAR_ENOUGH
        for one in candidates
    ]
