"""Whether a folder needs to be listed again: told by its time, without trusting a time stamp that is too young."""

from __future__ import annotations

import os
import time

__all__ = ["Glance"]

_YOUNG_NS = 2_000_000_000  # time stamps may be this coarse: a second change can hide behind an equal one


class Glance:
    """What was last seen of a folder's time. Times are compared for being equal, never for being later."""

    __slots__ = ("_cost_s", "_every_s", "_folder", "_listed_at", "_seen", "_young")

    def __init__(self, folder: str, every_s: float) -> None:
        """`every_s`: a listing this old is not believed in any case (clocks differ, events are lost)."""
        self._folder = folder
        self._every_s = every_s
        self._seen: tuple[int, int] | None = None
        self._young = True
        self._listed_at = float("-inf")
        self._cost_s = 0.0

    def changed(self, patient: bool = False) -> bool:
        """True if the folder may have changed since `listing`.

        A time stamp younger than two seconds may hide a second change. Where `patient`, that doubt alone is not acted
        on until two seconds after the last listing, nor before fifty times what that listing took.
        """
        if self._now() != self._seen:
            return True
        age = time.monotonic() - self._listed_at
        if self._young and (not patient or age > max(2.0, 50 * self._cost_s)):
            return True
        return age > self._every_s

    def listing(self) -> None:
        """To be called just before the folder is listed."""
        self._seen = self._now()
        self._young = self._is_young()
        self._listed_at = time.monotonic()

    def listed(self) -> None:
        """To be called when the listing is done."""
        self._cost_s = time.monotonic() - self._listed_at

    def before_own(self) -> bool:
        """True if nobody has changed the folder since the listing; to be asked before a change of our own."""
        return self._now() == self._seen

    def after_own(self, clean: bool) -> None:
        """Take a change of our own for seen, if `before_own` was true."""
        if clean:
            self._seen = self._now()
            self._young = True

    def _now(self) -> tuple[int, int] | None:
        try:
            state = os.stat(self._folder)
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns

    def _is_young(self) -> bool:
        return self._seen is None or abs(time.time_ns() - self._seen[1]) < _YOUNG_NS
