"""Years of it: what is over goes to dated archives, where every command finds it; a hive is copied and put back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hivemind.cli.command import Answer, command
from hivemind.cli.opening import open_hive
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
    from hivemind.tasks import parse_duration

    retention = hive.config.retention
    if older_than is not None:
        try:
            age = parse_duration(older_than)
        except ValueError:
            raise UserError(f"{older_than!r} is no age", mend="write 90d, 8w or 12h") from None
        retention = RetentionConfig(tasks=age, mail=age, journal=age)
    if not retention.is_set:
        raise UserError("nothing says how old is old", mend="--older-than 90d, or retention: {tasks: 90d} in hive.yaml")
    done = moved(hive, retention, datetime.now(UTC))
    return Answer(asdict(done), [*done.tasks, *done.segments, f"{done}."])
