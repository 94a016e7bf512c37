"""A pytest plugin: HivemindStore stands in for LangGraph's own stores, so that LangGraph's own tests are run against it.

    cd CHECKOUT/libs/checkpoint-sqlite
    PYTHONPATH=HIVEMIND:HIVEMIND/tests/longterm python -m pytest -p langgraph_standin tests/test_store.py

`test_langgraph.py` does that with what `langgraph_tests.py` has fetched, or with the checkout that the environment variable
LANGGRAPH_CHECKOUT names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal

import langgraph.store.memory
from langgraph.store.base import ensure_embeddings

from hivemind.longterm import open_store
from hivemind.longterm.langgraph import HivemindStore
from hivemind.longterm.langgraph.embedder import LangChainEmbedder


class Standin(HivemindStore):
    """HivemindStore, made as those tests make theirs."""

    order: Literal["hybrid", "vector"] = "hybrid"

    def __init__(self, path: str = ":memory:", *, index: Any = None, ttl: Any = None) -> None:
        told = dict(index or {})
        self.embeddings = ensure_embeddings(told["embed"]) if index else None
        embedder = None if self.embeddings is None else LangChainEmbedder(self.embeddings, told["dims"])
        fields = told.get("fields") or told.get("text_fields")
        super().__init__(open_store(path, embedder), fields=fields, ttl=ttl, mode=self.order)
        self.index_config = told or None

    @classmethod
    @contextmanager
    def from_conn_string(cls, path: str, **options: Any) -> Iterator[Standin]:
        found = cls(path, **options)
        yield found
        found.store.close()

    def setup(self) -> None:
        """Nothing to do: the tables are made at the first use."""


class Cosines(Standin):
    """The same in the order of vectors alone: the tests of the SQLite store look at scores, which are cosines there."""

    order = "vector"


langgraph.store.memory.InMemoryStore = Standin  # type: ignore[misc,assignment]
sqlite, base = ModuleType("langgraph.store.sqlite"), ModuleType("langgraph.store.sqlite.base")
sqlite.SqliteStore = Cosines  # type: ignore[attr-defined]
for name in (
    "NS_MATCH_FUNCTION",
    "BaseSqliteStore",
    "SqliteIndexConfig",
    "_escape_glob_literal",
    "_namespace_match_pattern",
):
    setattr(base, name, object)  # how their store writes its SQL: not asked of ours
sys.modules.update({sqlite.__name__: sqlite, base.__name__: base})
