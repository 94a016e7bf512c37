"""What the system says of processes: which there are, what memory is theirs, what time they have used."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["children", "family", "processor_s", "share_mb"]

_PROC = Path("/proc")


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has ended meanwhile
                continue
            if int(stat.rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(entry.name))
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
        for task in (_PROC / str(pid) / "task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9
