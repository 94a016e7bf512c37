"""Doorbells, with which one process wakes another. They do not use inotify: its limits would restrict the size of a swarm.

A doorbell is a datagram socket with a short hashed name (a socket's path has at most 107 bytes). A ring is only a hint: the
woken process looks into its folder, and also does so at a slow heartbeat. A lost ring therefore only costs time.
"""

from __future__ import annotations

import errno
import os
import select
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind.errors import UserError
from hivemind.fs.sockets import make_socket_folder, socket_paths

if TYPE_CHECKING:
    import socket

_MAX_DRAINED = 64  # rings read at a time: endless ringing must not block `wait`
_NO_SOCKETS = (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.EACCES, errno.EROFS)


class Doorbell:
    """An agent's doorbell. Of several processes that open one name, only the last receives the rings."""

    __slots__ = ("__weakref__", "_inode", "_paths", "_poll", "_socket", "path")

    def __init__(self, folder: Path, name: str) -> None:
        """Open the doorbell. Raises UserError if neither the hive nor /tmp supports sockets."""
        self._paths = socket_paths(os.fspath(folder), name)
        self._open()

    def _open(self) -> None:
        for path in self._paths:
            self._socket = _new_socket(self)
            try:
                make_socket_folder(os.path.dirname(path), private=path is self._paths[-1])
                _bind(self._socket, path)
                self._inode = os.stat(path).st_ino
            except BaseException as error:
                self._socket.close()
                if not isinstance(error, OSError):
                    raise
                if error.errno not in _NO_SOCKETS or path is self._paths[-1]:
                    raise UserError(f"cannot create a doorbell ({error.strerror})", location=path) from error
            else:
                self.path = Path(path)
                self._poll = select.poll()
                self._poll.register(self._socket, select.POLLIN)
                return

    def wait(self, timeout: float | None) -> bool:
        """Wait for a ring, at most `timeout` seconds (None: without limit). Return True if it rang since the last call."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._poll.poll(None if remaining is None else int(remaining * 1000 + 0.999)):
                self._restore()
                return False
            if self._drain():
                return True

    def _drain(self) -> bool:
        for count in range(_MAX_DRAINED):
            try:
                self._socket.recv(16)
            except BlockingIOError:
                return count > 0
        return True

    def _restore(self) -> None:
        """Create the socket again if its file was deleted."""
        if not os.path.lexists(self.path):
            self._socket.close()
            self._open()

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for several sockets at once. `wait` may replace the socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the doorbell. Its file is left alone if another process has taken the name."""
        self._socket.close()
        try:
            if os.lstat(self.path).st_ino == self._inode:
                os.unlink(self.path)
        except FileNotFoundError:  # already deleted
            return

    def __enter__(self) -> Doorbell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ringer:
    """Rings the doorbells in one folder. Keeps a socket open, for frequent rings."""

    __slots__ = ("__weakref__", "_folder", "_socket")

    def __init__(self, folder: Path) -> None:
        self._folder = os.fspath(folder)
        self._socket: socket.socket | None = None

    def ring(self, name: str) -> bool:
        """Ring a doorbell. Never blocks. Return False if no process listens."""
        self._socket = self._socket or _new_socket(self)
        for path in socket_paths(self._folder, name):
            try:
                self._socket.sendto(b"\0", path)
            except BlockingIOError:  # its buffer is full of unread rings
                return True
            except OSError:  # no process listens there
                continue
            return True
        return False

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def ring(folder: Path, name: str) -> bool:
    """Ring a doorbell once. Never blocks. Return False if no process listens."""
    ringer = Ringer(folder)
    try:
        return ringer.ring(name)
    finally:
        ringer.close()


def _new_socket(owner: Doorbell | Ringer) -> socket.socket:
    """Create and return a socket. It is closed when its owner is garbage-collected, even if nobody closed the owner."""
    import socket  # late: a command that only reads rings nobody

    new = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    weakref.finalize(owner, new.close)  # in a cycle of references, `__del__` could come after the socket's own end
    return new


def _bind(bell: socket.socket, path: str) -> None:
    for _ in range(100):
        try:
            os.unlink(path)  # may be left by a killed process
        except FileNotFoundError:
            pass
        try:
            bell.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:  # another process bound it in between: try again
                raise
        else:
            return
    raise OSError(errno.EADDRINUSE, "another process keeps binding the name", path)
