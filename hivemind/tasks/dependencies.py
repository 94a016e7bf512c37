"""Checks whether the dependencies of waiting tasks are met (README.md, *A claim*)."""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import cache, cached_property
from typing import Literal

from hivemind.frozen import frozen
from hivemind.tasks.drop import DropReader
from hivemind.tasks.folder import folder_of, is_being_claimed
from hivemind.tasks.queue import QueuedDrop
from hivemind.tasks.record import load_sound
from hivemind.tasks.settings import Settings


@frozen
class DependencyStatus:
    """The result of checking a task's dependencies.

    `ready`: all are done. `waits`: some are not done yet. `fails`: some cannot get done without a person. `reason` says why the
    task waits or fails.
    """

    kind: Literal["ready", "waits", "fails"]
    reason: str = ""


READY = DependencyStatus("ready")
_REASONS = {
    "failed": "failed and was not retried",
    "active": "is being worked on",
    "inbox": "is waiting itself",
    None: "is unknown so far",
}


class Dependencies:
    """Checks the dependencies of the tasks in the inbox. Looks up the state of each task only once."""

    def __init__(
        self, settings: Settings, reader: DropReader, queued_drops: Collection[QueuedDrop], *, explains: bool = False
    ) -> None:
        """Check against the inbox's `queued_drops`.

        With `explains`, the reason for waiting says why an active dependency is parked, which costs reading its record.
        """
        self._settings = settings
        self._layout = settings.layout
        self._reader = reader
        self._queued_drops = queued_drops
        self._explains = explains
        self.state_of = cache(self._find_state)

    @cached_property
    def _drops_by_id(self) -> dict[str, QueuedDrop]:
        return {queued.id: queued for queued in self._queued_drops}

    def verdict(self, queued: QueuedDrop) -> DependencyStatus:
        """Check a task's dependencies. Each dependency costs a stat or two."""
        if not queued.dependencies:
            return READY
        unmet = [name for name in queued.dependencies if self.state_of(name) != "done"]
        if not unmet:
            return READY
        cycle = self._cycle(queued)
        if cycle:
            return DependencyStatus("fails", f"its dependencies form a cycle: {' → '.join(cycle)}")
        unknown = [name for name in unmet if self.state_of(name) is None]
        if unknown and self._had_grace(queued):
            reason = f"it depends on {', '.join(map(repr, unknown))}, which does not exist"
            return DependencyStatus("fails", reason)
        return DependencyStatus("waits", "; ".join(f"its dependency {name!r} {self._reason(name)}" for name in unmet))

    def _reason(self, name: str) -> str:
        state = self.state_of(name)
        record = load_sound(self._layout.active / name) if state == "active" and self._explains else None
        if record is None or record.parked is None:
            return _REASONS[state]
        return f"{'' if record.parked.reason.startswith('waits') else 'is parked: '}{record.parked.reason}"

    def _find_state(self, name: str) -> str | None:
        """Return the state of a task, or None if it does not exist. Look in done/ first, the most likely folder, then in the
        order in which tasks move."""
        if os.path.lexists(self._layout.done / name):
            return "done"
        if name in self._drops_by_id:
            return "inbox"
        if is_being_claimed(self._layout, name):
            return "active"
        place = folder_of(self._layout, name)
        return None if place is None else place.parent.name

    def _had_grace(self, queued: QueuedDrop) -> bool:
        """Check that the task has been in the inbox for `grace_s` seconds, or that its file's time is in the future. Until then
        it may name an unknown dependency.
        """
        try:
            changed_at = os.lstat(self._layout.inbox / queued.name).st_ctime
        except FileNotFoundError:
            return False
        return not 0 <= self._settings.clock().timestamp() - changed_at < self._settings.grace_s

    def _cycle(self, queued: QueuedDrop) -> tuple[str, ...]:
        """Return the ids of a dependency cycle through the task, or an empty tuple. Only waiting and failed tasks are
        followed."""
        seen: set[str] = set()
        way = [(queued.id, iter(queued.dependencies))]
        while way:
            name = next(way[-1][1], None)
            if name is None:
                way.pop()
            elif name == queued.id:
                return (*(step for step, _ in way), name)
            elif name not in seen:
                seen.add(name)
                way.append((name, iter(self._next(name))))
        return ()

    def _next(self, name: str) -> tuple[str, ...]:
        match self.state_of(name):
            case "inbox":
                return self._drops_by_id[name].dependencies
            case "failed":
                folder = os.fspath(self._layout.failed / name)
                try:
                    return self._reader.queued_folder(folder, os.stat(folder)).dependencies
                except OSError:
                    return ()
            case _:
                return ()
