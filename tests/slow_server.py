"""A server whose answers never end: it sends a byte at a time until it is closed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["slow_server"]

_BYTE_S = 0.1


@contextmanager
def slow_server() -> Iterator[str]:
    """Serve; yield the address."""
    ends = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client has gone
            connection.sendall(b"HTTP/1.1 200 OK\r\nx-slow: ")
            while not ends.wait(_BYTE_S):
                connection.sendall(b"x")

    def serve() -> None:
        with suppress(OSError):  # it was shut
            while True:
                threading.Thread(target=drip, args=(listening.accept()[0],)).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            ends.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
