"""Years of it: what is over goes to dated archives, where every command finds it; a hive is copied and put back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.command import Answer, command
from hivemind.cli.opening import anywhere, open_hive
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.hive import Hive


@command("archive", open_hive)
def archive(hive: Hive, *, older_than: str | None = None) -> Answer:
    """Move what has been over for long to dated archives. Nothing is deleted, and every command still finds it.

    Finished tasks go to tasks/archive/2026-11/, read mail and copies of sent mail to the mailboxes' folders
    Archive/2026-11 and Sent/2026-11, closed segments of the journal to .hive/journal/archive/2026-11/. How old
    is old says `retention:` in hive.yaml; a swarm that is up does this once a day.

    arguments:
      --older-than AGE  tasks, mail and journal alike: 90d, 8w, 12h

    examples:
      hivemind archive --older-than 90d
    """
    from hivemind.config import RetentionConfig
    from hivemind.swarm.archive import archive as moved

    retention = hive.config.retention
    if older_than is not None:
        try:
            with boundary("age"):
                retention = RetentionConfig.model_validate(dict.fromkeys(RetentionConfig.model_fields, older_than))
        except Unreadable:
            raise UserError(f"{older_than!r} is not an age", mend="write 90d, 8w or 12h") from None
    if not retention.is_set:
        raise UserError("nothing says how old is old", mend="--older-than 90d, or retention: {tasks: 90d} in hive.yaml")
    done = moved(hive, retention, datetime.now(UTC))
    return Answer(asdict(done), [*done.tasks, *done.segments, f"{done}."])


@command("backup", open_hive)
def backup(hive: Hive, path: str) -> Answer:
    """Copy the hive, as it is at one moment, to a new folder; a swarm may be up meanwhile.

    The copy is a hive itself: ls, cat and hivemind --hive PATH status look at it. It has its name once it is complete.
    What lies outside of the hive's folder (roots:) is not copied, nor are indexes that are made again.

    arguments:
      PATH  a folder that is not there yet, or is empty

    examples:
      hivemind backup /mnt/backups/hive-2026-11-23
    """
    from hivemind.swarm.backup import back_up_hive

    made = back_up_hive(hive, Path(path))
    return Answer({"path": str(made)}, [f"{made} is a copy of {hive.layout.root}."])


@command("restore", anywhere)
def restore(_: object, backup: str, path: str) -> Answer:
    """Put a backup back, to a new folder, and say what the doctor finds there. The backup stays as it is.

    Exit status 0 if the hive is healthy, 1 if anything is left to mend: hivemind --hive PATH doctor --fix.

    arguments:
      BACKUP  what hivemind backup made
      PATH  a folder that is not there yet, or is empty

    examples:
      hivemind restore /mnt/backups/hive-2026-11-23 my-hive
    """
    from hivemind.cli.doctor import doctor
    from hivemind.layout import Layout
    from hivemind.swarm.backup import restore_hive

    made = restore_hive(Path(backup), Path(path))
    found = doctor.function(Layout.at(made))
    assert isinstance(found, Answer)
    return Answer({"path": str(made), **found.record}, [f"{made} is there.", *found.lines], found.status)
