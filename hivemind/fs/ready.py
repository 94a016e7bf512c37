"""Waiting until something can be read. select() knows no descriptor above 1,023; poll() knows them all."""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from typing import Any

__all__ = ["readable"]


def readable(watched: Sequence[Any], timeout_s: float | None) -> list[Any]:
    """Those of the descriptors, or things with a `fileno`, that can be read without waiting, or whose other end is gone.

    Waits until there is one, but no longer than `timeout_s` seconds (0: looks only; None: for ever).
    """
    poll = select.poll()
    numbers = [one if isinstance(one, int) else one.fileno() for one in watched]
    for number in numbers:
        poll.register(number, select.POLLIN)
    found = {number for number, _ in poll.poll(None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1000))}
    return [one for one, number in zip(watched, numbers, strict=True) if number in found]
