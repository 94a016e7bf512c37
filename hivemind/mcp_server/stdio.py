"""Standard input and output as the protocol's lines. A read that waits can be given up, so that a signal ends the server.

Descriptor 0 leads to nothing and descriptor 1 to standard error while it lasts: whatever prints, here or in a child,
reaches the log and never the client.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio

__all__ = ["Lines", "Out", "own_streams"]

_CHUNK = 1 << 16


@contextmanager
def own_streams() -> Iterator[tuple[int, int]]:
    """(input, output): the client's two pipes, taken away from descriptors 0 and 1."""
    given, taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield given, taken
    finally:
        os.dup2(taken, 1)
        os.close(given)
        os.close(taken)


class Lines:
    """The lines of a descriptor, to its end."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._rest = b""

    async def __aiter__(self) -> AsyncIterator[str]:
        while data := await self._read():
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")

    async def _read(self) -> bytes:
        try:
            await anyio.wait_readable(self._file)
        except PermissionError:
            pass  # a file, or nothing (/dev/null): those are always ready
        return os.read(self._file, _CHUNK)


class Out:
    """Writes whole lines to a descriptor."""

    def __init__(self, file: int) -> None:
        self._file = file

    async def write(self, text: str) -> None:
        """Write it all. Raises BrokenPipeError if the client has gone."""
        view = memoryview(text.encode())
        while view:
            view = view[os.write(self._file, view) :]

    async def flush(self) -> None:
        """Nothing is kept back."""
