"""Words as a full-text index sees them, and how well texts match a question by them (BM25): for every store that is searched."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from hivemind.fs.database import Connection
from hivemind.words import STOP_WORDS

TOKENIZER = "porter unicode61 remove_diacritics 2"
"""How the full-text indexes of all stores part and stem texts."""

_WORD = re.compile(r"[^\W_]+")
_ASCII = "".join(sign.lower() if sign.isalnum() else " " for sign in map(chr, range(128)))
MOST_TERMS = 32
_MOST_STEMS = 100_000
_LAST = (1 << 63) - 1  # the last number that a row can have
_K1, _B = 1.2, 0.75  # saturation and length, as is usual


def words_of(text: str) -> list[str]:
    """The words of a text in their order, in small letters."""
    if text.isascii():
        return text.translate(_ASCII).split()
    return [word.casefold() for word in _WORD.findall(text.replace("’", "'"))]


def matching(query: str, most: int = MOST_TERMS) -> list[str]:
    """The words of a query that say what it is about, each once: without stop words, unless there is nothing else."""
    asked = list(dict.fromkeys(words_of(query)))
    return ([word for word in asked if word not in STOP_WORDS] or asked)[:most]


def any_of(words: Sequence[str]) -> str:
    """A full-text query for any of some words, which have letters and digits only."""
    return " OR ".join(f'"{word}"' for word in words)


def how_often(sql: sqlite3.Connection, word: str, bound: int, first: int = 0, last: int = _LAST) -> int:
    """How many rows of the full-text index `words`, from the first to the last, have a word, counted to just beyond the
    bound."""
    counted = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)"
    return int(sql.execute(counted, (any_of([word]), first, last, bound + 1)).fetchone()[0])


class Stems:
    """Stems words as the index does, because it is the same code: an index in memory, asked once for each word."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    @cached_property
    def _sql(self) -> sqlite3.Connection:
        sql = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Connection)
        sql.execute(f"CREATE VIRTUAL TABLE t USING fts5(word, tokenize='{TOKENIZER}')")
        sql.execute("CREATE VIRTUAL TABLE v USING fts5vocab('t', 'instance')")
        return sql

    def __call__(self, words: Sequence[str]) -> list[str]:
        """The stem of each word; a word that the index knows nothing of is its own."""
        known = self._known
        unknown = {word for word in words if word not in known}
        if unknown:
            if len(known) + len(unknown) > _MOST_STEMS:
                known.clear()
                unknown = set(words)
            self._learn(sorted(unknown))
        return [known[word] for word in words]

    def among(self, words: Collection[str], stems: Collection[str]) -> dict[str, str]:
        """word → stem, of those of the words that have one of the stems.

        Few are stemmed for it: Porter's rules change the end of a word, so that of a stem at most the last letter is not
        what the word begins with.
        """
        beginnings = tuple(stem[:-1] or stem for stem in stems)
        alike = [word for word in words if word.startswith(beginnings) or not word.isascii()]
        return {word: stem for word, stem in zip(alike, self(alike), strict=True) if stem in stems}

    def _learn(self, words: Sequence[str]) -> None:
        self._sql.execute("BEGIN")
        try:
            self._sql.executemany("INSERT INTO t(rowid, word) VALUES (?, ?)", list(enumerate(words)))
            found = dict(self._sql.execute("SELECT doc, term FROM v ORDER BY doc, offset DESC"))
        finally:
            self._sql.execute("ROLLBACK")
        self._known.update((word, found.get(at, word)) for at, word in enumerate(words))


def rarity(found_in: int, total: int) -> float:
    """Inverse document frequency: what a word weighs that so many of all entries have."""
    return math.log(1 + (max(total - found_in, 0) + 0.5) / (found_in + 0.5))


def bm25_of_tallies(
    weights: Mapping[str, float], tallies: Sequence[Mapping[str, int]], lengths: Sequence[int]
) -> list[float]:
    """How well each text matches the terms (stem → rarity), 0 or more; lengths count beside their average. Of each text:
    stem → how often, and how many there are in all."""
    average = sum(lengths) / len(lengths) if lengths else 0.0
    scores = []
    for tally, length in zip(tallies, lengths, strict=True):
        found = [(weight, often) for stem, weight in weights.items() if (often := tally.get(stem, 0))]
        usual = _K1 * (1 - _B + _B * length / average) if found else 0.0
        scores.append(sum(weight * often * (_K1 + 1) / (often + usual) for weight, often in found))
    return scores
