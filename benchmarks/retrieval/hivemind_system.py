"""The long-term memory store behind the interface of the LoCoMo measuring program: index, search, select.

`System` is the general store unchanged: dialog turns are entries; their metadata says speaker, session and time, their
links say what came before and after. `Plain` is the same store without any of that; `Remembered` and `UnderLangGraph` come
through the doors that users have.
"""

from __future__ import annotations

import atexit
import math
import os
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.hives import placed
from benchmarks.retrieval.kept import CachedEmbedder
from hivemind.embedding import Embedder, FineEmbedder, open_embedder
from hivemind.longterm import MemoryEntry, MemoryStore, open_store, provenance

NAMESPACE = ("shared", "conversation")
Item = tuple[str, str, str, str]
_LOOKED_AT = 400  # of the best, for a context


class System:
    """One conversation in a separate store. Embeddings are kept in `$HIVEMIND_KEPT_EMBEDDINGS`, if that is set."""

    _folder: tempfile.TemporaryDirectory[str] | None = None
    _numbers = count(1)
    namespace = NAMESPACE

    def __init__(self) -> None:
        self.store: MemoryStore = open_store(placed(self._place(next(System._numbers))), _embedder())
        self._items: dict[str, Item] = {}

    def _place(self, number: int) -> str:
        if System._folder is None:
            System._folder = tempfile.TemporaryDirectory(prefix="hivemind-retrieval-")
            atexit.register(System._folder.cleanup)
        return str(Path(System._folder.name) / f"{number}.db")

    def index(self, items: Sequence[Item]) -> None:
        """Store (id, text, speaker, ISO time of the session), oldest first."""
        rows = list(items)
        self._items |= {row[0]: row for row in rows}
        self.store.put_many(self.namespace, [(row[0], self.entry(rows, at)) for at, row in enumerate(rows)])

    def entry(self, rows: Sequence[Item], at: int) -> MemoryEntry:
        """A turn as an entry; a session is what has one time."""
        _, text, speaker, moment = rows[at]
        links = {
            name: rows[near][0]
            for name, near in (("previous", at - 1), ("next", at + 1))
            if 0 <= near < len(rows) and rows[near][3] == moment
        }
        metadata: dict[str, Any] = {"speaker": speaker, "session": moment, "time": moment}
        return MemoryEntry(content=text, metadata=metadata, links=links)

    def search(self, query: str, k: int) -> list[str]:
        """The keys of the best entries, best first."""
        return [hit.key for hit in self.store.search(self.namespace, query, limit=k)]

    def select(self, query: str, budget: int) -> list[str]:
        """The best that fit a context of `budget` tokens (four characters each): turns as `Speaker: text`, and a line with
        the time before each session's. What does not fit is passed over, smaller ones after it may still go in."""
        selected_keys, sessions, remaining_tokens = [], set[str](), budget
        for key in self.search(query, _LOOKED_AT):
            _, text, speaker, moment = self._items[key]
            cost = _tokens(f"{speaker}: {text}\n") + (0 if moment in sessions else _tokens(f"[{moment}]\n"))
            if cost <= remaining_tokens:
                selected_keys.append(key)
                sessions.add(moment)
                remaining_tokens -= cost
        return selected_keys


class OnServer(System):
    """The same in a fresh namespace of the PostgreSQL database `url`."""

    url = ""

    def _place(self, number: int) -> str:
        self.namespace = ("shared", f"conversation-{number}")
        return self.url


class Plain(System):
    """Texts alone: no metadata, no links."""

    def entry(self, rows: Sequence[Item], at: int) -> MemoryEntry:
        return MemoryEntry(content=rows[at][1])


class Labelled(System):
    """Texts alone, each beginning with its speaker's name as in a transcript: no metadata, no links."""

    def entry(self, rows: Sequence[Item], at: int) -> MemoryEntry:
        return MemoryEntry(content=f"{rows[at][2]}: {rows[at][1]}")


class Remembered(System):
    """Turn by turn, as the tool `remember` and the command line write them: no links are given, the store makes them."""

    def index(self, items: Sequence[Item]) -> None:
        self._items |= {row[0]: row for row in items}
        self.store.embed_ahead(row[1] for row in items)
        for key, text, speaker, moment in items:
            origin = provenance(text, "researcher", author=speaker, session=moment, time=moment)
            self.store.upsert_memory(self.namespace, text, key=key, provenance=origin)


class UnderLangGraph(System):
    """Turn by turn through LangGraph's `BaseStore`, as values of the form {text, speaker, session, time}."""

    def __init__(self) -> None:
        super().__init__()
        from hivemind.longterm.langgraph import HivemindStore

        self.graph = HivemindStore(self.store, fields=["text"])

    def index(self, items: Sequence[Item]) -> None:
        self._items |= {row[0]: row for row in items}
        self.store.embed_ahead(row[1] for row in items)
        for key, text, speaker, moment in items:
            self.graph.put(self.namespace, key, {"text": text, "speaker": speaker, "session": moment, "time": moment})

    def search(self, query: str, k: int) -> list[str]:
        return [hit.key for hit in self.graph.search(self.namespace, query=query, limit=k) if hit.score is not None]


def _tokens(text: str) -> int:
    return math.ceil(len(text) / 4)


def _embedder() -> Embedder | None:
    embedder = open_embedder("minilm")
    path = os.environ.get("HIVEMIND_KEPT_EMBEDDINGS")
    return CachedEmbedder(embedder, path) if path and isinstance(embedder, FineEmbedder) else embedder
