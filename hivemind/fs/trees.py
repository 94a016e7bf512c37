"""Folders of any depth, filled by other programs.

No function recurses, and a path may be longer than the system allows.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator

from hivemind.fs.leftovers import is_leftover

MAX_PATH, MAX_NAME = 1024, 255
"""The most bytes of a path that an agent may create, counted from the root that contains it, and of one name."""
_MAX_DEPTH = 3 * MAX_PATH
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_too_deep(path: str | os.PathLike[str], top: str | os.PathLike[str] = "") -> bool:
    """Return True if walks and copies skip the path, because its part below `top` is too long.

    Linux accepts paths of 4,096 bytes. A program can create deeper folders step by step, but few programs can open them.
    """
    return len(os.fsencode(path)) - len(os.fsencode(top)) > _MAX_DEPTH


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a folder with its content, a file or a link; do nothing if the path does not exist. Raises OSError.

    A folder within a folder is moved to the top before it is emptied, so at most two folders are open.
    """
    try:
        top = _open_folder(path)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(path)
        return
    import secrets  # late: it takes as long as the rest of this room

    try:
        while folders := _remove_files(top):
            for name in folders:
                folder = _open_folder(name, top)
                try:
                    for below in _remove_files(folder):
                        os.rename(below, secrets.token_hex(), src_dir_fd=folder, dst_dir_fd=top)
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _open_folder(path: str | os.PathLike[str], parent: int | None = None) -> int:
    """Open a folder, in the open folder `parent` if given, and return its descriptor. If its owner lacks a right to it, change
    the mode.
    """
    try:
        folder = os.open(path, _FOLDER, dir_fd=parent)
    except PermissionError:
        os.chmod(path, 0o700, dir_fd=parent)
        folder = os.open(path, _FOLDER, dir_fd=parent)
    if os.fstat(folder).st_mode & 0o700 != 0o700:
        os.fchmod(folder, 0o700)
    return folder


def _remove_files(folder: int) -> list[str]:
    """Remove everything in a folder except its sub-folders. Return the sub-folders' names."""
    with os.scandir(folder) as entries:
        is_folder = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    for name, keep in is_folder.items():
        if not keep:
            os.unlink(name, dir_fd=folder)
    return [name for name, keep in is_folder.items() if keep]


def walk(top: str | os.PathLike[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder at or below `top` with the names of its folders and of its other files, as `os.walk`.

    The caller may change the list of folders. Folders that are unreadable or too deep are skipped."""
    paths = [os.fspath(top)]
    while paths:
        path, folders, names = paths.pop(), list[str](), list[str]()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
        except OSError:
            continue
        yield path, folders, names
        below = (os.path.join(path, name) for name in reversed(folders))
        paths += [folder for folder in below if not is_too_deep(folder, top)]


def walk_entries(folder: str | os.PathLike[str], skip: Collection[str] = ()) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder at any depth, except editors' leftovers, and except `skip` at the top level."""
    todo = [os.fspath(folder)]
    while todo:
        current_folder = todo.pop()
        with os.scandir(current_folder) as dir_entries:
            for dir_entry in dir_entries:
                if is_leftover(dir_entry.name) or (dir_entry.name in skip and current_folder == os.fspath(folder)):
                    continue
                if dir_entry.is_dir(follow_symlinks=False) and not is_too_deep(dir_entry.path, folder):
                    todo.append(dir_entry.path)
                yield dir_entry


def _copy_file(source: str, target: str) -> None:
    import shutil  # late, like its modules for archives: few commands copy

    shutil.copy2(source, target, follow_symlinks=False)


def copy_tree(
    source: str | os.PathLike[str], target: str | os.PathLike[str], copy: Callable[[str, str], object] = _copy_file
) -> None:
    """Copy a folder to a new or an existing one. `copy` is called with each file and link.

    Sockets, devices, FIFOs and paths that are too deep are left out. Raises OSError."""
    copied: list[tuple[str, str]] = []
    for path, _, names in walk(source):
        below = os.path.normpath(os.path.join(target, os.path.relpath(path, source)))
        os.makedirs(below, exist_ok=True)
        copied.append((path, below))
        for file in (os.path.join(path, name) for name in names):
            if stat.S_IFMT(os.lstat(file).st_mode) in (stat.S_IFREG, stat.S_IFLNK):
                copy(file, os.path.join(below, os.path.basename(file)))
    import shutil

    for path, below in reversed(copied):  # a folder that may not be written is filled first
        shutil.copystat(path, below)
