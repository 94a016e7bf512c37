"""Waiting for what other threads and processes do, where no event reports it."""

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
    """Look every `pause_s` until something holds, and return that. Pause for as long as the look took, up to 0.2 s: a look may
    be a command, and takes the processor from what is waited for. Raises AssertionError with `what()` after `limit_s`."""
    end = time.monotonic() + limit_s
    while True:
        start = time.monotonic()
        if result := holds():
            return result
        looked = time.monotonic()
        assert looked < end, what()
        time.sleep(max(pause_s, min(looked - start, 0.2)))
