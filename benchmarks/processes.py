"""What the system says of processes: which there are, what memory is theirs, what time they have used; waiting for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["children", "family", "processor_s", "share_mb", "until"]

_PROC = Path("/proc")


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


def until(holds: Callable[[], object], patience_s: float = 300.0, pause_s: float = 0.01) -> None:
    """Return once something holds, asked every `pause_s`. Raises TimeoutError after `patience_s`."""
    end = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"it did not get there in {patience_s:g} s")
        time.sleep(pause_s)
