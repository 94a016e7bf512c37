"""A task's conversation on the disk: a log (`hivemind/fs/README.md`) in the task's folder."""

from __future__ import annotations

from pathlib import Path

from hivemind.fs import Log

__all__ = ["LOG", "open_log"]

LOG = "messages.jsonl"


def open_log(folder: Path, *, durable: bool) -> Log:
    """The conversation in a task's folder. A line is on the disk if it was appended `now` to a durable one."""
    return Log(folder / LOG, "messages", 1, durable=durable, lazy=True)
