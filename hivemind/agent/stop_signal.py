"""The request that a process should end: after its current action, or after its current turn."""

from __future__ import annotations

import os
import weakref

from hivemind.fs.sockets import wait_for_input


class StopSignal:
    """Says when the loop of a process must end. `stop` and `finish` may be called from a signal handler or a thread.

    `lifeline` is a descriptor of a pipe to the parent process. When the parent ends, that counts as `stop`.
    """

    def __init__(self, lifeline: int | None = None) -> None:
        self.lifeline = lifeline
        self._is_stopped = self._is_finishing = False
        self._read_end, self._write_end = os.pipe()
        for descriptor in (self._read_end, self._write_end):
            weakref.finalize(self, os.close, descriptor)

    def stop(self) -> None:
        """Ask the process to end after the current action."""
        self._is_stopped = True
        os.write(self._write_end, b"\0")

    def finish(self) -> None:
        """Ask the process to end after the current turn."""
        self._is_finishing = True
        os.write(self._write_end, b"\0")

    def is_stopped(self) -> bool:
        """Return True if the process must end after its current action, because of `stop` or of its parent's end."""
        if not self._is_stopped and self.lifeline is not None:
            self._is_stopped = bool(wait_for_input([self.lifeline], 0))
        return self._is_stopped

    def is_set(self) -> bool:
        """Return True if the process must end, after its current action or turn."""
        return self.is_stopped() or self._is_finishing

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptors that become readable when the process must end."""
        return [self._read_end] + ([] if self.lifeline is None else [self.lifeline])
