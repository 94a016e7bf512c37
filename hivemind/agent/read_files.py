"""The files that a conversation has shown, so that its mind is told when somebody else changes one (spec 8, news)."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from hivemind.errors import UserError
from hivemind.taskrun.conversation import Conversation
from hivemind.tools import Session
from hivemind.tools.path_access import readable

__all__ = ["ReadFiles"]

_Stamp = tuple[int, int, int] | None


class ReadFiles:
    """Which of them differ from what their conversation knows. That stands in the conversation: a file that has changed while no
    process was there is noticed too. Here is only kept how files looked that were the same, so that each is read again only
    if it was written."""

    def __init__(self) -> None:
        self._same: dict[Path, tuple[str | None, _Stamp]] = {}

    def changed(self, talk: Conversation, session: Session) -> dict[str, str | None]:
        """Those that are not what they were when they were shown or noted last, with their digests now; None: it is gone."""
        found = {}
        for name, digest in talk.files.items():
            with suppress(UserError, OSError):
                now = self._digest(readable(session, name).path, digest)
                if now != digest:
                    found[name] = now
        return found

    def _digest(self, path: Path, known: str | None) -> str | None:
        stamp = _stamp(path)
        if self._same.get(path) == (known, stamp):
            return known
        try:
            with open(path, "rb") as file:
                now = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            now = None
        self._same[path] = now, stamp
        return now


def _stamp(path: Path) -> _Stamp:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
