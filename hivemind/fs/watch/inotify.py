"""The kernel's inotify, as far as the path of the mail needs it: folders, one level deep, through ctypes."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Event", "Inotify"]

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
