"""The agent's pulse: it beats while long work goes on, and only as long as that work may take."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hivemind.errors import HivemindError

__all__ = ["Heartbeat"]

_log = logging.getLogger(__name__)


class Heartbeat:
    """Calls `beat` every `interval_s` while inside `busy()`, from a thread of its own; sleeps otherwise.

    The thread begins with the first `busy()`: who has nothing to do needs none.

    The main loop calls `beat` itself between actions. A command or a model may take long, so `busy(limit_s)` vouches for
    it until its limit; past the limit the beating stops, and the supervisor takes the agent for hung. `beat` and the code
    after `busy()` never run at the same time.
    """

    def __init__(self, beat: Callable[[], None], interval_s: float) -> None:
        self._beat = beat
        self._interval_s = interval_s
        self._busy = threading.Event()
        self._free = threading.Event()
        self._mutex = threading.Lock()
        self._until = 0.0
        self._ended = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def busy(self, limit_s: float) -> Iterator[None]:
        """Beat until the block ends, but no longer than `limit_s` seconds. Inside another such block its own limit counts,
        and the time of the other one stands still."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
            self._thread.start()
        began = time.monotonic()
        outer = self._until if self._busy.is_set() else None
        self._until = began + limit_s
        self._free.clear()
        self._busy.set()
        try:
            yield
        finally:
            with self._mutex:
                if outer is None:
                    self._busy.clear()
                    self._free.set()
                else:
                    self._until = outer + time.monotonic() - began

    def close(self) -> None:
        if self._thread is None:
            return
        self._ended = True
        self._free.set()
        self._busy.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._busy.wait()
            if self._ended:
                return
            if self._free.wait(self._interval_s):
                continue
            with self._mutex:
                if self._busy.is_set() and time.monotonic() < self._until:
                    self._beat_once()

    def _beat_once(self) -> None:
        try:
            self._beat()
        except (HivemindError, OSError) as error:  # no room for a moment: the next beat may do
            _log.warning("no sign of life: %s", error)
