"""Repeat failed requests. The provider may ask for a pause before the next try; otherwise pauses are random, and their maximum
doubles."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from hivemind.frozen import frozen
from hivemind.minds.mind import MindUnavailable

T = TypeVar("T")


def _random() -> float:
    import random  # late: a command that only reads asks nobody

    return random.random()


@frozen
class Patience:
    """The number of tries of a request and the pauses between the tries, in seconds.

    A pause is random, between 0 and a maximum that doubles with each try, so agents that were refused together do not return
    together. If the provider asked for a pause, the pause is slightly longer than that. If the next try would begin more than
    `total_s` after the first, the error is raised instead. `on_wait` is called while an answer is awaited; it and `sleep` may
    raise to end the wait.
    """

    max_tries: int = 5
    first_s: float = 0.5
    longest_s: float = 20.0
    total_s: float = 60.0
    sleep: Callable[[float], object] = time.sleep
    on_wait: Callable[[], object] = lambda: None
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = _random

    def call(self, request: Callable[[], T]) -> T:
        """Call `request`, and again after each MindUnavailable that is `passing`. Return its result or raise the last error."""
        started_at = self.clock()
        for attempt in range(self.max_tries):
            try:
                return request()
            except MindUnavailable as error:
                pause = self._pause(attempt, error.after_s)
                if (
                    not error.passing
                    or attempt + 1 >= self.max_tries
                    or self.clock() - started_at + pause > self.total_s
                ):
                    raise
            self.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _pause(self, attempt: int, after_s: float | None) -> float:
        if after_s is not None:
            return after_s + self.first_s * self.draw()
        max_pause: float = min(self.longest_s, self.first_s * 2 ** (attempt + 1))
        return max_pause * self.draw()
