"""Waiting until a task is over, for a program that has given the swarm something to do."""

from __future__ import annotations

import threading
import time

from hivemind.errors import UserError
from hivemind.fs.watch import open_watcher
from hivemind.layout import Layout

__all__ = ["wait_for_end"]

_NET_S = 1.0  # how often the folders are looked at although nothing was reported


def wait_for_end(layout: Layout, task_id: str, watch: str, timeout: float | None) -> None:
    """Return once the task lies in done/ or failed/. Raises UserError after `timeout` seconds (None: never)."""
    until = None if timeout is None else time.monotonic() + timeout
    places = [layout.done, layout.failed]
    moved = threading.Event()
    with open_watcher(watch, places, [], lambda _: moved.set()):
        while not any((place / task_id).is_dir() for place in places):
            left = _NET_S if until is None else min(_NET_S, until - time.monotonic())
            if left <= 0:
                raise UserError(f"is not over after {timeout:g} s", where=task_id, mend="hivemind task list says why")
            moved.wait(left)
            moved.clear()
