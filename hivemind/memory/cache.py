"""Texts of files, kept as long as the file looks the same, within a number of bytes (spec 2, *Load, build, compress*)."""

from __future__ import annotations

import io
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

__all__ = ["FileCache", "Look", "Text", "look_of"]

Look = tuple[int, int, int, int, int]
"""Size, mtime and ctime in ns, inode, device: what a file looks like. Another look may be another content."""

look_of: Callable[[os.stat_result], Look] = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_dev")


@dataclass(slots=True, eq=False)
class Text:
    """The text of a file as it was read, or, in `error`, why there is none."""

    text: str
    look: Look | None
    digest: str | None = None
    error: str | None = None
    outside: bool = False
    read_at: float = field(default_factory=time.monotonic)

    def lines(self, start: int, end: int | None) -> tuple[str, int]:
        """Lines `start` to `end` (1-based, inclusive; None: to the last), and how many lines the text has."""
        lines = io.StringIO(self.text, newline="\n").readlines()
        return "".join(lines[start - 1 : end]), len(lines)


class FileCache:
    """Texts by path, the least recently used dropped first. Safe to use from several threads."""

    def __init__(self, max_bytes: int, ttl: float | None) -> None:
        self.max_bytes = max_bytes
        self.ttl = ttl
        self.bytes = 0
        self._texts: OrderedDict[str, Text] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._texts)

    def get(self, path: str, look: Look) -> Text | None:
        """The text of a file that looks like this, if it is kept and not older than `ttl` seconds."""
        with self._lock:
            text = self._texts.get(path)
            if (
                text is None
                or text.look != look
                or (self.ttl is not None and time.monotonic() - text.read_at > self.ttl)
            ):
                return None
            self._texts.move_to_end(path)
            return text

    def put(self, path: str, text: Text) -> None:
        """Keep a text; one that is larger than the whole cache is not kept."""
        if text.look is None:
            return
        with self._lock:
            old = self._texts.pop(path, None)
            if old is not None:
                self.bytes -= _size(old)
            if _size(text) > self.max_bytes:
                return
            self._texts[path] = text
            self.bytes += _size(text)
            while self.bytes > self.max_bytes:
                _, dropped = self._texts.popitem(last=False)
                self.bytes -= _size(dropped)


def _size(text: Text) -> int:
    return (text.look[0] if text.look else 0) + 256  # and what it costs to keep it at all
