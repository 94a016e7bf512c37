"""Standard input, and whoever reads what a command prints: it may go early (`| head -1`) or never be there (`>&-`)."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hivemind.errors import UserError

_MAX_BYTES = 32 << 20  # as much as a message may have
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def take_streams() -> None:
    """Make sure that descriptors 0, 1 and 2 are open: a file that got one of them would be taken for the terminal."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - until the end


def hush() -> None:
    """Nobody reads standard output any more: what is still written goes nowhere, and raises nothing."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


@contextmanager
def reader_may_go() -> Iterator[None]:
    """For what is printed beside an exit status that counts: a reader that has gone ends the printing alone."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        hush()


def standard_input() -> str:
    """The text on standard input, whole. Raises UserError if it is not UTF-8, or more than 32 MiB."""
    raw = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise UserError(f"more than {_MAX_BYTES >> 20} MiB", where="standard input", mend="--attach FILE")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"not UTF-8 text (byte {error.start})"
        raise UserError(what, where="standard input", mend="--attach FILE") from None


class Bell:
    """What a command waits for that prints as things come: a ring, or that the reader of its output has gone."""

    def __init__(self) -> None:
        self._heard, self._rung = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._heard, select.POLLIN)
        try:
            self._poll.register(sys.stdout.fileno(), 0)
        except (OSError, ValueError):  # no file of the system's: it cannot go
            pass

    def ring(self, _: object = None) -> None:
        """Wake who waits; from any thread."""
        try:
            os.write(self._rung, b".")
        except BlockingIOError:  # full of rings that nobody has heard yet
            pass

    def fileno(self) -> int:
        """What becomes readable with a ring, for who waits for something else as well."""
        return self._heard

    def wait(self, seconds: float | None = None) -> None:
        """Return at the next ring, or after so many seconds. Raises BrokenPipeError once the reader has gone."""
        for file, events in self._poll.poll(None if seconds is None else seconds * 1000):
            if file == self._heard:
                os.read(self._heard, 4096)
            elif events & _GONE:
                raise BrokenPipeError

    def __enter__(self) -> Bell:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._heard)
        os.close(self._rung)
