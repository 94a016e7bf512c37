"""Standard streams: read standard input, and survive an output that is closed early (`| head -1`) or at once (`>&-`)."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TextIO

from hivemind.errors import UserError

_MAX_BYTES = 32 << 20  # the limit of a message
_CLOSED_EVENTS = select.POLLERR | select.POLLHUP | select.POLLNVAL


def ensure_standard_streams() -> None:
    """Open descriptors 0, 1 and 2 if they are closed. Otherwise the next opened file would become a standard stream."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, "r" if descriptor == 0 else "w", closefd=False))  # noqa: SIM115 - open until exit


def discard_output(stream: TextIO) -> None:
    """Redirect a stream to /dev/null after its reader has closed it: further writes raise no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def tolerate_closed_output() -> Iterator[None]:
    """End the block without an error if the reader closes the output. The command thus keeps its exit status."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output(sys.stdout)


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


class OutputWaiter(AbstractContextManager["OutputWaiter"]):
    """A wait for a command that prints events: `wait` returns after a `wake`, and notices if nobody reads the output any more."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._event, select.POLLIN)
        with suppress(OSError):  # not a real file: it cannot be closed by a reader
            self._poll.register(sys.stdout.fileno(), 0)

    def wake(self, _: object = None) -> None:
        """Make `wait` return. May be called from any thread."""
        os.eventfd_write(self._event, 1)

    def wait(self, seconds: float | None = None, file: int | None = None) -> bool:
        """Return at the next `wake`, after `seconds` (None: no limit), or when `file` can be read. Return True only in
        the last case.

        Raises BrokenPipeError if the reader has closed the output, or the terminal is gone.
        """
        if file is not None:
            self._poll.register(file, select.POLLIN)
        ready = dict(self._poll.poll(None if seconds is None else seconds * 1000))
        if ready.pop(self._event, 0):
            os.eventfd_read(self._event)
        if any(events & _CLOSED_EVENTS for events in ready.values()):
            raise BrokenPipeError
        return file in ready

    def __exit__(self, *_: object) -> None:
        os.close(self._event)
