"""Flat folders by inotify: one thread, one instance, any number of folders, no cost while nothing happens."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CHECK_S", "FolderWatcher"]

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
_BUFFER = 256 * 1024


@dataclass(frozen=True, slots=True)
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

    __slots__ = ("_libc", "fd")

    def __init__(self) -> None:
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self.fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), None)

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

    def close(self) -> None:
        os.close(self.fd)


_SEARCH_S = 1.0  # how often a folder that is not there is looked for
CHECK_S = 10.0  # how often the folders are compared with their watches


class FolderWatcher:
    """Calls `on_change(folder)` from its own thread when a file appears in a folder or has been written there.

    Every folder is called once after its watch begins, and all of them after the kernel's queue has overflowed. A
    folder that is missing, or deleted or moved away later, is watched again (and called) within a second of its coming
    back; one that cannot be watched (no watch left, no permission) is called each second instead.
    `on_change` must not raise: that would end the thread.
    """

    def __init__(
        self, folders: Iterable[Path], on_change: Callable[[Path], None], on_check: Callable[[], None]
    ) -> None:
        """Raises OSError if there is no inotify instance to be had. `on_check` is called every ten seconds."""
        self._inotify = Inotify()
        self._on_change = on_change
        self._on_check = on_check
        self._guard = threading.Lock()
        self._watched: dict[int, tuple[Path, int]] = {}  # watch number -> folder, its inode
        self._missing: set[Path] = set(folders)
        self._closing = False
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="hivemind-watch", daemon=True)
        self._thread.start()

    def add(self, folder: Path) -> None:
        """Watch one more folder; it need not exist yet."""
        if self._closing:
            return
        with self._guard:
            if all(folder != watched for watched, _ in self._watched.values()):
                self._missing.add(folder)
        self._wake()

    def close(self) -> None:
        """End the thread and give the instance back. Not from `on_change`. A second call does nothing."""
        if self._closing:
            return
        self._closing = True
        self._wake()
        self._thread.join()
        self._inotify.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:  # a full pipe wakes as well
            return

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._inotify.fd, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while not self._closing:
            for folder in self._begin_watches():
                self._on_change(folder)
            ready = {fd for fd, _ in poll.poll(int(1000 * (_SEARCH_S if self._missing else CHECK_S)))}
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            if self._inotify.fd in ready:
                for folder in self._read_events():
                    self._on_change(folder)
            if not ready:
                self._check()

    def _begin_watches(self) -> list[Path]:
        """Watch what is missing and there by now; returns the folders to be looked at."""
        look = []
        with self._guard:
            for folder in sorted(self._missing):
                try:
                    watch = self._inotify.add(folder)
                    inode = os.stat(folder).st_ino
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError:  # no watch left, or not ours to read: it is looked at each second instead
                    look.append(folder)
                    continue
                self._missing.discard(folder)
                self._watched[watch] = (folder, inode)
                look.append(folder)
        return look

    def _read_events(self) -> list[Path]:
        """The folders in which something happened, each once."""
        changed: dict[Path, None] = {}
        with self._guard:
            for event in self._inotify.read():
                if event.overflow:
                    changed.update((folder, None) for folder, _ in self._watched.values())
                elif event.watch in self._watched:
                    folder, _ = self._watched[event.watch]
                    changed[folder] = None
                    if event.lost:
                        self._lose(event.watch)
        return list(changed)

    def _lose(self, watch: int) -> None:
        folder, _ = self._watched.pop(watch)
        self._inotify.remove(watch)
        self._missing.add(folder)

    def _check(self) -> None:
        """Find folders whose parents were moved away: inotify says nothing of that."""
        with self._guard:
            for watch, (folder, inode) in list(self._watched.items()):
                try:
                    same = os.stat(folder).st_ino == inode
                except OSError:
                    same = False
                if not same:
                    self._lose(watch)
        self._on_check()
