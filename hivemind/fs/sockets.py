"""Where a local socket may stand: a path has 108 bytes, a hive may lie deeper, and not every file system takes sockets."""

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


def readable(watched: Sequence[Any], timeout_s: float | None) -> list[Any]:
    """Those of the descriptors, or things with a `fileno`, that can be read without waiting, or whose other end is gone.

    Waits until there is one, but no longer than `timeout_s` seconds (0: looks only; None: for ever).
    """
    poll = select.poll()
    numbers = [one if isinstance(one, int) else one.fileno() for one in watched]
    for number in numbers:
        poll.register(number, select.POLLIN)
    found = {number for number, _ in poll.poll(None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1000))}
    return [one for one, number in zip(watched, numbers, strict=True) if number in found]


_MAX_PATH = 107


@lru_cache(maxsize=4096)
def socket_places(folder: str, name: str) -> tuple[str, ...]:
    """Where the socket of that name may stand, first choice first; the last is in a folder of the user's own."""
    short = hashlib.blake2b(name.lower().encode(), digest_size=8).hexdigest()
    own = os.path.join(folder, short)
    home = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    # Not $TMPDIR: processes whose environments differ must find each other.
    spare = f"/tmp/hivemind-{os.getuid()}-{home}/{short}"  # noqa: S108 - the folder is private
    return (own, spare) if len(os.fsencode(own)) <= _MAX_PATH else (spare,)


def make_socket_folder(folder: str, private: bool) -> None:
    """Make the folder of a socket, but not what it lies in: that is a hive, and may have been removed.

    Raises UserError if a private one is somebody else's, FileNotFoundError.
    """
    if not private:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        return
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise UserError("belongs to someone else", where=folder, mend="remove it") from None
