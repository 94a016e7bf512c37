"""Search of memories in one or more namespaces, on top of `hivemind.search`."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from itertools import islice
from typing import Any, Literal

from hivemind.frozen import frozen
from hivemind.fs.database import Sql, select_by_keys
from hivemind.longterm.entry import MemoryEntry, MemorySearchResult, as_time
from hivemind.longterm.filters import Condition, Filter
from hivemind.longterm.rows import (
    KEYS_PER_NAMESPACE,
    NOT_EXPIRED,
    MemoryDatabase,
    fetch_entries,
    parse_objects,
    seq_range,
)
from hivemind.search import CandidateSource, Confidence, Engine, Item, Query
from hivemind.search.item import context_fields
from hivemind.search.query import names_in
from hivemind.search.ranking import Candidate, are_supported
from hivemind.search.words import words_of

_MAX_SPEAKERS = 64  # per namespace
_SPEAKER = "json_extract(metadata, '$.speaker')"
_ENTRIES_CHECKED = 100  # entries of a namespace with a name, in which calls of the name are counted
# a name is a speaker's if it is called so often, and in this share of the entries that contain it
_MIN_CALLS, _MIN_CALL_SHARE = (2, 0.8)
_GREETINGS = r"hey|hi|hello|thanks|thank you|wow|oh|yeah|yes|yep|no|bye|so|well|congrats|congratulations|ok|okay|sure|hallo|danke"


def find_participants(database: MemoryDatabase, sql: Sql, spaces: Sequence[int], query: str) -> frozenset[str]:
    """Return, in lower case, those words of a query that are names of speakers in these namespaces."""
    query_words = frozenset(words_of(query))
    speakers = {word for space in spaces for name in _speakers(sql, space) for word in words_of(name)}
    return query_words & speakers | {
        name for name in names_in(query) - speakers if _is_called(database, sql, spaces, name)
    }


def _speakers(sql: Sql, space: int) -> list[str]:
    """Return the speakers in a namespace. The index `entries_speaker` is searched once for each speaker, not once for
    each entry."""
    speakers: list[str] = []
    while len(speakers) < _MAX_SPEAKERS:
        row = sql.execute(
            f"SELECT {_SPEAKER} FROM entries"
            f" WHERE space = ? AND {_SPEAKER} IS NOT NULL AND {_SPEAKER} > ? ORDER BY {_SPEAKER} LIMIT 1",
            (space, speakers[-1] if speakers else ""),
        ).fetchone()
        if row is None or not isinstance(row[0], str):
            break
        speakers.append(row[0])
    return speakers


def _is_called(database: MemoryDatabase, sql: Sql, spaces: Sequence[int], name: str) -> bool:
    """Return True if most entries with a name use it to address somebody ("Hi Ann!") or as a speaker's label ("Ann: …")."""
    (word,) = words_of(name)[:1] or ("",)
    call = re.compile(rf"(?:^|[.!?,;:]\s*|\b(?:{_GREETINGS})\s+){re.escape(word)}(?=\s*[,.!?:;]|\s*$)", re.IGNORECASE)
    mentions = calls = 0
    for space in spaces:
        for content in database.words.contents_with(sql, word, space, _ENTRIES_CHECKED):
            mentions += 1
            calls += call.search(content) is not None
    return calls >= _MIN_CALLS and calls >= _MIN_CALL_SHARE * mentions


Mode = Literal["hybrid", "vector", "text"]

_SUPPORT_FACTOR = 0.5  # a cosine of threshold × this factor supports a candidate (`are_supported`)
_COLUMNS = "e.seq, e.key, e.created_at, e.importance, e.content, e.metadata, e.links"
_FIELDS = tuple(attribute.name for attribute in fields(MemoryEntry))


@frozen
class MemorySearch:
    """The arguments of one search. `spaces` are ids of namespaces; `now` is in microseconds.

    With `is_strict`, mode "hybrid" also leaves out entries with a similarity below the threshold.
    """

    spaces: Sequence[int]
    query: Query
    limit: int
    threshold: float
    now: int
    mode: Mode = "hybrid"
    is_strict: bool = False
    filter: Filter = field(default_factory=Filter)


def find_memories(
    engine: Engine, database: MemoryDatabase, sql: Sql, request: MemorySearch
) -> list[MemorySearchResult]:
    """Return the entries that answer best, best first. Entries with equal scores are ordered by age, oldest first."""
    if request.limit <= 0 or not request.spaces:
        return []
    if not request.query.text.strip():
        return _newest(database, sql, request)
    source = _MemorySource(database, sql, request)
    if request.mode == "vector":
        neighbours = engine.nearest(sql, source, request.query, request.limit)
        cosines = {seq: cosine for seq, cosine in neighbours if cosine >= request.threshold}
        return rank_by_meaning((entry, cosines[seq]) for seq, entry in fetch_entries(sql, cosines, request.now))

    def accept(query: Query, candidates: Sequence[Candidate]) -> Sequence[bool]:
        min_cosine = request.threshold
        if not any(
            candidate.match.score > 0 or (candidate.cosine is not None and candidate.cosine >= min_cosine)
            for candidate in candidates
        ):
            return [False] * len(candidates)  # even the nearest entry is below the threshold
        accepted = are_supported(query, candidates, min_cosine * _SUPPORT_FACTOR)
        if request.is_strict:  # an entry without a vector passes the threshold
            accepted = [
                is_supported and (candidate.cosine is None or max(0.0, candidate.cosine) >= min_cosine)
                for is_supported, candidate in zip(accepted, candidates, strict=True)
            ]
        return accepted

    hits, _ = engine.search(sql, source, request.query, 4 * request.limit, candidate_filter=accept)
    best_hits = [*islice(hits, request.limit)]
    entries = dict(fetch_entries(sql, [hit.id for hit in best_hits], request.now))
    return _ranked(_result(entries[hit.id], hit.similarity, hit.score, hit.why, hit.confidence) for hit in best_hits)


def rank_by_meaning(neighbours: Iterable[tuple[MemoryEntry, float]]) -> list[MemorySearchResult]:
    """Return the search results of mode "vector" for pairs (entry, cosine), in the same order."""
    return _ranked(_result(entry, cosine, cosine, f"meaning {cosine:.2f}") for entry, cosine in neighbours)


def _ranked(results: Iterable[MemorySearchResult]) -> list[MemorySearchResult]:
    return sorted(results, key=lambda result: (-result.score, result.created_at, result.namespace, result.key))


class _MemorySource(CandidateSource):
    """The `CandidateSource` of a search. Only the searched namespaces count towards the rarity of a word, so other
    namespaces never change a score."""

    def __init__(self, database: MemoryDatabase, sql: Sql, request: MemorySearch) -> None:
        self._words, self._sql, self._request = database.words, sql, request
        self.groups: Collection[int] | None = request.spaces
        placeholders = ",".join("?" * len(request.spaces))
        total, has_expired = sql.execute(
            "SELECT sum(entries), (SELECT min(expires_at) FROM entries WHERE expires_at IS NOT NULL) <= ?"
            f" FROM namespaces WHERE id IN ({placeholders})",
            (request.now, *request.spaces),
        ).fetchone()
        self.total = int(total or 0)
        self._condition, self._parameters = searchable(database, request.filter, request.now)
        self._is_restricted = has_expired or self._condition != NOT_EXPIRED

    def count_items(self, words: Sequence[str], bound: int) -> Sequence[int]:
        return self._words.count_entries(self._sql, words, self._request.spaces, bound)

    def find_by_words(self, words: Sequence[str], limit: int) -> Sequence[int]:
        condition = self._condition, self._parameters
        return self._words.find_entries(self._sql, words, self._request.spaces, condition, limit) if words else []

    def ids_of(self, keys: Sequence[int]) -> Mapping[int, int]:
        if not self._is_restricted:
            return dict(zip(keys, keys, strict=True))
        return {seq: seq for (seq,) in self._rows("e.seq", "e.seq", keys)}

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        rows = list(self._rows(_COLUMNS, "e.seq", ids))
        metadata, links = (parse_objects([row[at] for row in rows]) for at in (-2, -1))
        for (seq, key, created_at, importance, content, *_), *pair in zip(rows, metadata, links, strict=True):
            context = context_fields(*pair)
            yield Item(
                seq,
                content,
                scope=seq // KEYS_PER_NAMESPACE,
                name=key,
                age=(created_at, key),
                standing=1.0 if importance is None else 0.75 + importance / 2,
                **{**context, "moment": context["moment"] or as_time(created_at).date()},
            )

    def find_by_name(self, scope: int, names: Collection[Any]) -> Iterable[int]:
        return [seq for (seq,) in self._rows("e.seq", f"e.space = {scope} AND e.key", sorted(names))]

    def _rows(self, columns: str, column: str, values: Iterable[object]) -> Iterator[tuple[Any, ...]]:
        """Yield the `columns` of the entries that the search may return and that have one of the values in `column`."""
        statement = f"SELECT {columns} FROM entries e WHERE {column} IN KEYS AND {self._condition}"
        return select_by_keys(self._sql, statement, values, trailing_parameters=self._parameters)


def searchable(database: MemoryDatabase, filters: Filter, now: int) -> Condition:
    """Return the SQL condition that an entry (`entries e`) has not expired at `now` (microseconds) and passes the filters."""
    condition, parameters = filters.condition(database.metadata_condition)
    return f"{NOT_EXPIRED}{' AND ' + condition if condition else ''}", [now, *parameters]


def _newest(database: MemoryDatabase, sql: Sql, request: MemorySearch) -> list[MemorySearchResult]:
    """Return the result of a blank query: the entries changed last."""
    condition, parameters = searchable(database, request.filter, request.now)
    rows: list[tuple[int, int]] = []
    for space in request.spaces:
        rows += sql.execute(
            f"SELECT -e.updated_at, e.seq FROM entries e WHERE e.seq BETWEEN ? AND ? AND {condition}"
            " ORDER BY e.updated_at DESC, e.seq LIMIT ?",
            (*seq_range(space), *parameters, request.limit),
        )
    seqs = [seq for _, seq in sorted(rows)[: request.limit]]
    entries = dict(fetch_entries(sql, seqs, request.now))
    return [_result(entries[seq], 0.0, 0.0, "no query: newest first") for seq in seqs]


def _result(
    entry: MemoryEntry, similarity: float, score: float, why: str, confidence: Confidence | None = None
) -> MemorySearchResult:
    if entry.importance is not None and entry.importance != 0.5:
        why += f", importance {entry.importance:g}"
    entry_fields = {name: getattr(entry, name) for name in _FIELDS}
    cosine = min(1.0, max(0.0, similarity))
    return MemorySearchResult(**entry_fields, similarity=cosine, score=score, why=why, confidence=confidence)
