"""The files of an embedding process: its lock and log in the hive's folder, its socket there or where sockets can be."""

from __future__ import annotations

import errno
import os
import socket

from hivemind.fs import Lock, make_socket_folder, socket_places

__all__ = ["connect", "listen", "lock_of", "log_of"]


def lock_of(folder: str, kind: str) -> Lock:
    """The lock that the one process of a kind holds for as long as it lives."""
    return Lock(os.path.join(folder, f"{kind}.lock"))


def log_of(folder: str, kind: str) -> str:
    """What the last process of a kind had to say."""
    return os.path.join(folder, f"{kind}.log")


def listen(folder: str, kind: str) -> socket.socket:
    """A listening socket, put in the place of what a killed process left. For who holds the lock. Raises OSError."""
    places = socket_places(folder, f"{kind}.socket")
    for place in places:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            make_socket_folder(os.path.dirname(place), private=place is places[-1])
            if os.path.lexists(place):
                os.unlink(place)
            listening.bind(place)
            listening.listen(128)
        except OSError:
            listening.close()
            if place is places[-1]:
                raise
        else:
            return listening
    raise OSError(errno.EADDRNOTAVAIL, "no place for a socket", folder)


def connect(folder: str, kind: str, timeout: float) -> socket.socket:
    """A connection to the process that serves; each send and receive on it takes at most `timeout` seconds.

    Raises OSError if nobody listens.
    """
    refused: OSError = ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
    for place in socket_places(folder, f"{kind}.socket"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connection.settimeout(timeout)
        try:
            connection.connect(place)
        except OSError as error:
            connection.close()
            refused = error
        else:
            return connection
    raise refused
