"""Redraw a terminal in place (`hivemind up`, `hivemind top`), and read its keyboard."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from hivemind.cli.text import terminal_size

_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_TO_LINE_END, _TO_SCREEN_END = "\x1b[K", "\x1b[J"
_HOME = "\x1b[H"


class Screen(AbstractContextManager["Screen"]):
    """The part of the terminal below the cursor, redrawn in place. On exit the last drawing stays on the screen, except
    for its last line.

    Between two drawings the terminal is in its normal state, so it need not be restored after a kill -9 or a Ctrl-Z.
    A Ctrl-C makes the terminal discard pending output, possibly the end of a drawing, so exit restores the state again.
    The size is read before each drawing. After a resize the screen is cleared: the terminal may have rewrapped old
    lines.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = terminal_size()

    def __exit__(self, *_: object) -> None:
        if self._lines:  # remove the last line, a hint to the keys, and an echoed ^C
            sys.stdout.write(f"{_WRAP}\x1b[1A\r{_TO_SCREEN_END}")
            sys.stdout.flush()

    def draw(self, render: Callable[[int, int], Iterable[str]]) -> None:
        """Replace the previous lines by the lines of `render(columns, rows)`. It must return at most `rows` lines of at
        most `columns`."""
        size = terminal_size()
        lines = list(render(size[0], max(1, size[1] - 1)))  # the last row is for the cursor
        if lines == self._lines and size == self._size:
            return
        cursor_return = f"\x1b[{len(self._lines)}A\r" if self._lines else "\r"
        prefix = cursor_return if size == self._size else _HOME + _TO_SCREEN_END
        body = "".join(f"{line}{_TO_LINE_END}\n" for line in lines)
        sys.stdout.write(_NO_WRAP + prefix + body + _TO_SCREEN_END + _WRAP)
        sys.stdout.flush()
        self._lines, self._size = lines, size


@contextmanager
def raw_keyboard() -> Iterator[int]:
    """Switch to the alternate screen and to input key by key, and yield the keyboard's descriptor. At the end, undo both."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    saved_settings = termios.tcgetattr(descriptor)
    sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[H")
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved_settings)
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
