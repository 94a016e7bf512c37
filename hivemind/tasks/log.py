"""A task's log: what was done in it, record by record (README.md, *The log*)."""

from __future__ import annotations

from pathlib import Path

from hivemind.fs import Log

__all__ = ["LOG", "open_log"]

LOG = "log.jsonl"


def open_log(folder: Path, *, durable: bool) -> Log:
    """The log in a task's folder. A record is on the disk if it was appended `now` to a durable one."""
    return Log(folder / LOG, "task-log", 1, durable=durable, lazy=True)
