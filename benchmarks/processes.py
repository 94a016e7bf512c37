"""What the system says of processes: which there are, what memory is theirs, what time they have used; waiting for them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests import waiting

__all__ = ["children", "family", "processor_s", "share_mb", "until"]

_PROC = Path("/proc")
until = partial(waiting.until, limit_s=300, pause_s=0.01)
"""Return once something holds. Raises AssertionError after five minutes, unless another limit is given."""


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`; none if it has ended."""
    found: list[int] = []
    with suppress(OSError):  # it has ended meanwhile
        for thread in (_PROC / str(pid) / "task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def family(pid: int) -> list[int]:
    """A process, its children, theirs, and so on."""
    found = [pid]
    for one in found:
        found += children(one)
    return found


def share_mb(pid: int) -> float:
    """The process's proportional share of memory, MB: its own, and of what it shares with n processes an nth."""
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} has no memory")


def processor_s(pids: Iterable[int]) -> float:
    """Seconds of processor time that these processes have used, all threads, to the nanosecond (utime is rounded)."""
    total = 0
    for pid in pids:
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(FileNotFoundError):  # it has ended meanwhile
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9
