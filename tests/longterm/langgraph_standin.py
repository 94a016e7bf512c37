"""A pytest plugin: it replaces LangGraph's stores with HivemindStore and runs LangGraph's tests against it.

    cd CHECKOUT/libs/checkpoint-sqlite
    PYTHONPATH=HIVEMIND:HIVEMIND/tests/longterm python -m pytest -p langgraph_standin tests/test_store.py

A sleep in those tests moves the store's clock instead, and takes no time.

`test_langgraph.py` does that with what `langgraph_tests.py` has fetched, or with the checkout that the environment variable
LANGGRAPH_CHECKOUT names. With STANDIN_DATABASE, the URL of a database with empty tables, each store is in a copy of that.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, Literal

import langgraph.store.memory
from langchain_core.embeddings import Embeddings
from langgraph.store.base import ensure_embeddings

from hivemind.longterm import open_store
from hivemind.longterm.langgraph import HivemindStore

_slept = 0.0
_really_sleep = asyncio.sleep


def _sleep(seconds: float) -> None:
    global _slept
    _slept += seconds


async def _sleep_in_the_loop(seconds: float, result: Any = None) -> Any:
    _sleep(seconds)
    await _really_sleep(0)
    return result


def _clock() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=_slept)


_copies: dict[str, str] = {}


def _place(path: str) -> str:
    """Return the database of a path; each `:memory:` has a separate one."""
    empty = os.environ.get("STANDIN_DATABASE")
    if empty is None:
        return path
    if path == ":memory:" or path not in _copies:
        import psycopg

        server, _, template = empty.rpartition("/")
        name = f"standin_{secrets.token_hex(4)}"
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy".encode())
        _copies[path] = f"{server}/{name}"
    return _copies[path]


class _LangChainEmbedder:
    """Asks `embed_documents`."""

    def __init__(self, embeddings: Embeddings, dimension: int) -> None:
        self.embeddings, self.dimension = embeddings, dimension
        self.name = f"langchain-{type(embeddings).__name__}-{dimension}"

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        return self.embeddings.embed_documents(texts)


class Standin(HivemindStore):
    """HivemindStore, made as those tests make theirs."""

    order: Literal["hybrid", "vector"] = "hybrid"

    def __init__(self, path: str = ":memory:", *, index: Any = None, ttl: Any = None) -> None:
        settings = dict(index or {})
        self.embeddings = ensure_embeddings(settings["embed"]) if index else None
        embedder = None if self.embeddings is None else _LangChainEmbedder(self.embeddings, settings["dims"])
        fields = settings.get("fields") or settings.get("text_fields")
        super().__init__(open_store(_place(path), embedder, clock=_clock), fields=fields, ttl=ttl, mode=self.order)
        self.index_config = settings or None

    @classmethod
    @contextmanager
    def from_conn_string(cls, path: str, **options: Any) -> Iterator[Standin]:
        store = cls(path, **options)
        yield store
        store.store.close()

    def setup(self) -> None:
        """Do nothing: the first use makes the tables."""


class Cosines(Standin):
    """The same in the order of vectors alone: the tests of the SQLite store look at scores, which are cosines there."""

    order = "vector"


class Asynchronous(Cosines):
    """The same with the names that LangGraph's asynchronous store has."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, path: str, **options: Any) -> AsyncIterator[Asynchronous]:  # type: ignore[override]
        store = cls(path, **options)
        yield store
        store.store.close()

    async def setup(self) -> None:  # type: ignore[override]
        """Do nothing."""

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        return await asyncio.to_thread(super().sweep_ttl)

    async def start_ttl_sweeper(self) -> Any:  # type: ignore[override]
        return super().start_ttl_sweeper()

    async def stop_ttl_sweeper(self) -> bool:  # type: ignore[override]
        return super().stop_ttl_sweeper()


time.sleep = _sleep
asyncio.sleep = _sleep_in_the_loop  # type: ignore[assignment]
langgraph.store.memory.InMemoryStore = Standin  # type: ignore[misc,assignment]
sqlite, base, aio = (ModuleType(f"langgraph.store.sqlite{end}") for end in ("", ".base", ".aio"))
sqlite.SqliteStore = Cosines  # type: ignore[attr-defined]
sqlite.AsyncSqliteStore = aio.AsyncSqliteStore = Asynchronous  # type: ignore[attr-defined]
for name in (
    "NS_MATCH_FUNCTION",
    "BaseSqliteStore",
    "SqliteIndexConfig",
    "_escape_glob_literal",
    "_namespace_match_pattern",
):
    setattr(base, name, object)  # how their store writes its SQL: not asked of ours
sys.modules.update({module.__name__: module for module in (sqlite, base, aio)})


def pytest_configure(config: Any) -> None:
    """A mark of a plugin that they run with; ours need no second try."""
    config.addinivalue_line("markers", "flaky(retries): tried again")
