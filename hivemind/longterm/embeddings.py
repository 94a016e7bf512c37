"""The embedder of a memory store. If it fails, memories are stored without vectors and embedded later."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

from hivemind.embedding import Embedder, EmbedderUnavailable
from hivemind.fs.database import Sql, select_by_keys
from hivemind.longterm.errors import EntryInvalid
from hivemind.longterm.rows import KEYS_PER_NAMESPACE, NOT_EXPIRED, UNNAMED_MODEL, EntryVectors, MemoryDatabase
from hivemind.longterm.validation import EntryDraft
from hivemind.search import Backlog, StoreEmbedder, embed_texts

HOW_TO_EMBED = (
    "pip install 'hivemind-swarm[embed]', and set embedder: auto in hive.yaml (HIVEMIND_EMBEDDER overrides it);"
    " open_store(path) then uses it"
)

_BATCH_SIZE = 64
_CACHE_SIZE = 512  # vectors of contents, and as many of queries
_log = logging.getLogger(__name__)


def _dimension_of(embedder: object) -> Any:
    """Return the dimension of an embedder's vectors. Raises EntryInvalid if the object is not an embedder."""
    if not callable(getattr(embedder, "embed", None)) or not getattr(embedder, "name", None):
        raise EntryInvalid(
            f"a {type(embedder).__name__} is not an embedder",
            remedy="pass an object with `name`, `dimension` and `embed`",
        )
    return getattr(embedder, "dimension", None)


class MemoryEmbedder(StoreEmbedder):
    """The embedder of a memory store. If `embedder` is None, searches use words only. Every embedding must have
    `dimension` numbers.

    Parts are sentences (`fine=False`): in short texts, sentences find more than finer parts.
    """

    missing_reason, remedy = "no embedder is configured", HOW_TO_EMBED

    def __init__(self, embedder: Embedder | None, dimension: int) -> None:
        super().__init__(embedder, fine=False, cache_size=_CACHE_SIZE)
        self.dimension = dimension if embedder is None else _dimension_of(embedder)
        if not isinstance(self.dimension, int) or isinstance(self.dimension, bool) or self.dimension < 1:
            raise EntryInvalid(f"{self.dimension!r} is not a dimension", remedy="use an integer ≥ 1, for example 384")
        self._vectors_by_digest = dict[bytes, EntryVectors]()

    @property
    def model(self) -> str:
        """Return the model name of new vectors: the embedder's name, or UNNAMED_MODEL without an embedder."""
        return UNNAMED_MODEL if self.embedder is None else self.embedder.name

    def embed_drafts(self, database: MemoryDatabase, drafts: Sequence[EntryDraft]) -> list[EntryVectors]:
        """Return each draft's vectors, taken from the cache, the database or the embedder. If the embedder failed,
        return why instead.

        A draft that has a vector from the caller is not embedded. Do not call `embed_drafts` inside a transaction.
        """
        drafts_by_digest = {draft.digest: draft for draft in drafts if draft.vector is None}
        vectors = self._vectors_by_digest
        vectors = {digest: vectors[digest] for digest in drafts_by_digest if digest in vectors}
        if self.embedder is not None:
            with database.read() as sql:
                vectors |= self._find_vectors(sql, drafts_by_digest.keys() - vectors.keys())
        vectors |= self._embed_new([draft for digest, draft in drafts_by_digest.items() if digest not in vectors])
        return [EntryVectors(self.model) if draft.vector is not None else vectors[draft.digest] for draft in drafts]

    def _find_vectors(self, sql: Sql, digests: Collection[bytes]) -> dict[bytes, EntryVectors]:
        """Return, by digest of the content, the vectors of stored entries with this content. Unknown digests are left out."""
        rows = select_by_keys(
            sql,
            "SELECT e.digest, v.vector, p.vectors FROM entries e JOIN vectors v ON v.key = e.seq"
            " LEFT JOIN parts p ON p.seq = e.seq AND p.model = v.model LEFT JOIN given g ON g.seq = e.seq"
            " WHERE e.digest IN KEYS AND v.model = ? AND length(v.vector) = ? AND g.seq IS NULL",
            digests,
            trailing_parameters=(self.model, 4 * self.dimension),
        )
        return {digest: EntryVectors(self.model, vector, parts or b"") for digest, vector, parts in rows}

    def _embed_new(self, drafts: Sequence[EntryDraft]) -> dict[bytes, EntryVectors]:
        vectors: dict[bytes, EntryVectors] = {}
        for start in range(0, len(drafts), _BATCH_SIZE):
            batch = drafts[start : start + _BATCH_SIZE]
            try:
                text_vectors = embed_texts(self.require_embedder(), [draft.content for draft in batch], fine=False)
            except EmbedderUnavailable as error:
                if self.embedder is not None:
                    _log.warning("longterm: stored without embeddings: %s", error)
                return vectors | {
                    draft.digest: EntryVectors(self.model, problem=str(error)) for draft in drafts[start:]
                }
            vectors |= {
                draft.digest: EntryVectors(self.model, *text_vector)
                for draft, text_vector in zip(batch, text_vectors, strict=True)
            }
        if len(self._vectors_by_digest) > _CACHE_SIZE:
            self._vectors_by_digest.clear()
        self._vectors_by_digest |= vectors
        return vectors

    def backlog(self, database: MemoryDatabase, now: int) -> Backlog:
        """Return the backlog of the entries that should have a vector and have not expired at `now` (microseconds)."""

        def texts(sql: Sql, seqs: Sequence[int]) -> dict[int, str]:
            return dict(select_by_keys(sql, "SELECT seq, content FROM entries WHERE seq IN KEYS", seqs))

        def clear_problem(sql: Sql, seq: int) -> None:
            sql.execute("UPDATE entries SET problem = NULL WHERE seq = ?", (seq,))
            sql.execute("DELETE FROM given WHERE seq = ?", (seq,))

        rows = f"FROM entries e LEFT JOIN vectors v ON v.key = e.seq WHERE e.wants AND {NOT_EXPIRED}"
        return Backlog(
            key_column="e.seq", from_clause=rows, parameters=(now,), texts_of=texts,
            group_of=lambda seq: seq // KEYS_PER_NAMESPACE,
            write_vectors=database.vectors.put, on_stored=clear_problem,
        )  # fmt: skip


def some_failed(sql: Sql) -> bool:
    """Return True if the last try to embed failed for some entries."""
    return sql.execute("SELECT 1 FROM entries WHERE problem IS NOT NULL LIMIT 1").fetchone() is not None
