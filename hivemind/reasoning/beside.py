"""A thread beside the agent, which takes one step after the other as long as there is something to do."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hivemind.errors import UserError

__all__ = ["Beside"]


class Beside:
    """Calls `step` whenever `wanted` says so. Whoever changes what `wanted` looks at holds `news`, and notifies.

    What a step raises is kept as `problem`, and nothing more is done until that is taken back.
    """

    def __init__(self, news: threading.Condition, wanted: Callable[[], object], step: Callable[[], object]) -> None:
        self.problem: UserError | None = None
        self._news, self._wanted, self._step = news, wanted, step
        self._thread: threading.Thread | None = None
        self._closing = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Begin, or go on after a problem."""
        with self._news:
            self.problem = None
            if self._thread is None:
                self._closing = False
                self._thread = threading.Thread(target=self._run, name="reasoning-memory", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._closing or (self._wanted() and self.problem is None))
                if self._closing:
                    return
            try:
                self._step()
            except UserError as problem:  # told to whoever waits; what is to do is still there
                with self._news:
                    self.problem = problem
                    self._news.notify_all()

    def wait(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until that is so, at most `timeout` seconds; gives whether it is. Raises what stopped the thread."""
        with self._news:
            self._news.wait_for(lambda: done() or self.problem is not None, timeout)
            if self.problem is not None:
                raise self.problem
            return done()

    def close(self, *, wait: bool) -> None:
        """End the thread after its step; with `wait`, come back when it has ended."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        if self._thread is not None and wait:
            self._thread.join()
        self._thread = None
