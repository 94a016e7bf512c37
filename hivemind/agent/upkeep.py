"""Upkeep of documents, memories and the index of graphs by agents that have nothing else to do: stale summaries, vectors,
files that are gone, memories that have expired, backups.

One agent at a time, one small piece at a time, and only after a database has changed, or once a memory has expired: looking
costs six stats, and wakes nobody.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from hivemind import fs
from hivemind.agent.working_memory import stamp_of_stores
from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.embedding import EmbedderUnavailable
from hivemind.errors import HivemindError, UserError
from hivemind.fs.backup import back_up, next_backup
from hivemind.longterm import MemoryStore
from hivemind.minds import Mind, MindError
from hivemind.minds.extractive import ExtractiveMind
from hivemind.presence.parts import Parts
from hivemind.tools.memory import run_with_repair

_PURGE_BATCH = 256  # expired memories: some milliseconds
_NEVER = math.inf
_EMBED_BATCH = 16  # what the embedding process takes in one go: an agent hears nothing while a piece lasts
_PROMPT = (
    "Write one paragraph, of at most {tokens} tokens, that says what the following parts of a document say. "
    "Say nothing that they do not say, and nothing about this request.\n\n{parts}"
)
_log = logging.getLogger(__name__)


class Upkeep:
    """What one agent does for the documents of its hive; `mind` returns what writes its summaries, `busy` vouches for the
    agent while a piece lasts."""

    def __init__(
        self, hive: Parts, mind: Callable[[], Mind], busy: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._hive, self._mind, self._busy = hive, mind, busy
        self._lock = fs.Lock(hive.layout.locks / "upkeep.lock")
        self._note = hive.layout.state / "documents.upkept"
        self._seen_stamp = ""
        self._due = _NEVER
        self._failed: set[str] = set()

    def step(self) -> bool:
        """Do one piece, if there is anything to do and nobody else is at it. True if there may be more."""
        stores_stamp = stamp_of_stores(self._hive.layout)
        if stores_stamp == "" or (stores_stamp == self._seen_stamp and time.time() < self._due):
            return False
        if not self._lock.acquire(wait=False):
            return False
        try:
            noted_stamp, self._due = self._read_note()
            if noted_stamp != stores_stamp or time.time() >= self._due:
                with self._busy():
                    if self._do_piece():
                        return True
                self._due = self._next_due()
            self._seen_stamp = stamp_of_stores(self._hive.layout)
            if not self._failed:  # what failed here may work out for another agent, or after the next change
                fs.write(self._note, f"{self._seen_stamp}\n{self._due}", durable=False)
            self._failed.clear()
            return False
        finally:
            self._lock.release()

    def _read_note(self) -> tuple[str, float]:
        """How they looked when an agent found nothing to do, and when there will be something (seconds since 1970)."""
        try:
            with boundary("note", self._note):
                stores_stamp, _, due = read_input(self._note).decode().partition("\n")
                return stores_stamp, float(due)
        except (Unreadable, FileNotFoundError):  # a note is only a note: look anew
            return "", _NEVER

    def _do_piece(self) -> bool:
        """One piece of work; False if there is none."""
        return (
            self._summarize()
            or bool(self._hive.knowledge.forget_gone())
            or self._embed("documents", self._hive.documents.embed_pending)
            or self._maintain_memory(lambda memory: memory.embed_pending(_EMBED_BATCH))  # one that fails is marked
            or (self._hive.layout.graphs_db.exists() and self._embed("graphs", self._hive.graph_index.embed_pending))
            or self._maintain_memory(lambda memory: memory.purge(_PURGE_BATCH))
            or any(map(self._back_up, self._databases))
        )

    def _try_piece(self, subject: str, piece: Callable[[], object], *problems: type[Exception]) -> bool:
        """Whether a piece was done. One that fails with one of the `problems` is left for another time."""
        if subject in self._failed:
            return False
        try:
            return bool(piece())
        except problems as error:
            _log.warning("no upkeep of %s: %s", subject, error)
            self._failed.add(subject)
            return False

    def _summarize(self) -> bool:
        """Write one summary anew. Its mind may be down, or the children gone."""
        documents = self._hive.documents
        return any(
            self._try_piece(
                f"summary {summary.id}", partial(documents.summarize, summary.id, self._summary_writer()), HivemindError
            )
            for summary in documents.stale_summaries()
        )

    def _summary_writer(self) -> Callable[[Sequence[str], int], str] | None:
        """What writes: the agent's mind; None, an extract, where that only quotes."""
        mind = self._mind()
        if isinstance(mind, ExtractiveMind):
            return None

        def write(texts: Sequence[str], tokens: int) -> str:
            text = mind.complete(_PROMPT.format(tokens=tokens, parts="\n\n".join(texts))).strip()
            if not text:
                raise MindError("it wrote an empty summary")
            return text

        return write

    def _embed(self, subject: str, embed_pending: Callable[[int], int]) -> bool:
        return self._try_piece(f"vectors of {subject}", lambda: embed_pending(_EMBED_BATCH), EmbedderUnavailable)

    def _maintain_memory(self, use: Callable[[MemoryStore], int]) -> bool:
        memory = self._hive.memory
        expected_errors = () if self._hive.config.memory is None else (UserError,)  # its server may be
        return memory.database.was_made and self._try_piece(
            "memories", lambda: run_with_repair(self._hive, lambda: use(memory)), *expected_errors
        )

    @property
    def _databases(self) -> tuple[Path, ...]:
        return self._hive.layout.documents_db, self._hive.layout.memory_db

    def _back_up(self, database: Path) -> bool:
        """Back up a database that is due. There may be no room."""
        backups = self._hive.layout.backups
        due = next_backup(database, backups)
        if due is None or due > time.time():
            return False
        return self._try_piece(
            f"the backup of {database.name}", lambda: back_up(database, backups), OSError, sqlite3.Error
        )

    def _next_due(self) -> float:
        """When the next memory expires, or a backup is due, in seconds since 1970."""
        memory = self._hive.memory
        # on a server all hives' writes forget what has expired, and it may be away
        next_expiry = memory.next_expiry() if self._hive.config.memory is None and memory.database.was_made else None
        backups = (next_backup(path, self._hive.layout.backups) for path in self._databases)
        return min(
            _NEVER if next_expiry is None else next_expiry.timestamp(),
            *(_NEVER if due is None else due for due in backups),
        )
