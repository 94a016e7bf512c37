"""Doorbells: how one process wakes another without inotify, so that a swarm may be larger than inotify's limits.

A bell is a datagram socket with a short hashed name (a socket's path has 108 bytes). A ring is a hint and never the
truth: who is woken looks into the folder itself, and looks again at a slow heartbeat, so that a lost ring costs time
and nothing else (spec 1, *Watching*).
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from pathlib import Path

from hivemind.errors import UserError
from hivemind.fs.sockets import make_socket_folder, socket_places

_AT_ONCE = 64  # who rings without end wakes us without end, and keeps us from nothing
_NO_SOCKETS = (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.EACCES, errno.EROFS)


class Doorbell:
    """The bell of one agent. Whoever opens it last has it: an earlier holder of the same name hears no more rings."""

    __slots__ = ("_inode", "_places", "_poll", "_socket", "path")

    def __init__(self, folder: Path, name: str) -> None:
        """Raises UserError if neither the hive nor the system's temporary folder takes a socket."""
        self._places = socket_places(os.fspath(folder), name)
        self._open()

    def _open(self) -> None:
        for place in self._places:
            self._socket = _socket()
            try:
                make_socket_folder(os.path.dirname(place), private=place is self._places[-1])
                _bind(self._socket, place)
                self._inode = os.stat(place).st_ino
            except BaseException as error:
                self._socket.close()
                if not isinstance(error, OSError):
                    raise
                if error.errno not in _NO_SOCKETS or place is self._places[-1]:
                    raise UserError(f"no doorbell can be made ({error.strerror})", where=place) from error
            else:
                self.path = Path(place)
                self._poll = select.poll()
                self._poll.register(self._socket, select.POLLIN)
                return

    def wait(self, timeout: float | None) -> bool:
        """True if it rang since the last call, waiting at most `timeout` seconds (None: for as long as it takes)."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self._poll.poll(None if left is None else int(left * 1000 + 0.999)):
                self._mend()
                return False
            if self._drain():
                return True

    def _drain(self) -> bool:
        for heard in range(_AT_ONCE):
            try:
                self._socket.recv(16)
            except BlockingIOError:
                return heard > 0
        return True

    def _mend(self) -> None:
        """Hang the bell up again if someone has cleared its folder away."""
        if not os.path.lexists(self.path):
            self._socket.close()
            self._open()

    def fileno(self) -> int:
        """The descriptor to wait on together with others; it may change in `wait`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Take the bell down. Its name is left alone if another process has it by now."""
        self._socket.close()
        try:
            if os.lstat(self.path).st_ino == self._inode:
                os.unlink(self.path)
        except FileNotFoundError:  # cleared away before us: that is what we want
            return

    def __del__(self) -> None:  # an agent that could not be opened leaves its bell to whoever tidies up
        if hasattr(self, "_socket"):
            self._socket.close()

    def __enter__(self) -> Doorbell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ringer:
    """Rings the bells in one folder; for who rings often, because it keeps its socket."""

    __slots__ = ("_folder", "_socket")

    def __init__(self, folder: Path) -> None:
        self._folder = os.fspath(folder)
        self._socket = _socket()

    def ring(self, name: str) -> bool:
        """Wake whoever has that bell. Never blocks; False if nobody hears it."""
        for place in socket_places(self._folder, name):
            try:
                self._socket.sendto(b"\0", place)
            except BlockingIOError:  # it has rung so often that there is no room for one more
                return True
            except OSError:  # nobody there, or nobody any more: a bell is a hint, the folder is the truth
                continue
            return True
        return False

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        self._socket.close()


def ring(folder: Path, name: str) -> bool:
    """Wake whoever has that bell, once. Never blocks; False if nobody hears it."""
    ringer = Ringer(folder)
    try:
        return ringer.ring(name)
    finally:
        ringer.close()


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)


def _bind(bell: socket.socket, place: str) -> None:
    for _ in range(100):
        try:
            os.unlink(place)  # a killed process leaves its socket behind
        except FileNotFoundError:
            pass
        try:
            bell.bind(place)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:  # another process bound it between the two calls: the last one has it
                raise
        else:
            return
    raise OSError(errno.EADDRINUSE, "another process keeps taking the name", place)
