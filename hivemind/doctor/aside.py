"""`.hive/aside/<date>/`: where the doctor puts what is in the way. Nothing that a person may want is deleted."""

from __future__ import annotations

import itertools
import os
from datetime import UTC, datetime
from pathlib import Path

from hivemind import fs
from hivemind.layout import Layout

__all__ = ["Aside"]


class Aside:
    """The place for what is set aside today; each file keeps the path that it had in the hive."""

    __slots__ = ("_layout", "folder")

    def __init__(self, layout: Layout, now: float) -> None:
        self._layout = layout
        self.folder = layout.aside / datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")

    def take(self, path: Path) -> str:
        """Move a file or folder there; gives the sentence that says so. Raises OSError."""
        target = self._free(path)
        fs.move(path, target)
        return f"set aside as {self._layout.relative(target)}"

    def keep(self, path: Path, content: bytes) -> str:
        """Write a part of a file there that is to be cut off; gives where. Raises OSError."""
        target = self._free(path)
        fs.create(target, content)
        return self._layout.relative(target)

    def _free(self, path: Path) -> Path:
        place = self.folder / self._layout.relative(path).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        candidates = (place.with_name(f"{place.name}.{number}") if number else place for number in itertools.count())
        return next(one for one in candidates if not os.path.lexists(one))
