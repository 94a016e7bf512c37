"""`StoreEmbedder` embeds queries, and those texts of a store that have no vector yet."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from hivemind.embedding import (
    INSTALL,
    Embedder,
    EmbedderUnavailable,
    TextVectors,
    embed_each,
    in_background,
    put_vectors,
)
from hivemind.frozen import frozen
from hivemind.fs import crash_point
from hivemind.fs.database import Sql, Transactions
from hivemind.search.parts import embed_question, embed_texts, store_parts
from hivemind.search.query import Query, without_names

_BATCH_SIZE = 64  # texts per request and per transaction
_TIMED_BATCH_SIZE = 8  # texts per batch with a time limit, which is checked between batches
_MAX_REFUSED = 16  # a run with a limit ends after this many refused texts: each costs a request


@frozen(kw_only=True)
class Backlog:
    """The rows of a store that should have a vector, and how to read and embed them.

    `from_clause` is the part of a SELECT from FROM to the end of WHERE. It has the `parameters`, and joins `vectors v`
    to `key_column`. `texts_of` returns the texts of keys, `group_of` the group of a key's vector. `write_vectors`
    writes vectors. `on_stored` is called for each key in the transaction that writes the vector.
    """

    key_column: str
    from_clause: str
    texts_of: Callable[[Any, Sequence[int]], Mapping[int, str]]
    parameters: Sequence[object] = ()
    group_of: Callable[[int], int] = lambda _: 0
    newest_first: bool = False
    write_vectors: Callable[[Any, str, list[tuple[int, int, bytes]]], None] = put_vectors
    on_stored: Callable[[Any, int], object] = lambda *_: None

    def count_waiting(self, sql: Sql, model: str, dimension: int) -> int:
        """Count the rows that have no vector of this model."""
        clause, bindings = self._rows_without_vectors(model, dimension)
        return int(sql.execute(f"SELECT count(*) {clause}", bindings).fetchone()[0])

    def next_keys(
        self, sql: Sql, embedder: Embedder, after_key: int | None, limit: int, only_keys: Collection[int] | None
    ) -> list[int]:
        """Return at most `limit` keys without a vector, in order. They come after `after_key` (None: from the first key on).

        If `only_keys` is not None, other keys are skipped.
        """
        clause, bindings = self._rows_without_vectors(embedder.name, embedder.dimension)
        if after_key is not None:
            clause, bindings = (
                f"{clause} AND {self.key_column} {'<' if self.newest_first else '>'} ?",
                (*bindings, after_key),
            )
        if only_keys is not None:
            clause += f" AND {self.key_column} IN ({','.join(map(str, only_keys))})"
        order = f"ORDER BY {self.key_column}{' DESC' if self.newest_first else ''} LIMIT ?"
        return [key for (key,) in sql.execute(f"SELECT {self.key_column} {clause} {order}", (*bindings, limit))]

    def _rows_without_vectors(self, model: str, dimension: int) -> tuple[str, tuple[object, ...]]:
        condition = "(v.key IS NULL OR v.model <> ? OR length(v.vector) <> ?)"
        return f"{self.from_clause} AND {condition}", (*self.parameters, model, 4 * dimension)


class StoreEmbedder:
    """A store's access to its embedder. If `embedder` is None, searches use words only.

    With `fine`, a FineEmbedder also embeds groups of a text's tokens. `cache_size` is the number of queries whose
    vectors are cached.
    """

    missing_reason: str | None = None
    """The reason that hits state if there is no embedder."""
    remedy = INSTALL
    """How to install an embedder."""

    def __init__(self, embedder: Embedder | None, *, fine: bool = True, cache_size: int = 0) -> None:
        self.embedder, self.fine = embedder, fine
        self._refused_digests: set[bytes] = set()  # digests of texts that the embedder refuses while it accepts others
        self.query_vectors = lru_cache(cache_size)(self._embed_query)
        """Return the vectors of a query, from the cache if possible. Raises EmbedderUnavailable."""

    def build_query(self, text: str, participants: frozenset[str] = frozenset()) -> Query:
        """Return a query with its vectors, or with the reason why it has none. `participants` are words of speakers' names."""
        topic = without_names(text, participants)
        if self.embedder is None or not topic.strip():
            return Query(text, participants, words_only_reason=self.missing_reason if topic.strip() else None)
        try:
            return Query(text, participants, self.query_vectors(topic), self.embedder.name)
        except EmbedderUnavailable as error:
            return Query(text, participants, words_only_reason=error.message)

    def _embed_query(self, text: str) -> TextVectors:
        return embed_question(self.require_embedder(), text, fine=self.fine)

    def require_embedder(self) -> Embedder:
        """Return the embedder. Raises EmbedderUnavailable if there is none."""
        if self.embedder is None:
            raise EmbedderUnavailable("no embedder is configured", remedy=self.remedy)
        return self.embedder

    def embed_backlog(
        self,
        database: Transactions[Any],
        backlog: Backlog,
        limit: int = sys.maxsize,
        *,
        only_keys: Collection[int] | None = None,
        seconds: float | None = None,
        progress: Callable[[int], None] | None = None,
        is_awaited: bool = False,
    ) -> int:
        """Embed at most `limit` rows of the backlog, or of `only_keys` if that is not None. Return how many were embedded.

        Each batch is committed: a killed process loses one batch, and another process can continue. A text that the
        embedder refuses is skipped and never sent again by this process. `seconds` limits the time (None: no limit).
        With `is_awaited`, `only_keys` or `seconds`, somebody waits for the vectors; otherwise the texts are embedded in
        the background, after all other texts. Raises EmbedderUnavailable if the embedder accepts no text. Do not call
        `embed_backlog` inside a transaction.
        """
        if (embedder := self.embedder) is None:
            return 0
        if not is_awaited and only_keys is None and seconds is None:
            embedder = in_background(embedder)
        embedded_count, last_key, refused_before = 0, None, len(self._refused_digests)
        max_refused = sys.maxsize if limit == sys.maxsize else _MAX_REFUSED
        deadline = None if seconds is None else time.monotonic() + seconds
        while (
            embedded_count < limit
            and len(self._refused_digests) - refused_before < max_refused
            and (deadline is None or time.monotonic() < deadline)
        ):
            with database.read() as sql:
                batch_size = min(_BATCH_SIZE if deadline is None else _TIMED_BATCH_SIZE, limit - embedded_count)
                if not (batch_keys := backlog.next_keys(sql, embedder, last_key, batch_size, only_keys)):
                    break
                texts = backlog.texts_of(sql, batch_keys)
            last_key = batch_keys[-1]
            new_texts = {key: text for key, text in texts.items() if _digest(text) not in self._refused_digests}
            vectors = embed_each(partial(embed_texts, embedder, fine=self.fine), [*new_texts.values()])
            vectors_by_key = {
                key: text_vectors
                for key, text_vectors in zip(new_texts, vectors, strict=True)
                if text_vectors is not None
            }
            self._refused_digests |= {_digest(text) for key, text in new_texts.items() if key not in vectors_by_key}
            if vectors_by_key:
                self._store(database, backlog, embedder.name, new_texts, vectors_by_key)
            embedded_count += len(vectors_by_key)
            if progress is not None:
                progress(embedded_count)
        return embedded_count

    @staticmethod
    def _store(
        database: Transactions[Any],
        backlog: Backlog,
        model: str,
        texts: Mapping[int, str],
        vectors_by_key: Mapping[int, TextVectors],
    ) -> None:
        """Write the vectors, except those of texts that changed while they were embedded."""
        with database.write() as sql:
            current_texts = backlog.texts_of(sql, [*vectors_by_key])
            for key, vectors in vectors_by_key.items():
                if current_texts.get(key) == texts[key]:
                    backlog.write_vectors(sql, model, [(key, backlog.group_of(key), vectors.vector)])
                    store_parts(sql, model, {key: vectors.parts})
                    backlog.on_stored(sql, key)
        crash_point("search.embed.batch")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
