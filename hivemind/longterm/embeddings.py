"""Asking the embedder, so that its failing is never a reason to lose a memory; what waits for it (spec 6)."""

from __future__ import annotations

import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from hivemind.embedding import Embedder, EmbedderUnavailable
from hivemind.embedding import Meaning as Asked
from hivemind.fs.database import Sql
from hivemind.longterm.errors import EntryInvalid
from hivemind.longterm.rows import ALIVE, PLACES, UNNAMED, Meaning, MemoryDatabase
from hivemind.longterm.validation import Draft
from hivemind.search import Waiting, embed_waiting, keep_parts, meaning_asked, meanings

__all__ = ["HOW_TO_EMBED", "Embeddings", "count_waiting", "embed_pending", "some_failed"]

HOW_TO_EMBED = (
    "pip install 'hivemind-swarm[embed]', and say embedder: auto in hive.yaml if it says none (HIVEMIND_EMBEDDER goes first);"
    " open_store(path) uses it then"
)

_AT_ONCE = 64
_REMEMBERED = 512  # vectors of contents and of queries, each
_What = TypeVar("_What")
_log = logging.getLogger(__name__)


def _dimension_of(embedder: object) -> Any:
    """What an embedder says that its vectors have. Raises EntryInvalid for what is no embedder."""
    if not callable(getattr(embedder, "embed", None)) or not getattr(embedder, "name", None):
        raise EntryInvalid(
            f"a {type(embedder).__name__} is no embedder", mend="it needs `name`, `dimension` and `embed`"
        )
    return getattr(embedder, "dimension", None)


class Said(Protocol):
    """What has a content, and the content's digest."""

    @property
    def content(self) -> str: ...
    @property
    def digest(self) -> bytes: ...


class _Recent(OrderedDict[object, _What], Generic[_What]):
    """What was used last, for several threads."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()

    def recall(self, key: object) -> _What | None:
        with self._guard:
            found = self.get(key)
            if found is not None:
                self.move_to_end(key)
            return found

    def keep(self, key: object, what: _What) -> None:
        with self._guard:
            self[key] = what
            while len(self) > _REMEMBERED:
                self.popitem(last=False)


class Embeddings:
    """The embedder of a store, or that there is none; `dimension` is what embeddings must have."""

    def __init__(self, embedder: Embedder | None, dimension: int) -> None:
        self.embedder = embedder
        self.dimension = dimension if embedder is None else _dimension_of(embedder)
        if not isinstance(self.dimension, int) or isinstance(self.dimension, bool) or self.dimension < 1:
            raise EntryInvalid(f"{self.dimension!r} is no dimension", mend="a whole number from 1, such as 384")
        self.refused: set[object] = set()  # digests of contents that it does not take, though it takes others
        self._contents, self._queries = _Recent[Meaning](), _Recent[Asked]()

    @property
    def model(self) -> str:
        """The name of the model that vectors are of; UNNAMED for those that callers give while there is no embedder."""
        return UNNAMED if self.embedder is None else self.embedder.name

    def query(self, text: str) -> Asked:
        """What a query means. Raises EmbedderUnavailable, also where there is no embedder."""
        known = self._queries.recall(text)
        if known is None:
            known = meaning_asked(self._there(), text, fine=False)
            self._queries.keep(text, known)
        return known

    def meanings(self, sql: Sql, drafts: Sequence[Draft]) -> tuple[list[Meaning], list[Draft]]:
        """What is known already of each draft's meaning (for the others an empty one), and the drafts to ask about."""
        found: list[Meaning] = []
        missing: dict[bytes, Draft] = {}
        for draft in drafts:
            known = None if draft.vector is not None else self._known(sql, draft.digest)
            found.append(known or Meaning(self.model))
            if known is None and draft.vector is None:
                missing[draft.digest] = draft
        return found, list(missing.values())

    def _known(self, sql: Sql, digest: bytes) -> Meaning | None:
        known = self._contents.recall(digest)
        if known is None and self.embedder is not None:
            row = sql.execute(
                "SELECT v.vector, p.vectors FROM entries e JOIN vectors v ON v.key = e.seq"
                " LEFT JOIN parts p ON p.seq = e.seq AND p.model = v.model LEFT JOIN given g ON g.seq = e.seq"
                " WHERE e.digest = ? AND v.model = ? AND length(v.vector) = ? AND g.seq IS NULL LIMIT 1",
                (digest, self.model, 4 * self.dimension),
            ).fetchone()
            known = None if row is None else Meaning(self.model, row[0], row[1] or b"")
        return known

    def embed(self, drafts: Sequence[Said]) -> dict[bytes, Meaning]:
        """The meaning of each content by its digest; where the embedder fails, why. Never within a transaction."""
        found: dict[bytes, Meaning] = {}
        for at in range(0, len(drafts), _AT_ONCE):
            some = drafts[at : at + _AT_ONCE]
            try:
                meanings = self.meant([draft.content for draft in some])
            except EmbedderUnavailable as error:
                if self.embedder is not None:
                    _log.warning("longterm: stored without embeddings: %s", error)
                return found | {draft.digest: Meaning(self.model, problem=str(error)) for draft in drafts[at:]}
            for draft, meaning in zip(some, meanings, strict=True):
                self._contents.keep(draft.digest, meaning)
                found[draft.digest] = meaning
        return found

    def meant(self, contents: Sequence[str]) -> list[Meaning]:
        """What each content means, with its sentences: of entries, which are short, they find more than finer parts do. Raises
        EmbedderUnavailable, also where there is no embedder."""
        return [Meaning(self.model, *one) for one in meanings(self._there(), contents, fine=False)]

    def _there(self) -> Embedder:
        if self.embedder is None:
            raise EmbedderUnavailable("there is no embedder", mend=HOW_TO_EMBED)
        return self.embedder


_WAITS = (
    " FROM entries e LEFT JOIN vectors v ON v.key = e.seq"
    f" WHERE e.wants AND (v.key IS NULL OR v.model <> ? OR length(v.vector) <> ?) AND {ALIVE}"
)


def count_waiting(sql: Sql, embeddings: Embeddings, now: int) -> int:
    """How many entries have no vector of the model that is in use."""
    (found,) = sql.execute("SELECT count(*)" + _WAITS, (embeddings.model, 4 * embeddings.dimension, now)).fetchone()
    return int(found)


def some_failed(sql: Sql) -> bool:
    """Whether there are entries whose embedding was tried and failed."""
    return sql.execute("SELECT 1 FROM entries WHERE problem IS NOT NULL LIMIT 1").fetchone() is not None


def embed_pending(
    database: MemoryDatabase,
    embeddings: Embeddings,
    now: int,
    limit: int | None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Embed entries that wait, oldest first, at most `limit`; returns how many, 0 where the embedder fails.

    A text that the embedder refuses though it takes others is passed over, and not asked for again by this process. Without an
    embedder, and for what has expired (`now`, microseconds), nothing is done.
    """

    def waiting(sql: Sql, after: int, most: int) -> list[Waiting]:
        rows = sql.execute(
            f"SELECT e.seq, e.content, e.digest{_WAITS} AND e.seq > ? ORDER BY e.seq LIMIT ?",
            (embeddings.model, 4 * embeddings.dimension, now, after, most),
        )
        return [Waiting(*row) for row in rows]

    def keep(sql: Sql, found: Sequence[tuple[Waiting, Meaning]]) -> None:
        for one, meaning in found:
            still = "UPDATE entries SET problem = NULL WHERE seq = ? AND digest = ?"
            if sql.execute(still, (one.id, one.check)).rowcount and meaning.vector is not None:
                sql.execute("DELETE FROM given WHERE seq = ?", (one.id,))
                database.vectors.put(sql, meaning.model, [(one.id, one.id // PLACES, meaning.vector)])
                keep_parts(sql, one.id, meaning.model, meaning.parts)

    if embeddings.embedder is None:
        return 0
    most, refused = sys.maxsize if limit is None else limit, embeddings.refused
    try:
        return embed_waiting(database, embeddings.meant, waiting, keep, limit=most, refused=refused, progress=progress)
    except EmbedderUnavailable as error:
        _log.warning("longterm: entries wait for their embedding: %s", error)
        return 0
