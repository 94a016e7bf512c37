"""Whole trees by watchdog: recursive, for folders where half a second more does not matter (knowledge, rom, agents)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver, ObservedWatch

__all__ = ["TreeWatcher"]


class TreeWatcher:
    """Calls `on_change(path)` from watchdog's thread for each file or folder made, written, moved or deleted in a tree.

    Raises OSError if nothing can be watched.
    """

    def __init__(self, trees: Iterable[Path], on_change: Callable[[Path], None]) -> None:
        from watchdog.observers import Observer

        self._on_change = on_change
        self._observer: BaseObserver = Observer()
        self._roots: dict[Path, tuple[ObservedWatch | None, int]] = {}
        self._observer.start()
        try:
            for tree in trees:
                self.add(tree)
        except BaseException:
            self.close()
            raise

    def add(self, tree: Path) -> None:
        """Watch one more tree; one that does not exist is looked for at each `check`."""
        try:
            inode = os.stat(tree).st_ino
            self._roots[tree] = (self._schedule(tree), inode)
        except FileNotFoundError:
            self._roots[tree] = (None, 0)

    def _schedule(self, tree: Path) -> ObservedWatch:
        from watchdog import events

        class Relay(events.FileSystemEventHandler):
            def on_any_event(relay, event: FileSystemEvent) -> None:  # noqa: N805 (self is the watcher)
                self._relay(event)

        wanted: list[type[FileSystemEvent]] = [
            events.FileCreatedEvent, events.FileModifiedEvent, events.FileClosedEvent, events.FileMovedEvent,
            events.FileDeletedEvent, events.DirCreatedEvent, events.DirMovedEvent, events.DirDeletedEvent,
        ]  # fmt: skip
        return self._observer.schedule(Relay(), os.fspath(tree), recursive=True, event_filter=wanted)

    def _relay(self, event: FileSystemEvent) -> None:
        for path in (event.src_path, event.dest_path):
            if path:
                self._on_change(Path(os.fsdecode(path)))

    def check(self) -> None:
        """Watch anew each tree that was replaced, or has come into being, since it was last looked at."""
        for tree, (watch, inode) in list(self._roots.items()):
            try:
                found = os.stat(tree).st_ino
            except FileNotFoundError:
                found = 0
            if found == inode:
                continue
            if watch is not None:
                self._observer.unschedule(watch)
            self.add(tree)
            self._on_change(tree)

    def close(self) -> None:
        """End watchdog's threads. A second call does nothing."""
        self._observer.stop()
        self._observer.join()
