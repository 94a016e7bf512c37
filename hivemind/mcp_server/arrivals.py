"""What has come into a mailbox since it was last looked at, found by names: no message is opened."""

from __future__ import annotations

import os
import time

from hivemind.mail import Mail

__all__ = ["Arrivals"]

_TICK_NS = 20_000_000


class Arrivals:
    """The new messages of one mailbox, each told once. A look at an unchanged mailbox is one question to the file system."""

    def __init__(self, mail: Mail, name: str) -> None:
        self._box = mail.boxes.get(name)
        self._seen: set[str] = set()
        self._mark = 0

    def count(self) -> int:
        """How many have come since the last call, and are not read yet; at the first call, how many lie unread in new/."""
        try:
            changed = os.stat(self._box.new).st_mtime_ns
        except OSError:  # no mailbox yet, or none any more
            return 0
        if changed == self._mark:
            return 0
        # Two changes within a tick of the file system's clock have the same time: what is so young is looked at again.
        self._mark = changed if time.time_ns() - changed > _TICK_NS else 0
        names = set(self._box.names(True))
        come = len(names - self._seen)
        self._seen = names
        return come
