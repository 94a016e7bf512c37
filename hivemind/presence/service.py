"""The process of a service: one that works for a hive without being an agent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from hivemind.fs import HeldLock, Lock
from hivemind.presence.identity import HiveGone, lock_name
from hivemind.presence.parts import Parts
from hivemind.presence.status import StatusFile

_NOT_STARTED = 2


def run_service(
    hive: Parts, name: str, lifeline: int | None, serve: Callable[[Lock, StatusFile, Sequence[int]], None]
) -> int:
    """Call `serve` while this process holds the service's name. Return the exit status: 0, or 2 if another process holds the name
    or the hive is gone.

    `serve` gets the lock, the status file, and descriptors of which one becomes readable when it has to end: after SIGTERM or
    SIGINT, or at the end of `lifeline`.
    """
    with ExitStack() as stack:
        try:
            lock = lock_name(hive.layout, name)
        except HeldLock as error:
            sys.stderr.write(f"hivemind: {error}\n")
            return _NOT_STARTED
        stack.callback(lock.release)
        reader, writer = os.pipe()
        stack.callback(os.close, writer)
        stack.callback(os.close, reader)
        os.set_blocking(writer, False)
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: os.write(writer, b"\0")))
        folder = hive.layout.agent_state(name)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            serve(lock, StatusFile(folder, name), [reader, *([] if lifeline is None else [lifeline])])
        except HiveGone as gone:
            sys.stderr.write(f"hivemind: {gone}\n")
            return _NOT_STARTED
    return 0
