"""A question as terms: what it asks about, how rare each word is, and how much of it a text covers."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from hivemind.terms import TOKENIZER
from hivemind.words import GENERIC_WORDS, STOP_WORDS

__all__ = ["FIELDS", "Fields", "Match", "Question", "Term", "Words", "ask"]

_MOST_TERMS = 24
_COMMON, _FEW = 0.2, 200  # what is common: the share of all nodes, but never so few
_GENERIC = 0.25  # what a word that any question may use counts, beside one that says what it is about
_SPECIFIC = 2.0  # what a name or number counts that no document has: a question about it finds nothing
_UNKNOWN = 1.4  # and what another word does: it may be a synonym of one that they have
_WORD = re.compile(r"[^\W_]+")
_AMOUNT = re.compile(
    r"\s*(?:(?:in|for|after|at|of|by|to) )?(?:how (?:many|much|often|long|old|far)|wie ?(?:viele?|oft|lange))\b", re.I
)
_NAME = re.compile(r"(?<=[\w,;)\"'`] )[A-Z][^\W_]*|\b[A-Z]{2,}\b|\b\w*\d\w*\b")


class Fields(NamedTuple):
    """The texts of a candidate: its own, its nearest heading, the titles above, its document's labels, its neighbours, and
    the examples in it: code, where the document is none.

    `leads`: whether it is the first text below its heading.
    """

    text: str
    heading: str = ""
    titles: str = ""
    labels: str = ""
    near: str = ""
    example: str = ""
    leads: bool = False


FIELDS = Fields._fields[:-1]
_ADD = f"INSERT INTO t(rowid, {', '.join(FIELDS)}) VALUES (?{', ?' * len(FIELDS)})"  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the question: as written, its stem, how many nodes have it, and its weight (idf × kind of word)."""

    word: str
    stem: str
    found_in: int
    weight: float


@dataclass(frozen=True, slots=True)
class Question:
    """The terms of a question in the order asked, how many nodes there are, and whether it asks for an amount."""

    terms: tuple[Term, ...]
    total: int
    amount: bool = False

    @property
    def match(self) -> str | None:
        """An FTS5 expression for the terms that some node has, or None. Every word is quoted: a query is data.

        A word that a fifth of all nodes have finds nothing by itself: it is only looked at in what the others find.
        """
        found = [term for term in self.terms if term.found_in]
        rare = [term for term in found if term.found_in <= max(_FEW, self.total * _COMMON)]
        return " OR ".join(f'"{term.word}"' for term in rare or found) or None


@dataclass(slots=True)
class Match:
    """How a passage answers a question: `covered` is the share (0 to 1) of what the question asks about."""

    score: float
    covered: float
    where: dict[str, list[str]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def why(self) -> str:
        names = {
            "text": "in the text", "heading": "in its heading", "titles": "in the titles above",
            "labels": "in the document's labels", "example": "in an example", "tags": "among its tags",
        }  # fmt: skip
        parts = [f"{', '.join(self.where[key])} {name}" for key, name in names.items() if self.where.get(key)]
        if self.where.get("near"):
            parts.append(f"{', '.join(self.where['near'])} beside it")
        if self.missing:
            parts.append(f"without {', '.join(self.missing)}")
        return f"covers {self.covered:.0%} of the question: {'; '.join(parts)}"


class Words:
    """Splits and stems as the full-text index does, because it is the same code: an index in memory."""

    @cached_property
    def _sql(self) -> sqlite3.Connection:
        sql = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        sql.execute(f"CREATE VIRTUAL TABLE t USING fts5({', '.join(FIELDS)}, tokenize='{TOKENIZER}')")
        sql.execute("CREATE VIRTUAL TABLE v USING fts5vocab('t', 'instance')")
        return sql

    def stems(self, words: Sequence[str]) -> list[str]:
        """The stem of each word (a word that splits: its first part; none: the empty text)."""
        with _emptied(self._sql):
            self._sql.executemany("INSERT INTO t(rowid, text) VALUES (?, ?)", list(enumerate(words)))
            found = dict(self._sql.execute("SELECT doc, term FROM v ORDER BY doc, offset DESC"))
        return [found.get(at, "") for at in range(len(words))]

    def places(self, rows: Sequence[Fields], stems: Sequence[str]) -> list[dict[tuple[str, str], list[int]]]:
        """For each row (a text for each of FIELDS): (stem, field) → the positions at which the stem stands."""
        found: list[dict[tuple[str, str], list[int]]] = [{} for _ in rows]
        with _emptied(self._sql):
            self._sql.executemany(_ADD, [(at, *row[: len(FIELDS)]) for at, row in enumerate(rows)])
            for stem in dict.fromkeys(stems):
                for doc, column, offset in self._sql.execute(
                    "SELECT doc, col, offset FROM v WHERE term = ? ORDER BY doc, col, offset", (stem,)
                ):
                    found[doc].setdefault((stem, column), []).append(offset)
        return found


class _emptied:  # noqa: N801 - reads as a verb
    """The table is empty again afterwards, at no cost of writing: the transaction is rolled back."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql

    def __enter__(self) -> None:
        self._sql.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        self._sql.execute("ROLLBACK")


def ask(sql: sqlite3.Connection, text: str, words: Words) -> Question:
    """The question that a text asks of the documents: stop words left out."""
    plain = text.replace("’", "'")
    names = {name.casefold() for name in _NAME.findall(plain)}
    asked = list(dict.fromkeys(word.casefold() for word in _WORD.findall(plain)))
    asked = [word for word in asked if word not in STOP_WORDS][:_MOST_TERMS]
    (total,) = sql.execute("SELECT coalesce(max(seq), 0) FROM nodes").fetchone()
    terms: dict[str, Term] = {}
    for word, stem in zip(asked, words.stems(asked), strict=True):
        if stem and stem not in terms:
            row = sql.execute("SELECT doc FROM vocabulary WHERE term = ?", (stem,)).fetchone()
            found_in = row[0] if row else 0
            weight = _rarity(found_in, max(total, 100)) * (_GENERIC if word in GENERIC_WORDS else 1.0)
            if not found_in and word not in GENERIC_WORDS:
                weight *= _SPECIFIC if word in names else _UNKNOWN
            terms[stem] = Term(word, stem, found_in, weight)
    return Question(tuple(terms.values()), total, _AMOUNT.match(plain) is not None)


def _rarity(found_in: int, total: int) -> float:
    """Inverse document frequency. A word that nobody uses is as rare as one that two nodes use: it may be a synonym."""
    found_in = found_in or 2
    return math.log(1 + (max(total - found_in, 0) + 0.5) / (found_in + 0.5))
