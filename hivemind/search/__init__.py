"""The search that memories, documents and graphs share. It combines words, vectors and other features into one score."""

from __future__ import annotations

from hivemind.search.answers import Confidence, merge_hits, quote_span
from hivemind.search.engine import CandidateSource, Engine, VectorStore
from hivemind.search.index import INDEX, Hit, Index
from hivemind.search.item import Item
from hivemind.search.meanings import Backlog, StoreEmbedder
from hivemind.search.parts import PARTS, embed_question, embed_texts, store_parts
from hivemind.search.query import Query
from hivemind.search.ranking import Weights
from hivemind.search.words import TOKENIZER

__all__ = [
    "INDEX", "PARTS", "TOKENIZER", "Backlog", "CandidateSource", "Confidence", "Engine", "Hit", "Index", "Item",
    "Query", "StoreEmbedder", "VectorStore", "Weights", "embed_question", "embed_texts", "merge_hits", "quote_span",
    "store_parts",
]  # fmt: skip
