"""Whether a waiting task's dependencies are met (spec 1, *Tasks*; README.md, *Dependencies*)."""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import cached_property
from typing import Literal

from hivemind.frozen import frozen
from hivemind.tasks.drop import DropReader, QueuedDrop, Settings
from hivemind.tasks.folder import ended_place, on_its_way

Place = Literal["inbox", "active", "done", "failed"]


@frozen
class DependencyStatus:
    """`ready`: may be claimed. `waits`: not yet, and `why`. `fails`: never as it stands, and `why`."""

    kind: Literal["ready", "waits", "fails"]
    why: str = ""


READY = DependencyStatus("ready")
_WHY = {
    "failed": "failed and was not retried",
    "active": "is being worked on",
    "inbox": "is waiting itself",
    None: "is unknown so far",
}


class Dependencies:
    """The verdicts on the tasks of one look into the inbox; each dependency is looked up once, whoever waits for it."""

    def __init__(self, settings: Settings, reader: DropReader, waiting: Collection[QueuedDrop]) -> None:
        self._settings = settings
        self._layout = settings.layout
        self._reader = reader
        self._entries = waiting
        self._places: dict[str, Place | None] = {}

    @cached_property
    def _waiting(self) -> dict[str, QueuedDrop]:
        return {entry.id: entry for entry in self._entries}

    def verdict(self, entry: QueuedDrop) -> DependencyStatus:
        """Costs a look per dependency; nothing for a task that has none."""
        if not entry.dependencies:
            return READY
        unmet = [name for name in entry.dependencies if self.place(name) != "done"]
        if not unmet:
            return READY
        cycle = self._cycle(entry)
        if cycle:
            return DependencyStatus("fails", f"its dependencies form a cycle: {' → '.join(cycle)}")
        unknown = [name for name in unmet if self.place(name) is None]
        if unknown and self._rested(entry):
            why = f"it depends on {', '.join(map(repr, unknown))}, and there is no such task"
            return DependencyStatus("fails", why)
        why = "; ".join(f"its dependency {name!r} {_WHY[self.place(name)]}" for name in unmet)
        return DependencyStatus("waits", why)

    def place(self, name: str) -> Place | None:
        """Where the task of that id lies, in the folder of which state; None if there is none."""
        if name not in self._places:
            self._places[name] = self._look(name)
        return self._places[name]

    def _look(self, name: str) -> Place | None:
        """Looks in the direction in which tasks move, so that one on its way is not missed; the usual case first."""
        layout = self._layout
        if os.path.lexists(layout.done / name):
            return "done"
        if name in self._waiting:
            return "inbox"
        if on_its_way(layout, name) or os.path.lexists(layout.active / name):
            return "active"
        place = ended_place(layout, name)
        return None if place is None else "done" if place.parent.name == "done" else "failed"

    def _rested(self, entry: QueuedDrop) -> bool:
        """Whether the task has lain there for the time of grace; a time in the future (a clock set back) has."""
        try:
            changed = os.lstat(self._layout.inbox / entry.name).st_ctime
        except FileNotFoundError:
            return False
        return not 0 <= self._settings.clock().timestamp() - changed < self._settings.grace_s

    def _cycle(self, entry: QueuedDrop) -> tuple[str, ...]:
        """A way of dependencies from the task back to itself, through waiting and failed tasks; else empty."""
        seen: set[str] = set()
        way = [(entry.id, iter(entry.dependencies))]
        while way:
            name = next(way[-1][1], None)
            if name is None:
                way.pop()
            elif name == entry.id:
                return (*(step for step, _ in way), name)
            elif name not in seen:
                seen.add(name)
                way.append((name, iter(self._next(name))))
        return ()

    def _next(self, name: str) -> tuple[str, ...]:
        match self.place(name):
            case "inbox":
                return self._waiting[name].dependencies
            case "failed":
                folder = os.fspath(self._layout.failed / name)
                try:
                    return self._reader.folder_entry(folder, os.stat(folder)).dependencies
                except OSError:
                    return ()
            case _:
                return ()
