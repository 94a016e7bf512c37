"""Searching one namespace, or those below a prefix: candidates by words and by meaning, ranked together (spec 6)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from hivemind.embedding import Vectors
from hivemind.longterm.entry import MemoryEntry, MemorySearchResult
from hivemind.longterm.filters import Filter
from hivemind.longterm.parties import without
from hivemind.longterm.passages import nearest_passages
from hivemind.longterm.ranking import Candidate, Question, Weights, borne_out, rank
from hivemind.longterm.reading import Found, Readings
from hivemind.longterm.rows import ALIVE, fetch, span
from hivemind.terms import bm25_of_tallies, matching, rarity, words_of

__all__ = ["Asked", "Mode", "Searcher", "Term", "rarest"]

Mode = Literal["hybrid", "vector", "text"]

_CANDIDATES = 200  # looked at closely, by words and by meaning each
_FAINT = 0.5  # of the threshold: what is less like the query, with nothing else for it, is not found
_COMMON, _FEW = 0.2, 1_000  # a word that more entries have finds nothing by itself, where rarer ones do
_MARKS = 500  # parameters of one statement
_RANKED = 2_000  # matches that SQLite ranks at a microsecond each; commoner words find no more than these
_NEIGHBOURS = ("previous", "next")
_FIELDS = tuple(item.name for item in fields(MemoryEntry))


@dataclass(frozen=True, slots=True)
class Asked:
    """A search: where (numbers of namespaces), what for, and what may be found. `now` in microseconds.

    `names` in the query are of who takes part (`parties`): no words to search for. `vector` is the query's, packed,
    and `model` whose it is; without one, words alone decide, and `lack` says why.
    """

    spaces: Sequence[int]
    query: str
    limit: int
    threshold: float
    now: int
    mode: Mode = "hybrid"
    strict: bool = False
    names: frozenset[str] = frozenset()
    vector: bytes | None = None
    model: str = ""
    lack: str | None = None
    filter: Filter = field(default_factory=Filter)


class Term(NamedTuple):
    """A word of the query that some entry has: what it is stemmed to, in how many entries it is, what it weighs."""

    stem: str
    word: str
    often: int
    weight: float


class Searcher:
    """Finds entries in a database that a transaction sees. Keeps what it read in them, and the index of vectors."""

    def __init__(self, path: str) -> None:
        self.vectors = Vectors(path)
        self.weights = Weights()
        self._readings = Readings()

    def find(self, sql: sqlite3.Connection, asked: Asked) -> list[MemorySearchResult]:
        """The entries that answer best, best first, each with its similarity, score and why."""
        if asked.limit <= 0 or not asked.spaces:
            return []
        if not asked.query.strip():
            return _newest(sql, asked)
        if asked.mode == "vector":
            return self._by_meaning(sql, asked)
        terms = self._terms(sql, asked)
        most = max(_CANDIDATES, 4 * asked.limit)
        seqs = self._by_words(sql, asked, terms, most)
        near = {} if asked.vector is None else dict(self._near(sql, asked, most))
        return self._ranked(sql, asked, {term.stem: term.weight for term in terms}, near.keys() | seqs, near)

    def coverage(self, query: str, text: str) -> float:
        """The share of the query's words, without stop words, that a text has (0 to 1)."""
        asked, there = self._readings.stems(matching(query)), set(self._readings.stems(words_of(text)))
        return sum(stem in there for stem in asked) / len(asked) if asked else 0.0

    # words

    def _terms(self, sql: sqlite3.Connection, asked: Asked) -> list[Term]:
        """The query's words that some entry has. How rare they are is counted in these namespaces only: what others store
        changes nothing here."""
        marks = ",".join("?" * len(asked.spaces))
        (total,) = sql.execute(f"SELECT sum(entries) FROM namespaces WHERE id IN ({marks})", asked.spaces).fetchone()
        words = matching(without(asked.query, asked.names))
        found: dict[str, Term] = {}
        common: dict[str, Term] = {}
        bound = max(_FEW, int((total or 0) * _COMMON))
        for word, stem in zip(words, self._readings.stems(words), strict=True):
            often = sum(_often(sql, word, space, bound) for space in asked.spaces)
            if often:
                term = Term(stem, word, often, rarity(often, total or 0))
                (found if often <= bound else common).setdefault(stem, term)
        return list((found or common).values())

    def _by_words(self, sql: sqlite3.Connection, asked: Asked, terms: Sequence[Term], most: int) -> list[int]:
        if not terms:
            return []
        expression = " OR ".join(f'"{word}"' for word in rarest(terms, most))  # words have letters and digits only
        condition, given = asked.filter.condition()
        found: list[tuple[float, int]] = []
        for space in asked.spaces:
            found += sql.execute(
                "SELECT words.rank, words.rowid FROM words JOIN entries e ON e.seq = words.rowid"
                f" WHERE words MATCH ? AND words.rowid BETWEEN ? AND ? AND {ALIVE}"
                f"{' AND ' + condition if condition else ''} ORDER BY words.rank LIMIT ?",
                (expression, *span(space), asked.now, *given, most),
            )
        return [seq for _, seq in sorted(found)[:most]]

    # meaning

    def _near(self, sql: sqlite3.Connection, asked: Asked, most: int) -> list[tuple[int, float]]:
        """(seq, cosine) of at most `most` entries that may be found, best first; fewer only if there are no more."""
        assert asked.vector is not None
        condition, given = asked.filter.condition()
        reach = most
        while True:
            near = self.vectors.nearest(sql, asked.model, asked.vector, reach, asked.spaces)
            allowed = _allowed(sql, [seq for seq, _ in near], asked.now, condition, given)
            found = [pair for pair in near if pair[0] in allowed]
            if len(found) >= most or len(near) < reach:
                return found[:most]
            reach *= 8

    def _by_meaning(self, sql: sqlite3.Connection, asked: Asked) -> list[MemorySearchResult]:
        near = dict(self._near(sql, asked, 2 * asked.limit))
        found = [
            _result(entry, near[seq], near[seq], f"meaning {near[seq]:.2f}", asked)
            for seq, entry in fetch(sql, near, asked.now)
            if near[seq] >= asked.threshold
        ]
        return _best(found, asked.limit)

    # both

    def _ranked(
        self, sql: sqlite3.Connection, asked: Asked, weights: dict[str, float], seqs: set[int], near: dict[int, float]
    ) -> list[MemorySearchResult]:
        """The best of some entries; `near`: the cosines that are known already."""
        read = self._readings.of(sql, seqs, asked.now)
        read |= self._neighbours(sql, asked, read)
        cosines, passages = near, dict[int, float]()
        if asked.vector is not None:
            cosines = near | self.vectors.cosines(sql, asked.model, asked.vector, read.keys() - near.keys())
            passages = nearest_passages(sql, asked.model, asked.vector, read)
        texts = bm25_of_tallies(
            weights, [one.reading.tally for one in read.values()], [one.reading.length for one in read.values()]
        )
        places = {(one.space, one.key): place for place, one in enumerate(read.values())}
        candidates = []
        for (seq, one), text in zip(read.items(), texts, strict=True):
            beside = (places.get((one.space, one.reading.links.get(name, ""))) for name in _NEIGHBOURS)
            candidates.append(Candidate(one, text, cosines.get(seq), passages.get(seq), *beside))
        if not any(one.bm25 > 0 or (one.cosine is not None and one.cosine >= asked.threshold) for one in candidates):
            return []  # what is nearest is not near
        question = Question(asked.query, asked.names, weights, self.weights)
        kept = borne_out(question, candidates, asked.threshold * _FAINT)
        ranked = [
            (one, candidates[one.place])
            for one in rank(question, candidates)
            if kept[one.place] and not (asked.strict and _below(candidates[one.place].cosine, asked.threshold))
        ]
        # stable: equal ones stay older first
        ranked.sort(key=lambda pair: -_weighted(pair[1].found.importance, pair[0].score))
        shown = ranked[: asked.limit]
        entries = dict(fetch(sql, [one.found.seq for _, one in shown], asked.now))
        return [
            _result(entries[one.found.seq], one.cosine or 0.0, how.score, how.why(one), asked) for how, one in shown
        ]

    def _neighbours(self, sql: sqlite3.Connection, asked: Asked, read: Mapping[int, Found]) -> dict[int, Found]:
        """The entries that those found name as previous or next, where they may be found themselves."""
        there: dict[int, set[str]] = defaultdict(set)
        named: dict[int, set[str]] = defaultdict(set)
        for one in read.values():
            there[one.space].add(one.key)
            named[one.space].update(one.reading.links[name] for name in _NEIGHBOURS if name in one.reading.links)
        seqs: list[int] = []
        for space, keys in named.items():
            missing = sorted(keys - there[space])
            for at in range(0, len(missing), _MARKS):
                some = missing[at : at + _MARKS]
                marks = ",".join("?" * len(some))
                rows = sql.execute(f"SELECT seq FROM entries WHERE space = ? AND key IN ({marks})", (space, *some))
                seqs += [seq for (seq,) in rows]
        condition, given = asked.filter.condition()
        return self._readings.of(sql, _allowed(sql, seqs, asked.now, condition, given), asked.now)


def rarest(terms: Sequence[Term], most: int) -> list[str]:
    """The words that entries are found by: the rarest, as many as find enough. What has only the commoner ones would be
    ranked behind those anyway, and ranking costs for each match."""
    words, matches = list[str](), 0
    for term in sorted(terms, key=lambda one: one.often):
        if matches >= most and matches + term.often > _RANKED:
            break
        words.append(term.word)
        matches += term.often
    return words


def _often(sql: sqlite3.Connection, word: str, space: int, bound: int) -> int:
    """How many entries of a namespace have a word, counted to just beyond a bound."""
    (often,) = sql.execute(
        "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)",
        (f'"{word}"', *span(space), bound + 1),
    ).fetchone()
    return int(often)


def _allowed(sql: sqlite3.Connection, seqs: Sequence[int], now: int, condition: str, given: Sequence[Any]) -> set[int]:
    """Those of the entries that are there, have not expired and fit the filter."""
    found: set[int] = set()
    for at in range(0, len(seqs), _MARKS):
        some = seqs[at : at + _MARKS]
        found.update(
            seq
            for (seq,) in sql.execute(
                f"SELECT e.seq FROM entries e WHERE e.seq IN ({','.join('?' * len(some))}) AND {ALIVE}"
                f"{' AND ' + condition if condition else ''}",
                (*some, now, *given),
            )
        )
    return found


def _newest(sql: sqlite3.Connection, asked: Asked) -> list[MemorySearchResult]:
    """Without a query: all that may be found, what changed last first."""
    condition, given = asked.filter.condition()
    rows: list[tuple[int, int]] = []
    for space in asked.spaces:
        rows += sql.execute(
            f"SELECT -e.updated_at, e.seq FROM entries e WHERE e.seq BETWEEN ? AND ? AND {ALIVE}"
            f"{' AND ' + condition if condition else ''} ORDER BY e.updated_at DESC, e.seq LIMIT ?",
            (*span(space), asked.now, *given, asked.limit),
        )
    seqs = [seq for _, seq in sorted(rows)[: asked.limit]]
    entries = dict(fetch(sql, seqs, asked.now))
    return [_result(entries[seq], 0.0, 0.0, "nothing was asked: the newest first", asked) for seq in seqs]


def _below(cosine: float | None, threshold: float) -> bool:
    """Whether a threshold leaves an entry out; one that has no vector yet is not."""
    return cosine is not None and cosine < threshold


def _weighted(importance: float | None, score: float) -> float:
    """Importance weighs 0.75 (none) to 1.25 (all); 1 where it is 0.5 or was not said."""
    return score if importance is None else score * (0.75 + importance / 2)


def _result(entry: MemoryEntry, similarity: float, score: float, why: str, asked: Asked) -> MemorySearchResult:
    score = _weighted(entry.importance, score)
    if entry.importance is not None and entry.importance != 0.5:
        why += f", importance {entry.importance:g}"
    if asked.lack is not None:
        why += f"; by words only: {asked.lack}"
    elif entry.pending:
        why += "; not embedded yet"
    told = {name: getattr(entry, name) for name in _FIELDS}
    return MemorySearchResult(**told, similarity=min(1.0, max(0.0, similarity)), score=score, why=why)


def _best(found: list[MemorySearchResult], limit: int) -> list[MemorySearchResult]:
    return sorted(found, key=lambda one: (-one.score, one.created_at, one.namespace, one.key))[:limit]
