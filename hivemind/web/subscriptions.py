"""Subscriptions to changes of a hive. The web page and `hivemind top` use them to learn what has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError, is_disk_full
from hivemind.fs import Watcher, open_watcher
from hivemind.hive import Hive
from hivemind.layout import HUMAN, Layout
from hivemind.web.snapshot import Snapshot, take_snapshot

if TYPE_CHECKING:
    from hivemind.web.index import PageIndex

_REFRESH_S = 0.25  # the hive is read at most this often
_LOAD_DIVISOR = 8  # refreshing may take about 1/8 of the time
_INDEX_TIME_S = 0.2  # a refresh indexes ended tasks for this long; the next refresh continues


class SnapshotWatch:
    """A watch that keeps a snapshot and calls subscribers with changed topics: `agents`, `tasks`, `mail`, `journal`,
    `index`, `task:ID`.

    The hive is watched from the first subscription on. Before that, each call of `snapshot` reads the hive. If there is
    an `index`, it is kept up to date, too. Thread-safe.
    """

    def __init__(self, root: Path, index: PageIndex | None = None) -> None:
        self._hive = Hive.look(root)
        self._index = index
        self._mutex = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._is_stale = False
        self._refreshed_at = self._notified_at = 0.0  # times of the last refresh and of the last notification
        self._pause_s = _REFRESH_S
        self._listener_lock = threading.Lock()
        self._listeners: list[Callable[[frozenset[str]], None]] = []
        self._changed_topics: set[str] = set()
        self._timer: threading.Timer | None = None
        self._watcher: Watcher | None = None
        self.is_closing = False

    def snapshot(self) -> Snapshot:
        """Return the snapshot. It may be a moment old while the hive changes often, or before the first subscription.

        Raises UserError, OSError.
        """
        with self._mutex:
            is_fresh = self._watcher is not None and not self._is_stale
            is_recent = self._notified_at < self._refreshed_at and time.monotonic() - self._refreshed_at < self._pause_s
            if self._snapshot is None or not (is_fresh or is_recent):
                self._snapshot = None  # if the hive cannot be read, the next call tries again
                self._snapshot = self._refresh()
            return self._snapshot

    def invalidate(self) -> None:
        """Discard the snapshot after a change. The next call of `snapshot` reads the hive again."""
        with self._mutex:
            self._snapshot = None

    def _refresh(self) -> Snapshot:
        self._refreshed_at = time.monotonic()
        self._is_stale = False
        snapshot = take_snapshot(self._hive)
        try:
            is_indexed = self._index is None or self._index.sync(_INDEX_TIME_S)
        except UserError as error:
            if not is_disk_full(error):
                raise
            is_indexed = True  # as far as there was room; the next refresh continues
        self._pause_s = max(_REFRESH_S, _LOAD_DIVISOR * (time.monotonic() - self._refreshed_at))
        if not is_indexed:  # subscribers refresh on this topic, which continues the indexing
            self._note_change("index")
        return snapshot

    @contextmanager
    def subscribe(self, on_change: Callable[[frozenset[str]], None]) -> Iterator[None]:
        """Until the block ends, call `on_change` with the changed topics. It is called in another thread, and must
        return quickly."""
        with self._listener_lock:
            self._listeners.append(on_change)
            if self._watcher is None and not self.is_closing:
                trees = [self._hive.layout.journal]
                self._watcher = open_watcher(
                    self._hive.config.watch, _watched_folders(self._hive), trees, self._note_path
                )
        try:
            yield
        finally:
            with self._listener_lock:
                self._listeners.remove(on_change)

    def close(self) -> None:
        self.is_closing = True
        if self._watcher is not None:
            self._watcher.close()
        if (timer := self._timer) is not None:
            timer.cancel()
            timer.join()

    def _note_path(self, path: Path) -> None:
        topic = _path_topic(self._hive.layout, path)
        if topic:
            self._note_change(topic)

    def _note_change(self, topic: str) -> None:
        """Record a changed topic. After a short pause, subscribers are called once with all topics that have changed by then."""
        self._is_stale = True
        with self._listener_lock:
            self._changed_topics.add(topic)
            if self._timer is None and self._listeners and not self.is_closing:
                due = max(self._refreshed_at, self._notified_at) + self._pause_s
                self._timer = threading.Timer(max(0.0, due - time.monotonic()), self._notify)
                self._timer.daemon = True
                self._timer.start()

    def _notify(self) -> None:
        with self._listener_lock:
            self._timer, changes, self._changed_topics = None, frozenset(self._changed_topics), set()
            self._notified_at = time.monotonic()
            watcher, listeners = self._watcher, list(self._listeners)
        if any(topic.startswith("task") for topic in changes):
            changes |= {"index"}
            self._watch_active_tasks(watcher)
        for listener in listeners:
            listener(changes)

    def _watch_active_tasks(self, watcher: Watcher | None) -> None:
        """Watch the folders of tasks that have become active."""
        if watcher is not None and not self.is_closing:
            with suppress(OSError):
                for folder in self._hive.layout.active.glob("[!.]*"):
                    watcher.add(folder, is_temporary=True)


def _watched_folders(hive: Hive) -> list[Path]:
    layout = hive.layout
    boxes = [layout.mailbox(name) for name in (HUMAN, *hive.agents)]
    return [
        layout.agents,
        layout.inbox,
        layout.active,
        layout.done,
        layout.failed,
        *(layout.agent_state(name) for name in hive.agents),
        *(box / part for box in boxes for part in ("new", "cur")),
    ]


def _path_topic(layout: Layout, path: Path) -> str | None:
    """Return the topic that a change of the path belongs to; None if the path is outside the hive."""
    try:
        with boundary("path", path):
            parts = path.relative_to(layout.root).parts
    except Unreadable:
        return None
    if parts[0] == "tasks":
        return f"task:{parts[2]}" if len(parts) > 2 else "tasks"
    if parts[0] == "mailboxes":
        return "mail"
    if parts[:2] == (layout.state.name, layout.journal.name):
        return "journal"
    return "agents"
