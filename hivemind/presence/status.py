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
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import load_record, save_record
from hivemind.fs.records import as_line

VERSION = 1
_BLOCK = 512  # bytes that a status is filled up to: mostly one is as long as the next
_IN_PLACE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LOOKS = 10
_log = logging.getLogger(__name__)
State = Literal[
    "starting", "idle", "working", "waiting", "stuck", "stopping", "exited", "down", "stopped", "set aside", "as before",
]  # fmt: skip


@frozen
class AgentStatus:
    """One agent as it was when it last wrote its status. `tokens` and `money` are those used since its process started,
    `unpriced` those of the tokens whose price is not known, `cached` those that were read from a provider's cache.

    `mail_rests` says why its mail is not read now, and `mail_rests_until` (ISO 8601) when it is looked at again. `problem` is
    what an agent that is stuck waits for a person to mend; one that is waiting waits for room on its disk.
    """

    name: str
    pid: int | None = None
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

    @property
    def rests(self) -> bool:
        """Whether it does nothing of its own accord just now: it is idle, or stuck."""
        return self.state in ("idle", "stuck")


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
