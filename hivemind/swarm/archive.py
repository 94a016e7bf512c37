"""What is over is moved to dated archives, by renames and as it is (`retention:` in hive.yaml). Nothing is deleted.

Each rename stands for itself: killed anywhere, the next run goes on; of two runs at once one moves each thing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from hivemind.config import RetentionConfig
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import make_folder, move, reached
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, month_of
from hivemind.mail.reading import time_key
from hivemind.presence.parts import Parts
from hivemind.tasks import TaskState
from hivemind.tasks.folder import ended_at, hold, is_open
from hivemind.tasks.record import load

_STAYS = frozenset("FT")  # what somebody has flagged, or is about to expunge


@frozen
class ArchivedTasks:
    """Where the tasks and segments lie now, relative to the hive, and how many letters were moved."""

    tasks: tuple[str, ...]
    letters: int
    segments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.tasks)} tasks, {self.letters} letters, {len(self.segments)} segments of the journal archived"


def archive(hive: Parts, retention: RetentionConfig, now: datetime) -> ArchivedTasks:
    """Move what has been over for longer than `retention` says. Raises OSError, UserError; what was moved stays moved."""
    at, relative = now.timestamp(), hive.layout.relative
    tasks = () if retention.tasks is None else _tasks(hive, at - retention.tasks)
    letters = 0 if retention.mail is None else _mail(hive, at - retention.mail)
    segments = () if retention.journal is None else hive.journal.archive(at - retention.journal)
    return ArchivedTasks(tuple(map(relative, tasks)), letters, tuple(map(relative, segments)))


def _tasks(hive: Parts, before: float) -> list[str]:
    layout, durable = hive.layout, hive.config.durable
    moved: list[str] = []
    for state in (TaskState.DONE, TaskState.FAILED):
        for name in sorted(names_in(layout.tasks / state)):
            folder = layout.tasks / state / name
            with suppress(FileNotFoundError, NotADirectoryError):  # a person, or another run, was first
                ended = ended_at(folder)
                if name.startswith(".") or ended >= before or folder.is_symlink() or _is_part_of_open(hive, folder):
                    continue
                archived = layout.archive / month_of(ended) / state / name
                with hold(folder, wait=False) as free, suppress(FileExistsError):
                    if free:
                        make_folder(archived.parent, durable=durable)
                        move(folder, archived, durable=durable)
                        reached("tasks.archive.moved")
                        moved.append(os.fspath(archived))
    return moved


def _is_part_of_open(hive: Parts, folder: Path) -> bool:
    """Whether it is a part of a task that is not over, which may ask for its result."""
    with suppress(UserError):
        record = load(folder)
        return record is not None and record.parent is not None and is_open(hive.layout, record.parent)
    return False


def _mail(hive: Parts, before: float) -> int:
    """Read letters and copies of sent ones, by the month in their name; unread and flagged ones stay."""
    moved = 0
    for name in names_in(hive.layout.mailboxes):
        if name != HUMAN and name not in hive.agents:
            continue
        for folder, to in (("inbox", "archive"), ("archive", "archive"), ("sent", "sent")):
            source, targets = hive.mail.boxes.get(name, folder), set()
            for entry in list(source.entries(False)):
                seconds = time_key(entry)[0]
                if seconds < before and "S" in entry.flags and not _STAYS & set(entry.flags):
                    month = f"{to}/{month_of(seconds)}"
                    target = hive.mail.boxes.get(name, month)
                    if month not in targets:
                        target.ensure_one(hive.config.durable)
                        targets.add(month)
                    moved += source.keep(entry, target) is not None
                    reached("mail.archive.moved")
            if targets and hive.config.durable:
                for month in targets:
                    hive.mail.boxes.get(name, month).sync(new=False)
                source.sync(new=False)
    return moved
