"""Paths for local sockets. A socket's path has at most 107 bytes, and not every file system supports sockets."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import select
import stat
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hivemind.errors import UserError


def wait_for_input(sources: Sequence[Any], timeout_s: float | None, outputs: Sequence[int] = ()) -> list[Any]:
    """Return the sources (descriptors, or objects with `fileno`) that are ready to read or closed at the other end.

    Waits until a source is ready or one of `outputs` can be written. `timeout_s` bounds the wait in seconds: 0 does not wait,
    None waits without limit.
    """
    poll = select.poll()
    descriptors = [source if isinstance(source, int) else source.fileno() for source in sources]
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    for output in outputs:
        poll.register(output, select.POLLOUT)
    ready = {
        descriptor for descriptor, _ in poll.poll(None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1000))
    }
    return [source for source, descriptor in zip(sources, descriptors, strict=True) if descriptor in ready]


_MAX_PATH = 107


def _users_folder() -> str:
    """Return the user's private folder for sockets. It is never removed, so it cannot vanish between its creation and its use."""
    # Not $TMPDIR: processes with different environments must find each other.
    return f"/tmp/hivemind-{os.getuid()}"  # noqa: S108 - the folder is private


@lru_cache(maxsize=4096)
def socket_paths(folder: str, name: str) -> tuple[str, ...]:
    """Return the possible paths of a socket, preferred first. The last is in the private folder of the user in /tmp."""
    name_hash = hashlib.blake2b(name.lower().encode(), digest_size=8).hexdigest()
    hive_path = os.path.join(folder, name_hash)
    folder_hash = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    fallback_path = f"{_users_folder()}/{folder_hash}{name_hash}"
    return (hive_path, fallback_path) if len(os.fsencode(hive_path)) <= _MAX_PATH else (fallback_path,)


def make_socket_folder(folder: str, private: bool) -> None:
    """Create a socket's folder, but not the parent folder, which is a hive and may have been deleted.

    `private` says that the folder is the user's private one, outside of a hive. Raises UserError if that belongs to another user,
    FileNotFoundError.
    """
    if not private:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        return
    for path in dict.fromkeys((_users_folder(), folder)):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise UserError("belongs to someone else", location=path, remedy="remove it") from None
