"""Format text for a terminal: measure it, cut it, and mask control characters."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate

from hivemind.boundary import Unreadable, boundary
from hivemind.masking import strip_controls
from hivemind.words import duration


def one_line(text: str) -> str:
    """Join the text into one line and mask control characters."""
    return strip_controls(" ".join(text.split()))


def width(text: str) -> int:
    """Return the number of terminal columns that a line occupies."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, columns: int) -> str:
    """Cut the line to at most `columns`; an ellipsis marks the cut."""
    if width(text) <= columns:
        return text
    end = bisect_left([*accumulate(map(_width, text))], columns)
    return text[:end].rstrip() + "…" if columns > 0 else ""


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that orders numbers within names by their value: `worker-2` before `worker-10`."""
    parts = (part.lstrip("0") if part.isdecimal() else part for part in re.split(r"(\d+)", name))
    return tuple((-1 if position % 2 == 0 else len(part), part) for position, part in enumerate(parts))


def is_terminal() -> bool:
    """Return True if standard output is a terminal that understands escape sequences."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def terminal_size() -> tuple[int, int]:
    """Return (columns, rows) of the terminal on standard output; 80 and 24 if they are unknown."""
    with suppress(OSError, ValueError):
        size = os.get_terminal_size(sys.stdout.fileno())
        return size.columns or 80, size.lines or 24
    return 80, 24


def clock_time(moment: datetime) -> str:
    """Format date and time to the minute in this machine's zone; unconverted if the local year would be out of range."""
    with suppress(Unreadable), boundary("time"):
        moment = moment.astimezone()
    return moment.strftime("%Y-%m-%d %H:%M")


def age(moment: datetime, now: datetime | None = None) -> str:
    """Return the time since `moment` in words; a future time counts as now."""
    return duration(((now or datetime.now(UTC)) - moment).total_seconds())


def card_line(number: object, kind: str, marks: Iterable[str], title: str, text: str) -> str:
    """Return `7 [evidence, closed, agent/a] Title: text`. The text is left out if it equals the title."""
    title, text = one_line(title), one_line(text)
    label = ": ".join(part for part in (title, text if text != title else "") if part)
    return f"{number} [{', '.join(one_line(word) for word in (kind, *marks))}] {label}".rstrip()
