"""The request that a process should end: after its current action, or after its current turn."""

from __future__ import annotations

import math
import os
import time
import weakref
from pathlib import Path

from hivemind.fs.sockets import wait_for_input

END_WITHIN_S = 4.5
_COMMAND_S = 3.0  # a command may take another second after SIGTERM, then the agent ends


def remaining_s(deadline: Path) -> float:
    """Return the seconds until the modification time of the file `deadline`, or a negative number if it is missing."""
    try:
        return deadline.stat().st_mtime - time.time()
    except OSError:
        return -math.inf


class StopRequest:
    """Says when the loop of a process must end. `stop` and `finish` may be called from a signal handler or a thread.

    `lifeline` is a descriptor of a pipe to the parent process; the parent's end counts as `stop`. After `stop`, a running command
    has three seconds to end. The time is longer if the modification time of a file in `deadlines` is later.
    """

    def __init__(self, lifeline: int | None = None, *deadlines: Path) -> None:
        self.lifeline, self._deadlines = lifeline, deadlines
        self._command_deadline = math.inf
        self._is_finishing = False
        self._read_end, self._write_end = os.pipe()
        for descriptor in (self._read_end, self._write_end):
            weakref.finalize(self, os.close, descriptor)

    def stop(self, command_s: float = _COMMAND_S) -> None:
        """Ask the process to end after the current action. A running command gets `command_s` seconds to end."""
        self._command_deadline = min(self._command_deadline, time.monotonic() + command_s)
        os.write(self._write_end, b"\0")

    def finish(self) -> None:
        """Ask the process to end after the current turn."""
        self._is_finishing = True
        os.write(self._write_end, b"\0")

    def is_stopped(self) -> bool:
        """Return True if the process must end after its current action, because of `stop` or of its parent's end."""
        if self._command_deadline == math.inf and self.lifeline is not None and wait_for_input([self.lifeline], 0):
            self.stop()
        return self._command_deadline < math.inf

    def ends_commands(self) -> bool:
        """Return True if the process must end and a running command has no time left to end by itself."""
        return (
            self.is_stopped()
            and self._command_deadline <= time.monotonic()
            and all(remaining_s(deadline) <= END_WITHIN_S - _COMMAND_S for deadline in self._deadlines)
        )

    def is_set(self) -> bool:
        """Return True if the process must end, after its current action or turn."""
        return self.is_stopped() or self._is_finishing

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptors that become readable when the process must end."""
        return [self._read_end] + ([] if self.lifeline is None else [self.lifeline])
