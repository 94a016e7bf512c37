"""`Engine`: search a store's full-text index and vectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from typing import Any, Protocol

from hivemind.embedding import VectorTable
from hivemind.frozen import frozen
from hivemind.fs.database import Sql
from hivemind.search.answers import Confidence, Evidence, confidence_of, doubt_names
from hivemind.search.item import Item, read_items
from hivemind.search.parts import PartSimilarity, compare_parts
from hivemind.search.query import Query, add_terms, rarest_words
from hivemind.search.ranking import Candidate, RankedCandidate, Weights, match_items, rank
from hivemind.search.snowball import SnowballStemmer
from hivemind.search.words import Stemmer, significant_words, words_of

_CANDIDATES = 200  # from the full-text index, and as many from the vectors
_CANDIDATES_READ = 200  # the texts of this many of the best candidates are read
_RANK_CONSTANT = 60  # the usual constant of reciprocal rank fusion
_RIVALS = 3  # the other candidates over which a hit has a lead, …
_UNKNOWN_LEAD = 0.06  # … and the lead that is assumed if there are fewer: in a small hive nothing else is near

CandidateFilter = Callable[[Query, Sequence[Candidate]], Sequence[bool]]
"""A store's function that returns, for each candidate, whether it may become a hit."""


class CandidateSource(Protocol):
    """The part of a store that one search may read, within one transaction and one scope.

    `total` is the number of items. `groups` are the groups of vectors that are compared (None: all groups).
    """

    total: int
    groups: Collection[int] | None

    def count_items(self, words: Sequence[str], bound: int) -> Sequence[int]:
        """Count, for each word, the items that contain it. Counting stops at `bound` + 1."""

    def find_by_words(self, words: Sequence[str], limit: int) -> Sequence[int]:
        """Return the ids of the best full-text matches, best first. The words consist of letters and digits; there may
        be none."""

    def ids_of(self, keys: Sequence[int]) -> Mapping[int, int]:
        """Return the item id of each vector key. Leave out items outside the search's scope."""

    def keys_of(self, ids: Collection[int]) -> Mapping[int, int]:
        """Return the vector keys of the items, each mapped to its item's id, in reading order.

        By default, an item has one vector, with the item's id as its key.
        """
        return dict(zip(ids, ids, strict=True))

    def items(self, ids: Iterable[int]) -> Iterable[Item]:
        """Load the items with these ids. Leave out items outside the search's scope."""

    def find_by_name(self, scope: int, names: Collection[Any]) -> Iterable[int]:  # noqa: ARG002
        """Return the ids of the items in a scope that have one of these names. By default, return none: neighbours are
        then not loaded."""
        return ()


class VectorStore(Protocol):
    """A store of vectors in a database. `hivemind.embedding.VectorTable` is one for SQLite."""

    def put(self, sql: Any, model: str, rows: Iterable[tuple[int, int, bytes]], /) -> None:
        """Write the rows (key, group, packed vector); replace earlier vectors of the same keys."""

    def nearest(
        self, sql: Any, model: str, query: bytes, limit: int, groups: Collection[int] | None = None, /
    ) -> list[tuple[int, float]]:
        """Return (key, cosine) of those vectors of the model that are nearest to the packed vector `query`, best first.

        `groups` limits the search to groups of vectors (None: all groups).
        """

    def cosines(self, sql: Any, model: str, query: bytes, keys: Collection[int], /) -> dict[int, float]:
        """Return, by key, the cosine to the packed vector `query`; leave out keys without a vector of the model."""


@frozen
class SearchHit:
    """An item found by a search.

    `score` orders the hits of one search. `similarity` is the cosine to the query, 0 without a vector. `why` explains
    the hit in words. `part_similarity` is None if the item has no parts. `evidence` is None if parts of texts were not
    compared.
    """

    item: Item
    score: float
    similarity: float
    confidence: Confidence
    why: str
    candidate: Candidate
    evidence: Evidence | None

    @property
    def part_similarity(self) -> PartSimilarity | None:
        return self.candidate.part_similarity

    @property
    def id(self) -> int:
        return self.item.id


class Engine:
    """A search engine: finds a store's candidates by words and vectors, and ranks them, within the caller's transaction."""

    def __init__(
        self,
        weights: Weights | None = None,
        *,
        vectors: VectorStore | None = None,
        candidates: int = _CANDIDATES,
        candidates_read: int = _CANDIDATES_READ,
    ) -> None:
        self.vectors: VectorStore = vectors or VectorTable()
        self.weights = weights or Weights()
        self.stemmer = Stemmer()
        self.stemmer_of = lru_cache(1)(
            lambda language: SnowballStemmer(language) if language != "english" else self.stemmer
        )
        self._candidates, self._candidates_read = candidates, candidates_read

    def search(
        self,
        sql: Sql,
        source: CandidateSource,
        query: Query,
        limit: int,
        *,
        candidate_filter: CandidateFilter,
        weights: Weights | None = None,
    ) -> tuple[Iterator[SearchHit], Query]:
        """Return the hits, best first, and the query with its terms added. The hits are built only when the iterator is read.

        `candidate_filter` returns, for each candidate, True if it may become a hit. `weights` replaces the engine's
        weights.
        """
        weights = weights or self.weights
        max_candidates = max(self._candidates, 2 * limit)
        parsed_query, word_ids = self.search_words(source, query, max_candidates)
        cosines_by_id = (
            dict[int, float]()
            if parsed_query.vectors is None
            else dict(self.nearest(sql, source, parsed_query, max_candidates))
        )
        ids = _fuse_rankings([word_ids, list(cosines_by_id)], max(self._candidates_read, 2 * limit))
        candidates = self._read_candidates(sql, source, parsed_query, ids, cosines_by_id, weights)
        ranking = rank(parsed_query, candidates, weights)
        evidence_of = _evidence_finder(candidates) if weights.late else lambda _: None
        is_accepted = candidate_filter(parsed_query, candidates)
        ranking = [ranked_candidate for ranked_candidate in ranking if is_accepted[ranked_candidate.position]]
        return (
            self._hit(ranked, candidates[ranked.position], parsed_query, evidence_of(ranked.position))
            for ranked in ranking[:limit]
        ), parsed_query

    def search_words(self, source: CandidateSource, query: Query, limit: int) -> tuple[Query, Sequence[int]]:
        """Return the query with its terms added, and the ids of the items that match best by words, best first."""
        parsed_query = add_terms(query, self.stemmer_of(query.language), source.total, source.count_items)
        return parsed_query, source.find_by_words(rarest_words(parsed_query.terms, limit, source.total), limit)

    def nearest(self, sql: Sql, source: CandidateSource, query: Query, limit: int) -> list[tuple[int, float]]:
        """Return (id, cosine) of the nearest items in the search's scope, at most `limit`, best first."""
        assert query.vectors is not None
        fetch_limit = limit
        while True:
            neighbours = self.vectors.nearest(sql, query.model, query.vectors.vector, fetch_limit, source.groups)
            ids = source.ids_of([key for key, _ in neighbours])
            searchable = dict[int, float]()
            for key, cosine in neighbours:
                if key in ids:
                    searchable.setdefault(ids[key], cosine)  # the item's nearest vector
            if len(searchable) >= limit or len(neighbours) < fetch_limit:
                return [*searchable.items()][:limit]
            fetch_limit *= 8

    def coverage(self, query: str, text: str) -> float:
        """Return the share (0 to 1) of the query's words that the text contains. Stop words do not count."""
        query_stems, text_stems = self.stemmer(significant_words(query)), set(self.stemmer(words_of(text)))
        return sum(stem in text_stems for stem in query_stems) / len(query_stems) if query_stems else 0.0

    def _read_candidates(
        self,
        sql: Sql,
        source: CandidateSource,
        query: Query,
        ids: Collection[int],
        known_cosines: Mapping[int, float],
        weights: Weights,
    ) -> list[Candidate]:
        items = _with_neighbours(source, source.items(sorted(ids)))
        readings = read_items(items, [term.stem for term in query.terms], self.stemmer_of(query.language))
        cosines, part_similarities = dict(known_cosines), dict[int, PartSimilarity]()
        if query.vectors is not None:
            ids_by_key = source.keys_of([item.id for item in items])
            missing_keys = [key for key, item_id in ids_by_key.items() if item_id not in known_cosines]
            for key, cosine in self.vectors.cosines(sql, query.model, query.vectors.vector, missing_keys).items():
                cosines[ids_by_key[key]] = max(cosine, cosines.get(ids_by_key[key], -1.0))
            part_similarities = compare_parts(sql, query.model, query.vectors, ids_by_key)
        word_matches = match_items(query, items, readings, weights)
        positions = {item.address: position for position, item in enumerate(items)}
        candidates = []
        for item, reading, match in zip(items, readings, word_matches, strict=True):
            previous, following = (None if address is None else positions.get(address) for address in item.neighbours)
            similarity, part_similarity = cosines.get(item.id), part_similarities.get(item.id)
            candidates.append(Candidate(item, reading, match, similarity, part_similarity, previous, following))
        return candidates

    def _hit(self, ranked: RankedCandidate, candidate: Candidate, query: Query, evidence: Evidence | None) -> SearchHit:
        explanation = ranked.explain(candidate)
        if query.words_only_reason is not None:
            explanation += f"; by words only: {query.words_only_reason}"
        elif query.vectors is not None and candidate.cosine is None:
            explanation += "; not embedded yet"
        similarity = 0.0 if candidate.cosine is None else min(1.0, max(0.0, candidate.cosine))
        confidence = confidence_of(query, candidate)
        return SearchHit(candidate.item, ranked.score, similarity, confidence, explanation, candidate, evidence)

    def rate_quote(self, query: Query, hit: SearchHit, quote: str, titles: Sequence[str]) -> Confidence:
        """Return the confidence that a hit answers the query, judged by the hit's quote and the titles above it."""
        text = "\n".join((quote, *titles))
        stems = set(self.stemmer_of(query.language)(words_of(text)))
        covered_count = sum(term.stem in stems for term in query.question_terms)
        confidence = confidence_of(query, hit.candidate, hit.evidence, (quote, covered_count))
        return doubt_names(query, confidence, text)


def _evidence_finder(candidates: Sequence[Candidate]) -> Callable[[int], Evidence | None]:
    """Return a function from a candidate's position to its evidence; the evidence is None if the candidate's parts were
    not compared."""
    by_words = sorted(range(len(candidates)), key=lambda position: -candidates[position].match.score)
    by_meaning = sorted(range(len(candidates)), key=lambda position: -candidates[position].best_cosine)
    similarities = {
        position: similarity
        for position, candidate in enumerate(candidates)
        if (similarity := candidate.word_similarity) is not None
    }
    nearest = nlargest(_RIVALS + 1, similarities, key=similarities.__getitem__)

    def find_evidence(position: int) -> Evidence | None:
        if position not in similarities:
            return None
        rivals = [similarities[other] for other in nearest if other != position][:_RIVALS]
        lead = similarities[position] - sum(rivals) / _RIVALS if len(rivals) == _RIVALS else _UNKNOWN_LEAD
        return Evidence(lead, by_words.index(position) + 1, by_meaning.index(position) + 1)

    return find_evidence


def _with_neighbours(source: CandidateSource, candidate_items: Iterable[Item]) -> list[Item]:
    """Return the candidate items and their neighbours, ordered by id."""
    items = {item.id: item for item in candidate_items}
    present_addresses = {item.address for item in items.values()}
    missing_names: dict[int, set[Hashable]] = defaultdict(set)
    for neighbour in {neighbour for item in items.values() for neighbour in item.neighbours} - present_addresses:
        if neighbour is not None:
            missing_names[neighbour[0]].add(neighbour[1])
    neighbour_ids = [item_id for scope, names in missing_names.items() for item_id in source.find_by_name(scope, names)]
    items |= {item.id: item for item in source.items(neighbour_ids)}
    return [items[item_id] for item_id in sorted(items)]


def _fuse_rankings(rankings: Sequence[Sequence[int]], limit: int) -> list[int]:
    """Combine several rankings into one by adding each id's reciprocal ranks. Return the best ids, best first."""
    scores = defaultdict[int, float](float)
    for ranking in rankings:
        for position, item_id in enumerate(ranking):
            scores[item_id] += 1 / (_RANK_CONSTANT + position)
    return sorted(scores, key=lambda item_id: (-scores[item_id], item_id))[:limit]
