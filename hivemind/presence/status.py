"""What an agent is doing, for people and for the supervisor: `.hive/agents/<agent>/status.json` and `heartbeat`.

The status is written when something changed, the heartbeat file is touched while the agent's main loop moves: its time
is the sign of life, so that an idle swarm writes no events (spec 3, *Ageing*).

An agent writes its status several times in every turn, and renaming over a file makes some file systems write it to disk
at once (ext4: 0.2 ms and more, forty times what the write takes). So this one file is written in place: it is a hint, its
one writer gives it to the kernel in a single call, and who meets it half-written sees that by its checksum and looks again.
"""

from __future__ import annotations

import logging
import os
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hivemind.errors import UserError
from hivemind.fs import load_record, save_record
from hivemind.fs.records import as_line
from hivemind.layout import Layout

__all__ = ["AgentStatus", "State", "StatusFile", "Statuses", "read_status"]

VERSION = 1
_BLOCK = 512  # bytes that a status is filled up to: mostly one is as long as the next
_IN_PLACE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LOOKS = 10
_log = logging.getLogger(__name__)
_TICK_NS = 50_000_000  # two changes within one tick of a file system's clock have the same time
State = Literal["starting", "idle", "working", "waiting", "stuck", "stopping", "exited"]


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One agent as it was when it last wrote its status. `tokens` and `money` are those used since its process started,
    `unpriced` those of the tokens whose price is not known, `cached` those that were read from a provider's cache.

    `mail_rests` says why its mail is not read now, and `mail_rests_until` (ISO 8601) when it is looked at again. `problem` is
    what an agent that is stuck waits for a person to mend; one that is waiting waits for room on its disk.
    """

    name: str
    pid: int = 0
    incarnation: int = 0
    state: State = "starting"
    task: str | None = None
    step: str | None = None
    unread: int = 0
    tokens: int = 0
    money: float = 0.0
    unpriced: int = 0
    cached: int = 0
    budget: int | None = None
    last_action: str | None = None
    mind: str = "extractive"
    steps_finished: int = 0
    problem: str | None = None
    mail_rests: str | None = None
    mail_rests_until: str | None = None
    since: str = ""


_FIELDS = tuple(field.name for field in fields(AgentStatus))


class StatusFile:
    """Where one agent writes its status and its heartbeat. Both are hints for onlookers, so neither is fsynced."""

    __slots__ = ("_heartbeat", "_path", "current")

    def __init__(self, folder: Path, name: str) -> None:
        self._path = os.fspath(folder / "status.json")
        self._heartbeat = folder / "heartbeat"
        self.current = AgentStatus(name, os.getpid())

    def update(self, **changes: Any) -> bool:
        """Write the status if it changes anything; returns whether it did."""
        new = replace(self.current, **changes)
        if new == self.current:
            return False
        self.current = replace(new, since=datetime.now(UTC).isoformat(timespec="milliseconds"))
        try:
            self._write()
        except OSError as error:  # a hint is not worth an agent's life: no room, or something else has its name
            _log.warning("%s: %s", self._path, error.strerror)
        return True

    def _write(self) -> None:
        shown = {name: getattr(self.current, name) for name in _FIELDS}
        line = as_line({"kind": "status", "version": VERSION, "crc": _crc(shown), **shown}).rstrip()
        whole = line.ljust(len(line) // _BLOCK * _BLOCK + _BLOCK - 1) + b"\n"  # what is left of a longer one is blank
        try:
            file = os.open(self._path, _IN_PLACE, 0o666)
        except OSError:  # a link, a pipe: not ours to write through, but to replace
            save_record(self._path, "status", VERSION, {"crc": _crc(shown), **shown}, durable=False)
            return
        try:
            os.pwrite(file, whole, 0)
            os.ftruncate(file, len(whole))
        finally:
            os.close(file)

    def beat(self) -> None:
        """Touch the heartbeat file. Raises OSError."""
        try:
            os.utime(self._heartbeat)
        except FileNotFoundError:
            self._heartbeat.touch()


def read_status(folder: Path, name: str) -> AgentStatus | None:
    """The last status that an agent wrote, or None; a damaged or foreign file counts as none, since it is only a hint."""
    for _ in range(_LOOKS):
        try:
            record = load_record(folder / "status.json", "status", VERSION)
            if record is None:
                return None
            if record.pop("crc", None) == _crc(record):
                return AgentStatus(**{**record, "name": name})
        except (UserError, TypeError):
            pass  # being written this very moment, or no status
    return None


def _crc(shown: Mapping[str, Any]) -> int:
    return zlib.crc32(as_line(shown))


class Statuses:
    """The statuses of many agents, for who looks again and again: a file is read only if it is not the one last seen."""

    def __init__(self, layout: Layout, names: Iterable[str]) -> None:
        self._folders = {name: layout.agent_state(name) for name in names}
        self._paths = {name: os.fspath(folder / "status.json") for name, folder in self._folders.items()}
        self._seen: dict[str, tuple[int, int] | None] = {}
        self._known = {name: AgentStatus(name) for name in self._folders}
        self._busy: tuple[str, ...] = ()

    def all(self) -> tuple[AgentStatus, ...]:
        """The newest status of each, in the order of the names; `starting` for an agent that has none."""
        return tuple(self._newest(name) for name in self._folders)

    def all_idle(self) -> bool:
        """Whether every agent is idle, or stuck. Who was not the last time is looked at first, and mostly alone."""
        for name in (*self._busy, *self._folders):
            if self._newest(name).state not in ("idle", "stuck"):
                self._busy = (name,)
                return False
        return True

    def _newest(self, name: str) -> AgentStatus:
        try:
            found = os.stat(self._paths[name])
        except OSError:  # not there, or not to be reached: a hint that is missing
            return self._known[name]
        mark = found.st_ino, found.st_mtime_ns
        if self._seen.get(name) != mark:
            # Too young to be told from the next one by its time: read again at the next look.
            sure = time.time_ns() - found.st_mtime_ns > _TICK_NS
            self._known[name] = read_status(self._folders[name], name) or AgentStatus(name)
            self._seen[name] = mark if sure else None
        return self._known[name]
