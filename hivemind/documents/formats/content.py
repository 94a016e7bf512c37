"""A file's bytes, read without waiting for anything and only so many of them."""

from __future__ import annotations

import os
import stat

from hivemind.documents.errors import DocmemError

__all__ = ["LARGEST", "read_bytes"]

LARGEST = 64 << 20


def read_bytes(path: str, file: int | None = None) -> tuple[bytes, os.stat_result]:
    """The content of a file (of an open one, if given) and its stat, taken while it was open.

    Raises DocmemError for what is no regular file, is larger than 64 MiB or cannot be read.
    """
    try:
        with os.fdopen(file, "rb") if file is not None else open(path, "rb", opener=_without_waiting) as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise DocmemError("is no regular file", where=path)
            if found.st_size > LARGEST:
                raise DocmemError(f"is larger than {LARGEST >> 20} MiB", where=path, mend="split it")
            return opened.read(), found
    except OSError as error:
        raise DocmemError(f"cannot be read ({error.strerror})", where=path) from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would wait for its writer for ever
