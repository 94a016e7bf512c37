"""What a command is given on standard input."""

from __future__ import annotations

import sys

from hivemind.errors import UserError

__all__ = ["standard_input"]

_MAX_BYTES = 32 << 20  # as much as a message may have


def standard_input() -> str:
    """The text on standard input, whole. Raises UserError for what is no UTF-8, and for more than 32 MiB."""
    raw = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise UserError(f"more than {_MAX_BYTES >> 20} MiB", where="standard input", mend="--attach FILE")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"is no UTF-8 text (byte {error.start})"
        raise UserError(what, where="standard input", mend="--attach FILE") from None
