"""The logs of claimed tasks: appending to them, and detecting changes by other programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.fs import Log
from hivemind.tasks.folder import LOG, open_log
from hivemind.tasks.task import Task


class TaskLogs:
    def __init__(self) -> None:
        self._logs: dict[str, Log] = {}
        self._file_stats: dict[str, tuple[int, ...] | None] = {}  # after this process's last write

    def follow(self, task: Task) -> Task:
        """Note the stat of a task's log, to detect later changes by other programs. Return the task."""
        if task.id not in self._logs:
            self._logs[task.id] = open_log(task.path)
        self._file_stats[task.id] = _stamp(task.path / LOG)
        return task

    def is_changed(self, task: Task) -> bool:
        """Check whether another program has changed the task's log since this process last wrote to it."""
        return task.id in self._file_stats and self._file_stats[task.id] != _stamp(task.path / LOG)

    def append(self, task: Task, *records: Mapping[str, Any], sync_now: bool) -> None:
        """Append records in one write. Raises UserError after an incomplete write."""
        if task.id not in self._logs:
            self.follow(task)
        try:
            self._logs[task.id].append(*records, sync_now=sync_now, separate_lines=True)
        finally:  # also after an incomplete write, which is undone
            self.follow(task)

    def seal(self, task: Task) -> None:
        """Make the conversation complete and durable before the task ends.

        A line that a power cut has torn is set aside.
        """
        log = self._logs.get(task.id) or open_log(task.path)
        with suppress(OSError, UserError):  # not a log: the task can end without it
            if not log.size and self._file_stats.get(task.id) is not None:
                with log.locked():
                    pass
            log.sync()

    def forget(self, task_id: str) -> None:
        self._logs.pop(task_id, None)
        self._file_stats.pop(task_id, None)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return the numbers that change when a file changes, or None if the file does not exist."""
    try:
        file_stat = os.lstat(path)
    except OSError:
        return None
    return file_stat.st_dev, file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns
