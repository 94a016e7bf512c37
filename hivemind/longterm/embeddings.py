"""Asking the embedder, so that its failing is never a reason to lose a memory; what waits for it (spec 6)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from hivemind.embedding import Embedder, EmbedderUnavailable
from hivemind.fs.database import Sql, select_among
from hivemind.longterm.errors import EntryInvalid
from hivemind.longterm.rows import ALIVE, PLACES, UNNAMED, Meaning, MemoryDatabase
from hivemind.longterm.validation import Draft
from hivemind.search import Backlog, Meanings, meanings

HOW_TO_EMBED = (
    "pip install 'hivemind-swarm[embed]', and say embedder: auto in hive.yaml if it says none (HIVEMIND_EMBEDDER goes first);"
    " open_store(path) uses it then"
)

_AT_ONCE = 64
_REMEMBERED = 512  # meanings of contents and of queries, each
_log = logging.getLogger(__name__)


def _dimension_of(embedder: object) -> Any:
    """What an embedder says that its vectors have. Raises EntryInvalid for what is no embedder."""
    if not callable(getattr(embedder, "embed", None)) or not getattr(embedder, "name", None):
        raise EntryInvalid(
            f"a {type(embedder).__name__} is no embedder", mend="it needs `name`, `dimension` and `embed`"
        )
    return getattr(embedder, "dimension", None)


class Embeddings(Meanings):
    """The embedder of a store, or that there is none; `dimension` is what embeddings must have. Of entries, which are short,
    sentences find more than finer parts do."""

    lack, mend = "there is no embedder", HOW_TO_EMBED

    def __init__(self, embedder: Embedder | None, dimension: int) -> None:
        super().__init__(embedder, fine=False, remembered=_REMEMBERED)
        self.dimension = dimension if embedder is None else _dimension_of(embedder)
        if not isinstance(self.dimension, int) or isinstance(self.dimension, bool) or self.dimension < 1:
            raise EntryInvalid(f"{self.dimension!r} is no dimension", mend="a whole number from 1, such as 384")
        self._contents = dict[bytes, Meaning]()

    @property
    def model(self) -> str:
        """The name of the model that vectors are of; UNNAMED for those that callers give while there is no embedder."""
        return UNNAMED if self.embedder is None else self.embedder.name

    def meanings(self, database: MemoryDatabase, drafts: Sequence[Draft]) -> list[Meaning]:
        """What each draft means, as it is known already, else as the embedder says; where that fails, why. Of one that has a
        vector of its caller nothing is asked. Never within a transaction."""
        wanted = {draft.digest: draft for draft in drafts if draft.vector is None}
        with database.read() as sql:
            found = {digest: known for digest in wanted if (known := self._known(sql, digest)) is not None}
        found |= self._ask_about([draft for digest, draft in wanted.items() if digest not in found])
        return [Meaning(self.model) if draft.vector is not None else found[draft.digest] for draft in drafts]

    def _known(self, sql: Sql, digest: bytes) -> Meaning | None:
        known = self._contents.get(digest)
        if known is None and self.embedder is not None:
            row = sql.execute(
                "SELECT v.vector, p.vectors FROM entries e JOIN vectors v ON v.key = e.seq"
                " LEFT JOIN parts p ON p.seq = e.seq AND p.model = v.model LEFT JOIN given g ON g.seq = e.seq"
                " WHERE e.digest = ? AND v.model = ? AND length(v.vector) = ? AND g.seq IS NULL LIMIT 1",
                (digest, self.model, 4 * self.dimension),
            ).fetchone()
            known = None if row is None else Meaning(self.model, row[0], row[1] or b"")
        return known

    def _ask_about(self, drafts: Sequence[Draft]) -> dict[bytes, Meaning]:
        found: dict[bytes, Meaning] = {}
        for at in range(0, len(drafts), _AT_ONCE):
            some = drafts[at : at + _AT_ONCE]
            try:
                meant = meanings(self.there(), [draft.content for draft in some], fine=False)
            except EmbedderUnavailable as error:
                if self.embedder is not None:
                    _log.warning("longterm: stored without embeddings: %s", error)
                return found | {draft.digest: Meaning(self.model, problem=str(error)) for draft in drafts[at:]}
            found |= {draft.digest: Meaning(self.model, *one) for draft, one in zip(some, meant, strict=True)}
        if len(self._contents) > _REMEMBERED:
            self._contents.clear()
        self._contents |= found
        return found

    def backlog(self, database: MemoryDatabase, now: int) -> Backlog:
        """The entries that are to have a vector and have not expired at `now` (microseconds)."""

        def texts(sql: Sql, seqs: Sequence[int]) -> dict[int, str]:
            return dict(select_among(sql, "SELECT seq, content FROM entries WHERE seq IN KEYS", seqs))

        def kept(sql: Sql, seq: int) -> None:
            sql.execute("UPDATE entries SET problem = NULL WHERE seq = ?", (seq,))
            sql.execute("DELETE FROM given WHERE seq = ?", (seq,))

        rows = f"FROM entries e LEFT JOIN vectors v ON v.key = e.seq WHERE e.wants AND {ALIVE}"
        return Backlog(
            key="e.seq", rows=rows, given=(now,), texts=texts, group=lambda seq: seq // PLACES,
            put=database.vectors.put, kept=kept,
        )  # fmt: skip


def some_failed(sql: Sql) -> bool:
    """Whether there are entries whose embedding was tried and failed."""
    return sql.execute("SELECT 1 FROM entries WHERE problem IS NOT NULL LIMIT 1").fetchone() is not None
