"""An agent's heartbeat during long work, for no longer than the work may take."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hivemind.errors import HivemindError

_log = logging.getLogger(__name__)


class Heartbeat:
    """Calls `beat` every `interval_s` seconds from a thread, within a `busy()` block that lasts longer than one interval.

    The main loop calls `beat` itself between actions. A command or a model may take longer: within `busy(limit_s)` the
    thread calls `beat` until the limit. After the limit the thread stops, and the supervisor considers the agent hung.
    `beat` and the code after `busy()` never run at the same time.

    A `busy()` block starts the thread, which ends when it wakes up outside a block: an idle agent has no thread.
    """

    def __init__(self, beat: Callable[[], None], interval_s: float) -> None:
        self._beat = beat
        self._interval_s = interval_s
        self._mutex = threading.Lock()
        # The start of the outermost block, and the time when beating stops (negative outside any block).
        self._since, self._until = 0.0, -1.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def busy(self, limit_s: float) -> Iterator[None]:
        """For the duration of a `with` block, call `beat` at intervals, but for no longer than `limit_s` seconds.

        In a nested block only the inner limit applies. The outer limit is extended by the duration of the inner block.
        """
        start = time.monotonic()
        with self._mutex:
            outer_until, self._until = self._until, start + limit_s
            self._since = start if outer_until < 0 else self._since
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._mutex:
                self._until = outer_until if outer_until < 0 else outer_until + time.monotonic() - start

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
                    except (HivemindError, OSError) as error:
                        # the disk may be full for a moment: try again at the next beat
                        _log.warning("heartbeat failed: %s", error)
