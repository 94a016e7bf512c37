"""Confine paths to given roots: refuse `..`, absolute paths and symbolic links that lead out of them."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from hivemind.errors import UserError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutsideError(UserError):
    """A path leads out of its roots."""


def resolve_inside(path: str | os.PathLike[str], root: Path, other_roots: Iterable[Path] = ()) -> Path:
    """Return a path (relative to `root`, or absolute) with all symbolic links resolved. The file need not exist.

    Raises OutsideError unless the result is in `root` or `other_roots`, which must be resolved already.
    """
    text = os.fspath(path)
    if "\0" in text:
        raise OutsideError("a path must not contain NUL", location=repr(text))
    real_path = os.path.realpath(os.path.join(root, text))
    for allowed_root in (root, *other_roots):
        prefix = os.fspath(allowed_root)
        if real_path == prefix or real_path.startswith(prefix.rstrip(os.sep) + os.sep):
            return Path(real_path)
    raise OutsideError(
        f"leads out of the hive (to {real_path})",
        location=text,
        remedy="to allow it, add its target to roots: in hive.yaml",
    )


def open_inside(path: str | os.PathLike[str], root: Path, other_roots: Iterable[Path] = ()) -> int:
    """Open a regular file inside the roots for reading. Return its descriptor, which the caller closes.

    Never blocks on a FIFO or opens a device. Raises OutsideError, OSError, and UserError for anything but a regular file.
    """
    other_roots = tuple(other_roots)
    real_path = resolve_inside(path, root, other_roots)
    if real_path in (root, *other_roots):
        raise UserError("is not a regular file", location=path)
    folder = folder_inside(real_path.parent, root, other_roots)
    try:
        return _open_regular_at(real_path.name, folder, path)
    finally:
        os.close(folder)


def folder_inside(path: str | os.PathLike[str], root: Path, other_roots: Iterable[Path] = ()) -> int:
    """Open a folder inside the roots, name by name. Return its descriptor, which the caller closes.

    The path is resolved first. A link found afterwards was created in between, and is refused.
    Raises OutsideError, OSError (ELOOP or ENOTDIR for a new link).
    """
    other_roots = tuple(other_roots)
    real_path = resolve_inside(path, root, other_roots)
    containing_roots = (
        allowed_root for allowed_root in (root, *other_roots) if allowed_root in (real_path, *real_path.parents)
    )
    base = max(containing_roots, key=lambda allowed_root: len(allowed_root.parts))
    return folder_below(base, real_path.relative_to(base).parts)


def folder_below(base: Path, names: Iterable[str], *, create: bool = False) -> int:
    """Open a folder below `base`, name by name, without following links. Return its descriptor, which the caller closes.

    The names must not be `..`. `create` creates missing folders. Raises OSError (ELOOP or ENOTDIR for a link).
    """
    folder = os.open(base, _FOLDER)
    for name in names:
        subfolder = None
        try:
            if create:
                _make_folder(name, folder)
            subfolder = os.open(name, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = subfolder
    return folder


def file_below(base: Path, names: Sequence[str]) -> int:
    """Open a regular file below `base` for reading, without following links. Return its descriptor, which the caller closes.

    Never blocks on a FIFO or opens a device. Raises OSError, and UserError for anything but a regular file.
    """
    if not names:
        raise UserError("is not a regular file", location=base)
    folder = folder_below(base, names[:-1])
    try:
        return _open_regular_at(names[-1], folder, base.joinpath(*names))
    finally:
        os.close(folder)


def _open_regular_at(name: str, folder: int, path: str | os.PathLike[str]) -> int:
    # Check the type also before opening, because opening a device may have an effect.
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise UserError("is not a regular file", location=path)
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UserError("is not a regular file", location=path)
    return file


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names in a folder, or [] if the folder is missing."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def unused_path(path: Path) -> Path:
    """Return the first path that does not exist yet: `path`, `path.1`, `path.2` …"""
    numbered = (path.with_name(f"{path.name}.{number}") if number else path for number in itertools.count())
    return next(candidate for candidate in numbered if not os.path.lexists(candidate))


def _make_folder(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        pass  # if it is not a folder, opening it fails
