"""End a swarm or one agent from another process: signal it and wait until it has ended (`hivemind down`, `agent stop`)."""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import Lock, LockBusy, create, fsync_folder, make_folder
from hivemind.fs.doorbell import ring
from hivemind.fs.locks import describe_holder, is_on_this_machine
from hivemind.layout import Layout
from hivemind.presence.identity import agent_lock
from hivemind.presence.parts import Parts
from hivemind.presence.watching import SUPERVISOR, supervisor_lock

_POLL_S = 0.02
_NOTE_READS = 5
_TIMEOUT_S, _NOTICE_S = 15.0, 0.5  # default; from the end of the agents to the freed lock


@frozen
class ShutdownReport:
    """The process that was asked to end (None: none was running). `is_over` is True once the process has freed its lock."""

    pid: int | None
    is_over: bool


def end_swarm(layout: Layout, *, timeout_s: float | None = None) -> ShutdownReport:
    """Send SIGTERM to the hive's supervisor and wait at most `timeout_s` seconds for its end (None: 15).

    A `timeout_s` is also the time that running commands get to end. Raises LockBusy if the supervisor cannot be signalled from
    here (another machine or another user).
    """
    return _end(supervisor_lock(layout.locks), "the swarm", timeout_s, layout.deadline)


def stop_agent(hive: Parts, name: str, *, timeout_s: float | None = None) -> ShutdownReport:
    """End an agent and report it as `end_swarm` does, and keep the agent from starting until `start_agent`.

    Raises UserError for an unknown agent or a member (MCP), and LockBusy if the process cannot be signalled from here.
    """
    stop_folder = hive.layout.stopped
    if hive.agent_files.get(name).outside:
        raise UserError(f"{name} is a member (mind: mcp)", remedy="end its program where it runs")
    make_folder(stop_folder)
    with suppress(FileExistsError):
        create(stop_folder / name, b"")
    return _end(agent_lock(hive.layout, name), name, timeout_s, stop_folder / name)


def start_agent(hive: Parts, name: str) -> bool:
    """Allow a stopped agent to run again; a running supervisor then starts it. Return False if it was not stopped.
    Raises UserError for an unknown agent."""
    hive.agent_files.get(name)
    try:
        (hive.layout.stopped / name).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    fsync_folder(hive.layout.stopped)
    ring(hive.layout.doorbells, SUPERVISOR)
    return True


def _end(lock: Lock, target: str, timeout_s: float | None, deadline_file: Path) -> ShutdownReport:
    pid = _holder_pid(lock)
    if pid is None:
        return ShutdownReport(None, is_over=True)
    if not is_on_this_machine(holder := lock.holder() or {}):
        remedy = "end it there"
        raise LockBusy(
            f"{target} is held by {describe_holder(holder)}", location=lock.path, holder=holder, remedy=remedy
        )
    deadline = time.monotonic() + (_TIMEOUT_S if timeout_s is None else timeout_s)
    try:
        if timeout_s is not None:
            deadline_file.touch()
            os.utime(deadline_file, (0, time.time() + timeout_s - _NOTICE_S))
        if pid <= 0:  # kill(0) would signal this process's own group
            raise ProcessLookupError(errno.ESRCH, "the lock does not name its process")
        os.kill(pid, signal.SIGTERM)
        os.killpg(os.getpgid(pid), signal.SIGCONT)  # a suspended process (Ctrl-Z) could not end
    except OSError as error:
        if _holder_pid(lock) is None:
            return ShutdownReport(pid, is_over=True)
        raise LockBusy(
            f"{target} is held by process {pid or '?'}, which cannot be signalled from here ({error.strerror})",
            location=lock.path,
            holder=lock.holder() or {},
            remedy="end it where it runs, as its user",
        ) from None
    while _holder_pid(lock) in (pid, 0):  # if a successor holds it, this one is over
        if (remaining_s := deadline - time.monotonic()) <= 0:
            return ShutdownReport(pid, is_over=False)
        time.sleep(min(remaining_s, _POLL_S))
    return ShutdownReport(pid, is_over=True)


def _holder_pid(lock: Lock) -> int | None:
    """Return the pid of the lock's holder: None without a holder, 0 if the holder's note has no pid."""
    for _ in range(_NOTE_READS):
        record = lock.holder()
        if record != {}:
            break
        time.sleep(_POLL_S)  # it may be writing its note at this moment
    if record is None:
        return None
    pid = record.get("pid")
    return pid if isinstance(pid, int) else 0
