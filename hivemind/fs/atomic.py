"""One way to write a file: temporary name beside it, fsync, rename (or link), fsync of the folder (DESIGN, *Decisions*).

A reader sees the old content or the new, never a part. What a crash leaves behind is a file whose name begins with
`.tmp-`; nobody reads those, and `hivemind doctor` removes them once they are old.
`durable=False` leaves out the fsyncs (`durability: relaxed` in hive.yaml): still atomic, but a power cut may undo it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from itertools import count

from hivemind.errors import UserError
from hivemind.fs.crash import reached

TEMPORARY_PREFIX = ".tmp-"
_ORDINARY = 0o666
_PART_BYTES = 1 << 20
_counter = count()
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Make what is in a file durable, whoever has written it."""
    file = open_own(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def make_folder(path: str | os.PathLike[str], *, durable: bool = True) -> bool:
    """Make a folder, and those above it that are missing; their names are durable then. False if it is there already.

    An fsync of what lies in a new folder says nothing of the folder's own name: that is its parent's to keep. Raises OSError,
    FileExistsError if a file has the name.
    """
    folder = os.fspath(path)
    try:
        os.mkdir(folder)
    except FileNotFoundError:
        make_folder(os.path.dirname(folder), durable=durable)
        return make_folder(folder, durable=durable)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
        return False
    if durable:
        fsync_folder(os.path.dirname(folder) or ".")
    return True


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of a regular file of the program's own. Never waits for the other end of a FIFO.

    Raises UserError for what is no regular file, OSError.
    """
    try:
        file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except IsADirectoryError:
        file = None
    if file is not None and stat.S_ISREG(os.fstat(file).st_mode):
        return file
    if file is not None:
        os.close(file)
    raise UserError("is no regular file", where=path, mend="hivemind doctor --fix sets it aside")


def _open_temporary(folder: str, mode: int, at: int | None = None) -> tuple[str, int]:
    """A new temporary file and its descriptor. Litter of a killed process that had the same pid is passed over."""
    while True:
        name = f"{TEMPORARY_PREFIX}{os.getpid()}-{threading.get_native_id()}-{next(_counter)}"
        path = os.path.join(folder, name)
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=at)
        except FileExistsError:
            continue


def _write_temporary(
    folder: str, content: bytes | str | Iterable[bytes], durable: bool, mode: int, at: int | None = None
) -> str:
    data = content.encode() if isinstance(content, str) else content
    path, file = _open_temporary(folder, mode, at)
    try:
        if mode != _ORDINARY:  # a secret's, or that of a file that is replaced: whatever the umask
            os.fchmod(file, mode)
        for part in (data,) if isinstance(data, bytes) else _in_parts(data):
            view = memoryview(part)
            while view:
                view = view[os.write(file, view) :]
        reached("fs.write.written")
        if durable:
            os.fsync(file)
    except BaseException:
        os.unlink(path, dir_fd=at)
        raise
    finally:
        os.close(file)
    return path


def _in_parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    part = bytearray()
    for piece in pieces:
        part += piece
        if len(part) >= _PART_BYTES:
            yield bytes(part)
            part.clear()
    yield bytes(part)


def write(
    path: str | os.PathLike[str],
    content: bytes | str | Iterable[bytes],
    *,
    durable: bool = True,
    mode: int = _ORDINARY,
) -> None:
    """Write a whole file, replacing what is there; pieces of bytes are never all in memory. Raises OSError, and then nothing
    has changed."""
    target = os.fspath(path)
    folder = os.path.dirname(target) or "."
    _replace(_write_temporary(folder, content, durable, mode), target)
    if durable:
        fsync_folder(folder)


def write_at(folder: int, name: str, content: bytes | str, *, durable: bool = True, mode: int = _ORDINARY) -> None:
    """Write a whole file into an open folder, wherever that is by now, as `write` does by its path. Raises OSError."""
    _replace(_write_temporary("", content, durable, mode, folder), name, folder)
    if durable:
        os.fsync(folder)


def _replace(temporary: str, target: str, at: int | None = None) -> None:
    reached("fs.write.synced")
    try:
        os.replace(temporary, target, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        os.unlink(temporary, dir_fd=at)
        raise
    reached("fs.write.renamed")


def create(path: str | os.PathLike[str], content: bytes | str, *, durable: bool = True, mode: int = _ORDINARY) -> None:
    """Write a whole file only if nothing has that name. Raises FileExistsError, decided by the file system."""
    target = os.fspath(path)
    folder = os.path.dirname(target) or "."
    temporary = _write_temporary(folder, content, durable, mode)
    try:
        os.link(temporary, target, follow_symlinks=False)
        reached("fs.create.linked")
    finally:
        os.unlink(temporary)
    if durable:
        fsync_folder(folder)


def move(source: str | os.PathLike[str], target: str | os.PathLike[str], *, durable: bool = True) -> None:
    """Rename a file or folder to a name that nothing has yet.

    Raises FileExistsError if the name is taken and FileNotFoundError if the source is gone (someone else was first).
    """
    src, dst = os.fspath(source), os.fspath(target)
    _rename_noreplace(src, dst)
    reached("fs.move.renamed")
    if durable:
        fsync_folder(os.path.dirname(dst) or ".")
        if os.path.dirname(src) != os.path.dirname(dst):
            fsync_folder(os.path.dirname(src) or ".")


_libc = ctypes.CDLL(None, use_errno=True)


def _rename_noreplace(src: str, dst: str) -> None:
    if _libc.renameat2(_AT_FDCWD, os.fsencode(src), _AT_FDCWD, os.fsencode(dst), _RENAME_NOREPLACE) == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(code, os.strerror(code), src, None, dst)
    # A file system without RENAME_NOREPLACE: link() is exclusive for files, mkdir() for folders.
    if os.path.isdir(src) and not os.path.islink(src):
        os.mkdir(dst)
        os.rename(src, dst)
    else:
        os.link(src, dst, follow_symlinks=False)
        os.unlink(src)
