"""Move old tasks, letters and journal segments to dated archives (`retention:` in hive.yaml). No file is deleted or changed.

The git branches of candidates that were not chosen are deleted. Each move is one rename, so the next run continues after a
crash, and two runs at once do no harm.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from hivemind.config import RetentionConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import crash_point, make_folder, move
from hivemind.fs.paths import names_in
from hivemind.landing.endings import delete_branches
from hivemind.layout import HUMAN, month_of
from hivemind.mail.reading import time_key
from hivemind.names import check_name
from hivemind.presence.parts import Parts
from hivemind.tasks import TaskState
from hivemind.tasks.folder import ended_at, ended_folder, is_open, locked_folder
from hivemind.tasks.record import load

_KEPT_FLAGS = frozenset("FT")  # flagged, or about to be expunged


@frozen
class ArchivedTasks:
    """The new paths of archived tasks and journal segments, relative to the hive, and the number of moved letters."""

    tasks: tuple[str, ...]
    letters: int
    segments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.tasks)} tasks, {self.letters} letters, {len(self.segments)} segments of the journal archived"


def archive(hive: Parts, retention: RetentionConfig, now: datetime) -> ArchivedTasks:
    """Move everything older than `retention` allows to the archive. Return what was moved. Raises OSError, UserError; completed
    moves stay.
    """
    timestamp, relative = now.timestamp(), hive.layout.relative
    tasks = () if retention.tasks is None else _archive_tasks(hive, timestamp - retention.tasks)
    letters = 0 if retention.mail is None else _archive_mail(hive, timestamp - retention.mail)
    segments = () if retention.journal is None else hive.journal.archive(timestamp - retention.journal)
    return ArchivedTasks(tuple(map(relative, tasks)), letters, tuple(map(relative, segments)))


def _archive_tasks(hive: Parts, before: float) -> list[str]:
    archived_paths: list[str] = []
    for state in (TaskState.DONE, TaskState.FAILED):
        for name in sorted(names_in(hive.layout.tasks / state)):
            folder = hive.layout.tasks / state / name
            with suppress(FileNotFoundError, NotADirectoryError):  # a person or another run was faster
                if not name.startswith(".") and ended_at(folder) < before and (target := _archive_task(hive, folder)):
                    archived_paths.append(target)
    return archived_paths


def archive_named(hive: Parts, task_ids: Iterable[str]) -> list[str]:
    """Archive these ended tasks now. Return their new paths relative to the hive. Raises UserError."""
    folders = [_ended_folder(hive, task_id) for task_id in task_ids]
    archived_paths = []
    for folder in folders:
        target = _archive_task(hive, folder)
        if target is None:
            raise UserError("can't be archived now: it is in use, or a part of an open task", location=folder.name)
        archived_paths.append(hive.layout.relative(target))
    return archived_paths


def _ended_folder(hive: Parts, task_id: str) -> Path:
    """Return the folder of a task that is over, or of a drop that could not become a task. Raises UserError for other tasks."""
    folder = ended_folder(hive.layout, check_name(task_id, "task id"))
    if folder is None:
        remedy = f"end it: hivemind task cancel {task_id}"
        raise UserError("is not over", location=hive.tasks.get(task_id).id, remedy=remedy)
    if hive.layout.archive in folder.parents:
        raise UserError("is archived already", location=task_id)
    return folder


def _archive_task(hive: Parts, folder: Path) -> str | None:
    """Archive an ended task. Return its new path, or None if it is in use or a subtask of an open task."""
    target = hive.layout.archive / month_of(ended_at(folder)) / folder.parent.name / folder.name
    if folder.is_symlink() or _is_part_of_open(hive, folder):
        return None
    with locked_folder(folder, wait=False) as has_lock, suppress(FileExistsError):
        if has_lock:
            with suppress(UserError, OSError):  # its root is gone, or busy: the branches stay
                delete_branches(hive, folder.name)
            make_folder(target.parent)
            move(folder, target)
            crash_point("tasks.archive.moved")
            return os.fspath(target)
    return None


def _is_part_of_open(hive: Parts, folder: Path) -> bool:
    """Check whether a task is a subtask of an open task, which may still read the subtask's result."""
    with suppress(UserError):
        record = load(folder)
        return record is not None and record.parent is not None and is_open(hive.layout, record.parent)
    return False


def _archive_mail(hive: Parts, before: float) -> int:
    """Archive read letters and copies of sent ones, by the month in their name. Return their number. Unread and flagged letters
    stay.

    `before` is the time (seconds since 1970) up to which letters are old.
    """
    count = 0
    for name in names_in(hive.layout.mailboxes):
        if name != HUMAN and name not in hive.agents:
            continue
        for folder, target_name in (("inbox", "archive"), ("archive", "archive"), ("sent", "sent")):
            source, targets = hive.mail.mailboxes.get(name, folder), set()
            for entry in list(source.mail_files(False)):
                seconds = time_key(entry)[0]
                if seconds < before and "S" in entry.flags and not _KEPT_FLAGS & set(entry.flags):
                    month = f"{target_name}/{month_of(seconds)}"
                    target = hive.mail.mailboxes.get(name, month)
                    if month not in targets:
                        target.ensure_folder()
                        targets.add(month)
                    count += source.move_to_cur(entry, target, sync_now=False) is not None
                    crash_point("mail.archive.moved")
            if targets:
                for month in targets:
                    hive.mail.mailboxes.get(name, month).sync(in_new=False)
                source.sync(in_new=False)
    return count
