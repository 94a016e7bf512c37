"""Parking: a task that waits for something outside gives its agent's attention back."""

from __future__ import annotations

from datetime import datetime

from hivemind.errors import HivemindError

__all__ = ["Parking"]


class Parking(HivemindError):  # no error: the way out of a tool when there is nothing to do but wait
    """Raised by a tool: park the task for this reason, at most until that time (None: until something comes)."""

    def __init__(self, reason: str, until: datetime | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.until = until
