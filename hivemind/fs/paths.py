"""Paths that stay inside: `..`, absolute paths and symbolic links that lead out are refused (spec 1, *Layout*)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from hivemind.errors import UserError

__all__ = ["OutsideError", "inside", "open_inside"]


class OutsideError(UserError):
    """A path that leads out of the roots it must stay in."""


def inside(path: str | os.PathLike[str], root: Path, also: Iterable[Path] = ()) -> Path:
    """`path` (relative to `root`, or absolute) with every symbolic link resolved, if it lies in `root` or in `also`.

    Raises OutsideError otherwise. The file need not exist. `root` and `also` are resolved folders.
    """
    text = os.fspath(path)
    if "\0" in text:
        raise OutsideError("a path has no NUL in it", where=repr(text))
    real = os.path.realpath(os.path.join(root, text))
    for allowed in (root, *also):
        prefix = os.fspath(allowed)
        if real == prefix or real.startswith(prefix.rstrip(os.sep) + os.sep):
            return Path(real)
    raise OutsideError(
        f"leads out of the hive (to {real})",
        where=text,
        mend="list its target under roots: in hive.yaml to allow it",
    )


def open_inside(path: str | os.PathLike[str], root: Path, also: Iterable[Path] = ()) -> int:
    """A file descriptor to read a regular file inside the roots with; the caller closes it.

    Never blocks on a FIFO and never opens a device. Raises OutsideError, UserError for what is no regular file, OSError.
    """
    real = inside(path, root, also)
    # O_NOFOLLOW: the last name was resolved a moment ago; if it is a link by now, someone is playing games.
    file = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UserError("is no regular file", where=path)
    return file
