"""Searching one namespace, or those below a prefix: what the one search sees of memories, who takes part (spec 6)."""

# ruff: noqa: S608 - statements are put together from this program's own constants; values are always bound
from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field, fields
from itertools import islice
from typing import Any, Literal

from hivemind.frozen import frozen
from hivemind.fs.database import Sql, select_among
from hivemind.longterm.entry import MemoryEntry, MemorySearchResult, as_time
from hivemind.longterm.filters import Filter
from hivemind.longterm.rows import ALIVE, PLACES, MemoryDatabase, fetch, objects_of, span
from hivemind.search import Confidence, Engine, Item, Query
from hivemind.search.item import told
from hivemind.search.query import named_in
from hivemind.search.ranking import Candidate, borne_out
from hivemind.search.words import words_of

_MOST_SPEAKERS = 64  # of a namespace whose names are known
_SPEAKER = "json_extract(metadata, '$.speaker')"
_LOOKED_AT = 100  # entries that say a name
_LEAST, _SHARE = 2, 0.8  # how often a name must be called, and in how many of the entries that say it
_CALLS = r"hey|hi|hello|thanks|thank you|wow|oh|yeah|yes|yep|no|bye|so|well|congrats|congratulations|ok|okay|sure|hallo|danke"


def parties(database: MemoryDatabase, sql: Sql, spaces: Sequence[int], query: str) -> frozenset[str]:
    """The words of a query, in small letters, that name who takes part in these namespaces."""
    asked = frozenset(words_of(query))
    speakers = {word for space in spaces for name in _speakers(sql, space) for word in words_of(name)}
    return asked & speakers | {name for name in named_in(query) - speakers if _is_called(database, sql, spaces, name)}


def _speakers(sql: Sql, space: int) -> list[str]:
    """The speakers of a namespace, each found by one look into the index of them."""
    found: list[str] = []
    while len(found) < _MOST_SPEAKERS:
        row = sql.execute(
            f"SELECT {_SPEAKER} FROM entries"
            f" WHERE space = ? AND {_SPEAKER} IS NOT NULL AND {_SPEAKER} > ? ORDER BY {_SPEAKER} LIMIT 1",
            (space, found[-1] if found else ""),
        ).fetchone()
        if row is None or not isinstance(row[0], str):
            break
        found.append(row[0])
    return found


def _is_called(database: MemoryDatabase, sql: Sql, spaces: Sequence[int], name: str) -> bool:
    """Whether entries that say a name talk to its bearer, or are labelled with it."""
    (word,) = words_of(name)[:1] or ("",)
    call = re.compile(rf"(?:^|[.!?,;:]\s*|\b(?:{_CALLS})\s+){re.escape(word)}(?=\s*[,.!?:;]|\s*$)", re.IGNORECASE)
    said = called = 0
    for space in spaces:
        for content in database.words.saying(sql, word, space, _LOOKED_AT):
            said += 1
            called += call.search(content) is not None
    return called >= _LEAST and called >= _SHARE * said


Mode = Literal["hybrid", "vector", "text"]

_FAINT = 0.5  # of the threshold: what is less like the query, with nothing else for it, is not found
_COLUMNS = "e.seq, e.key, e.created_at, e.importance, e.content, e.metadata, e.links"
_FIELDS = tuple(item.name for item in fields(MemoryEntry))


@frozen
class Asked:
    """A search: where (numbers of namespaces), what for, and what may be found. `now` in microseconds; `strict`: the
    threshold was given, and leaves out what is less similar."""

    spaces: Sequence[int]
    query: Query
    limit: int
    threshold: float
    now: int
    mode: Mode = "hybrid"
    strict: bool = False
    filter: Filter = field(default_factory=Filter)


def find(engine: Engine, database: MemoryDatabase, sql: Sql, asked: Asked) -> list[MemorySearchResult]:
    """The entries that answer best, best first, equal ones oldest first, each with its similarity, score and why."""
    if asked.limit <= 0 or not asked.spaces:
        return []
    if not asked.query.text.strip():
        return _newest(database, sql, asked)
    source = _Memories(database, sql, asked)
    if asked.mode == "vector":
        scored: list[tuple[int, float, float, str, Confidence | None]]
        near = engine.nearest(sql, source, asked.query, asked.limit)
        scored = [
            (seq, cosine, cosine, f"meaning {cosine:.2f}", None) for seq, cosine in near if cosine >= asked.threshold
        ]
    else:

        def kept(query: Query, candidates: Sequence[Candidate]) -> Sequence[bool]:
            least = asked.threshold
            if not any(one.match.score > 0 or (one.cosine is not None and one.cosine >= least) for one in candidates):
                return [False] * len(candidates)  # what is nearest is not near
            found = borne_out(query, candidates, least * _FAINT)
            if asked.strict:  # one that has no vector yet is not left out by a threshold
                found = [
                    good and (one.cosine is None or max(0.0, one.cosine) >= least)
                    for good, one in zip(found, candidates, strict=True)
                ]
            return found

        hits, _ = engine.search(sql, source, asked.query, 4 * asked.limit, kept=kept)
        shown = islice(hits, asked.limit)
        scored = [(hit.id, hit.similarity, hit.score, hit.why, hit.confidence) for hit in shown]
    entries = dict(fetch(sql, [seq for seq, *_ in scored], asked.now))
    found = [_result(entries[one[0]], *one[1:]) for one in scored]
    return sorted(found, key=lambda one: (-one.score, one.created_at, one.namespace, one.key))


class _Memories:
    """What a search sees of the entries. How rare words are is counted in its namespaces only: what others store changes
    no score."""

    def __init__(self, database: MemoryDatabase, sql: Sql, asked: Asked) -> None:
        self._words, self._sql, self._asked = database.words, sql, asked
        self.groups: Collection[int] | None = asked.spaces
        marks = ",".join("?" * len(asked.spaces))
        (total,) = sql.execute(f"SELECT sum(entries) FROM namespaces WHERE id IN ({marks})", asked.spaces).fetchone()
        self.total = int(total or 0)
        condition, given = asked.filter.condition(database.fits)
        self._where, self._given = f"{ALIVE}{' AND ' + condition if condition else ''}", [asked.now, *given]

    def how_often(self, word: str, bound: int) -> int:
        return self._words.how_often(self._sql, word, self._asked.spaces, bound)

    def matching(self, words: Sequence[str], limit: int) -> Sequence[int]:
        where = self._where, self._given
        return self._words.matching(self._sql, words, self._asked.spaces, where, limit) if words else []

    def allowed(self, ids: Sequence[int]) -> Collection[int]:
        return {seq for (seq,) in self._rows("e.seq", "e.seq", ids)}

    def items(self, ids: Iterable[int]) -> Iterator[Item]:
        rows = list(self._rows(_COLUMNS, "e.seq", ids))
        metadata, links = (objects_of([row[at] for row in rows]) for at in (-2, -1))
        for (seq, key, created, importance, content, *_), *pair in zip(rows, metadata, links, strict=True):
            said = told(*pair)
            yield Item(
                seq,
                content,
                scope=seq // PLACES,
                name=key,
                age=(created, key),
                standing=1.0 if importance is None else 0.75 + importance / 2,
                **{**said, "moment": said["moment"] or as_time(created).date()},
            )

    def named(self, scope: int, names: Collection[Any]) -> Iterable[int]:
        return [seq for (seq,) in self._rows("e.seq", f"e.space = {scope} AND e.key", sorted(names))]

    def _rows(self, columns: str, column: str, values: Iterable[object]) -> Iterator[tuple[Any, ...]]:
        """Those entries that may be found and have one of the values in a column."""
        statement = f"SELECT {columns} FROM entries e WHERE {column} IN KEYS AND {self._where}"
        return select_among(self._sql, statement, values, after=self._given)


def _newest(database: MemoryDatabase, sql: Sql, asked: Asked) -> list[MemorySearchResult]:
    """Without a query: all that may be found, what changed last first."""
    condition, given = asked.filter.condition(database.fits)
    rows: list[tuple[int, int]] = []
    for space in asked.spaces:
        rows += sql.execute(
            f"SELECT -e.updated_at, e.seq FROM entries e WHERE e.seq BETWEEN ? AND ? AND {ALIVE}"
            f"{' AND ' + condition if condition else ''} ORDER BY e.updated_at DESC, e.seq LIMIT ?",
            (*span(space), asked.now, *given, asked.limit),
        )
    seqs = [seq for _, seq in sorted(rows)[: asked.limit]]
    entries = dict(fetch(sql, seqs, asked.now))
    return [_result(entries[seq], 0.0, 0.0, "nothing was asked: the newest first") for seq in seqs]


def _result(
    entry: MemoryEntry, similarity: float, score: float, why: str, confidence: Confidence | None = None
) -> MemorySearchResult:
    if entry.importance is not None and entry.importance != 0.5:
        why += f", importance {entry.importance:g}"
    told = {name: getattr(entry, name) for name in _FIELDS}
    near = min(1.0, max(0.0, similarity))
    return MemorySearchResult(**told, similarity=near, score=score, why=why, confidence=confidence)
