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
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime

from hivemind.boundary import Unreadable
from hivemind.frozen import frozen
from hivemind.fs import DamagedRecord, load_value, make_folder, save_value, set_aside
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN, Layout
from hivemind.names import check_name
from hivemind.tasks.record import TaskRecord
from hivemind.tasks.task import TaskEvent

_KIND, _VERSION = "notice", 1
_NAME = re.compile(r"[a-z0-9].*\.(done|failed|parked)\.json")
_log = logging.getLogger(__name__)


@frozen
class Notice:
    """`id` is the same however often it is sent; `sent` are the ways that have taken it, `tries` those that failed since, and
    `again` is when the next one is due."""

    id: str
    event: TaskEvent
    task: Annotated[str, AfterValidator(partial(check_name, what="task id"))]
    at: AwareDatetime
    why: str = ""
    sent: tuple[str, ...] = ()
    tries: int = 0
    again: AwareDatetime | None = None


class Outbox:
    """`.hive/outbox/` of one hive. `events` are those that a task tells of which says nothing itself."""

    def __init__(self, layout: Layout, events: Collection[str], *, durable: bool) -> None:
        self._layout, self._events, self._durable = layout, events, durable

    def put(
        self, event: TaskEvent, task: str, record: TaskRecord | None, wanted: Collection[str] | None, why: str = ""
    ) -> None:
        """Note that a person's task is about to be done, failed or parked, if anybody wants to know."""
        made_by_hand = record is None or (record.maker == HUMAN and record.parent is None)
        if not made_by_hand or event not in (self._events if wanted is None else wanted):
            return
        make_folder(self._layout.outbox, durable=self._durable)
        self._write(Notice(os.urandom(8).hex(), event, task, datetime.now(UTC), why))

    @property
    def count(self) -> int:
        """How many are still to be told; reads no file."""
        return len(self._names())

    def _names(self) -> list[str]:
        return sorted(filter(_NAME.fullmatch, names_in(self._layout.outbox)))

    def waiting(self) -> list[Notice]:
        """What is still to be told, oldest first. A record that cannot be read is set aside."""
        found = []
        for name in self._names():
            try:
                found.append(load_value(Notice, self._layout.outbox / name, _KIND, _VERSION))
            except (DamagedRecord, Unreadable) as error:
                _log.warning("%s; kept as %s", error, set_aside(self._layout.outbox / name).name)
        return sorted((one for one in found if one is not None), key=lambda one: (one.at, one.task))

    def sent(self, notice: Notice, way: str) -> Notice:
        """One way has taken it."""
        return self._write(replace(notice, sent=(*notice.sent, way), tries=0, again=None))

    def later(self, notice: Notice, again: datetime) -> Notice:
        """One way has not; it is tried again then."""
        return self._write(replace(notice, tries=notice.tries + 1, again=again))

    def done(self, notice: Notice) -> None:
        """There is nothing more to be told, unless the task has come to the same again meanwhile."""
        path = self._path(notice)
        now = load_value(Notice, path, _KIND, _VERSION)
        if now is not None and now.id == notice.id:
            with suppress(FileNotFoundError):
                path.unlink()

    def _write(self, notice: Notice) -> Notice:
        save_value(self._path(notice), _KIND, _VERSION, notice, durable=self._durable)
        return notice

    def _path(self, notice: Notice) -> Path:
        return self._layout.outbox / f"{notice.task}.{notice.event}.json"
