"""The agent's pulse: it beats while long work goes on, and only as long as that work may take."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hivemind.errors import HivemindError

_log = logging.getLogger(__name__)


class Heartbeat:
    """Calls `beat` every `interval_s` while inside a `busy()` that has lasted as long, from a thread of its own.

    The thread begins with a `busy()` and ends when it finds nothing busy: an agent at rest has none, and one that takes many
    short turns wakes it once an interval.

    The main loop calls `beat` itself between actions. A command or a model may take long, so `busy(limit_s)` vouches for
    it until its limit; past the limit the beating stops, and the supervisor takes the agent for hung. `beat` and the code
    after `busy()` never run at the same time.
    """

    def __init__(self, beat: Callable[[], None], interval_s: float) -> None:
        self._beat = beat
        self._interval_s = interval_s
        self._mutex = threading.Lock()
        # The outermost block's beginning; until when is vouched, below 0: for nothing.
        self._since, self._until = 0.0, -1.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def busy(self, limit_s: float) -> Iterator[None]:
        """Beat until the block ends, but no longer than `limit_s` seconds. Inside another such block its own limit counts,
        and the time of the other one stands still."""
        began = time.monotonic()
        with self._mutex:
            outer, self._until = self._until, began + limit_s
            self._since = began if outer < 0 else self._since
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._mutex:
                self._until = outer if outer < 0 else outer + time.monotonic() - began

    def close(self) -> None:
        self._ended.set()
        if (thread := self._thread) is not None:
            thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            with self._mutex:
                if self._until < 0:
                    self._thread = None
                    return
                if self._since + self._interval_s <= time.monotonic() < self._until:
                    try:
                        self._beat()
                    except (HivemindError, OSError) as error:  # no room for a moment: the next beat may do
                        _log.warning("no sign of life: %s", error)
