"""A process for which permissions hold: root without the capabilities that pass them over."""

from __future__ import annotations

import ctypes

__all__ = ["as_anyone"]

_VERSION_3 = 0x20080522


def as_anyone() -> None:
    """Give up every capability of this process; a file that others own, or that is closed, is then closed to it."""
    libc = ctypes.CDLL(None, use_errno=True)
    none = (ctypes.c_uint32 * 6)()
    if libc.capset((ctypes.c_uint32 * 2)(_VERSION_3, 0), none) != 0:
        raise OSError(ctypes.get_errno(), "capset")
