"""Waiting for other threads and processes, where no event reports their progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["until"]


def until(
    holds: Callable[[], Any],
    what: Callable[[], str] = lambda: "it has not come to that",
    limit_s: float = 60,
    pause_s: float = 0.02,
) -> Any:
    """Call `holds` every `pause_s` until its result is true, and return that. Pause for as long as the call took, up to 0.2 s:
    it may run a command, which takes processor time from the awaited processes. Raises AssertionError with
    `what()` after `limit_s`."""
    end = time.monotonic() + limit_s
    while True:
        start = time.monotonic()
        if result := holds():
            return result
        looked = time.monotonic()
        assert looked < end, what()
        time.sleep(max(pause_s, min(looked - start, 0.2)))
