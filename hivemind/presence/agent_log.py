"""An agent's own log: what it did that belongs to no task (turns about mail, requests to its model, a member's calls)."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hivemind.coordination.journal import SEGMENT_BYTES
from hivemind.errors import UserError
from hivemind.fs import move, open_own, set_aside
from hivemind.tasks.log import append, records_of

__all__ = ["AgentLog"]

LOG = "log.jsonl"
_log = logging.getLogger(__name__)
_FULL = re.compile(r"log-(\d{6,})\.jsonl")


class AgentLog:
    """`log.jsonl` in the folder of one agent's state, only ever appended to, by the process that has the agent's name.

    Once it is `segment_bytes` long it is renamed to `log-000001.jsonl` (the next number that is free) and a new one is begun,
    so that no file grows without bound; none is deleted.
    """

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder, self._segment_bytes = folder, segment_bytes

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one record with a single write, not fsynced. Raises OSError, and then the log is as it was."""
        try:
            self._rotate()
        except OSError as error:  # it grows for the time being
            _log.warning("%s: %s", error.filename, error.strerror)
        append(self._folder, record, durable=False, name=LOG)

    def read(self) -> Iterator[dict[str, Any]]:
        """The records of all segments, oldest first; what a crash left of a line is left out. None if there is no log."""
        with ExitStack() as files:
            try:  # opened first: should it be renamed meanwhile, it is found among the full ones, and read once
                newest = files.enter_context(open(open_own(self._folder / LOG, os.O_RDONLY), "rb"))
            except (FileNotFoundError, UserError):
                newest = None
            for _, path in self._full():
                with open(open_own(path, os.O_RDONLY), "rb") as file:
                    if newest is None or not os.path.sameopenfile(file.fileno(), newest.fileno()):
                        yield from records_of(file)
            if newest is not None:
                yield from records_of(newest)

    def _rotate(self) -> None:
        path = self._folder / LOG
        try:
            found = path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISREG(found.st_mode):
            set_aside(path)
        elif found.st_size >= self._segment_bytes:
            number = max((number for number, _ in self._full()), default=0) + 1
            move(path, self._folder / f"log-{number:06}.jsonl", durable=False)

    def _full(self) -> list[tuple[int, Path]]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted((int(found[1]), self._folder / name) for name in names if (found := _FULL.fullmatch(name)))
