"""Paths that stay inside: `..`, absolute paths and symbolic links that lead out are refused (spec 1, *Layout*)."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from hivemind.errors import UserError

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
        return _open_regular(real.name, folder, path)
    finally:
        os.close(folder)


def folder_inside(path: str | os.PathLike[str], root: Path, also: Iterable[Path] = ()) -> int:
    """A file descriptor of a folder inside the roots, reached name by name; the caller closes it.

    The path is resolved first, so that a link on it is one that was put there since: it is refused, whatever it leads to.
    Raises OutsideError, OSError (ELOOP or ENOTDIR for such a link).
    """
    also = tuple(also)
    real = inside(path, root, also)
    above = (one for one in (root, *also) if one in (real, *real.parents))
    base = max(above, key=lambda one: len(one.parts))
    return folder_below(base, real.relative_to(base).parts)


def folder_below(base: Path, names: Iterable[str], *, make: bool = False) -> int:
    """A file descriptor of the folder that is reached from `base` name by name, through no link; the caller closes it.

    None of the names is `..`. `make` makes what is missing. Raises OSError (ELOOP or ENOTDIR for a link).
    """
    folder = os.open(base, _FOLDER)
    for name in names:
        below = None
        try:
            if make:
                _make(name, folder)
            below = os.open(name, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def file_below(base: Path, names: Sequence[str]) -> int:
    """A file descriptor to read the regular file with that is reached in the same way; the caller closes it.

    Never waits for a FIFO and opens no device. Raises UserError for what is no regular file, OSError.
    """
    if not names:
        raise UserError("is no regular file", where=base)
    folder = folder_below(base, names[:-1])
    try:
        return _open_regular(names[-1], folder, base.joinpath(*names))
    finally:
        os.close(folder)


def _open_regular(name: str, folder: int, where: str | os.PathLike[str]) -> int:
    # Looked at before it is opened, too: opening a device may do something.
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise UserError("is no regular file", where=where)
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UserError("is no regular file", where=where)
    return file


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """The names in a folder; none where there is no folder."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def free_place(place: Path) -> Path:
    """`place` if nothing lies there, else the first that is free of `place.1`, `place.2` …"""
    numbered = (place.with_name(f"{place.name}.{number}") if number else place for number in itertools.count())
    return next(one for one in numbered if not os.path.lexists(one))


def _make(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        pass  # a folder; anything else fails when it is opened
