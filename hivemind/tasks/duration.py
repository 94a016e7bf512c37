"""Durations as people write them: `250ms`, `2s`, `5m`, `1h30m`, `2d`; a bare number is seconds."""

from __future__ import annotations

import math
import re
from contextlib import suppress

from hivemind.boundary import Unreadable, boundary

__all__ = ["MAX_SECONDS", "parse_duration"]

MAX_SECONDS = 366 * 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])", re.IGNORECASE)
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def parse_duration(value: object) -> float:
    """Seconds, from 0 to a year. Raises ValueError for anything else."""
    seconds = None
    with suppress(Unreadable), boundary("duration"):
        seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds) or not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"{value!r} is no duration: write 250ms, 2s, 5m, 1h30m or 2d (a year at most)")
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    text = value.strip() if isinstance(value, str) else ""
    if _NUMBER.fullmatch(text):
        return float(text)
    if len(text) > 64 or _WHOLE.fullmatch(text) is None:
        return None
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(text))
