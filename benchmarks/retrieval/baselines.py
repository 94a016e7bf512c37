"""What the store is measured against: its own parts, put together as plainly as one would."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.retrieval.hivemind_system import NAMESPACE, Item, System
from hivemind.longterm import MemoryEntry
from hivemind.longterm.search import Asked
from hivemind.terms import bm25, words_of

_K = 60  # of reciprocal rank fusion, as is usual


class _Labelled(System):
    """Turns as "Speaker: text", without metadata: searched in one way only."""

    def entry(self, rows: Sequence[Item], at: int) -> MemoryEntry:
        return MemoryEntry(content=f"{rows[at][2]}: {rows[at][1]}")

    def by_words(self, query: str) -> list[str]:
        found = self.store._searcher
        with self.store.database.read() as sql:
            spaces = [number for (number,) in sql.execute("SELECT id FROM namespaces")]
            asked = Asked(spaces=spaces, query=query, limit=400, threshold=-1.0, now=self.store._now(), mode="text")
            weights = {term.stem: term.weight for term in found._terms(sql, asked)}
            rows = sql.execute("SELECT key, content FROM entries ORDER BY seq").fetchall()
        scores = bm25(weights, [found._readings.stems(words_of(content)) for _, content in rows])
        return [key for score, key in sorted(((-score, key) for score, (key, _) in zip(scores, rows, strict=True)))][
            :400
        ]

    def by_meaning(self, query: str) -> list[str]:
        return [hit.key for hit in self.store.search(NAMESPACE, query, threshold=-1.0, limit=400, mode="vector")]


class Words(_Labelled):
    """BM25 alone."""

    def search(self, query: str, k: int) -> list[str]:
        return self.by_words(query)[:k]


class Meaning(_Labelled):
    """MiniLM's cosine alone."""

    def search(self, query: str, k: int) -> list[str]:
        return self.by_meaning(query)[:k]


class Fusion(_Labelled):
    """Both, by reciprocal rank."""

    def search(self, query: str, k: int) -> list[str]:
        scores: dict[str, float] = {}
        for ranking in (self.by_words(query), self.by_meaning(query)):
            for place, key in enumerate(ranking):
                scores[key] = scores.get(key, 0.0) + 1 / (_K + place)
        return sorted(scores, key=lambda key: (-scores[key], key))[:k]
