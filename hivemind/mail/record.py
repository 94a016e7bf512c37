"""What an agent has taken in: a log of its own, one record for each message (README.md, *Taking in*).

`{"taken": KEY}`, `{"failed": KEY}` (its handler failed), `{"dead": KEY}` (moved to `.Dead`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import Log, set_aside

__all__ = ["TakenRecord", "read_taken"]

_log = logging.getLogger(__name__)
_WORDS = ("taken", "failed", "dead")
_KEPT = 4096  # names that are in no folder any more are remembered this long, should someone bring one back


def _open_log(path: str, *, durable: bool) -> Log:
    return Log(path, "mail-taken", 2, durable=durable)


def _read(log: Log) -> Iterator[tuple[str, str]]:
    """What a record says and of which key; what is no such record is left out."""
    for record in log.read():
        for word, key in record.items():
            if word in _WORDS and isinstance(key, str):
                yield word, key


class TakenRecord:
    """`taken` are the keys of messages that were taken in; `failures` counts for those that were not."""

    __slots__ = ("_lines", "_log", "failures", "is_damaged", "last", "taken")

    def __init__(self, path: str, durable: bool) -> None:
        """Reads the record. Raises UnknownVersion for one of another version, OSError."""
        self._log = _open_log(path, durable=durable)
        self._lines = 0
        self.taken: dict[str, None] = {}
        self.failures: dict[str, int] = {}
        self.is_damaged = False  # what was there was no such record, and is kept beside: this one begins anew
        self.last: str | None = None  # the key of the last line, if that one was taken: its move may be unfinished
        try:
            for word, key in _read(self._log):
                self._apply(word, key)
            begun = os.path.isfile(path) and os.path.getsize(path) > 0
            problem = "is damaged" if begun and not self._log.has_header else ""
        except UnknownVersion:
            raise
        except UserError as error:
            problem = error.what
        if problem:
            _log.warning("%s %s: kept as %s", path, problem, set_aside(path).name)
            self.is_damaged = True

    def _apply(self, word: str, key: str) -> None:
        self._lines += 1
        self.last = key if word == "taken" else None
        if word == "failed":
            self.failures[key] = self.failures.get(key, 0) + 1
            return
        self.failures.pop(key, None)
        if word == "taken":
            self.taken[key] = None

    def add(self, word: str, key: str) -> None:
        """Record one of `taken`, `failed`, `dead`. Raises UserError if it cannot be written; then nothing has changed."""
        self._log.append({word: key})
        self._apply(word, key)

    def overgrown(self, present: int) -> bool:
        """True if most of the file is about messages that are gone, when so many are `present`."""
        return self._lines > 4 * _KEPT + 2 * present

    def compact(self, present: Collection[str]) -> None:
        """Forget all but the newest 4096 of the names that are not `present` in the folders."""
        gone = [key for key in self.taken if key not in present]
        for key in gone[: max(0, len(gone) - _KEPT)]:
            del self.taken[key]
        self.failures = {key: times for key, times in self.failures.items() if key in present}
        records = [{"taken": key} for key in self.taken]
        records += [{"failed": key} for key, times in self.failures.items() for _ in range(times)]
        self._log.rewrite(records)
        self._lines = len(records)


def read_taken(path: str | os.PathLike[str]) -> set[str]:
    """The keys that a record says were taken in; for who only looks. None for a file that is not there or is no record."""
    try:
        return {key for word, key in _read(_open_log(os.fspath(path), durable=False)) if word == "taken"}
    except (OSError, UserError):
        return set()
