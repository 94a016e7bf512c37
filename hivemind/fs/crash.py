"""Crash points: named places where a test can have this process killed, as power loss or kill -9 would.

`reached("mail.deliver.written")` does nothing unless the environment variable HIVEMIND_CRASH_AT names the point
(`NAME`, or `NAME:3` for the third time it is reached; several with commas between them); then the process dies at once
by SIGKILL. With HIVEMIND_CRASH_ONCE naming a file that does not exist yet, only the first process that gets to one dies:
it makes the file.
"""

from __future__ import annotations

import os
import signal


def _armed_points(text: str) -> dict[str, int]:
    """For each point that is named, how often it is still to be reached."""
    named = (one.partition(":") for one in text.split(",") if one)
    return {name: int(count) if count.isdecimal() and len(count) < 10 else 1 for name, _, count in named}


_armed = _armed_points(os.environ.get("HIVEMIND_CRASH_AT", ""))
_once = os.environ.get("HIVEMIND_CRASH_ONCE", "")


def reached(point: str) -> None:
    """Die here if this point is armed. Costs a comparison otherwise."""
    if _armed and point in _armed:
        _armed[point] -= 1
        if _armed[point] == 0 and _first():
            os.kill(os.getpid(), signal.SIGKILL)


def _first() -> bool:
    """Whether no other process has died at its crash point yet."""
    if not _once:
        return True
    try:
        os.close(os.open(_once, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
