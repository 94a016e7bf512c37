"""Crash points: named places where a test can have this process killed, as power loss or kill -9 would.

`reached("mail.deliver.written")` does nothing unless the environment variable HIVEMIND_CRASH_AT names the point
(`NAME` or `NAME:3` for the third time it is reached); then the process dies at once by SIGKILL.
`hivemind.testing` lists the points and drives them.
"""

from __future__ import annotations

import os
import signal

__all__ = ["reached"]

_armed, _, _count = os.environ.get("HIVEMIND_CRASH_AT", "").partition(":")
_left = int(_count or 1)


def reached(point: str) -> None:
    """Die here if this point is armed. Costs a comparison otherwise."""
    if _armed and point == _armed:
        global _left
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
