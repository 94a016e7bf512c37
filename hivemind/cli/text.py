"""Text as a terminal shows it: how wide it is, how it is cut, and nothing in it that steers the terminal."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from hivemind.boundary import Unreadable, boundary
from hivemind.masking import harmless
from hivemind.words import duration


def one_line(text: str) -> str:
    """The text on one line, harmless."""
    return harmless(" ".join(text.split()))


def width(text: str) -> int:
    """The columns that a line takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, columns: int) -> str:
    """The line cut to at most `columns`, its end marked by an ellipsis if something is missing."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for char in text:
        used += _width(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…" if columns > 0 else ""


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts names as people count: `worker-2` before `worker-10`."""
    parts = (part.lstrip("0") if part.isdecimal() else part for part in re.split(r"(\d+)", name))
    return tuple((-1 if at % 2 == 0 else len(part), part) for at, part in enumerate(parts))


def is_terminal() -> bool:
    """Whether a person looks at standard output through a terminal that understands the usual sequences."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def terminal_size() -> tuple[int, int]:
    """(columns, rows) of the terminal on standard output; 80 and 24 if it doesn't say."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


def clock_time(moment: datetime) -> str:
    """Date and time in this machine's zone, to the minute; as they are where the calendar ends before that zone's time."""
    with suppress(Unreadable), boundary("time"):
        moment = moment.astimezone()
    return moment.strftime("%Y-%m-%d %H:%M")


def age(moment: datetime, now: datetime | None = None) -> str:
    """How long ago that was; a time to come counts as now."""
    return duration(((now or datetime.now(UTC)) - moment).total_seconds())


def card_line(number: object, kind: str, marks: Iterable[str], title: str, text: str) -> str:
    """`7 [evidence, closed, agent/a] Title: text`; what is said twice is shown once."""
    title, text = one_line(title), one_line(text)
    told = ": ".join(part for part in (title, text if text != title else "") if part)
    return f"{number} [{', '.join(one_line(word) for word in (kind, *marks))}] {told}".rstrip()
