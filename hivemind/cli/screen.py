"""A terminal that is drawn on in place (`hivemind up`, `top`), and its keyboard."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hivemind.cli.text import terminal_size

_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_TO_LINE_END, _TO_SCREEN_END = "\x1b[K", "\x1b[J"
_HOME = "\x1b[H"


class Screen:
    """A part of the terminal, from the cursor down. What stands there last stays when it is left, save the last line.

    Between two drawings the terminal is in its usual state: a kill -9 or a Ctrl-Z leaves nothing to be restored. A Ctrl-C
    makes the terminal drop what it has not shown yet, the end of a drawing included, so leaving restores the state again.
    The size is read anew each time; a terminal that was resized may have folded the old lines in ways that nobody can
    tell, so it is cleared then.
    """

    def __init__(self) -> None:
        self._drawn: list[str] = []
        self._size = terminal_size()

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:  # the last line was a hint for as long as it went on; what the terminal echoed (^C) goes too
            sys.stdout.write(f"{_WRAP}\x1b[1A\r{_TO_SCREEN_END}")
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


@contextmanager
def keyboard_alone() -> Iterator[int]:
    """Standard input key by key, on a screen of its own; the terminal is as it was when this is left."""
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[H")
    try:
        tty.setcbreak(file)
        yield file
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
