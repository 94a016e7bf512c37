"""Standard streams: read standard input, and survive an output that is closed early (`| head -1`) or at once (`>&-`)."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hivemind.errors import UserError

_MAX_BYTES = 32 << 20  # the limit of a message
_CLOSED_EVENTS = select.POLLERR | select.POLLHUP | select.POLLNVAL


def ensure_standard_streams() -> None:
    """Open descriptors 0, 1 and 2 if they are closed. Otherwise the next opened file would become a standard stream."""
    for descriptor, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            null_descriptor = os.open(os.devnull, os.O_RDWR)
            if null_descriptor != descriptor:
                os.dup2(null_descriptor, descriptor)
                os.close(null_descriptor)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, "r" if descriptor == 0 else "w", closefd=False))  # noqa: SIM115 - open until exit


def discard_output() -> None:
    """Redirect standard output to /dev/null after its reader has closed it: further writes raise no error."""
    null_descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_descriptor, sys.stdout.fileno())
    os.close(null_descriptor)


@contextmanager
def tolerate_closed_output() -> Iterator[None]:
    """End the block without an error if the reader closes the output, so the command keeps its exit status."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def standard_input() -> str:
    """Read all of standard input. Raises UserError if it is not UTF-8 or larger than 32 MiB."""
    raw = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise UserError(f"more than {_MAX_BYTES >> 20} MiB", location="standard input", remedy="--attach FILE")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text (byte {error.start})"
        raise UserError(message, location="standard input", remedy="--attach FILE") from None


class OutputWaiter:
    """A bell for a command that prints events: `wait` returns after a `wake`, and detects that the output is closed."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._read_end, select.POLLIN)
        try:
            self._poll.register(sys.stdout.fileno(), 0)
        except (OSError, ValueError):  # not a real file: it cannot be closed by a reader
            pass

    def wake(self, _: object = None) -> None:
        """Make `wait` return. May be called from any thread."""
        try:
            os.write(self._write_end, b".")
        except BlockingIOError:  # the pipe is full, so a wake-up is pending already
            pass

    def fileno(self) -> int:
        """Return a descriptor that becomes readable on `wake`, for callers that poll other files, too."""
        return self._read_end

    def wait(self, seconds: float | None = None) -> None:
        """Return on the next `wake` or after the timeout. Raises BrokenPipeError if the reader has closed the output."""
        for descriptor, events in self._poll.poll(None if seconds is None else seconds * 1000):
            if descriptor == self._read_end:
                os.read(self._read_end, 4096)
            elif events & _CLOSED_EVENTS:
                raise BrokenPipeError

    def __enter__(self) -> OutputWaiter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._read_end)
        os.close(self._write_end)
