"""Baselines of the store: its own parts, combined in the plainest way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.retrieval.hivemind_system import NAMESPACE, Item, System
from hivemind.longterm import MemoryEntry
from hivemind.search.words import Stemmer, bm25_scores, rarity, significant_words, words_of

_K = 60  # of reciprocal rank fusion, as is usual


class _Labelled(System):
    """Turns as "Speaker: text", without metadata: searched in one way only."""

    def entry(self, rows: Sequence[Item], at: int) -> MemoryEntry:
        return MemoryEntry(content=f"{rows[at][2]}: {rows[at][1]}")

    def by_words(self, query: str) -> list[str]:
        stems = Stemmer()
        with self.store.database.read() as sql:
            rows = sql.execute("SELECT key, content FROM entries ORDER BY seq").fetchall()
        texts = [stems(words_of(content)) for _, content in rows]
        often = Counter(stem for text in texts for stem in set(text))
        weights = {stem: rarity(often[stem], len(texts)) for stem in stems(significant_words(query)) if often[stem]}
        scores = zip(bm25_scores(weights, [Counter(text) for text in texts], [*map(len, texts)]), rows, strict=True)
        return [key for _, key in sorted((-score, key) for score, (key, _) in scores)][:400]

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
