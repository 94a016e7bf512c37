"""The memory and processor time of processes; waiting for them; running work in several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from tests import waiting

__all__ = ["at_once", "children", "family", "processor_s", "share_mb", "until"]

T = TypeVar("T")
_PROC = Path("/proc")
_fork = get_context("fork")
until = partial(waiting.until, limit_s=300, pause_s=0.01)
"""Return once something holds. Raises AssertionError after five minutes, unless another limit is given."""


def at_once(prepare: Callable[[int], Callable[[], T]], processes: int = 1) -> list[T]:
    """Return the results of `prepare(number)()` from each process; all begin together once all have prepared.

    Raises RuntimeError if one of them fails or is killed.
    """
    start = _fork.Barrier(processes)

    def work(number: int, connection: Connection) -> None:
        try:
            prepared = prepare(number)
        except BaseException:
            start.abort()  # the others wait for this one
            raise
        start.wait(300)
        connection.send(prepared())

    workers = []
    for number in range(processes):
        reader, writer = _fork.Pipe(duplex=False)
        worker = _fork.Process(target=work, args=(number, writer))
        worker.start()
        writer.close()
        workers.append((worker, reader))
    try:
        return [reader.recv() for _, reader in workers]
    except EOFError:
        raise RuntimeError(f"one of {processes} processes failed; its error is above") from None
    finally:
        for worker, _ in workers:
            worker.join()


def children(pid: int) -> list[int]:
    """Return the child processes of `pid`; none after its end."""
    pids: list[int] = []
    with suppress(OSError):  # it ended meanwhile
        for thread in (_PROC / str(pid) / "task").iterdir():
            pids += map(int, (thread / "children").read_text().split())
    return pids


def family(pid: int) -> list[int]:
    """A process, its children, theirs, and so on."""
    pids = [pid]
    for parent in pids:
        pids += children(parent)
    return pids


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
            with suppress(FileNotFoundError):  # it ended meanwhile
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9
