"""Lines redrawn in place on a terminal, with the few sequences that every one of them understands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType

from hivemind.cli.text import terminal_size

__all__ = ["Screen"]

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_TO_LINE_END, _TO_SCREEN_END = "\x1b[K", "\x1b[J"
_HOME = "\x1b[H"


class Screen:
    """A part of the terminal, from the cursor down. What stands there last stays when it is left, save the last line.

    Every size is read anew at each drawing; a terminal that was resized may have folded the old lines in ways that
    nobody can tell, so it is cleared then.
    """

    def __init__(self) -> None:
        self._drawn: list[str] = []
        self._size = terminal_size()

    def __enter__(self) -> Screen:
        sys.stdout.write(_HIDE_CURSOR + _NO_WRAP)
        sys.stdout.flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hint = "\x1b[1A" if self._drawn else ""  # the hint goes, and with it what the terminal echoed (^C)
        sys.stdout.write("\r" + hint + _TO_SCREEN_END + _WRAP + _SHOW_CURSOR)
        sys.stdout.flush()

    @property
    def size(self) -> tuple[int, int]:
        """(columns, rows) that there is room for now; the last row is the cursor's."""
        columns, rows = terminal_size()
        return columns, max(1, rows - 1)

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines instead of those before, which must fit `size`."""
        size = terminal_size()
        if list(lines) == self._drawn and size == self._size:
            return
        back = f"\x1b[{len(self._drawn)}A\r" if self._drawn else "\r"
        start = back if size == self._size else _HOME + _TO_SCREEN_END
        shown = "".join(f"{line}{_TO_LINE_END}\n" for line in lines)
        sys.stdout.write(start + shown + _TO_SCREEN_END)
        sys.stdout.flush()
        self._drawn, self._size = list(lines), size
