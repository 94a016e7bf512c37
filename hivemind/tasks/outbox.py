"""What a person is to be told of tasks: one record each, written before what it tells of happens (README.md, *Being told*).

The name is that of the task and the event, so that what a crash interrupted is told once; who sends it (`hivemind due`) looks
first whether it has come to that.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime

from hivemind.boundary import Unreadable
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import DamagedRecord, load_value, make_folder, save_value, set_aside
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, Layout
from hivemind.names import check_name
from hivemind.outcome import OUTCOME_FILES, Outcome
from hivemind.tasks.record import TaskRecord

_KIND, _TELLING, _VERSION = "notice", "telling", 1
_NAME = re.compile(rf"[a-z0-9].*\.({'|'.join(OUTCOME_FILES)})\.json")
_log = logging.getLogger(__name__)


@frozen
class Notice:
    """What is to be told, fixed when it is written; `id` is the same however often it is sent."""

    id: str
    event: Outcome
    task: Annotated[str, AfterValidator(partial(check_name, what="task id"))]
    at: AwareDatetime
    why: str = ""


@frozen
class Telling:
    """How far one way is with the notice of that `id`: whether it has taken it, how many tries failed, when it is tried again."""

    id: str
    sent: bool = False
    tries: int = 0
    again: AwareDatetime | None = None

    def is_due(self, now: datetime) -> bool:
        return not self.sent and (self.again is None or self.again <= now)


class Outbox:
    """`.hive/outbox/` of one hive. `events` are those that a task tells of which says nothing itself."""

    def __init__(self, layout: Layout, events: Collection[str], *, durable: bool) -> None:
        self._layout, self._events, self._durable = layout, events, durable

    def put(
        self,
        event: Outcome,
        task: str,
        record: TaskRecord | None,
        wanted_events: Collection[str] | None,
        reason: str = "",
    ) -> None:
        """Note that a person's task is about to be done, failed or parked, if anybody wants to know."""
        made_by_hand = record is None or (record.maker == HUMAN and record.parent is None)
        if not made_by_hand or event not in (self._events if wanted_events is None else wanted_events):
            return
        make_folder(self._layout.outbox, durable=self._durable)
        notice = Notice(os.urandom(8).hex(), event, task, datetime.now(UTC), reason)
        save_value(self._path(notice), _KIND, _VERSION, notice, durable=self._durable)

    @property
    def count(self) -> int:
        """How many are still to be told; reads no file."""
        return len(self._names())

    def _names(self) -> list[str]:
        return sorted(filter(_NAME.fullmatch, names_in(self._layout.outbox)))

    def list_notices(self) -> list[Notice]:
        """Return what is still to be told, oldest first. A record that cannot be read is set aside, one of another version
        stays where it is; the others go on."""
        notices = []
        for name in self._names():
            try:
                notices.append(load_value(Notice, self._layout.outbox / name, _KIND, _VERSION))
            except (DamagedRecord, Unreadable) as error:
                _log.warning("%s; kept as %s", error, set_aside(self._layout.outbox / name).name)
            except UserError as error:
                _log.warning("%s", error)
        return sorted((notice for notice in notices if notice is not None), key=lambda notice: (notice.at, notice.task))

    def telling(self, notice: Notice, way: str) -> Telling:
        """Return how far a way is with a notice."""
        with suppress(Unreadable, UserError):  # a record that is lost in such a way costs that it is told once more
            telling = load_value(Telling, self._path(notice, way), _TELLING, _VERSION)
            if telling is not None and telling.id == notice.id:
                return telling
        return Telling(notice.id)

    def tell(self, notice: Notice, way: str, telling: Telling) -> None:
        """Note how far a way is. The record lies below the outbox, whose own time says that a notice has come or gone."""
        path = self._path(notice, way)
        make_folder(path.parent, durable=self._durable)
        save_value(path, _TELLING, _VERSION, telling, durable=self._durable)

    def done(self, notice: Notice) -> None:
        """There is nothing more to be told, unless the task has come to the same again meanwhile."""
        path = self._path(notice)
        now = load_value(Notice, path, _KIND, _VERSION)
        if now is not None and now.id == notice.id:
            for record in (path, *self._layout.outbox.glob(f".*/{path.name}")):
                record.unlink(missing_ok=True)

    def _path(self, notice: Notice, way: str = "") -> Path:
        return self._layout.outbox / (way and f".{way}") / f"{notice.task}.{notice.event}.json"
