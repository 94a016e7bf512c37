"""The log of a task's graph: `graph.jsonl`, one record per change (README.md, *graph.jsonl*)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.fs import Log

__all__ = ["LOG_NAME", "GraphLog"]

LOG_NAME = "graph.jsonl"


class GraphLog(Log):
    """The log in a task's folder. Where that is gone, the error says so."""

    def __init__(self, folder: Path, *, durable: bool = True, lazy: bool = False) -> None:
        super().__init__(folder / LOG_NAME, "graph-log", 1, numbered=True, durable=durable, lazy=lazy)
        self.folder = folder

    def read(self) -> list[dict[str, Any]]:
        found = super().read()
        if self._identity is None and not self.folder.is_dir():
            raise self._gone()
        return found

    def _take(self) -> None:
        try:
            super()._take()
        except FileNotFoundError:
            raise self._gone() from None

    def append(self, *records: Any, now: bool = False, guard: AbstractContextManager[object] | None = None) -> int:
        try:
            return super().append(*records, now=now, guard=guard)
        except FileNotFoundError:
            raise self._gone() from None

    def sync(self) -> None:
        try:
            super().sync()
        except FileNotFoundError:
            raise self._gone() from None

    def _gone(self) -> UserError:
        return UserError("the task's folder is gone", where=self.folder, mend="open the task where it is now")
