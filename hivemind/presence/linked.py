"""With which hives this one is linked, as its `exchange` process last knew it (`hivemind/exchange/README.md`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError
from hivemind.fs import load_record, save_record
from hivemind.layout import ANY, EXCHANGE, Layout

_KIND, _VERSION = "linked-hives", 1


class LinkedHives:
    """Reads and writes `.hive/link/hives.json`; read again only when the file has changed. A hint: one that cannot be read
    counts as one that names no hive."""

    def __init__(self, layout: Layout) -> None:
        self._link = layout.link / "link.json"
        self._path = layout.link / "hives.json"
        self._outbox = layout.mailboxes / EXCHANGE / "new"
        self._seen: tuple[int, int] | None = None
        self._known: dict[str, Any] = {}

    @property
    def is_linked(self) -> bool:
        return os.path.lexists(self._link)

    def here(self, workspace: str) -> tuple[str, ...]:
        """What a task's `where:` may say for agents of this hive to claim it: its own name, and `any` where no other hive can
        be reached."""
        return (workspace,) if self.is_linked and self.away is None else (workspace, ANY)

    @property
    def agents(self) -> Mapping[str, Mapping[str, str | None]]:
        """The other hives by name, and of each its agents with their roles."""
        found: Mapping[str, Mapping[str, str | None]] = self._read().get("hives", {})
        return found

    @property
    def away(self) -> str | None:
        """Since when and why the exchange cannot be reached; None if it can."""
        found: str | None = self._read().get("away")
        return found

    def note(self, *, hives: Mapping[str, Mapping[str, str | None]] | None = None, away: str | None = None) -> None:
        """Write what is known of the others (None: what was known still holds), and whether the exchange can be reached."""
        now = {"hives": dict(self.agents if hives is None else hives), "away": away}
        if now != {"hives": dict(self.agents), "away": self.away}:
            save_record(self._path, _KIND, _VERSION, {**now, "at": datetime.now(UTC).isoformat()}, durable=False)

    def left(self) -> int:
        """How many letters are still to be sent; names alone are read."""
        return _count(self._outbox)

    def foreign(self) -> int:
        """How many tasks of other hives this one has in hand; names alone are read."""
        return _count(self._link.parent / "tasks")

    def _read(self) -> dict[str, Any]:
        try:
            found = os.stat(self._path)
        except OSError:
            self._seen, self._known = None, {}
            return self._known
        mark = found.st_ino, found.st_mtime_ns
        if mark != self._seen:
            self._seen, self._known = mark, {}
            with suppress(Unreadable, UserError), boundary("record of linked hives", self._path):
                record = load_record(self._path, _KIND, _VERSION) or {}
                hives = {str(name): dict(agents) for name, agents in record["hives"].items()}
                self._known = {"hives": hives, "away": record["away"]}
        return self._known


def _count(folder: Path) -> int:
    try:
        return sum(not name.startswith(".") for name in os.listdir(folder))
    except OSError:
        return 0
