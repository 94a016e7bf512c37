"""Archive old tasks, mail and journal segments, back up a hive and restore it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind.boundary import Unreadable, boundary
from hivemind.cli.command import CommandOutput, command
from hivemind.cli.open_hive import open_hive, without_hive
from hivemind.cli.styled import progress
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.hive import Hive


@command("archive", open_hive)
def archive(hive: Hive, ids: list[str] | None = None, *, older_than: str | None = None) -> CommandOutput:
    """Move ended tasks, or all old tasks, mail and journal segments to dated archives, where all commands still find them.

    Finished tasks go to tasks/archive/2026-11/, read mail and copies of sent mail to the mailboxes' folders
    Archive/2026-11 and Sent/2026-11, closed segments of the journal to .hive/journal/archive/2026-11/.
    `retention:` in hive.yaml sets the ages; a running swarm archives once a day.

    arguments:
      TASK  only this task, of any age: a failed task then no longer needs you
      --older-than AGE  one age for tasks, mail and journal: 90d, 8w, 12h

    examples:
      hivemind archive --older-than 90d
      hivemind archive what-is-a-lease
    """
    from hivemind.config import RetentionConfig
    from hivemind.swarm.archive import archive as archive_files
    from hivemind.swarm.archive import archive_named

    if ids:
        if older_than is not None:
            raise UserError("TASK and --older-than exclude each other", remedy="leave one of them out")
        paths = archive_named(hive, ids)
        return CommandOutput({"tasks": paths}, paths)
    retention = hive.config.retention
    if older_than is not None:
        try:
            with boundary("age"):
                retention = RetentionConfig.model_validate(dict.fromkeys(RetentionConfig.model_fields, older_than))
        except Unreadable:
            raise UserError(f"{older_than!r} is not an age", remedy="write 90d, 8w or 12h") from None
    if not retention.is_set:
        raise UserError("no age is set", remedy="--older-than 90d, or retention: {tasks: 90d} in hive.yaml")
    report = archive_files(hive, retention, datetime.now(UTC))
    return CommandOutput(asdict(report), [*report.tasks, *report.segments, f"{report}."])


@command("backup", open_hive)
def backup(hive: Hive, path: str) -> CommandOutput:
    """Copy the hive, as of one moment, to a new folder. The swarm may be running.

    The copy is a hive: inspect it with ls, cat and hivemind --hive PATH status. PATH appears once the copy is complete.
    Folders outside the hive (roots:) are not copied, nor are indexes that can be rebuilt.

    arguments:
      PATH  a folder that does not exist yet, or is empty

    examples:
      hivemind backup /mnt/backups/hive-2026-11-23
    """
    from hivemind.swarm.backup import back_up_hive

    with progress() as report:
        report(f"copying to {path}")
        copy_path = back_up_hive(hive, Path(path))
    return CommandOutput({"path": str(copy_path)}, [f"{copy_path} is a copy of {hive.layout.root}."])


@command("restore", without_hive)
def restore(_: object, backup: str, path: str) -> CommandOutput:
    """Restore a backup to a new folder, and check the new hive with the doctor. The backup is not changed.

    Exit status 0 if the hive is healthy, 1 if problems remain (hivemind --hive PATH doctor --fix).

    arguments:
      BACKUP  a folder made by hivemind backup
      PATH  a folder that does not exist yet, or is empty

    examples:
      hivemind restore /mnt/backups/hive-2026-11-23 my-hive
    """
    from hivemind.cli.doctor import doctor
    from hivemind.layout import Layout
    from hivemind.swarm.backup import restore_hive

    with progress() as report:
        report(f"copying to {path}")
        hive_path = restore_hive(Path(backup), Path(path))
    doctor_output = doctor.function(Layout.at(hive_path))
    assert isinstance(doctor_output, CommandOutput)
    return CommandOutput(
        {"path": str(hive_path), **doctor_output.json_content},
        [f"Restored {hive_path}.", *doctor_output.lines],
        doctor_output.status,
    )
