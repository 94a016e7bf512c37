"""Notices for people about tasks: one record each, written before the event that it reports (README.md, *Being told*).

A record is named after the task and the event. After a crash, the same event is reported once. `hivemind due` sends a
notice only if the event has happened.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hivemind.boundary import Unreadable
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import DamagedRecord, load_dataclass, make_folder, save_dataclass, set_aside
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, Layout
from hivemind.logger import logger
from hivemind.names import check_name
from hivemind.outcome import OUTCOME_FILES, Outcome
from hivemind.pattern import pattern
from hivemind.schema import AfterValidator
from hivemind.tasks.record import TaskRecord

if TYPE_CHECKING:
    from pydantic import AwareDatetime

_KIND, _TELLING, _VERSION = "notice", "telling", 1
_NAME = pattern(rf"[a-z0-9].*\.({'|'.join(OUTCOME_FILES)})\.json")
_log = logger(__name__)


@frozen
class Notice:
    """A notice for people about an event of a task. `id` stays the same when the notice is sent again."""

    id: str
    event: Outcome
    task: Annotated[str, AfterValidator(partial(check_name, description="task id"))]
    at: AwareDatetime
    why: str = ""


@frozen
class Telling:
    """The state of a notice's delivery by one channel: whether it was sent, the number of failed tries, the time of the next."""

    id: str
    sent: bool = False
    tries: int = 0
    again: AwareDatetime | None = None

    def is_due(self, now: datetime) -> bool:
        return not self.sent and (self.again is None or self.again <= now)


class Outbox:
    """The notices in `.hive/outbox/` of one hive. `events` lists the events to report for tasks that do not list their
    own."""

    def __init__(self, layout: Layout, events: Collection[str]) -> None:
        self._layout, self._events = layout, events

    def put(
        self, event: Outcome, task: str, record: TaskRecord | None, events: Collection[str] | None, reason: str = ""
    ) -> None:
        """Write a notice before a person's task is done, failed or parked (`event`), if the task or hive.yaml asks for it.

        `events` are those for which the task asks; None: hive.yaml decides. `record` is None if the task has no readable record.
        """
        made_by_hand = record is None or (record.maker == HUMAN and record.parent is None)
        if not made_by_hand or event not in (self._events if events is None else events):
            return
        make_folder(self._layout.outbox)
        notice = Notice(os.urandom(8).hex(), event, task, datetime.now(UTC), reason)
        save_dataclass(self._path(notice), _KIND, _VERSION, notice)

    @property
    def count(self) -> int:
        """The number of notices to be sent. Reads no file."""
        return len(self._names())

    def _names(self) -> list[str]:
        return sorted(filter(_NAME.fullmatch, names_in(self._layout.outbox)))

    def list_notices(self) -> list[Notice]:
        """Return the notices to be sent, oldest first. Damaged records are set aside, other versions skipped."""
        notices = []
        for name in self._names():
            try:
                notices.append(load_dataclass(Notice, self._layout.outbox / name, _KIND, _VERSION))
            except (DamagedRecord, Unreadable) as error:
                _log.warning("%s; kept as %s", error, set_aside(self._layout.outbox / name).name)
            except UserError as error:
                _log.warning("%s", error)
        return sorted((notice for notice in notices if notice is not None), key=lambda notice: (notice.at, notice.task))

    def telling(self, notice: Notice, way: str) -> Telling:
        with suppress(Unreadable, UserError):  # without the record, the notice is sent again
            telling = load_dataclass(Telling, self._path(notice, way), _TELLING, _VERSION)
            if telling is not None and telling.id == notice.id:
                return telling
        return Telling(notice.id)

    def tell(self, notice: Notice, way: str, telling: Telling) -> None:
        """Record how far the delivery by the channel `way` (mail, program or webhook) has come.

        The record is in a sub-folder, because a change of the outbox folder itself means a new notice.
        """
        path = self._path(notice, way)
        make_folder(path.parent)
        save_dataclass(path, _TELLING, _VERSION, telling)

    def done(self, notice: Notice) -> None:
        """Remove a notice that was sent, unless a newer notice of that event has replaced it."""
        path = self._path(notice)
        now = load_dataclass(Notice, path, _KIND, _VERSION)
        if now is not None and now.id == notice.id:
            for record in (path, *self._layout.outbox.glob(f".*/{path.name}")):
                record.unlink(missing_ok=True)

    def _path(self, notice: Notice, way: str = "") -> Path:
        return self._layout.outbox / (way and f".{way}") / f"{notice.task}.{notice.event}.json"
