"""Asking from synchronous code: one thread with an event loop, in which all requests of one mind run.

The client libraries are asynchronous and keep connections open in the loop that they were made in; the agent and the
thread that keeps a task's conversation ask the same mind.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["Caller"]

T = TypeVar("T")


class Caller:
    """The thread is started with the first call, so that an agent that asks nothing has none."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing: list[Callable[[], Awaitable[Any]]] = []

    def run(self, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine that `question` makes gives, or raises. May be called from any thread but the loop's own."""
        return asyncio.run_coroutine_threadsafe(question(), self._started()).result()

    def on_close(self, closing: Callable[[], Awaitable[Any]]) -> None:
        """Have `close` await this first, in the loop."""
        self._closing.append(closing)

    def close(self) -> None:
        """End the thread. A later call starts another."""
        with self._mutex:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        for closing in self._closing:
            asyncio.run_coroutine_threadsafe(_await(closing), loop).result()
        self._closing.clear()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._mutex:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="model", daemon=True)
                self._thread.start()
                weakref.finalize(self, _stop, self._loop)
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _await(closing: Callable[[], Awaitable[Any]]) -> None:
    await closing()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
