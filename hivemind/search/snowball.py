"""Stem the words of languages other than English by Snowball's rules. SQLite's Porter stems English."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from hivemind.search.words import Stemmer
from hivemind.words import STOP_WORDS, STOP_WORDS_OF

_MIN_STEM = 3  # letters; words that begin with a shorter stem are not taken for its forms


def fold(word: str) -> str:
    """Remove a word's accents, as the full-text index does."""
    return "".join(sign for sign in unicodedata.normalize("NFKD", word) if not unicodedata.combining(sign))


class SnowballStemmer(Stemmer):
    """The stemmer of a language other than English."""

    def __init__(self, language: str) -> None:
        super().__init__()
        import snowballstemmer  # imported only for a question in such a language

        self._rules: Any = snowballstemmer.stemmer(language)
        self.stop_words = STOP_WORDS | STOP_WORDS_OF[language]

    def _learn(self, words: Iterable[str]) -> None:
        self._stems.update((word, fold(self._rules.stemWord(word))) for word in words)

    def pattern(self, word: str) -> str:
        """Return a full-text query for all words that begin with the word's stem, because the index has no stems of
        this language."""
        (stem,) = self([word])
        if len(stem) < _MIN_STEM:
            return f'"{word}"'
        forms = dict.fromkeys((stem, stem.replace("ss", "ß")))
        return " OR ".join([f'"{word}"', *(f'"{form}" *' for form in forms)])
