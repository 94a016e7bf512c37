"""A coding agent's running program: its output as events, in any protocol."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, Self

from hivemind.minds.agents.events import Event, Failure, PermissionRequest
from hivemind.reaped_command import ReapedCommand

MAX_LINE_BYTES = 8 << 20
_MAX_OUTPUT_BYTES = 256 << 20
_CHUNK, _CHUNKS = 1 << 16, 64
EXIT_S = 30.0


class ProgramSession:
    """A running program with one session. It ends, with everything that it started, when the `with` block ends.

    Wait until one of `descriptors` is readable, one of `outputs` writable, or the time `due` has come; then call `read`.
    """

    takes_prompts = False
    """True if `prompt` can be called after the end of a turn."""
    due = math.inf
    """The time (monotonic) of the next `read` without input."""
    announcement = ""
    """The program's words about itself and its session, as the protocol has them."""

    def __init__(self, command: ReapedCommand, *, exit_s: float = EXIT_S) -> None:
        """Prepare to read the program's output. Once the output has ended, the program has `exit_s` seconds to exit."""
        self._command, self._exit_s = command, exit_s
        self._size = 0
        self.descriptors = [command.output.fileno()]
        os.set_blocking(self.descriptors[0], False)

    @property
    def outputs(self) -> list[int]:
        """The descriptors to which something is still to be written."""
        return []

    def read(self) -> Iterator[Event]:
        """Yield the events of the output that has come. After a Failure of the kind `exit` or `overrun` there are no more."""
        for _ in range(_CHUNKS):
            try:
                chunk = os.read(self.descriptors[0], _CHUNK)
            except BlockingIOError:
                return
            if not chunk:
                yield from self._ending(self._command.wait(self._exit_s))
                return
            self._size += len(chunk)
            if self._size > _MAX_OUTPUT_BYTES:
                yield too_much_output(_MAX_OUTPUT_BYTES)
                return
            yield from self._events(chunk)

    def prompt(self, text: str) -> None:
        """Send the session's next prompt after the end of a turn."""
        raise NotImplementedError

    def cancel(self) -> bool:
        """Ask the program to end its turn. Return False if it cannot be asked, or was asked already."""
        return False

    def answer(self, request: PermissionRequest, *, is_allowed: bool, reason: str = "") -> bool:
        """Allow or reject a call. Return False if the program cannot be answered."""
        raise NotImplementedError

    def _events(self, chunk: bytes) -> Iterator[Event]:
        raise NotImplementedError

    def _ending(self, status: int | None) -> Iterator[Event]:
        if status is None:
            yield Failure("closed its output and did not end", "overrun")
        else:
            yield Failure(f"ended with status {status}", "exit")

    def __enter__(self) -> Self:
        self._command.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._command.__exit__(*error)


def too_much_output(limit: int) -> Failure:
    """Return the failure of a program that has printed more than `limit` bytes, in one line or in all."""
    return Failure(f"printed more than {limit:,} bytes", "overrun")
