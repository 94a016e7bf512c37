"""Lines redrawn in place on a terminal, with the few sequences that every one of them understands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import TracebackType

from hivemind.cli.text import terminal_size

__all__ = ["Screen"]

_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_TO_LINE_END, _TO_SCREEN_END = "\x1b[K", "\x1b[J"
_HOME = "\x1b[H"


class Screen:
    """A part of the terminal, from the cursor down. What stands there last stays when it is left, save the last line.

    Between two drawings the terminal is in its usual state: a kill -9 or a Ctrl-Z leaves nothing to be restored. Its size
    is read anew each time; one that was resized may have folded the old lines in ways that nobody can tell, so it is
    cleared then.
    """

    def __init__(self) -> None:
        self._drawn: list[str] = []
        self._size = terminal_size()

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:  # the last line was a hint for as long as it went on; what the terminal echoed (^C) goes too
            sys.stdout.write(f"\x1b[1A\r{_TO_SCREEN_END}")
            sys.stdout.flush()

    def draw(self, render: Callable[[int, int], Sequence[str]]) -> None:
        """Show the lines that `render(columns, rows)` gives, which must fit, instead of those before."""
        size = terminal_size()
        lines = list(render(size[0], max(1, size[1] - 1)))  # the last row is the cursor's
        if lines == self._drawn and size == self._size:
            return
        back = f"\x1b[{len(self._drawn)}A\r" if self._drawn else "\r"
        start = back if size == self._size else _HOME + _TO_SCREEN_END
        shown = "".join(f"{line}{_TO_LINE_END}\n" for line in lines)
        sys.stdout.write(_NO_WRAP + start + shown + _TO_SCREEN_END + _WRAP)
        sys.stdout.flush()
        self._drawn, self._size = lines, size
