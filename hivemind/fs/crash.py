"""Crash points: named places in the code where a test can kill the process, as a power cut or kill -9 would.

`crash_point("mail.deliver.written")` sends SIGKILL to this process if the environment variable HIVEMIND_CRASH_AT contains
that name, and returns otherwise. HIVEMIND_CRASH_AT is a comma-separated list of `NAME`, or `NAME:3` for the third
pass. If HIVEMIND_CRASH_ONCE names a file that does not exist, only one process dies: the first creates the file.
"""

from __future__ import annotations

import os
import signal


def _armed_points(text: str) -> dict[str, int]:
    """Parse HIVEMIND_CRASH_AT: map each crash point to the number of passes until the process dies."""
    specs = (spec.partition(":") for spec in text.split(",") if spec)
    return {name: int(count) if count.isdecimal() and len(count) < 10 else 1 for name, _, count in specs}


_remaining_passes = _armed_points(os.environ.get("HIVEMIND_CRASH_AT", ""))
_once_path = os.environ.get("HIVEMIND_CRASH_ONCE", "")


def crash_point(point: str) -> None:
    """Kill this process if HIVEMIND_CRASH_AT names the point. If it does not, the call costs one comparison."""
    if _remaining_passes and point in _remaining_passes:
        _remaining_passes[point] -= 1
        if _remaining_passes[point] == 0 and _is_first_death():
            os.kill(os.getpid(), signal.SIGKILL)


def _is_first_death() -> bool:
    """Return False if HIVEMIND_CRASH_ONCE names a file, and another process has created it before dying."""
    try:
        if _once_path:
            os.close(os.open(_once_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
