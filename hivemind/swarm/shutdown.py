"""Ending a swarm, or one agent, from another process: a word to it, and waiting for its end (`hivemind down`, `agent stop`)."""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import HeldLock, Lock, create, fsync_folder, make_folder
from hivemind.fs.doorbell import ring
from hivemind.fs.locks import describe_holder, is_on_this_machine
from hivemind.layout import Layout
from hivemind.presence.identity import agent_lock
from hivemind.presence.parts import Parts
from hivemind.presence.watching import SUPERVISOR, supervisor_lock

_LOOK_S = 0.02
_LOOKS = 5


@frozen
class ShutdownReport:
    """Which process was told to end (None: none was up), and whether it is `over`: it has let go of the supervisor's lock."""

    pid: int | None
    over: bool


def end_swarm(layout: Layout, *, timeout_s: float) -> ShutdownReport:
    """Send SIGTERM to the hive's supervisor and wait at most `timeout_s` for its end.

    Raises HeldLock if the lock is held and its holder cannot be signalled from here (another machine or another user).
    """
    return _end(supervisor_lock(layout.locks), "the swarm", timeout_s)


def stop_agent(hive: Parts, name: str, *, timeout_s: float) -> ShutdownReport:
    """Have an agent end and not be started again until `start_agent`. Raises UserError if there is none of that name, or it
    comes from outside, and HeldLock as `end_swarm`."""
    stopped, durable = hive.layout.stopped, hive.config.durable
    if hive.agent_files.get(name).outside:
        raise UserError(f"{name} comes from outside (mind: mcp)", remedy="end its program where it runs")
    make_folder(stopped, durable=durable)
    with suppress(FileExistsError):
        create(stopped / name, b"", durable=durable)
    return _end(agent_lock(hive.layout, name), name, timeout_s)


def start_agent(hive: Parts, name: str) -> bool:
    """Have a stopped agent started again, by the supervisor if there is one. False if it was not stopped. Raises UserError if
    there is none of that name."""
    hive.agent_files.get(name)
    try:
        (hive.layout.stopped / name).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if hive.config.durable:
        fsync_folder(hive.layout.stopped)
    ring(hive.layout.doorbells, SUPERVISOR)
    return True


def _end(lock: Lock, what: str, timeout_s: float) -> ShutdownReport:
    pid = _holder(lock)
    if pid is None:
        return ShutdownReport(None, over=True)
    if not is_on_this_machine(holder := lock.holder() or {}):
        mend = "end it there"
        raise HeldLock(f"{what} is held by {describe_holder(holder)}", location=lock.path, holder=holder, remedy=mend)
    deadline = time.monotonic() + timeout_s
    try:
        if pid <= 0:  # kill(0) would end whoever asks
            raise ProcessLookupError(errno.ESRCH, "the lock does not say which it is")
        os.kill(pid, signal.SIGTERM)
        os.killpg(os.getpgid(pid), signal.SIGCONT)  # one that was stopped (Ctrl-Z), with its nursery, could not end
    except OSError as error:
        if _holder(lock) is None:
            return ShutdownReport(pid, over=True)
        raise HeldLock(
            f"{what} is held by process {pid or '?'}, which cannot be told to end from here ({error.strerror})",
            location=lock.path,
            holder=lock.holder() or {},
            remedy="end it where it runs, as the user that it belongs to",
        ) from None
    while _holder(lock) in (pid, 0):  # a successor that holds it already means that this one is over
        if (left := deadline - time.monotonic()) <= 0:
            return ShutdownReport(pid, over=False)
        time.sleep(min(left, _LOOK_S))
    return ShutdownReport(pid, over=True)


def _holder(lock: Lock) -> int | None:
    """The process that has the lock; None if nobody has, 0 if its note says nothing."""
    for _ in range(_LOOKS):
        record = lock.holder()
        if record != {}:
            break
        time.sleep(_LOOK_S)  # it may be writing its note this very moment
    if record is None:
        return None
    pid = record.get("pid")
    return pid if isinstance(pid, int) else 0
