"""The output of a command in a file. Secrets are masked, and only the beginning and the end of a long output are kept."""

from __future__ import annotations

import codecs
import hashlib
from typing import BinaryIO

from hivemind.masking import Masker


class BoundedOutput:
    """Writes output to a file. If the output exceeds the limit, the first and the last `limit / 2` bytes are kept, since
    errors come last. The line between the two parts names the limit's `setting`."""

    def __init__(self, file: BinaryIO, limit: int, setting: str) -> None:
        self._file, self._setting = file, setting
        self._head_room, self._tail_room, self._omitted_bytes = limit - limit // 2, limit // 2, 0
        self._tail = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._masker = Masker()
        self.digest = hashlib.sha256()

    def feed(self, data: bytes) -> None:
        """Add the next part of the output. Raises OSError."""
        self._store(self._masker.feed(self._decoder.decode(data)))

    def close(self) -> None:
        """Write the end of the output. Raises OSError."""
        self._store(self._masker.feed(self._decoder.decode(b"", True)))
        self._store(self._masker.close())
        if self._omitted_bytes:
            self._write(f"\n[{self._omitted_bytes:,} bytes are left out here: {self._setting}]\n".encode())
        self._write(self._tail)

    def _store(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        head, overflow = data[: self._head_room], data[self._head_room :]
        self._head_room -= len(head)
        self._write(head)
        self._tail += overflow
        if (excess := len(self._tail) - self._tail_room) > 0:
            self._omitted_bytes += excess
            del self._tail[:excess]

    def _write(self, data: bytes | bytearray) -> None:
        self._file.write(data)
        self.digest.update(data)
