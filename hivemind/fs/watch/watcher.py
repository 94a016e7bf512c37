"""Choosing how to watch, and saying why when it is not the usual way (spec 1, *Watching*)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hivemind.errors import UserError
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.fs.watch.folders import CHECK_S, FolderWatcher

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver, ObservedWatch

__all__ = ["Kind", "PollWatcher", "TreeWatcher", "Watcher", "open_watcher"]

_YOUNG_NS = 2_000_000_000  # a folder's time may be this coarse: it is called again until its time is older
_SHARE = 20  # looking may take one part in so many of the time
_TREE_S = 2.0


class PollWatcher:
    """Calls `on_change(folder)` for a flat folder whose time has changed.

    Folders are looked at every `interval_s`, more seldom where a look takes long (it never uses more than a twentieth of a
    processor). Times are compared for being equal, never for being later, so a clock that is set back does no harm.
    `on_change` must not raise: that would end the thread. `on_check` is called every ten seconds.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        on_change: Callable[[Path], None],
        on_check: Callable[[], None],
        *,
        interval_s: float = 0.1,
    ) -> None:
        self._folders: dict[Path, tuple[int, int] | None] = dict.fromkeys(folders)
        self._on_change = on_change
        self._on_check = on_check
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hivemind-poll", daemon=True)
        self._thread.start()

    def add(self, folder: Path) -> None:
        """Look at one more flat folder; it need not exist yet."""
        self._folders = {folder: None, **self._folders}  # a new dict: the thread may be walking over the old one

    def close(self) -> None:
        """End the thread. Not from `on_change`. A second call does nothing."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        check_due = time.monotonic() + CHECK_S
        wait = 0.0
        while not self._closing.wait(wait):
            began = time.monotonic()
            self._look_at_folders()
            wait = max(self._interval_s, _SHARE * (time.monotonic() - began))
            if began >= check_due:
                self._on_check()
                check_due = began + CHECK_S

    def _look_at_folders(self) -> None:
        seen = self._folders
        for folder, before in list(seen.items()):
            try:
                found = os.stat(folder)
            except OSError:  # not there (yet): coming into being will show as a change
                seen[folder] = None
                continue
            now = (found.st_ino, found.st_mtime_ns)
            if now != before or abs(time.time_ns() - found.st_mtime_ns) < _YOUNG_NS:
                seen[folder] = now
                self._on_change(folder)


class TreeWatcher:
    """Calls `on_change(path)` from watchdog's thread for each file or folder made, written, moved or deleted in a tree: by
    inotify, or by looking `every_s` seconds.

    Raises OSError if nothing can be watched.
    """

    def __init__(
        self, trees: Iterable[Path], on_change: Callable[[Path], None], *, every_s: float | None = None
    ) -> None:
        from watchdog.observers import Observer
        from watchdog.observers.polling import PollingObserver

        self._on_change = on_change
        self._observer: BaseObserver = Observer() if every_s is None else PollingObserver(timeout=every_s)
        self._roots: dict[Path, tuple[ObservedWatch | None, int]] = {}
        self._observer.start()
        try:
            for tree in trees:
                self._add(tree)
        except BaseException:
            self.close()
            raise

    def _add(self, tree: Path) -> None:
        """One that does not exist is looked for at each `check`."""
        try:
            inode = os.stat(tree).st_ino
            self._roots[tree] = (self._schedule(tree), inode)
        except FileNotFoundError:
            self._roots[tree] = (None, 0)

    def _schedule(self, tree: Path) -> ObservedWatch:
        from watchdog import events

        class Relay(events.FileSystemEventHandler):
            def on_any_event(relay, event: FileSystemEvent) -> None:  # noqa: N805 (self is the watcher)
                for path in (event.src_path, event.dest_path):
                    if path:
                        self._on_change(Path(os.fsdecode(path)))

        wanted: list[type[FileSystemEvent]] = [
            events.FileCreatedEvent, events.FileModifiedEvent, events.FileClosedEvent, events.FileMovedEvent,
            events.FileDeletedEvent, events.DirCreatedEvent, events.DirMovedEvent, events.DirDeletedEvent,
        ]  # fmt: skip
        return self._observer.schedule(Relay(), os.fspath(tree), recursive=True, event_filter=wanted)

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
            self._add(tree)
            self._on_change(tree)

    def close(self) -> None:
        """End watchdog's threads. A second call does nothing."""
        self._observer.stop()
        self._observer.join()


Kind = Literal["inotify", "poll"]


class Watcher:
    """What watches: `kind` is how the flat folders are watched, `reason` why it is not the usual way (or None)."""

    def __init__(
        self, kind: Kind, reason: str | None, folders: FolderWatcher | PollWatcher, trees: TreeWatcher | None
    ) -> None:
        self.kind: Kind = kind
        self.reason = reason
        self._folders = folders
        self._trees = trees

    def add(self, folder: Path) -> None:
        """Watch one more flat folder; it need not exist yet."""
        self._folders.add(folder)

    def close(self) -> None:
        """End all watching; `on_change` is not called any more afterwards. A second call does nothing."""
        self._folders.close()
        if self._trees is not None:
            self._trees.close()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_watcher(
    mode: str, folders: Iterable[Path], trees: Iterable[Path], on_change: Callable[[Path], None]
) -> Watcher:
    """Watch flat `folders` and recursive `trees`; `mode` is `auto`, `inotify` or `poll` (`watch:` in hive.yaml).

    `on_change` is called from a thread of the watcher's: with the folder when something appeared in a flat folder or
    has been written there, with the file when it happened in a tree; it must be quick, and must not raise. Each flat
    folder is called once at the beginning: what came before the watch is seen as well.
    `auto` polls on network file systems; `inotify` watches there too. Both poll, and say so in `reason`, when the
    kernel has no inotify instance left. Raises UserError for another mode.
    """
    flat, deep = list(folders), list(trees)
    if mode not in ("auto", "inotify", "poll"):
        raise UserError(f"{mode!r} is no way of watching", where="watch", mend="one of auto, inotify, poll")
    reason = "hive.yaml says watch: poll" if mode == "poll" else None
    if mode == "auto":
        mounted = mounts()
        remote = ((folder, kind) for folder in (*flat, *deep) if (kind := needs_polling(folder, mounted)) is not None)
        for folder, kind in remote:
            reason = f"{folder} lies on {kind}, where changes made elsewhere are not reported"
            break
    below = None
    try:
        if reason is None:
            below = TreeWatcher(deep, on_change) if deep else None
            return Watcher("inotify", None, FolderWatcher(flat, on_change, _check_of(below)), below)
    except OSError as error:
        if below is not None:
            below.close()
        reason = f"no inotify instance to be had: {error.strerror or error}"
    below = TreeWatcher(deep, on_change, every_s=_TREE_S) if deep else None
    return Watcher("poll", reason, PollWatcher(flat, on_change, _check_of(below)), below)


def _check_of(trees: TreeWatcher | None) -> Callable[[], None]:
    return (lambda: None) if trees is None else trees.check
