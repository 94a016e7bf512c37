"""Move old tasks, letters and journal segments to dated archives (`retention:` in hive.yaml). No file is deleted or changed;
the branches of candidates that were not chosen go.

Each move is one rename, so the next run continues after a crash, and two runs at once do no harm.
"""

from __future__ import annotations

import os
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
from hivemind.presence.parts import Parts
from hivemind.tasks import TaskState
from hivemind.tasks.folder import ended_at, hold, is_open
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
    """Move everything older than `retention` allows. Raises OSError, UserError; completed moves stay."""
    timestamp, relative = now.timestamp(), hive.layout.relative
    tasks = () if retention.tasks is None else _archive_tasks(hive, timestamp - retention.tasks)
    letters = 0 if retention.mail is None else _archive_mail(hive, timestamp - retention.mail)
    segments = () if retention.journal is None else hive.journal.archive(timestamp - retention.journal)
    return ArchivedTasks(tuple(map(relative, tasks)), letters, tuple(map(relative, segments)))


def _archive_tasks(hive: Parts, before: float) -> list[str]:
    layout, durable = hive.layout, hive.config.durable
    archived_paths: list[str] = []
    for state in (TaskState.DONE, TaskState.FAILED):
        for name in sorted(names_in(layout.tasks / state)):
            folder = layout.tasks / state / name
            with suppress(FileNotFoundError, NotADirectoryError):  # a person or another run was faster
                end_time = ended_at(folder)
                if name.startswith(".") or end_time >= before or folder.is_symlink() or _is_part_of_open(hive, folder):
                    continue
                target = layout.archive / month_of(end_time) / state / name
                with hold(folder, wait=False) as has_lock, suppress(FileExistsError):
                    if has_lock:
                        with suppress(UserError, OSError):  # its root is gone, or busy: the branches stay
                            delete_branches(hive, name)
                        make_folder(target.parent, durable=durable)
                        move(folder, target, durable=durable)
                        crash_point("tasks.archive.moved")
                        archived_paths.append(os.fspath(target))
    return archived_paths


def _is_part_of_open(hive: Parts, folder: Path) -> bool:
    """Check whether a task is a subtask of an open task, which may still read the subtask's result."""
    with suppress(UserError):
        record = load(folder)
        return record is not None and record.parent is not None and is_open(hive.layout, record.parent)
    return False


def _archive_mail(hive: Parts, before: float) -> int:
    """Archive read letters and copies of sent ones, by the month in their name. Unread and flagged letters stay."""
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
                        target.ensure_folder(hive.config.durable)
                        targets.add(month)
                    count += source.move_to_cur(entry, target) is not None
                    crash_point("mail.archive.moved")
            if targets and hive.config.durable:
                for month in targets:
                    hive.mail.mailboxes.get(name, month).sync(in_new=False)
                source.sync(in_new=False)
    return count
