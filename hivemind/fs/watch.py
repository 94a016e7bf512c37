"""Watch folders by inotify, or by polling where inotify does not work. An event is only a hint to look into the folder."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs.filesystem import mounts, needs_polling
from hivemind.logger import logger

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver, ObservedWatch

_IN_CLOSE_WRITE = 0x8
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_UNMOUNT = 0x2000
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x01000000
# Delivery by link() causes IN_CREATE, delivery by rename() IN_MOVED_TO, a file saved in an editor IN_CLOSE_WRITE.
_MASK = _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
_HEAD = struct.Struct("iIII")
_log = logger(__name__)
_BUFFER = 256 * 1024


@frozen
class FileEvent:
    """An event in the folder with watch number `watch`. -1 means that the queue overflowed: look into every folder."""

    watch: int
    mask: int

    @property
    def is_overflow(self) -> bool:
        return bool(self.mask & _IN_Q_OVERFLOW)

    @property
    def is_lost(self) -> bool:
        """True if the folder was deleted, moved or unmounted, and its path needs a new watch."""
        return bool(self.mask & (_IN_DELETE_SELF | _IN_MOVE_SELF | _IN_UNMOUNT | _IN_IGNORED))


class Inotify:
    """One inotify instance. Linux allows each user 128; raises OSError if none is left."""

    __slots__ = ("_libc", "_poll", "_wake", "fd")

    def __init__(self) -> None:
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self.fd = self._check_result(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), None)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        for file in (self.fd, self._wake):
            self._poll.register(file, select.POLLIN)

    @staticmethod
    def _check_result(return_code: int, path: str | None) -> int:
        if return_code < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
        return return_code

    def add(self, folder: str | os.PathLike[str]) -> int:
        """Watch a folder. Return its watch number. Raises OSError (folder missing, no watch left, …)."""
        path = os.fspath(folder)
        return self._check_result(self._libc.inotify_add_watch(self.fd, os.fsencode(path), _MASK), path)

    def remove(self, watch: int) -> None:
        """End a watch. Does nothing if the watch has ended already."""
        self._libc.inotify_rm_watch(self.fd, watch)

    def has_room(self) -> bool:
        """Check that another watch is available. Without a free watch, watchdog silently skips folders."""
        with suppress(OSError):
            self.remove(self.add("/"))
            return True
        return False

    def read(self) -> Iterator[FileEvent]:
        """Yield the pending events. File names are not decoded."""
        while True:
            try:
                raw = os.read(self.fd, _BUFFER)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(raw):
                watch, mask, _, length = _HEAD.unpack_from(raw, offset)
                offset += _HEAD.size + length
                yield FileEvent(watch, mask)

    def wait(self, seconds: float) -> None:
        """Wait at most `seconds` for events. A call of `wake` ends the wait."""
        if self._wake in dict(self._poll.poll(int(1000 * seconds))):
            os.eventfd_read(self._wake)

    def wake(self) -> None:
        """End the `wait` of another thread. If no thread waits, the next `wait` returns at once."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        for file in (self.fd, self._wake):
            os.close(file)


_TREE_S = 2.0


class TreeWatcher:
    """A watcher that calls `on_change(path)` for each file or folder created, written, moved or deleted in a tree.

    The calls are in watchdog's thread. Uses inotify, or polls every `every_s` seconds. Raises OSError if watching is
    impossible.
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
        """Watch a tree. If the tree is missing, `check` tries again."""
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

        event_types: list[type[FileSystemEvent]] = [
            events.FileCreatedEvent, events.FileModifiedEvent, events.FileClosedEvent, events.FileMovedEvent,
            events.FileDeletedEvent, events.DirCreatedEvent, events.DirMovedEvent, events.DirDeletedEvent,
        ]  # fmt: skip
        return self._observer.schedule(Relay(), os.fspath(tree), recursive=True, event_filter=event_types)

    def check(self) -> None:
        """Watch each tree that was created or replaced since the last check. On an OSError the next check tries again."""
        for tree, (watch, inode) in list(self._roots.items()):
            try:
                current_inode = os.stat(tree).st_ino
            except OSError:
                current_inode = 0
            if current_inode == inode:
                continue
            if watch is not None:
                self._observer.unschedule(watch)
            self._roots[tree] = (None, 0)
            with suppress(OSError):
                self._add(tree)
            self._on_change(tree)

    def replace_by_polling(self) -> TreeWatcher:
        """Close this watcher. Return a polling watcher for its trees, after calling `on_change` once for each tree."""
        self.close()
        watcher = TreeWatcher(self._roots, self._on_change, every_s=_TREE_S)
        for tree in self._roots:
            self._on_change(tree)
        return watcher

    def close(self) -> None:
        """End watchdog's threads. May be called twice."""
        self._observer.stop()
        self._observer.join()


_SEARCH_S = 1.0  # how often folders without a watch are polled if inotify works
_POLL_S = 0.1  # how often all folders are polled without inotify
_CHECK_S = 10.0  # how often watches are compared with their folders, and missing trees tried again
_RECENT_NS = 2_000_000_000  # resolution of the coarsest time stamps: a younger folder is reported again
_SHARE = 20  # polling may take 1/20 of the time


class Watcher:
    """A watcher that calls `on_change(folder)`, in a thread, when a file was created or written in a folder.

    Every folder is reported once at the start, and again after an overflow of the kernel's queue. A folder that inotify cannot
    watch (missing, no watch left, no permission) is reported every second. Without inotify, folders are polled ten times a
    second, or less often if polling takes long. A polled folder is reported when its mtime differs, even if it is earlier because
    the clock was set back. `on_change` must not raise, because that would end the thread. `reason` says why inotify is not used;
    it is None if inotify is used.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        on_change: Callable[[Path], None],
        inotify: Inotify | None = None,
        *,
        trees: TreeWatcher | None = None,
        reason: str | None = None,
    ) -> None:
        self.reason = reason
        self._inotify = inotify
        self._trees = trees
        self._on_change = on_change
        self._guard = threading.Lock()
        self._watches: dict[int, tuple[Path, int]] = {}  # watch number -> folder, its inode
        # folder -> its inode and time
        self._unwatched_folders: dict[Path, tuple[int, int] | None] = dict.fromkeys(folders)
        self._temporary_folders: set[Path] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hivemind-watch", daemon=True)
        self._thread.start()

    @property
    def kind(self) -> Literal["inotify", "poll"]:
        """The method by which flat folders are watched."""
        return "poll" if self._inotify is None else "inotify"

    def add(self, folder: Path, *, is_temporary: bool = False) -> None:
        """Watch another flat folder, which need not exist yet. A temporary folder is forgotten when it is deleted."""
        with self._guard:
            if is_temporary:
                self._temporary_folders.add(folder)
            if all(folder != watched_folder for watched_folder, _ in self._watches.values()):
                self._unwatched_folders.setdefault(folder, None)
        if self._inotify is not None and not self._closing.is_set():
            self._inotify.wake()

    def close(self) -> None:
        """Stop watching. `on_change` must not call `close`, and is not called after it. May be called twice."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._inotify is not None:
            self._inotify.wake()
        self._thread.join()
        if self._inotify is not None:
            self._inotify.close()
        if self._trees is not None:
            self._trees.close()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        wait, interval_s = (self._closing.wait, _POLL_S) if self._inotify is None else (self._inotify.wait, _SEARCH_S)
        check_due = time.monotonic()
        while not self._closing.is_set():
            changed_folders, start = self._read_events(), time.monotonic()
            changed_folders += self._poll_folders()
            elapsed_s = time.monotonic() - start
            for folder in changed_folders:
                self._on_change(folder)
            if start >= check_due:
                self._check()
                check_due = start + _CHECK_S
            wait(max(interval_s, _SHARE * elapsed_s) if self._unwatched_folders else _CHECK_S)

    def _poll_folders(self) -> list[Path]:
        """Try to watch the folders that have no watch. Return the folders that have a watch since now, and those that have
        changed.
        """
        changed_folders = []
        with self._guard:
            for folder, previous in sorted(self._unwatched_folders.items()):
                watch = self._begin_watch(folder)
                try:
                    status = os.stat(folder)
                except OSError:  # missing: its creation will appear as a change
                    self._unwatched_folders[folder] = None
                    if folder in self._temporary_folders:
                        self._temporary_folders.remove(folder)
                        del self._unwatched_folders[folder]
                    continue
                current = self._unwatched_folders[folder] = (status.st_ino, status.st_mtime_ns)
                if watch is not None:
                    self._watches[watch] = (folder, status.st_ino)
                    del self._unwatched_folders[folder]
                is_recent = abs(time.time_ns() - status.st_mtime_ns) < _RECENT_NS
                if self._inotify is not None or current != previous or is_recent:
                    changed_folders.append(folder)
        return changed_folders

    def _begin_watch(self, folder: Path) -> int | None:
        try:
            return None if self._inotify is None else self._inotify.add(folder)
        except OSError:  # missing, no watch left, or no permission
            return None

    def _read_events(self) -> list[Path]:
        """Return the folders with pending events, each once."""
        changed_folders: dict[Path, None] = {}
        with self._guard:
            for event in () if self._inotify is None else self._inotify.read():
                if event.is_overflow:
                    changed_folders.update((folder, None) for folder, _ in self._watches.values())
                elif event.watch in self._watches:
                    changed_folders[self._watches[event.watch][0]] = None
                    if event.is_lost:
                        self._lose(event.watch)
        return list(changed_folders)

    def _lose(self, watch: int) -> None:
        assert self._inotify is not None
        folder, _ = self._watches.pop(watch)
        self._inotify.remove(watch)
        self._unwatched_folders[folder] = None

    def _check(self) -> None:
        """Watch folders and trees again after a parent was moved, which inotify does not report."""
        with self._guard:
            for watch, (folder, inode) in list(self._watches.items()):
                try:
                    is_same_folder = os.stat(folder).st_ino == inode
                except OSError:
                    is_same_folder = False
                if not is_same_folder:
                    self._lose(watch)
        if self._trees is not None:
            if self.reason is None and self._inotify is not None and not self._inotify.has_room():
                self.reason = "trees are polled: no inotify watch is left; raise sysctl fs.inotify.max_user_watches"
                _log.warning("%s", self.reason)
                self._trees = self._trees.replace_by_polling()
            self._trees.check()


def open_watcher(
    mode: str, folders: Iterable[Path], trees: Iterable[Path], on_change: Callable[[Path], None]
) -> Watcher:
    """Watch flat `folders` and recursive `trees`; `mode` is `auto`, `inotify` or `poll` (`watch:` in hive.yaml).

    When a file was created or written, the watcher's thread calls `on_change`: with the folder for a flat folder, with the file
    for a tree. `on_change` must be quick and must not raise. Each flat folder is reported once at the start, because files may
    have come before the watch. In mode `auto` folders on network file systems are polled; in mode `inotify` they are not. If no
    inotify instance is left, every mode polls, and the watcher's `reason` says so. Raises UserError for another mode.
    """
    flat, deep = list(folders), list(trees)
    if mode not in ("auto", "inotify", "poll"):
        raise UserError(f"{mode!r} is not a watch mode", location="watch", remedy="use one of auto, inotify, poll")
    reason = "hive.yaml says watch: poll" if mode == "poll" else None
    if mode == "auto":
        mounted = mounts()
        for folder in (*flat, *deep):
            if reason is None and (filesystem_type := needs_polling(folder, mounted)) is not None:
                reason = f"{folder} is on {filesystem_type}, where changes by other machines are not reported"
    inotify = None
    try:
        if reason is None:
            inotify = Inotify()
            tree_watcher = TreeWatcher(deep, on_change) if deep else None
            return Watcher(flat, on_change, inotify, trees=tree_watcher)
    except OSError as error:
        if inotify is not None:
            inotify.close()
        reason = f"no inotify instance is left: {error.strerror or error}"
    tree_watcher = TreeWatcher(deep, on_change, every_s=_TREE_S) if deep else None
    return Watcher(flat, on_change, trees=tree_watcher, reason=reason)
