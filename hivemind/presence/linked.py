"""The other linked hives, as the `exchange` process last recorded them (`hivemind/exchange/README.md`)."""

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
    """Reads and writes `.hive/link/hives.json`, and reads it again only after a change.

    The file is a hint: an unreadable file counts as a file without hives.
    """

    def __init__(self, layout: Layout) -> None:
        self._link = layout.link / "link.json"
        self._path = layout.link / "hives.json"
        self._outbox = layout.mailboxes / EXCHANGE / "new"
        self._file_identity: tuple[int, int] | None = None
        self._hives: dict[str, Any] = {}

    @property
    def is_linked(self) -> bool:
        return os.path.lexists(self._link)

    def local_names(self, workspace: str) -> tuple[str, ...]:
        """Return the values of `where:` that let this hive's own agents claim a task in the inbox.

        They are the hive's own name, and `any` while no other hive can be reached.
        """
        return (workspace,) if self.is_linked and self.outage is None else (workspace, ANY)

    @property
    def agents(self) -> Mapping[str, Mapping[str, str | None]]:
        """The agents of the other hives: by the hive's name, the names of its agents with their roles (None: no role)."""
        hives: Mapping[str, Mapping[str, str | None]] = self._read().get("hives", {})
        return hives

    @property
    def outage(self) -> str | None:
        """The time and reason of the exchange's outage; None if the exchange can be reached."""
        outage_text: str | None = self._read().get("away")
        return outage_text

    def note(self, *, hives: Mapping[str, Mapping[str, str | None]] | None = None, away: str | None = None) -> None:
        """Write the other hives (None: unchanged) and the reason `away` why the exchange cannot be reached (None: it can be
        reached).
        """
        current = {"hives": dict(self.agents if hives is None else hives), "away": away}
        if current != {"hives": dict(self.agents), "away": self.outage}:
            save_record(self._path, _KIND, _VERSION, {**current, "at": datetime.now(UTC).isoformat()}, durable=False)

    def unsent_count(self) -> int:
        """Return the number of unsent letters to other hives. Read only file names."""
        return _count(self._outbox)

    def foreign_task_count(self) -> int:
        """Return the number of other hives' tasks that this hive works on. Read only file names."""
        return _count(self._link.parent / "tasks")

    def _read(self) -> dict[str, Any]:
        try:
            file_status = os.stat(self._path)
        except OSError:
            self._file_identity, self._hives = None, {}
            return self._hives
        file_identity = file_status.st_ino, file_status.st_mtime_ns
        if file_identity != self._file_identity:
            self._file_identity, self._hives = file_identity, {}
            with suppress(Unreadable, UserError), boundary("record of linked hives", self._path):
                record = load_record(self._path, _KIND, _VERSION) or {}
                hives = {str(name): dict(agents) for name, agents in record["hives"].items()}
                self._hives = {"hives": hives, "away": record["away"]}
        return self._hives


def _count(folder: Path) -> int:
    try:
        return sum(not name.startswith(".") for name in os.listdir(folder))
    except OSError:
        return 0
