"""Asking again where that may help: pauses that double, with jitter, or as long as the other side asked for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from hivemind.frozen import frozen
from hivemind.minds.mind import MindUnavailable

T = TypeVar("T")


@frozen
class Patience:
    """How often something is asked again, and how long the pauses are, in seconds.

    Pauses are drawn between nothing and twice as much each time (many agents that were turned away together do not come
    back together); where the other side named a time, that long and a little more. What would take longer than `total_s`
    in all is left to the caller. `sleep` may end early by raising; so may `waiting`, which is called while an answer is awaited.
    """

    tries: int = 5
    first_s: float = 0.5
    longest_s: float = 20.0
    total_s: float = 60.0
    sleep: Callable[[float], object] = time.sleep
    waiting: Callable[[], object] = lambda: None
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random

    def call(self, ask: Callable[[], T]) -> T:
        """What `ask` returns; it is called again while it raises a MindUnavailable that is `passing`. Raises the last one."""
        begun = self.clock()
        for at in range(self.tries):
            try:
                return ask()
            except MindUnavailable as error:
                pause = self._pause(at, error.after_s)
                if not error.passing or at + 1 >= self.tries or self.clock() - begun + pause > self.total_s:
                    raise
            self.sleep(pause)
        raise AssertionError("the last try gives or raises")

    def _pause(self, at: int, after_s: float | None) -> float:
        if after_s is not None:
            return after_s + self.first_s * self.draw()
        longest: float = min(self.longest_s, self.first_s * 2 ** (at + 1))
        return longest * self.draw()
