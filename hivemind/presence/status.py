"""The status file and the heartbeat file of an agent: `.hive/agents/<agent>/status.json` and `heartbeat`.

The status is written after every change. The heartbeat file is touched while the agent's main loop runs. The file's time
shows that the agent is alive, so an idle swarm needs no events for that.

An agent writes its status several times per turn. Renaming over a file makes some file systems write to the disk at once
(ext4: 0.2 ms and more, forty times the write itself). Therefore the status is written in place, by one writer in a
single call. A reader detects a half-written status by its checksum and reads the file again.
"""

from __future__ import annotations

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
from hivemind.logger import logger

VERSION = 1
_BLOCK = 512  # a status is padded to a multiple of this many bytes, so the file's size rarely changes
_IN_PLACE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LOOKS = 10
_log = logger(__name__)
State = Literal[
    "starting", "idle", "working", "waiting", "stuck", "stopping", "exited", "down", "stopped", "set aside", "as before",
]  # fmt: skip


@frozen
class AgentStatus:
    """An agent's status, as the agent last wrote it.

    `tokens` and `money` are the usage since the process started. `unpriced` counts the tokens without a known price,
    `cached` the tokens read from a provider's cache. `mail_rests` is the reason why the agent reads no mail now,
    `mail_rests_until` (ISO 8601) the time of its next try. A stuck agent waits until a person solves `problem`; a
    waiting agent needs disk space.
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
        """True if the agent is idle or stuck, and waits until it is woken."""
        return self.state in ("idle", "stuck")


_FIELDS = tuple(field.name for field in fields(AgentStatus))


class StatusFile:
    """Writes the status file and the heartbeat file of an agent. The files are hints, so they are not fsynced."""

    __slots__ = ("_heartbeat", "_path", "_size", "current")

    def __init__(self, folder: Path, name: str) -> None:
        self._path = os.fspath(folder / "status.json")
        self._heartbeat = folder / "heartbeat"
        self._size = 0  # as this process wrote it
        self.current = AgentStatus(name, os.getpid())

    def update(self, **changes: Any) -> bool:
        """Change fields of the status. Write the status and return True if the changes make a difference."""
        new_status = replace(self.current, **changes)
        if new_status == self.current:
            return False
        self.current = replace(new_status, since=datetime.now(UTC).isoformat(timespec="milliseconds"))
        try:
            self._write()
        except OSError as error:  # a hint must not end the agent: the disk is full, or the name is taken
            _log.warning("%s: %s", self._path, error.strerror)
        return True

    def _write(self) -> None:
        status_fields = {name: getattr(self.current, name) for name in _FIELDS}
        line = as_line({"kind": "status", "version": VERSION, "crc": _crc(status_fields), **status_fields}).rstrip()
        # the padding overwrites the rest of a longer, older status
        padded_line = line.ljust(len(line) // _BLOCK * _BLOCK + _BLOCK - 1) + b"\n"
        try:
            file = os.open(self._path, _IN_PLACE, 0o666)
        except OSError:  # the path is a link or a pipe: replace it instead of writing through it
            save_record(self._path, "status", VERSION, {"crc": _crc(status_fields), **status_fields}, durable=False)
            return
        try:
            os.pwrite(file, padded_line, 0)
            if self._size != len(padded_line):
                os.ftruncate(file, len(padded_line))
                self._size = len(padded_line)
        finally:
            os.close(file)

    def beat(self) -> None:
        """Set the heartbeat file's time to now. Raises OSError."""
        try:
            os.utime(self._heartbeat)
        except FileNotFoundError:
            self._heartbeat.touch()


def read_status(folder: Path, name: str) -> AgentStatus | None:
    """Return the status that an agent last wrote; None if the file is missing or damaged."""
    for _ in range(_LOOKS):
        try:
            record = load_record(folder / "status.json", "status", VERSION)
            if record is None:
                return None
            if record.pop("crc", None) == _crc(record):
                return AgentStatus(**{**record, "name": name})
        except (UserError, TypeError):
            pass  # half-written, or damaged
    return None


def _crc(status_fields: Mapping[str, Any]) -> int:
    return zlib.crc32(as_line(status_fields))
