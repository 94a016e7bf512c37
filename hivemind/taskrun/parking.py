"""Parking: a task that waits for something outside gives its agent's attention back, and rests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hivemind.errors import HivemindError

__all__ = ["DISK_FULL", "Parking", "Rest", "until_there_is_room"]

DISK_FULL = "disk full"
LONGEST_PAUSE_S = 600.0
_ROOM_AGAIN_S = 1.0


class Parking(HivemindError):  # no error: the way out of a tool when there is nothing to do but wait
    """Raised by a tool: park the task for this reason, at most until that time (None: until something comes).

    With `again_s` instead of a time nothing says when it is over: look again after so many seconds, and after twice as many
    each time that the reason is still the same, at most every 600. `asks` is the Message-ID of the question that a person
    is asked, if it waits for the answer.
    """

    def __init__(
        self, reason: str, until: datetime | None = None, *, again_s: float | None = None, asks: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.until = until
        self.again_s = again_s
        self.asks = asks


def until_there_is_room() -> Parking:
    """What a full disk is, whatever it met: a pause that grows, and no try of anything."""
    return Parking(DISK_FULL, again_s=_ROOM_AGAIN_S)


@dataclass(frozen=True, slots=True)
class Rest:
    """What is parked, from now on. `until` is for people and other processes; `due` is the same in monotonic seconds of
    this process, so that a clock that is set back makes nobody wait longer. `looks` counts parkings for this reason."""

    reason: str
    until: datetime | None
    due: float | None
    looks: int = 1

    @classmethod
    def of(cls, parking: Parking, before: Rest | None = None) -> Rest:
        """The rest that a parking begins, after that `before` it for the same task or mailbox."""
        looks = before.looks + 1 if before is not None and before.reason == parking.reason else 1
        now, until = datetime.now(UTC), parking.until
        if until is None and parking.again_s is not None:
            until = now + timedelta(seconds=min(LONGEST_PAUSE_S, parking.again_s * 2 ** min(looks - 1, 20)))
        due = None if until is None else time.monotonic() + (until - now).total_seconds()
        return cls(parking.reason, until, due, looks)

    @property
    def left_s(self) -> float:
        """Seconds until it is over, by the clock on the wall or by ours, whichever is first; infinite without a time."""
        if self.until is None or self.due is None:
            return float("inf")
        return min((self.until - datetime.now(UTC)).total_seconds(), self.due - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0
