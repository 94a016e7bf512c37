"""The files that a conversation has shown, so that its mind is told when somebody else changes one (spec 8, news)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hivemind.errors import UserError
from hivemind.minds import Result
from hivemind.tools import Session
from hivemind.tools.path_access import readable

__all__ = ["ReadFiles"]

_SHOWN = ("read_file", "write_file", "edit_file")
_State = tuple[int, int, int] | None


class ReadFiles:
    """Those of one conversation at a time, as they were after its last calls: what differs before the next ones was changed by
    someone else. Kept in memory only; a file that changes while no process is there is not noticed."""

    def __init__(self) -> None:
        self._about = ""
        self._states: dict[str, tuple[Path, _State]] = {}
        self._changed: list[str] = []

    def look(self, about: str) -> None:
        """Find out what has changed since the last calls."""
        if about != self._about:
            self._about, self._states, self._changed = about, {}, []
        for path in [path for path, (place, state) in self._states.items() if _state(place) != state]:
            del self._states[path]
            self._changed.append(path)

    def note(self, session: Session, results: Sequence[Result]) -> None:
        """Calls were made: what they have shown is known from now on, and what they have changed is nobody else's doing."""
        for path in [str(one.value.get("path")) for one in results if one.ok and one.call.tool in _SHOWN]:
            with suppress(UserError, OSError):
                self._states[path] = readable(session, path).path, None
                self._changed = [one for one in self._changed if one != path]
        self._states = {path: (place, _state(place)) for path, (place, _) in self._states.items()}

    def news(self) -> str | None:
        """What is to be told of it, once."""
        changed, self._changed = self._changed, []
        return f"Changed by someone else since you read it: {', '.join(changed)}." if changed else None


def _state(place: Path) -> _State:
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
