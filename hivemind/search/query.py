"""A query as terms: what it asks about, how rare each word is among what is searched, and what would answer it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from hivemind.search.cues import Wanted, wanted
from hivemind.search.words import Stems, matching, rarity, words_of
from hivemind.words import GENERIC_WORDS, STOP_WORDS

__all__ = ["Query", "Term", "named_in", "query_of", "rarest", "without"]

_COMMON, _FEW = 0.2, 1_000  # a word that more items have finds nothing by itself, where rarer ones do
_RANKED = 2_000  # matches that SQLite ranks at a microsecond each; commoner words find no more than these
_GENERIC = 0.25  # what a word that any question may use weighs, beside one that says what it is about
_SPECIFIC, _UNKNOWN = 2.0, 1.4  # what a name or number weighs that nothing has, and what another word does
_AMOUNT = re.compile(
    r"\s*(?:(?:in|for|after|at|of|by|to) )?(?:how (?:many|much|often|long|old|far)|wie ?(?:viele?|oft|lange))\b", re.I
)
_WRITTEN_AS_NAME = re.compile(r"(?<=[\w,;)\"'`] )[A-Z][^\W_]*|\b[A-Z]{2,}\b|\b\w*\d\w*\b")
_NAME = re.compile(r"(?<!^)(?<![\"“'‘(])\b[^\W\d_]\w*")


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the query, its stem, in how many items it is (counted to a bound), and its weight: idf × kind of word."""

    word: str
    stem: str
    often: int
    weight: float


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked. `names`, in small letters, are of who takes part: they say whose items count more, not what about.

    `vector` is what it means, packed, and `model` whose vector that is; without one words alone decide, and `lack` says
    why where there might be one.
    """

    text: str
    names: frozenset[str] = frozenset()
    vector: bytes | None = None
    model: str = ""
    lack: str | None = None
    terms: tuple[Term, ...] = ()
    amount: bool = False
    want: Wanted = field(default_factory=lambda: wanted(""))

    @property
    def asked(self) -> float:
        """The weight of all that it asks about."""
        return sum(term.weight for term in self.terms)


def query_of(query: Query, stems: Stems, total: int, how_often: Callable[[str, int], int]) -> Query:
    """The query with its terms: `how_often(word, bound)` counts the items that have a word, of `total` in all."""
    plain = query.text.replace("’", "'")
    named = {name.casefold() for name in _WRITTEN_AS_NAME.findall(plain)}
    words = matching(without(plain, query.names))
    bound = max(_FEW, int(total * _COMMON))
    terms: dict[str, Term] = {}
    for word, stem in zip(words, stems(words), strict=True):
        if stem in terms:
            continue
        often = how_often(word, bound)
        weight = rarity(often or 2, max(total, 100)) * (_GENERIC if word in GENERIC_WORDS else 1.0)
        if not often and word not in GENERIC_WORDS:
            weight *= _SPECIFIC if word in named else _UNKNOWN
        terms[stem] = Term(word, stem, often, weight)
    return replace(query, terms=tuple(terms.values()), amount=_AMOUNT.match(plain) is not None, want=wanted(query.text))


def rarest(terms: Sequence[Term], most: int, total: int) -> list[str]:
    """The words that items are found by: the rarest, as many as find enough. What has only the commoner ones would be
    ranked behind those anyway, and ranking costs for each match."""
    known = [term for term in terms if term.often]
    bound = max(_FEW, int(total * _COMMON))
    words, matches = list[str](), 0
    for term in sorted([term for term in known if term.often <= bound] or known, key=lambda one: one.often):
        if matches >= most and matches + term.often > _RANKED:
            break
        words.append(term.word)
        matches += term.often
    return words


def named_in(query: str) -> set[str]:
    """The words of a query that are written as names are, within the sentence."""
    return {name.casefold() for name in _NAME.findall(query) if name[0].isupper()}


def without(query: str, names: Collection[str]) -> str:
    """The query without some names, where that leaves a word that says what it is about; else as it is."""
    if not names:
        return query
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    rest = " ".join(re.sub(rf"(?<!\w)(?:{pattern})(?!\w)(?:['’]s\b)?", " ", query, flags=re.IGNORECASE).split())
    return rest if set(words_of(rest)) - STOP_WORDS else query
