"""The logs of tasks in hand: what is appended to them, and whether anything else has changed them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.fs import Log, fsync_file
from hivemind.tasks.folder import LOG, open_log
from hivemind.tasks.task import Task

_GRAPH = "graph.json"


class TaskLogs:
    """The logs of the tasks that this process has in hand."""

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self._logs: dict[str, Log] = {}
        self._file_stats: dict[str, tuple[int, ...] | None] = {}  # what their files were when this process left them

    def follow(self, task: Task) -> Task:
        """Note what the log of a task is now, to find out a change of it by anything else."""
        if task.id not in self._logs:
            self._logs[task.id] = open_log(task.path, durable=self._durable)
        self._file_stats[task.id] = _stamp(task.path / LOG)
        return task

    def is_changed(self, task: Task) -> bool:
        """Check for a change by something other than this process since it left the log; False if it has not followed it."""
        return task.id in self._file_stats and self._file_stats[task.id] != _stamp(task.path / LOG)

    def append(self, task: Task, *records: Mapping[str, Any], durable: bool) -> None:
        """Append records in one go. Raises UserError if they could not be written whole."""
        if task.id not in self._logs:
            self.follow(task)
        try:
            self._logs[task.id].append(*records, sync_now=durable, separate_lines=True)
        finally:  # a line that could not be written was taken back
            self.follow(task)

    def seal(self, task: Task) -> None:
        """Have the conversation and the graph whole and on the disk before the task's end is: nobody writes to them any more.
        What a power cut has left of lines is set aside. Their names become durable with the end's."""
        log = self._logs.get(task.id) or open_log(task.path, durable=self._durable)
        with suppress(OSError, UserError):  # what lies there is no log: the end says enough
            if log.torn_bytes():
                with log.locked():
                    pass
            log.sync(sync_name=False)
        if self._durable and (task.path / _GRAPH).is_file():
            fsync_file(task.path / _GRAPH)

    def forget(self, task_id: str) -> None:
        self._logs.pop(task_id, None)
        self._file_stats.pop(task_id, None)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What a file is; None if there is none."""
    try:
        file_stat = os.lstat(path)
    except OSError:
        return None
    return file_stat.st_dev, file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns
