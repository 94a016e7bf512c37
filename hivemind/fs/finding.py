"""What a check of a store found, how it is put right, and where the doctor puts what is in the way."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from hivemind.frozen import frozen
from hivemind.fs.atomic import move
from hivemind.layout import Layout

__all__ = ["Aside", "Finding", "Fix"]

Fix = Callable[[], str]
"""Puts one thing right and says what was done. Raises UserError or OSError, and then the thing is as it was."""


@frozen
class Finding:
    """`where` is the file, `what` says what is wrong and what follows from it, `mend` how to mend it.

    `fix` mends it (None: only a person can). `quiet` says that nothing of the hive may be running meanwhile. A `note` is
    worth knowing and need not be mended: with notes alone a hive is healthy. One with a `fix` is litter, which does no harm
    and can be tidied away. `check` is the name of the check that found it.
    """

    where: Path | str
    what: str
    mend: str = ""
    fix: Fix | None = field(default=None, compare=False)
    quiet: bool = False
    note: bool = False
    check: str = ""


class Aside:
    """`.hive/aside/<date>/`: each file set aside keeps the path that it had in the hive. Nothing is deleted."""

    __slots__ = ("_folder", "_layout")

    def __init__(self, layout: Layout, now: float) -> None:
        self._layout = layout
        self._folder = layout.aside / datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")

    def finding(self, path: Path, what: str, mend: str = "hivemind doctor --fix sets it aside", **more: Any) -> Finding:
        """A finding whose fix sets the file or folder aside."""
        return Finding(path, what, mend, partial(self.take, path), **more)

    def take(self, path: Path) -> str:
        """Move a file or folder there; returns the sentence that says so. Raises OSError."""
        target = self._free(path)
        move(path, target)
        return f"set aside as {self._layout.relative(target)}"

    def copy(self, path: Path) -> str:
        """Put a copy of a file there; returns the sentence that says so. Raises OSError."""
        target = self._free(path)
        shutil.copy2(path, target)
        return f"as it was it is kept as {self._layout.relative(target)}"

    def _free(self, path: Path) -> Path:
        place = self._folder / self._layout.relative(path).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        candidates = (place.with_name(f"{place.name}.{number}") if number else place for number in itertools.count())
        return next(one for one in candidates if not os.path.lexists(one))
