"""What goes over the socket: frames of a JSON object and, behind it, bytes."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from hivemind.boundary import Unreadable, boundary

__all__ = ["MOST_BYTES", "VERSION", "Frame", "Incoming", "frame", "receive"]

VERSION = 1
MOST_BYTES = 1 << 26
_HEAD = struct.Struct("!4sII")
_MAGIC = b"HVE1"
_CHUNK = 1 << 18

Frame = tuple[dict[str, Any], bytes]


def frame(fields: dict[str, Any], body: bytes = b"") -> bytes:
    """A frame as it is sent. Texts are escaped, so that one that is no UTF-8 comes through as it was."""
    head = json.dumps(fields).encode()
    return _HEAD.pack(_MAGIC, len(head), len(body)) + head + body


class Incoming:
    """Bytes as they come in, and the frames that are whole."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def take(self, data: bytes) -> None:
        self._bytes += data

    def next(self) -> Frame | None:
        """The next whole frame, or None if there is none yet. Raises Unreadable: the connection is of no more use."""
        if len(self._bytes) < _HEAD.size:
            if not _MAGIC.startswith(self._bytes[:4]):
                raise Unreadable("no frame begins like this")
            return None
        with boundary("frame"):
            magic, head, body = _HEAD.unpack_from(self._bytes)
            if magic != _MAGIC or head + body > MOST_BYTES:
                raise Unreadable("no frame begins like this")
            whole = _HEAD.size + head + body
            if len(self._bytes) < whole:
                return None
            fields = json.loads(self._bytes[_HEAD.size : _HEAD.size + head])
            if not isinstance(fields, dict):
                raise Unreadable("a frame of no object")
        content = bytes(self._bytes[_HEAD.size + head : whole])
        del self._bytes[:whole]
        return fields, content


def receive(connection: socket.socket, incoming: Incoming) -> Frame:
    """The next frame. Raises Unreadable, TimeoutError (the socket's own), ConnectionError at the end."""
    while (found := incoming.next()) is None:
        data = connection.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the connection was closed")
        incoming.take(data)
    return found
