"""Atomic file writes: write a temporary file in the same folder, fsync it, rename or link it, fsync the folder.

Readers see the old content or the new, never a partial file. A crash may leave a file with the prefix `.tmp-`, which readers
ignore and `hivemind doctor` later removes. In a hive with `durability: relaxed` there are no fsyncs: the write is still
atomic, but a power cut may undo it. `durable=False` is for files that may be lost in any hive.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count

from hivemind.errors import UserError
from hivemind.fs.crash import crash_point
from hivemind.fs.postponed import flush_postponed, is_postponed, postpone

TEMPORARY_PREFIX = ".tmp-"
_DEFAULT_MODE = 0o666
_CHUNK_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_counter = count()
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_durability: dict[str, bool] = {}  # by folder or URL


def set_durability(place: str | os.PathLike[str], *, durable: bool) -> None:
    """Set whether this process syncs its writes to a place: below the folder `place` (an absolute path), or to the database at
    that URL.

    Called when a hive's settings are loaded. Without a call, everything is synced.
    """
    _durability[os.fspath(place)] = durable


def is_durable(path: str | os.PathLike[str]) -> bool:
    """Check whether writes to a path or database URL must be synced. False in a hive with `durability: relaxed`."""
    place = os.fspath(path)
    while place and place not in _durability:
        place = place.rpartition("/")[0]
    return _durability.get(place, True)


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Sync a folder, so the names in it survive a power cut. Does nothing in a hive with `durability: relaxed`."""
    if is_durable(path):
        _sync_folder(path)


def _sync_folder(path: str | os.PathLike[str], folder_fd: int | None = None) -> None:
    flush_postponed()
    _fsync(os.open(path, _FOLDER, dir_fd=folder_fd))


def fsync_names(path: str | os.PathLike[str]) -> None:
    """Sync a folder as `fsync_folder` does, but leave postponed flushes for later.

    The names may therefore reach the disk before the journal's events that belong to them.
    """
    if is_durable(path):
        _fsync(os.open(path, _FOLDER))


def fsync_folder_later(path: str | os.PathLike[str]) -> None:
    """Sync a folder as `fsync_folder` does, but within `postponing` wait for the next `flush_postponed`.

    Postponed calls for one folder share a single sync.
    """
    status = os.stat(path)
    if not is_durable(path) or is_postponed(identity := (status.st_dev, status.st_ino)):
        return
    folder = os.open(path, _FOLDER)  # it may be moved before that

    def flush() -> None:
        os.fsync(folder)
        os.close(folder)  # after an error the flush stays due

    postpone(flush, identity)


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Sync a file's content, also if another process wrote it."""
    _fsync(open_regular(path, os.O_RDONLY))


def _fsync(file: int) -> None:
    try:
        os.fsync(file)
    finally:
        os.close(file)


def make_folder(path: str | os.PathLike[str], *, durable: bool | None = None) -> bool:
    """Create a folder and its missing parents. Return False if the folder already exists. `durable` is as for `write`.

    Each parent is synced, because an fsync inside a new folder does not make the folder's name durable. Raises OSError;
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
    if durable or (durable is None and is_durable(folder)):
        _sync_folder(os.path.dirname(folder) or ".")
    return True


def open_regular(path: str | os.PathLike[str], flags: int) -> int:
    """Open a regular file with the flags of `os.open` and return its descriptor. Does not block on a FIFO.

    Raises OSError, and UserError for anything but a regular file.
    """
    try:
        file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except IsADirectoryError:
        file = None
    if file is not None and stat.S_ISREG(os.fstat(file).st_mode):
        return file
    if file is not None:
        os.close(file)
    raise UserError("is not a regular file", location=path, remedy="hivemind doctor --fix sets it aside")


def _write_temporary(
    folder: str, content: bytes | str | Iterable[bytes], durable: bool, mode: int, folder_fd: int | None = None
) -> str:
    encoded = content.encode() if isinstance(content, str) else content
    file = None
    while file is None:
        path = os.path.join(folder, f"{TEMPORARY_PREFIX}{os.getpid()}-{next(_counter)}")
        with suppress(FileExistsError):  # a killed process with this PID left it
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder_fd)
    try:
        if mode != _DEFAULT_MODE:  # exactly this mode, regardless of the umask: for secrets and replaced files
            os.fchmod(file, mode)
        for chunk in (encoded,) if isinstance(encoded, bytes) else _chunks(encoded):
            remaining = memoryview(chunk)
            while remaining:
                remaining = remaining[os.write(file, remaining) :]
        crash_point("fs.write.written")
        if durable:
            os.fsync(file)
    except BaseException as error:
        os.unlink(path, dir_fd=folder_fd)
        if isinstance(error, OSError) and error.filename is None:  # the write does not know which disk is full
            error.filename = folder
        raise
    finally:
        os.close(file)
    return path


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    chunk = bytearray()
    for piece in pieces:
        chunk += piece
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)


def write(
    path: str | os.PathLike[str],
    content: bytes | str | Iterable[bytes],
    *,
    durable: bool | None = None,
    mode: int = _DEFAULT_MODE,
    sync_name: bool = True,
    folder_fd: int | None = None,
) -> None:
    """Write a whole file, replacing an existing one. An iterable of bytes is never held in memory as a whole.

    `durable` says whether to sync; None: as the hive's settings say. With `sync_name=False` the caller syncs the folder. `mode`
    is the new file's mode. `folder_fd` is the file's folder if the caller has it open: then it may have been moved away from
    `path`. Raises OSError, and then leaves the old file unchanged.
    """
    target = os.fspath(path)
    durable = is_durable(target) if durable is None else durable
    folder = os.path.dirname(target) or "."
    if folder_fd is not None:
        folder, target = "", os.path.basename(target)
    if durable and sync_name:
        flush_postponed()
    _replace(_write_temporary(folder, content, durable, mode, folder_fd), target, folder_fd)
    if durable and sync_name:
        _sync_folder(folder or ".", folder_fd)


def _replace(temporary: str, target: str, folder_fd: int | None = None) -> None:
    crash_point("fs.write.synced")
    try:
        os.replace(temporary, target, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        os.unlink(temporary, dir_fd=folder_fd)
        raise
    crash_point("fs.write.renamed")


def create(
    path: str | os.PathLike[str], content: bytes | str, *, durable: bool | None = None, mode: int = _DEFAULT_MODE
) -> None:
    """Write a whole new file. Raises FileExistsError if the name exists: of several callers, exactly one creates the file.

    `durable` is as for `write`.
    """
    target = os.fspath(path)
    folder = os.path.dirname(target) or "."
    durable = is_durable(target) if durable is None else durable
    if durable:
        flush_postponed()
    temporary = _write_temporary(folder, content, durable, mode)
    try:
        os.link(temporary, target, follow_symlinks=False)
        crash_point("fs.create.linked")
    finally:
        os.unlink(temporary)
    if durable:
        _sync_folder(folder)


def move(source: str | os.PathLike[str], target: str | os.PathLike[str], *, durable: bool | None = None) -> None:
    """Rename a file or folder to a new name. The rename is atomic; a sync of the target's folder makes it durable.

    `durable` is as for `write`. Raises FileExistsError if the name exists, FileNotFoundError if the source is gone (another
    process moved the source first).
    """
    src, dst = os.fspath(source), os.fspath(target)
    durable = is_durable(dst) if durable is None else durable
    if durable:
        flush_postponed()
    _rename_noreplace(src, dst)
    crash_point("fs.move.renamed")
    if durable:
        _sync_folder(os.path.dirname(dst) or ".")


_libc = ctypes.CDLL(None, use_errno=True)


def _rename_noreplace(src: str, dst: str) -> None:
    if _libc.renameat2(_AT_FDCWD, os.fsencode(src), _AT_FDCWD, os.fsencode(dst), _RENAME_NOREPLACE) == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(code, os.strerror(code), src, None, dst)
    # The file system has no RENAME_NOREPLACE. For files link() is exclusive, for folders mkdir().
    if os.path.isdir(src) and not os.path.islink(src):
        os.mkdir(dst)
        os.rename(src, dst)
    else:
        os.link(src, dst, follow_symlinks=False)
        os.unlink(src)
