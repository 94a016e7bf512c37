"""What an agent is doing, for people and for the supervisor: `.hive/agents/<agent>/status.json` and `heartbeat`.

The status is written when something changed, the heartbeat file is touched while the agent's main loop moves: its time
is the sign of life, so that an idle swarm writes no events (spec 3, *Ageing*).
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hivemind.errors import UserError
from hivemind.fs import load_record, save_record

__all__ = ["AgentStatus", "State", "StatusFile", "read_status"]

VERSION = 1
State = Literal["starting", "idle", "working", "stopping", "exited"]


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One agent as it was when it last wrote its status. `tokens` are those used since its process started."""

    name: str
    pid: int = 0
    incarnation: int = 0
    state: State = "starting"
    task: str | None = None
    step: str | None = None
    unread: int = 0
    tokens: int = 0
    budget: int | None = None
    last_action: str | None = None
    mind: str = "extractive"
    steps_finished: int = 0
    since: str = ""


class StatusFile:
    """Where one agent writes its status and its heartbeat. Both are hints for onlookers, so neither is fsynced."""

    __slots__ = ("_folder", "current")

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.current = AgentStatus(name, os.getpid())

    def update(self, **changes: Any) -> bool:
        """Write the status if it changes anything; returns whether it did."""
        new = replace(self.current, **changes)
        if new == self.current:
            return False
        self.current = replace(new, since=datetime.now(UTC).isoformat(timespec="milliseconds"))
        save_record(self._folder / "status.json", "status", VERSION, asdict(self.current), durable=False)
        return True

    def beat(self) -> None:
        """Touch the heartbeat file."""
        path = self._folder / "heartbeat"
        try:
            os.utime(path)
        except FileNotFoundError:
            path.touch()


def read_status(folder: Path, name: str) -> AgentStatus | None:
    """The last status that an agent wrote, or None; a damaged or foreign file counts as none, since it is only a hint."""
    try:
        record = load_record(folder / "status.json", "status", VERSION)
        return None if record is None else AgentStatus(**{**record, "name": name})
    except (UserError, TypeError):
        return None
