"""Processes that hold a name of a hive: of an agent, or of a service, which works for the hive without being an agent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from hivemind.errors import WRONG_USE
from hivemind.fs import Lock, LockBusy
from hivemind.presence.identity import HiveGone, lock_name
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile


def run_named(hive: Parts, name: str, work: Callable[[Lock], None]) -> int:
    """Call `work` while this process holds a name. Return the exit status: 0, or 2 if another process holds the name or the hive
    is gone."""
    try:
        lock = lock_name(hive.layout, name)
    except LockBusy as error:
        sys.stderr.write(f"hivemind: {error}\n")
        return WRONG_USE
    try:
        work(lock)
    except HiveGone as gone:
        sys.stderr.write(f"hivemind: {gone}\n")
        return WRONG_USE
    finally:
        lock.release()
    return 0


def run_service(
    hive: Parts, name: str, lifeline: int | None, serve: Callable[[Lock, StatusFile, Sequence[int]], None]
) -> int:
    """Call `serve` while this process holds the service's name. Return the exit status as `run_named` does.

    `serve` gets the lock, the status file, and some descriptors. One of these becomes readable when `serve` has to end: after
    SIGTERM or SIGINT, or when the descriptor `lifeline` closes.
    """

    def work(lock: Lock) -> None:
        with ExitStack() as stack:
            reader, writer = os.pipe()
            stack.callback(os.close, writer)
            stack.callback(os.close, reader)
            os.set_blocking(writer, False)
            for number in (signal.SIGTERM, signal.SIGINT):
                stack.callback(signal.signal, number, signal.signal(number, lambda *_: os.write(writer, b"\0")))
            folder = hive.layout.agent_state(name)
            folder.mkdir(parents=True, exist_ok=True)
            serve(lock, StatusFile(folder, name), [reader, *([] if lifeline is None else [lifeline])])

    return run_named(hive, name, work)
