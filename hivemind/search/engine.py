"""`Engine`: one search over a store's tables of words and vectors (spec 9)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from hivemind.embedding import VectorTable
from hivemind.frozen import frozen
from hivemind.fs.database import Sql
from hivemind.search.answers import Confidence, confidence_of
from hivemind.search.item import Item, read
from hivemind.search.parts import Near, nearest_parts
from hivemind.search.query import Query, query_of, rarest
from hivemind.search.ranking import Candidate, Weights, matches, rank
from hivemind.search.words import Stems, matching, words_of

__all__ = ["Engine", "Found", "Nearness", "Source"]

_CANDIDATES = 200  # by words and by meaning each
_CLOSELY = 200  # the first of them, which are read
_K = 60  # of reciprocal rank fusion, as is usual

Kept = Callable[[Query, Sequence[Candidate]], Sequence[bool]]
"""Which candidates are found at all: a store's own rule."""


class Source(Protocol):
    """What one search sees of a store, within one transaction: its candidates, in the scope that is asked.

    `total` is how many items there are, `groups` those of the vectors that are compared (None: all).
    """

    total: int
    groups: Collection[int] | None

    def how_often(self, word: str, bound: int) -> int:
        """How many items have the word, counted to just beyond the bound."""

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        """The ids of the items that match best in the full-text index, best first. Words have letters and digits only;
        there may be none."""

    def allowed(self, ids: Sequence[int]) -> Collection[int]:
        """Those of the ids that are there and may be found."""

    def items(self, ids: Iterable[int]) -> Iterable[Item]:
        """The items of these ids that may be found."""

    def named(self, scope: int, names: Collection[Any]) -> Iterable[int]:
        """The ids of the items that have these names in a scope; of none, where only candidates count as neighbours."""


class Nearness(Protocol):
    """What keeps and finds vectors in a database by its own means: `hivemind.embedding.Vectors` in SQLite."""

    def put(self, sql: Any, model: str, rows: Iterable[tuple[int, int, bytes]], /) -> None:
        """Write packed vectors as (key, group, vector), replacing what these keys had."""

    def nearest(
        self, sql: Any, model: str, query: bytes, limit: int, groups: Collection[int] | None = None, /
    ) -> list[tuple[int, float]]:
        """(key, cosine) of the model's vectors nearest to a packed one, best first, equal ones by key."""

    def cosines(self, sql: Any, model: str, query: bytes, keys: Collection[int], /) -> dict[int, float]:
        """The cosine of each of these keys that has a vector of the model."""


@frozen
class Found:
    """An item that answers: `score` orders the hits of one search, `similarity` is the cosine of its meaning (0 without),
    `confidence` how far it can be trusted to answer, `near` how near its parts are (None: not known), `why` says in words what
    was found."""

    item: Item
    score: float
    similarity: float
    confidence: Confidence
    why: str
    near: Near | None = None

    @property
    def id(self) -> int:
        return self.item.id


class Engine:
    """Searches a database that a transaction sees. Keeps the index of vectors."""

    def __init__(
        self,
        weights: Weights | None = None,
        *,
        vectors: Nearness | None = None,
        candidates: int = _CANDIDATES,
        closely: int = _CLOSELY,
    ) -> None:
        self.vectors: Nearness = vectors or VectorTable()
        self.weights = weights or Weights()
        self.stems = Stems()
        self._candidates, self._closely = candidates, closely

    def search(
        self,
        sql: Sql,
        source: Source,
        query: Query,
        limit: int,
        *,
        kept: Kept,
        weights: Weights | None = None,
    ) -> tuple[Iterator[Found], Query]:
        """The hits, best first, each made as it is taken, and the query as it was understood."""
        weights = weights or self.weights
        most = max(self._candidates, 2 * limit)
        asked, by_words = self.by_words(source, query, most)
        near = dict[int, float]() if asked.meaning is None else dict(self.nearest(sql, source, asked, most))
        ids = _first([by_words, list(near)], max(self._closely, 2 * limit))
        candidates = self._read(sql, source, asked, ids, near, weights)
        ranked = rank(asked, candidates, weights)
        found = kept(asked, candidates)
        ranked = [one for one in ranked if found[one.place]]
        return (self._hit(one.score, candidates[one.place], one.why, asked) for one in ranked[:limit]), asked

    def by_words(self, source: Source, query: Query, most: int) -> tuple[Query, Sequence[int]]:
        """Return the query with its terms, and the ids of the items that match best by their words, best first."""
        asked = query_of(query, self.stems, source.total, source.how_often)
        return asked, source.matching(rarest(asked.terms, most, source.total), most)

    def nearest(self, sql: Sql, source: Source, query: Query, most: int) -> list[tuple[int, float]]:
        """(id, cosine) of at most `most` items that may be found, best first; fewer only if there are no more."""
        assert query.meaning is not None
        reach = most
        while True:
            near = self.vectors.nearest(sql, query.model, query.meaning.vector, reach, source.groups)
            allowed = set(source.allowed([one for one, _ in near]))
            found = [pair for pair in near if pair[0] in allowed]
            if len(found) >= most or len(near) < reach:
                return found[:most]
            reach *= 8

    def coverage(self, query: str, text: str) -> float:
        """The share of the query's words, without stop words, that a text has (0 to 1)."""
        asked, there = self.stems(matching(query)), set(self.stems(words_of(text)))
        return sum(stem in there for stem in asked) / len(asked) if asked else 0.0

    def _read(
        self, sql: Sql, source: Source, query: Query, ids: Collection[int], known: Mapping[int, float], weights: Weights
    ) -> list[Candidate]:
        items = _with_neighbours(source, source.items(sorted(ids)))
        readings = read(items, [term.stem for term in query.terms], self.stems)
        cosines, near = dict(known), dict[int, Near]()
        if query.meaning is not None:
            ids = [item.id for item in items]
            cosines |= self.vectors.cosines(sql, query.model, query.meaning.vector, {*ids} - known.keys())
            near = nearest_parts(sql, query.model, query.meaning, ids)
        by_words = matches(query, items, readings, weights)
        places = {item.place: place for place, item in enumerate(items)}
        found = []
        for item, reading, match in zip(items, readings, by_words, strict=True):
            beside = [None if one is None else places.get(one) for one in item.beside]
            cosine, parts = cosines.get(item.id), near.get(item.id)
            found.append(Candidate(item, reading, match, cosine, parts, beside[0], beside[1]))
        return found

    def _hit(self, score: float, one: Candidate, why: Callable[[Candidate], str], query: Query) -> Found:
        said = why(one)
        if query.lack is not None:
            said += f"; by words only: {query.lack}"
        elif query.meaning is not None and one.cosine is None:
            said += "; not embedded yet"
        similarity = 0.0 if one.cosine is None else min(1.0, max(0.0, one.cosine))
        trust = confidence_of(query, one.match.where, one.match.covered, one.cosine, one.near)
        return Found(one.item, score, similarity, trust, said, one.near)


def _with_neighbours(source: Source, found: Iterable[Item]) -> list[Item]:
    """Items, and those beside them, by their ids."""
    items = {item.id: item for item in found}
    there = {item.place for item in items.values()}
    wanted: dict[int, set[Hashable]] = defaultdict(set)
    for place in {place for item in items.values() for place in item.beside if place is not None} - there:
        wanted[place[0]].add(place[1])
    beside = [one for scope, names in wanted.items() for one in source.named(scope, names)]
    items |= {item.id: item for item in source.items(beside)}
    return [items[one] for one in sorted(items)]


def _first(rankings: Sequence[Sequence[int]], most: int) -> list[int]:
    """The first of several rankings together, by reciprocal rank."""
    scores = dict[int, float]()
    for ranking in rankings:
        for place, one in enumerate(ranking):
            scores[one] = scores.get(one, 0.0) + 1 / (_K + place)
    return sorted(scores, key=lambda one: (-scores[one], one))[:most]
