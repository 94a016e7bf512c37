"""Words and stems as the full-text indexes see them, and BM25 scores."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from hivemind.fs.database import Connection
from hivemind.words import STOP_WORDS, UNSPACED, is_unspaced

TOKENIZER = "porter unicode61 remove_diacritics 2"
"""The tokenizer of the full-text indexes of all stores."""

_WORD = re.compile(r"[^\W_]+")
_ASCII = "".join(sign.lower() if sign.isalnum() else " " for sign in map(chr, range(128)))
MAX_TERMS = 32
_MAX_STEMS = 100_000
_MAX_ROWID = (1 << 63) - 1
K1, B = 1.2, 0.75  # saturation and length normalisation, the usual values


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, in lower case. Text without spaces (Chinese, Japanese) yields character pairs."""
    if text.isascii():
        return text.translate(_ASCII).split()
    words = [word.casefold() for word in _WORD.findall(text.replace("’", "'"))]
    return [part for word in words for part in _pairs(word)] if UNSPACED.search(text) else words


def _pairs(word: str) -> list[str]:
    """Split a word of a script without spaces into its overlapping pairs of characters; return any other word whole."""
    runs = [run for run in UNSPACED.split(word) if run]
    return [pair for run in runs for pair in ([a + b for a, b in pairwise(run)] if is_unspaced(run) else ()) or [run]]


def significant_words(query: str, limit: int = MAX_TERMS, stop_words: Collection[str] = STOP_WORDS) -> list[str]:
    """Return at most `limit` distinct words of a query, without stop words. If all are stop words, return these."""
    words = list(dict.fromkeys(words_of(query)))
    return ([word for word in words if word not in stop_words] or words)[:limit]


def or_query(words: Sequence[str]) -> str:
    """Build a full-text query for any of the words. Words consist of letters and digits."""
    return " OR ".join(f'"{word}"' for word in words)


def count_rows(sql: sqlite3.Connection, pattern: str, bound: int, first: int = 0, last: int = _MAX_ROWID) -> int:
    """Count the rows from `first` to `last` of the full-text index `words` that match the pattern. Counting stops at
    `bound` + 1."""
    statement = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)"
    return int(sql.execute(statement, (pattern, first, last, bound + 1)).fetchone()[0])


class Stemmer:
    """A stemmer that uses SQLite's own tokenizer, through a full-text index in memory, and caches the stems."""

    stop_words: Collection[str] = STOP_WORDS

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}

    @cached_property
    def _sql(self) -> sqlite3.Connection:
        sql = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Connection)
        sql.execute(f"CREATE VIRTUAL TABLE t USING fts5(word, tokenize='{TOKENIZER}')")
        sql.execute("CREATE VIRTUAL TABLE v USING fts5vocab('t', 'instance')")
        return sql

    def __call__(self, words: Sequence[str]) -> list[str]:
        """Return the stem of each word, or the word itself if the tokenizer returns no stem."""
        stem_of = self._stems
        unknown_words = {word for word in words if word not in stem_of}
        if unknown_words:
            if len(stem_of) + len(unknown_words) > _MAX_STEMS:
                stem_of.clear()
                unknown_words = set(words)
            self._learn(sorted(unknown_words))
        return [stem_of[word] for word in words]

    def filter_words(self, words: Collection[str], stems: Collection[str]) -> dict[str, str]:
        """Return the words that have one of the stems, each with its stem.

        Only words that begin like a stem (apart from the stem's last letter) are stemmed: Porter's rules change only the
        end of a word, and at most the last letter of a stem differs from the word's beginning.
        """
        prefixes = tuple(stem[:-1] or stem for stem in stems)
        candidates = [word for word in words if word.startswith(prefixes) or not word.isascii()]
        return {word: stem for word, stem in zip(candidates, self(candidates), strict=True) if stem in stems}

    def pattern(self, word: str) -> str:
        """Return a full-text query for the forms of a word."""
        return or_query([word])

    def _learn(self, words: Sequence[str]) -> None:
        self._sql.execute("BEGIN")
        try:
            self._sql.executemany("INSERT INTO t(rowid, word) VALUES (?, ?)", list(enumerate(words)))
            stems = dict(self._sql.execute("SELECT doc, term FROM v ORDER BY doc, offset DESC"))
        finally:
            self._sql.execute("ROLLBACK")
        self._stems.update((word, stems.get(at, word)) for at, word in enumerate(words))


def rarity(item_count: int, total: int) -> float:
    """Return the inverse document frequency of a word that `item_count` of `total` items contain."""
    return math.log(1 + (max(total - item_count, 0) + 0.5) / (item_count + 0.5))


def bm25_scores(
    weights: Mapping[str, float], tallies: Sequence[Mapping[str, int]], lengths: Sequence[int]
) -> list[float]:
    """Return the BM25 score of each text.

    `weights` has each stem's rarity, `tallies` has each text's counts of stems, `lengths` each text's number of words.
    """
    average = sum(lengths) / len(lengths) if lengths else 0.0
    scores = []
    for tally, length in zip(tallies, lengths, strict=True):
        frequencies = [(weight, often) for stem, weight in weights.items() if (often := tally.get(stem, 0))]
        length_factor = K1 * (1 - B + B * length / average) if frequencies else 0.0
        scores.append(sum(weight * often * (K1 + 1) / (often + length_factor) for weight, often in frequencies))
    return scores
