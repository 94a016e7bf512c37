"""Watching folders: inotify where it works, polling where it does not, and why (spec 1, *Watching*). An event is a hint and
never the truth."""

from __future__ import annotations

import ctypes
import logging
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
# A delivery by link() shows as a creation, by rename() as a move-in, a hand-written file as a close after writing.
_MASK = _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
_HEAD = struct.Struct("iIII")
_log = logging.getLogger(__name__)
_BUFFER = 256 * 1024


@frozen
class Event:
    """What happened to the folder with watch number `watch` (-1 for an overflow, which concerns every folder)."""

    watch: int
    mask: int

    @property
    def overflow(self) -> bool:
        return bool(self.mask & _IN_Q_OVERFLOW)

    @property
    def lost(self) -> bool:
        """The folder is gone, moved or unmounted: its path needs a new watch."""
        return bool(self.mask & (_IN_DELETE_SELF | _IN_MOVE_SELF | _IN_UNMOUNT | _IN_IGNORED))


class Inotify:
    """One inotify instance (Linux gives a user 128 of them). Raises OSError if there is none to be had."""

    __slots__ = ("_libc", "_poll", "_wake_read", "_wake_write", "fd")

    def __init__(self) -> None:
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self.fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), None)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        for file in (self.fd, self._wake_read):
            self._poll.register(file, select.POLLIN)

    @staticmethod
    def _checked(result: int, path: str | None) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
        return result

    def add(self, folder: str | os.PathLike[str]) -> int:
        """Watch a folder; returns its watch number. Raises OSError (no such folder, no watch left, ...)."""
        path = os.fspath(folder)
        return self._checked(self._libc.inotify_add_watch(self.fd, os.fsencode(path), _MASK), path)

    def remove(self, watch: int) -> None:
        """End a watch. One that the kernel has ended already is no error."""
        self._libc.inotify_rm_watch(self.fd, watch)

    def has_room(self) -> bool:
        """Whether this user gets one more watch: watchdog leaves out, without a word, folders for which there is none."""
        with suppress(OSError):
            self.remove(self.add("/"))
            return True
        return False

    def read(self) -> Iterator[Event]:
        """The events that lie ready; ends when there are no more. Names are not decoded: nobody needs them."""
        while True:
            try:
                raw = os.read(self.fd, _BUFFER)
            except BlockingIOError:
                return
            at = 0
            while at < len(raw):
                watch, mask, _, length = _HEAD.unpack_from(raw, at)
                at += _HEAD.size + length
                yield Event(watch, mask)

    def wait(self, seconds: float) -> None:
        """Return once events lie ready, or `wake` was called, or so many seconds are over."""
        if self._wake_read in dict(self._poll.poll(int(1000 * seconds))):
            os.read(self._wake_read, 4096)

    def wake(self) -> None:
        """End the wait of another thread, or else the next one."""
        with suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._wake_write, b"\0")

    def close(self) -> None:
        for file in (self.fd, self._wake_read, self._wake_write):
            os.close(file)


_TREE_S = 2.0


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
        """Watch anew each tree that was replaced, or has come into being, since it was last looked at. One that cannot be
        looked at or watched now is tried again at the next check."""
        for tree, (watch, inode) in list(self._roots.items()):
            try:
                found = os.stat(tree).st_ino
            except OSError:
                found = 0
            if found == inode:
                continue
            if watch is not None:
                self._observer.unschedule(watch)
            self._roots[tree] = (None, 0)
            with suppress(OSError):
                self._add(tree)
            self._on_change(tree)

    def polling(self) -> TreeWatcher:
        """End this watcher; returns one for the same trees that looks for itself. Each is called once: it may have changed."""
        self.close()
        watcher = TreeWatcher(self._roots, self._on_change, every_s=_TREE_S)
        for tree in self._roots:
            self._on_change(tree)
        return watcher

    def close(self) -> None:
        """End watchdog's threads. A second call does nothing."""
        self._observer.stop()
        self._observer.join()


_SEARCH_S = 1.0  # how often what inotify does not tell of is looked at where there is inotify
_POLL_S = 0.1  # and where there is none
_CHECK_S = 10.0  # how often folders are compared with their watches, and trees looked for
_YOUNG_NS = 2_000_000_000  # a folder's time may be this coarse: it is called again until its time is older
_SHARE = 20  # looking may take one part in so many of the time


class Watcher:
    """Calls `on_change(folder)` from its own thread when a file appears in a folder or has been written there; made by
    `open_watcher`. `reason` says why it is not by inotify (or None).

    Every folder is called once at the beginning, and all of them after the kernel's queue has overflowed. One that inotify
    does not watch (as it is missing, there is no watch left, or no permission) is looked for, and called, each second.
    Without inotify all are looked at ten times a second, more seldom where that takes long, and called when their time has
    changed: it is compared for being equal, never for being later, so a clock that is set back does no harm.
    `on_change` must not raise: that would end the thread.
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
        self._watched: dict[int, tuple[Path, int]] = {}  # watch number -> folder, its inode
        self._unwatched: dict[Path, tuple[int, int] | None] = dict.fromkeys(folders)  # folder -> its inode and time
        self._passing: set[Path] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hivemind-watch", daemon=True)
        self._thread.start()

    @property
    def kind(self) -> Literal["inotify", "poll"]:
        """How the flat folders are watched."""
        return "poll" if self._inotify is None else "inotify"

    def add(self, folder: Path, *, passing: bool = False) -> None:
        """Watch one more flat folder; it need not exist yet. One that is `passing` is let go of once it is gone."""
        with self._guard:
            if passing:
                self._passing.add(folder)
            if all(folder != watched for watched, _ in self._watched.values()):
                self._unwatched.setdefault(folder, None)
        if self._inotify is not None and not self._closing.is_set():
            self._inotify.wake()

    def close(self) -> None:
        """End all watching; `on_change` is not called any more afterwards. Not from `on_change`. A second call does nothing."""
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
            changed, began = self._told(), time.monotonic()
            changed += self._looked_at()
            took = time.monotonic() - began
            for folder in changed:
                self._on_change(folder)
            if began >= check_due:
                self._check()
                check_due = began + _CHECK_S
            wait(max(interval_s, _SHARE * took) if self._unwatched else _CHECK_S)

    def _looked_at(self) -> list[Path]:
        """Those of the folders without a watch that are watched from now on, or have changed."""
        changed = []
        with self._guard:
            for folder, before in sorted(self._unwatched.items()):
                watch = self._begin_watch(folder)
                try:
                    found = os.stat(folder)
                except OSError:  # not there (yet): coming into being will show as a change
                    self._unwatched[folder] = None
                    if folder in self._passing:
                        self._passing.remove(folder)
                        del self._unwatched[folder]
                    continue
                now = self._unwatched[folder] = (found.st_ino, found.st_mtime_ns)
                if watch is not None:
                    self._watched[watch] = (folder, found.st_ino)
                    del self._unwatched[folder]
                young = abs(time.time_ns() - found.st_mtime_ns) < _YOUNG_NS
                if self._inotify is not None or now != before or young:
                    changed.append(folder)
        return changed

    def _begin_watch(self, folder: Path) -> int | None:
        try:
            return None if self._inotify is None else self._inotify.add(folder)
        except OSError:  # not there, no watch left, or not ours to read
            return None

    def _told(self) -> list[Path]:
        """The folders in which something happened, each once."""
        changed: dict[Path, None] = {}
        with self._guard:
            for event in () if self._inotify is None else self._inotify.read():
                if event.overflow:
                    changed.update((folder, None) for folder, _ in self._watched.values())
                elif event.watch in self._watched:
                    changed[self._watched[event.watch][0]] = None
                    if event.lost:
                        self._lose(event.watch)
        return list(changed)

    def _lose(self, watch: int) -> None:
        assert self._inotify is not None
        folder, _ = self._watched.pop(watch)
        self._inotify.remove(watch)
        self._unwatched[folder] = None

    def _check(self) -> None:
        """Find folders whose parents were moved away: inotify says nothing of that. The same for the trees."""
        with self._guard:
            for watch, (folder, inode) in list(self._watched.items()):
                try:
                    same = os.stat(folder).st_ino == inode
                except OSError:
                    same = False
                if not same:
                    self._lose(watch)
        if self._trees is not None:
            if self.reason is None and self._inotify is not None and not self._inotify.has_room():
                self.reason = (
                    "trees are polled: no inotify watch is left, sysctl fs.inotify.max_user_watches raises the limit"
                )
                _log.warning("%s", self.reason)
                self._trees = self._trees.polling()
            self._trees.check()


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
        for folder in (*flat, *deep):
            if reason is None and (kind := needs_polling(folder, mounted)) is not None:
                reason = f"{folder} lies on {kind}, where changes made elsewhere are not reported"
    inotify = None
    try:
        if reason is None:
            inotify = Inotify()
            below = TreeWatcher(deep, on_change) if deep else None
            return Watcher(flat, on_change, inotify, trees=below)
    except OSError as error:
        if inotify is not None:
            inotify.close()
        reason = f"no inotify instance to be had: {error.strerror or error}"
    below = TreeWatcher(deep, on_change, every_s=_TREE_S) if deep else None
    return Watcher(flat, on_change, trees=below, reason=reason)
