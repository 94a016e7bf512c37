"""Upkeep by idle agents: stale summaries, vectors, deleted files, expired memories, backups.

One agent at a time does one small piece at a time, only after a database has changed or a memory has expired. To see that nothing
is due costs six stat calls and wakes no process.
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
_EMBED_BATCH = 8  # small: an agent is deaf during a piece, and has four seconds to end on a machine that is busy
_PROMPT = (
    "Write one paragraph, of at most {tokens} tokens, that says what the following parts of a document say. "
    "Add no other information, and do not mention this request.\n\n{parts}"
)
_log = logging.getLogger(__name__)


class Upkeep:
    """One agent's upkeep. `mind` returns the mind that writes summaries. `busy` keeps the heartbeat alive during a piece."""

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
        """Do one piece of upkeep, unless another agent is doing one. Return True if there may be more to do."""
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
            if not self._failed:  # after a failure another agent tries, or the next change
                fs.write(self._note, f"{self._seen_stamp}\n{self._due}", durable=False)
            self._failed.clear()
            return False
        finally:
            self._lock.release()

    def _read_note(self) -> tuple[str, float]:
        """Return two figures of the last upkeep's note: the databases' stamp then, and when the next piece is due (seconds since
        1970)."""
        try:
            with boundary("note", self._note):
                stores_stamp, _, due = read_input(self._note).decode().partition("\n")
                return stores_stamp, float(due)
        except (Unreadable, FileNotFoundError):  # without a note, look
            return "", _NEVER

    def _do_piece(self) -> bool:
        """Do one piece of upkeep. Return False if no piece was due."""
        return (
            self._summarize()
            or bool(self._hive.knowledge.forget_gone())
            or self._embed("documents", self._hive.documents.embed_pending)
            or self._maintain_memory(lambda memory: memory.embed_pending(_EMBED_BATCH))  # a failed one is marked
            or (self._hive.layout.graphs_db.exists() and self._embed("graphs", self._hive.graph_index.embed_pending))
            or self._maintain_memory(lambda memory: memory.purge(_PURGE_BATCH))
            or any(map(self._back_up, self._databases))
        )

    def _try_piece(self, subject: str, piece: Callable[[], object], *problems: type[Exception]) -> bool:
        """Do a piece and return True if work was done. After one of the errors `problems`, leave the piece for later."""
        if subject in self._failed:
            return False
        try:
            return bool(piece())
        except problems as error:
            _log.warning("no upkeep of %s: %s", subject, error)
            self._failed.add(subject)
            return False

    def _summarize(self) -> bool:
        """Rewrite one stale summary and return True, or return False if none could be rewritten: the mind may be down, or the
        summarized nodes deleted."""
        documents = self._hive.documents
        for summary in documents.stale_summaries():
            summarize = partial(documents.summarize, summary.id, self._summary_writer())
            if self._try_piece(f"summary {summary.id}", summarize, HivemindError):
                return True
        return False

    def _summary_writer(self) -> Callable[[Sequence[str], int], str] | None:
        """Return the function that writes summaries, or None if the mind can only extract sentences."""
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
        expected_errors = () if self._hive.config.memory is None else (UserError,)  # its server may be down
        return memory.database.was_made and self._try_piece(
            "memories", lambda: run_with_repair(self._hive, lambda: use(memory)), *expected_errors
        )

    @property
    def _databases(self) -> tuple[Path, ...]:
        return self._hive.layout.documents_db, self._hive.layout.memory_db

    def _back_up(self, database: Path) -> bool:
        """Back up a database if its backup is due, and return True. Return False if it is not due, or if it fails (the disk may
        be full)."""
        backups = self._hive.layout.backups
        due = next_backup(database, backups)
        if due is None or due > time.time():
            return False
        return self._try_piece(f"backup of {database.name}", lambda: back_up(database, backups), OSError, sqlite3.Error)

    def _next_due(self) -> float:
        """Return when the next memory expires or a backup is due, in seconds since 1970."""
        memory = self._hive.memory
        # a server deletes expired memories at any hive's write, and may be down
        next_expiry = memory.next_expiry() if self._hive.config.memory is None and memory.database.was_made else None
        backups = (next_backup(path, self._hive.layout.backups) for path in self._databases)
        times = [None if next_expiry is None else next_expiry.timestamp(), *backups]
        return min((time for time in times if time is not None), default=_NEVER)
