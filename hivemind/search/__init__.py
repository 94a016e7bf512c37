"""The one search of the hive: words, meaning and what else bears on an answer, for memories, documents and graphs (spec 9)."""

from __future__ import annotations

from hivemind.search.answers import Confidence, best_of, quote_span
from hivemind.search.engine import Engine, Nearness, Source
from hivemind.search.index import INDEX, Hit, Index
from hivemind.search.item import Item
from hivemind.search.meanings import Backlog, Meanings
from hivemind.search.parts import PARTS, keep_parts, meaning_asked, meanings
from hivemind.search.query import Query
from hivemind.search.ranking import Weights
from hivemind.search.words import TOKENIZER

__all__ = [
    "INDEX", "PARTS", "TOKENIZER", "Backlog", "Confidence", "Engine", "Hit", "Index", "Item", "Meanings", "Nearness",
    "Query", "Source", "Weights", "best_of", "keep_parts", "meaning_asked", "meanings", "quote_span",
]  # fmt: skip
