"""Paths that stay inside: `..`, absolute paths and symbolic links that lead out are refused (spec 1, *Layout*)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from hivemind.errors import UserError

__all__ = ["OutsideError", "folder_inside", "inside", "open_inside"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
    also = tuple(also)
    real = inside(path, root, also)
    if real in (root, *also):
        raise UserError("is no regular file", where=path)
    folder = folder_inside(real.parent, root, also)
    try:
        file = os.open(real.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UserError("is no regular file", where=path)
    return file


def folder_inside(path: str | os.PathLike[str], root: Path, also: Iterable[Path] = (), *, make: bool = False) -> int:
    """A file descriptor of a folder inside the roots, reached name by name; the caller closes it. `make` makes what is missing.

    The path is resolved first, so that a link on it is one that was put there since: it is refused, whatever it leads to.
    Raises OutsideError, OSError (ELOOP or ENOTDIR for such a link).
    """
    also = tuple(also)
    real = inside(path, root, also)
    above = (one for one in (root, *also) if one in (real, *real.parents))
    base = max(above, key=lambda one: len(one.parts))
    folder = os.open(base, _FOLDER)
    for name in real.relative_to(base).parts:
        below = None
        try:
            if make:
                _make(name, folder)
            below = os.open(name, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def _make(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        pass  # a folder; anything else fails when it is opened
